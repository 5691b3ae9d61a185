"""Holders of the claim lock or of rows whose machine is gone: others go on within a bound, and say what they met."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import TypeVar

import psycopg
import pytest

from headway.engine.tasks.registry import Registry
from headway.engine.worker.config import WorkerConfig
from headway.engine.worker.finish import Ended
from headway.engine.worker.worker import Worker
from headway.errors import HeadwayError, Unreachable
from headway.model.jobs.job import Claim
from headway.model.jobs.outcome import Completed
from headway.store.db import LockTaken, open_database
from headway.store.postgres import locks, session
from headway.store.postgres.database import PostgresDatabase
from headway.store.postgres.locks import holders
from headway.store.postgres.session import IDLE_SECONDS, LOCK_SECONDS
from headway.testing import FrozenClock
from headway.verify import check
from tests.support.blackhole import Blackhole, blackhole
from tests.support.deadlines import read_line
from tests.support.figures import Figure
from tests.support.life import TASK, Life
from tests.support.pgbouncer import Pooler
from tests.support.postgres import fresh_database
from tests.support.waiting import PATIENCE, until

T = TypeVar("T")
AT_A_TIME = 12
LONG = int(os.environ.get("HEADWAY_PROOF", "0"))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bounds, a fraction as long."""
    monkeypatch.setitem(session._FIXED, "idle_in_transaction_session_timeout", "500ms")
    monkeypatch.setitem(session._FIXED, "lock_timeout", "700ms")
    monkeypatch.setattr(locks, "STALLED_SECONDS", 0.6)


class Ahead:
    """A worker on a line that goes silent, and beside it another one, of another machine."""

    def __init__(self, url: str, line: Blackhole) -> None:
        self.life = Life(url)
        self.line = line
        self.database = PostgresDatabase(line.url, clock=self.life.clock)
        self.worker = Worker(self.database, Registry(), WorkerConfig(slots=2))
        self.claims: list[Claim] = []

    def prepare(self) -> None:
        self.life.set_limit(None)
        self.database.transact("register", self.worker._register)
        self.worker.strategy.serves = frozenset({TASK})
        for _ in range(9):
            self.life.enqueue()
        self.claims = self.turn(*self.turn())

    def turn(self, *ended: Claim) -> list[Claim]:
        """Ends these, and claims one."""
        ends = [Ended(claim, Completed("7")) for claim in ended]
        return self.database.transact("turn", self.worker.make_turn(ended=ends, slots=[0]).write)

    def keen_turn(self) -> list[Claim] | None:
        return self.database.transact(
            "turn", lambda tx: self.worker.claim_if_free(tx, self.worker.make_turn(slots=[1]))
        )

    def close(self) -> None:
        self.line.cut()
        self.database.close()
        self.life.database.close()


@contextmanager
def ahead(server: str, template: str) -> Iterator[Ahead]:
    """Prepared anew where a starved machine ran into the quick bounds before anything was frozen."""
    for left in reversed(range(10)):
        with fresh_database(server, template=template) as url, blackhole(url) as line:
            try:
                made = Ahead(url, line)
            except Unreachable:
                if left:
                    continue
                raise
            try:
                try:
                    made.prepare()
                except Unreachable:
                    if left:
                        continue
                    raise
                yield made
                return
            finally:
                made.close()


TURNS: dict[str, Callable[[Ahead], object]] = {
    "ends and claims": lambda made: made.turn(*made.claims),
    "claims at once": Ahead.keen_turn,
    "ends": lambda made: made.database.transact("turn", lambda tx: _end(made, tx)),
}


def _end(made: Ahead, tx: object) -> None:
    made.worker.make_turn(ended=[Ended(claim, Completed("7")) for claim in made.claims]).write(tx)  # type: ignore[arg-type]


def patiently(call: Callable[[], T]) -> T:
    """Makes a call again where a starved machine ran into the quick bounds."""
    for _ in range(9):
        with suppress(Unreachable):
            return call()
    return call()


def messages(server: str, template: str, kind: str) -> list[str]:
    """What a turn sends when all is well."""

    def once() -> list[str]:
        with ahead(server, template) as made:
            made.line.arm(1 << 30)
            TURNS[kind](made)
            return list(made.line.passed)

    return patiently(once)


