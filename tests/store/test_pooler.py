"""Behind PgBouncer in transaction mode: every transaction on another session, which others use as well."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import psycopg
import pytest

from headway.engine.maintenance.recovery import Recovery
from headway.engine.worker.finish import Ended, finish
from headway.errors import CommitUnknown, Unreachable
from headway.model.jobs.job import Claim
from headway.model.jobs.outcome import Completed, Outcome
from headway.store import workers
from headway.store.db import Tx
from headway.store.postgres.database import PostgresDatabase
from headway.store.postgres.session import IDLE_SECONDS, LOCK_SECONDS
from headway.store.postgres.transaction import PostgresTx
from headway.testing import FrozenClock
from headway.verify import check
from tests.support.life import BROKEN, TASK, Life
from tests.support.pgbouncer import Pooler, pooler
from tests.support.waiting import PATIENCE, at_once, until

CONNECTIONS = 3


@pytest.fixture(scope="module")
def small_pooler(postgres_server: str) -> Iterator[Pooler]:
    """Few sessions, the longest unused one next."""
    with pooler(postgres_server, connections=CONNECTIONS) as made:
        yield made


@pytest.fixture
def pooled(small_pooler: Pooler, postgres_url: str) -> Iterator[Life]:
    clock = FrozenClock()
    database = PostgresDatabase(small_pooler.pooled(postgres_url), listen=postgres_url, clock=clock)
    with Life(postgres_url, database=database, clock=clock) as life:
        yield life


def in_every_session(url: str, text: str) -> None:
    """What another client of the pooler does, in each of its sessions."""
    with ExitStack() as stack:
        others = [stack.enter_context(psycopg.connect(url)) for _ in range(CONNECTIONS)]
        for other in others:  # all at once, so that each has another session
            other.execute("select 1")
        for other in others:
            other.execute(text.encode())
        for other in others:
            other.commit()


def turn(life: Life, ended: list[tuple[Claim, Outcome]], worker_id: int | None = None) -> list[Claim]:
    """A worker's turn, as the worker writes it: ends and claims in one transaction."""
    owner = worker_id or life.worker_id

    def work(tx: Tx) -> list[Claim]:
        tx.run("pin_plans")
        assert not finish(tx, owner, life.actor(owner), [Ended(claim, outcome) for claim, outcome in ended])
        return life.claim_in(tx, [0, 1], owner)

    return life.database.transact("turn", work)


def test_a_whole_life(pooled: Life) -> None:
    life = pooled
    first = life.enqueue(params='{"n":1}', key="k")
    many = life.client.enqueue_many([life.new(priority=p) for p in (1, 2, 3)])
    assert life.client.enqueue(life.new(key="k")) == (first, False)
    life.client.move(first, to="front")
    # Claim, end, claim the next in the same transaction.
    (claim,) = turn(life, [])
    assert claim.job_id == first
    (following,) = turn(life, [(claim, Completed('{"ok":true}'))])
    assert following.job_id == many[2][0]
    # A failure, its retry when its time has come, and its end.
    (third,) = turn(life, [(following, BROKEN)])
    life.clock.advance(10)
    (retry,) = turn(life, [(third, Completed())])
    assert (retry.attempt, life.job(retry.job_id).retry_of) == (2, following.job_id)
    (last,) = turn(life, [(retry, Completed())])
    assert turn(life, [(last, Completed())]) == []
    assert {life.status(job_id) for job_id, _ in [(first, True), *many]} == {"COMPLETED", "FAILED"}
    life.check_versions()
    assert [str(one) for one in check(life.database).findings] == []


def test_a_worker_that_is_gone_is_recovered(pooled: Life) -> None:
    life = pooled
    gone = life.new_worker()
    job_id = life.enqueue()
    assert turn(life, [], worker_id=gone)
    assert life.database.transact("beat", lambda tx: workers.beat(tx, gone, 60.0))
    life.database.transact("leave", lambda tx: workers.retire(tx, gone, "shut down"))
    Recovery(life.database).tick()
    assert life.status(job_id) == "FAILED"
    assert life.client.retry(job_id).status.name == "QUEUED"
    assert len(turn(life, [])) == 1


def test_actions_of_people_in_between(pooled: Life) -> None:
    life = pooled
    for state in ("WAITING", "PAUSED", "ERROR", "stopped", "expired", "retried"):
        life.in_state(state)
    life.client.pause_queue(note="lunch")
    life.enqueue()
    assert turn(life, []) == []
    life.client.resume_queue()
    assert len(turn(life, [])) == 1


def test_nothing_is_set_but_for_its_own_transaction(pooled: Life, postgres_url: str) -> None:
    """A pooler lends the session to another client next."""
    names = (
        "enable_seqscan",
        "lock_timeout",
        "search_path",
        "idle_in_transaction_session_timeout",
        "synchronous_commit",
    )
    with psycopg.connect(postgres_url, autocommit=True) as raw:
        plain = [raw.execute(f"show {name}".encode()).fetchall()[0][0] for name in names]
    tx = pooled.database.begin("pinned")
    assert isinstance(tx, PostgresTx)
    tx.run("pin_plans")
    within = [tx.connection.execute(f"show {name}".encode()).fetchall()[0][0] for name in names]
    tx.commit()
    for _ in range(2 * CONNECTIONS):
        assert [tx.connection.execute(f"show {name}".encode()).fetchall()[0][0] for name in names] == plain
    pooled.database.end(tx)
    assert within == ["off", f"{LOCK_SECONDS}s", "public, pg_temp", f"{IDLE_SECONDS}s", "on"]