def go_on(life: Life, seconds: float) -> float:
    """Claims a job as a worker's loop does, and says how long that took."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        try:
            if life.claim_next():
                return time.monotonic() - began
        except (Unreachable, psycopg.OperationalError):  # the latter of the query that `Life` makes past the product
            continue
    raise AssertionError(f"no claim for {seconds:g} s")


def frozen_after(server: str, template: str, kind: str, count: int) -> float:
    """A machine that is gone after so many messages of its turn. How long another one waited."""
    with ahead(server, template) as made, ThreadPoolExecutor(1) as thread:
        made.line.arm(count)
        turn = thread.submit(TURNS[kind], made)
        until(made.line.silent.is_set, "that the line is silent")
        try:
            waited = go_on(made.life, 20.0)
        finally:
            made.line.cut()
        with suppress(HeadwayError):  # or it did it all over, on another connection
            turn.result(PATIENCE)
        found = patiently(lambda: check(made.life.database).findings)
        assert [one for one in found if one.invariant != "I-05"] == []  # set past its events
        return waited


@pytest.mark.usefixtures("quick")
def test_a_machine_that_is_gone_after_any_message_of_a_turn(
    postgres_server: str, postgres_template: str, figure: Figure
) -> None:
    given = (postgres_server, postgres_template)
    tries = [(kind, count) for kind in TURNS for count in range(len(messages(*given, kind)))]
    tries *= 20 if LONG else 2
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        waited = list(threads.map(lambda one: frozen_after(*given, *one), tries))
    figure("machines gone between two messages of a turn", len(tries))
    figure(f"beside a machine that is gone the others wait for {max(waited):.1f} s at most")
    assert len(tries) >= 120


def test_a_round_trip_is_one_message_with_nothing_after_its_sync(postgres_server: str, postgres_template: str) -> None:
    """Any message after it would stop the clock of the server's idle timeout."""
    sent = "".join(messages(postgres_server, postgres_template, "ends and claims"))
    assert sent.count("S") == 2
    assert sent.endswith("S")
    assert "H" not in sent


# --- with the true bounds ---

_HOLDER = """
import sys
from headway.store.db import open_database
database = open_database(sys.argv[1])
tx = database.begin("turn")
tx.run_all(("claim_lock", {}), ("time", {}))
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def frozen_process(url: str) -> Iterator[int]:
    """A process that took the claim lock and was stopped."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert read_line(process.stdout) == "held\n"
        process.send_signal(signal.SIGSTOP)
        yield process.pid
    finally:
        process.kill()
        process.communicate(timeout=60)


@contextmanager
def frozen_in_a_pipeline(url: str, *, name: str = "headway far:1", text: str = "claim") -> Iterator[int]:
    """A client that sent the statement and not the Sync after it, as one whose network went away in the middle."""
    with psycopg.connect(url, autocommit=True, application_name=name) as raw:
        raw.execute("begin")
        raw.pgconn.enter_pipeline_mode()
        lock = b"select pg_advisory_xact_lock(7236838302)" if text == "claim" else text.encode()
        raw.pgconn.send_query_params(lock, None)
        raw.pgconn.send_flush_request()
        raw.pgconn.flush()
        pid = raw.info.backend_pid
        with psycopg.connect(url, autocommit=True) as other:
            waits = "select 1 from pg_stat_activity where pid = %s and state = 'active' and wait_event = 'ClientRead'"
            until(lambda: other.execute(waits, [pid]).fetchall(), "that the server waits for its client")
        yield pid
        raw.pgconn.finish()


def test_the_bounds_are_kept_with_their_true_lengths(
    postgres_server: str, postgres_template: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A stopped process is ended by the server; what only another transaction can see is ended by that one."""
    with ExitStack() as stack:
        urls = [stack.enter_context(fresh_database(postgres_server, template=postgres_template)) for _ in range(2)]
        lives = [stack.enter_context(Life(url)) for url in urls]
        for life in lives:
            life.enqueue()
        stack.enter_context(frozen_process(urls[0]))
        pid = stack.enter_context(frozen_in_a_pipeline(urls[1]))
        with caplog.at_level(logging.WARNING), ThreadPoolExecutor(2) as threads:
            first, second = threads.map(lambda life: go_on(life, 60.0), lives)
    assert first < IDLE_SECONDS + LOCK_SECONDS
    assert second < LOCK_SECONDS + 5
    assert f"ended a stalled transaction that held locks: pid {pid} (headway far:1 at " in caplog.text
    assert "has the claim lock, waiting for its client for 1" in caplog.text


# --- what holds a lock is told ---


@pytest.mark.usefixtures("quick")
def test_a_waiter_says_what_holds_the_lock_and_ends_nothing_that_is_at_work(postgres_life: Life) -> None:
    life = postgres_life
    life.enqueue()
    with psycopg.connect(life.url, application_name="report") as other:
        other.execute("select pg_advisory_xact_lock(7236838302)")
        with ThreadPoolExecutor(1) as thread:
            busy = thread.submit(other.execute, "select pg_sleep(4)")
            with pytest.raises(LockTaken, match=r"held by pid \d+ \(report at .*\), has the claim lock, active for"):
                life.claim_next()
            busy.result(PATIENCE)
        other.commit()
    assert life.claim_next()


@pytest.mark.usefixtures("quick")
def test_a_transaction_of_another_program_is_told_and_not_ended(postgres_life: Life) -> None:
    life = postgres_life
    job_id = life.enqueue()
    text = f"update hw_job set version = version where id = {job_id}"
    with frozen_in_a_pipeline(life.url, name="billing", text=text):
        waits = time.monotonic() + 2.5
        while time.monotonic() < waits:
            with pytest.raises(LockTaken, match=r"held by pid \d+ \(billing at .*waiting for its client for"):
                life.client.cancel(job_id)
    assert life.client.cancel(job_id).status.name == "CANCELLED"


@pytest.mark.usefixtures("quick")
def test_a_row_that_a_stalled_transaction_of_ours_holds_is_freed(postgres_life: Life) -> None:
    life = postgres_life
    claim = life.claim(life.enqueue())
    text = f"update hw_job set version = version where id = {claim.job_id}"
    with frozen_in_a_pipeline(life.url, text=text):
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                assert life.end(claim, Completed())
                break
            except LockTaken:
                assert time.monotonic() < deadline
    assert life.status(claim.job_id) == "COMPLETED"


def test_holders_are_listed_with_the_claim_lock_first(postgres_life: Life) -> None:
    life = postgres_life
    job_id = life.enqueue()
    with (
        frozen_in_a_pipeline(life.url) as first,
        frozen_in_a_pipeline(
            life.url, name="x", text=f"update hw_job set version = version where id = {job_id}"
        ) as second,
        life.database.read() as tx,
    ):
        found = holders(tx)
        assert [(one.pid, one.claims, one.stalled) for one in found] == [(first, True, False), (second, False, False)]


# --- behind a pooler ---


def test_a_client_of_a_pooler_that_is_gone(pooler: Pooler, postgres_url: str) -> None:
    """The server ends the session that the pooler keeps for it."""
    clock = FrozenClock()
    with (
        blackhole(pooler.pooled(postgres_url)) as line,
        Life(postgres_url, database=PostgresDatabase(line.url, listen=postgres_url, clock=clock), clock=clock) as gone,
        Life(postgres_url, clock=clock) as life,
    ):
        life.enqueue()
        tx = gone.database.begin("turn")
        tx.run_all(("claim_lock", {}), ("time", {}))
        line.arm(0)
        assert go_on(life, 30.0) < IDLE_SECONDS + LOCK_SECONDS
        line.close()
        gone.database.end(tx)


def test_a_connection_says_whose_it_is(postgres_url: str) -> None:
    for given, expected in (("", session.process_name()), ("&application_name=mine", "mine")):
        database = open_database(postgres_url + given)
        with database.read() as tx:
            found = tx.connection.execute("show application_name").fetchall()  # type: ignore[attr-defined]
        database.close()
        assert found == [(expected,)]