def test_every_session_is_used_and_none_is_ours(pooled: Life, small_pooler: Pooler, postgres_url: str) -> None:
    in_every_session(small_pooler.pooled(postgres_url), "select 2")
    found = set()
    for _ in range(3 * CONNECTIONS):
        with pooled.database.read() as tx:
            assert isinstance(tx, PostgresTx)
            assert not tx.connection.own
            assert tx.connection.prepare_threshold is None
            found.add(tx.connection.execute("select pg_backend_pid()").fetchall()[0][0])
    assert len(found) == CONNECTIONS


def test_a_pooler_that_the_settings_do_not_tell_of_is_noticed(small_pooler: Pooler, postgres_url: str) -> None:
    """Without `listen` statements would be prepared, on one session of several."""
    clock = FrozenClock()
    database = PostgresDatabase(small_pooler.pooled(postgres_url), clock=clock)
    with Life(postgres_url, database=database, clock=clock) as life:
        assert isinstance(life.end(life.claim(life.enqueue()), Completed()), bool)
        for _ in range(2 * CONNECTIONS):
            life.client.pause_queue()
        life.client.resume_queue()


@pytest.mark.parametrize(
    "text",
    [
        "set default_transaction_isolation = 'repeatable read'",
        "set default_transaction_isolation = 'serializable'",
        "set default_transaction_read_only = on",
        "set search_path = pg_catalog",
        "set statement_timeout = '300ms'",
        "set lock_timeout = '1ms'",
        "set idle_in_transaction_session_timeout = '300ms'",
        "set transaction_timeout = '20ms'",
        "set synchronous_commit = off",
        "set row_security = off",
        "set TimeZone = 'Pacific/Kiritimati'",
        "set enable_indexscan = off",
        "set extra_float_digits = -15",
        "create temp table hw_job (id integer)",
    ],
)
def test_settings_that_another_client_left_in_every_session(
    pooled: Life, small_pooler: Pooler, postgres_url: str, text: str
) -> None:
    """A pooler in transaction mode lends out a session as its last client left it."""
    in_every_session(small_pooler.pooled(postgres_url), text)
    life = pooled
    failed = life.run(life.enqueue(), BROKEN)
    life.clock.advance(60)
    (retry,) = turn(life, [])
    assert life.job(retry.job_id).retry_of == failed.id
    assert turn(life, [(retry, Completed())]) == []
    for _ in range(4):
        life.enqueue(), life.enqueue(task="other")
        for _ in range(2):
            calls = [partial(life.claim_next, knows=task.__eq__) for task in (TASK, "other")]
            taken = [claim for future in at_once(calls) for claim in future.result()]
            assert len(taken) == 1
            assert life.end(taken[0], Completed())
    assert [str(one) for one in check(life.database).findings] == []


def test_triggers_that_only_a_superuser_can_turn_on_again(small_pooler: Pooler, postgres_url: str) -> None:
    """Without them rows are not guarded and deliveries not made: such a session is refused, and the caller is told."""
    with psycopg.connect(postgres_url, autocommit=True) as raw:
        role = f"pooled_{raw.info.backend_pid}"
        raw.execute(f"create role {role} login".encode())
        raw.execute(f"grant all on all tables in schema public to {role}".encode())
        raw.execute(f"alter role {role} set session_replication_role = replica".encode())
        database = PostgresDatabase(small_pooler.pooled(f"{postgres_url}&user={role}"), listen=postgres_url)
        try:
            with pytest.raises(Unreachable, match=r"alter role .* reset session_replication_role"):
                database.transact("ping", lambda tx: tx.run("ping"))
            with pytest.raises(Unreachable, match=r"alter role .* reset session_replication_role"):
                database.once("ping")
        finally:
            database.close()
            raw.execute(f"drop owned by {role}; drop role {role}".encode())


def test_an_enqueue_whose_session_dies_is_not_sent_again(pooled: Life) -> None:
    """The pooler has words of its own for a session that ended, so they say nothing about the commit. The caller is
    told that it is not known; the job is stored once at most."""
    pooled.enqueue()
    with psycopg.connect(pooled.url) as locked, psycopg.connect(pooled.url, autocommit=True) as other:
        locked.execute("lock table hw_event in exclusive mode")
        with ThreadPoolExecutor(1) as thread:
            enqueue = thread.submit(pooled.enqueue)
            waits = "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
            until(lambda: other.execute(waits).fetchall(), "that it waits for the lock")
            other.execute(f"select pg_terminate_backend(pid, 10000) from ({waits}) as w".encode())
            with pytest.raises(CommitUnknown, match="not known"):
                enqueue.result(PATIENCE)
        locked.rollback()
    assert pooled.status(pooled.enqueue()) == "QUEUED"
    assert pooled.sql("select count(*) from hw_job") == [(2,)]


def test_a_pooler_that_dies_is_waited_for(postgres_server: str, postgres_url: str) -> None:
    clock = FrozenClock()
    with pooler(postgres_server) as first:
        database = PostgresDatabase(first.pooled(postgres_url), listen=postgres_url, clock=clock)
        with Life(postgres_url, database=database, clock=clock) as life:
            job_id = life.enqueue()
            first.process.kill()
            first.process.wait(10)
            with pytest.raises(Unreachable):
                life.enqueue()
            with pooler(postgres_server, port=first.port):
                assert life.status(job_id) == "QUEUED"
                assert life.status(life.enqueue()) == "QUEUED"
