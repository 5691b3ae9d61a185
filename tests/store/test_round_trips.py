"""What goes to PostgreSQL together: statements that are sent ahead, their order, their answers, and how many round
trips a worker's turn takes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg
import pytest

from headway.engine.tasks.registry import Registry
from headway.engine.worker.config import WorkerConfig
from headway.engine.worker.finish import Ended
from headway.engine.worker.worker import Worker
from headway.errors import HeadwayError
from headway.model.jobs.job import Claim
from headway.model.jobs.outcome import Completed
from headway.store.db import Call, Row, Tx
from headway.store.postgres.transaction import PostgresTx
from headway.store.round_trip import Pending
from tests.support.life import TASK, Life
from tests.support.plans import make, states


@pytest.fixture
def life(database_url: str) -> Iterator[Life]:
    with Life(database_url) as life:
        life.set_limit(None)
        yield life


def note(tx: Tx, text: str) -> None:
    tx.prepend("save_setting", name="note", value=text)


def noted(life: Life) -> list[Row]:
    return life.sql("select value from hw_setting where name = 'note'")


def test_what_is_sent_comes_before_what_is_run_and_is_answered(life: Life) -> None:
    def work(tx: Tx) -> None:
        first = tx.send("read_setting", name="note")
        note(tx, '"one"')
        second = tx.send("read_setting", name="note")
        assert [row[0] for row in tx.run("read_setting", name="note")] == ['"one"']
        assert (first.result(), [row[0] for row in second.result()]) == ([], ['"one"'])
        note(tx, '"two"')
        third = tx.send("read_setting", name="note")
        assert [row[0] for row in third.result()] == ['"two"'] == [row[0] for row in third.result()]

    life.database.transact("work", work)
    assert noted(life) == [('"two"',)]


def test_a_sent_statement_is_committed_without_another_one(life: Life) -> None:
    life.database.transact("work", lambda tx: note(tx, '"one"'))
    assert noted(life) == [('"one"',)]


def test_a_sent_statement_is_undone_with_its_transaction(life: Life) -> None:
    def work(tx: Tx) -> None:
        note(tx, '"one"')
        raise LookupError

    with pytest.raises(LookupError):
        life.database.transact("work", work)
    assert noted(life) == []


def test_a_statement_without_effect_has_no_answer(postgres_url: str) -> None:
    with Life(postgres_url) as life:
        tx = life.database.begin("work")
        rows = tx.send("read_setting", name="note")
        tx.send("take", picks="no JSON", worker_id=1, actor="{}")
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            rows.result()
        with pytest.raises(HeadwayError, match="the round trip of read_setting failed"):
            rows.result()
        life.database.end(tx)


def test_a_commit_is_refused_before_every_result_was_read(life: Life) -> None:
    def work(tx: Tx) -> None:
        note(tx, '"one"')
        tx.send("read_setting", name="note")

    def commit_at_once(tx: Tx) -> None:
        work(tx)
        tx.run_all(commit=True)

    with pytest.raises(HeadwayError, match="work: the result of a statement was not read"):
        life.database.transact("work", work)
    with pytest.raises(HeadwayError, match="work: the result of a statement was not read"):
        life.database.transact("work", commit_at_once)
    assert noted(life) == []


def test_a_result_is_refused_after_its_transaction(postgres_url: str) -> None:
    with Life(postgres_url) as life:
        tx = life.database.begin("work")
        rows = tx.send("read_setting", name="note")
        life.database.end(tx)
        with pytest.raises(HeadwayError, match="the round trip of read_setting failed"):
            rows.result()


def test_a_mapped_result_is_made_when_it_is_asked_for(life: Life) -> None:
    def work(tx: Tx) -> None:
        made: list[int] = []

        def count(rows: list[Row]) -> int:
            made.append(len(rows))
            return len(rows)

        counted = tx.send("read_setting", name="note").map(count)
        assert made == []
        assert counted.result() == Pending.done(0).result() == 0
        assert made == [0]

    life.database.transact("work", work)


# --- a turn -------------------------------------------------------------------------------------------------------


@contextmanager
def trips() -> Iterator[list[str]]:
    """The round trips of transactions but for their begin: the names of what goes together."""
    found: list[str] = []
    together, send = PostgresTx._together, PostgresTx._send
    inside, caller = False, threading.get_ident()  # the thread that notifies others has transactions of its own

    def pipelined(tx: PostgresTx, calls: Sequence[Call], *, commit: bool = False) -> list[list[Row]]:
        nonlocal inside
        if threading.get_ident() != caller:
            return together(tx, calls, commit=commit)
        names = (
            [name for (name, _) in (one.call for one in tx.unsent)] + [name for name, _ in calls] + ["commit"] * commit
        )
        found.append(" ".join(names))
        inside = True
        try:
            return together(tx, calls, commit=commit)
        finally:
            inside = False

    def alone(tx: PostgresTx, text: str, params: object) -> object:
        if not inside and threading.get_ident() == caller:
            found.append(text[:40])
        return send(tx, text, params)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PostgresTx, "_together", pipelined)
        patch.setattr(PostgresTx, "_send", alone)
        yield found


@pytest.fixture
def worker(postgres_url: str) -> Iterator[tuple[Life, Worker]]:
    """One that nobody starts: a test makes its turns."""
    with Life(postgres_url) as life:
        life.set_limit(None)
        worker = Worker(life.database, Registry(), WorkerConfig(slots=2))
        life.database.transact("register", worker._register)
        worker.strategy.serves = frozenset({TASK})
        yield life, worker


def turn(worker: Worker, *ended: Claim) -> list[Claim]:
    """Ends these and claims one."""
    turn = worker.make_turn(ended=[Ended(claim, Completed("7")) for claim in ended], slots=[0])
    fresh = worker.database.transact("turn", turn.write)
    assert turn.lost == []
    return fresh


def keen_turn(worker: Worker) -> list[Claim] | None:
    """Claims one if nobody else is claiming."""
    return worker.database.transact("turn", lambda tx: worker.claim_if_free(tx, worker.make_turn(slots=[1])))


def test_a_turn_is_two_round_trips_after_its_begin(worker: tuple[Life, Worker]) -> None:
    life, one = worker
    ids = [life.enqueue() for _ in range(4)]
    claimed = turn(one, *turn(one))
    with trips() as found:
        claimed += turn(one, claimed[0])
    assert found == ["pin_plans complete claim_lock claim_view first_of_bucket", "take commit"]
    assert [claim.job_id for claim in claimed] == ids[1:3]
    assert life.sql("select job_id, body from hw_result order by job_id") == [(ids[0], "7"), (ids[1], "7")]


def test_a_turn_from_step_to_step_is_four(worker: tuple[Life, Worker]) -> None:
    life, one = worker
    made = make(life, "a", "b", "c")
    claimed = turn(one, *turn(one))
    with trips() as found:
        turn(one, *claimed)
    assert found == [
        "pin_plans lock_groups_and_followers complete ended_stages",
        "open_stage release_stage unfilled_members group_event held_in_stage",
        "claim_lock claim_view first_of_bucket",
        "take commit",
    ]
    assert states(life, made) == {"a": "COMPLETED", "b": "COMPLETED", "c": "RUNNING"}


def test_a_nudge_is_answered_in_two(worker: tuple[Life, Worker]) -> None:
    life, one = worker
    first, second = life.enqueue(), life.enqueue()
    turn(one)  # and one kind of work is known
    with trips() as found:
        claimed = keen_turn(one)
    assert found == ["pin_plans try_claim_lock claim_view first_of_bucket", "take commit"]
    assert [claim.job_id for claim in claimed or ()] == [second] != [first]


def test_a_nudge_waits_for_nobody_who_claims(worker: tuple[Life, Worker]) -> None:
    life, one = worker
    job = life.enqueue()
    other = life.database.begin("other")
    other.run("claim_lock")
    assert keen_turn(one) is None
    assert life.status(job) == "QUEUED"
    life.database.end(other)
    assert [claim.job_id for claim in keen_turn(one) or ()] == [job]


def test_a_worker_woken_while_another_claims_sleeps_again(worker: tuple[Life, Worker]) -> None:
    life, one = worker
    other = life.database.begin("other")
    other.run("claim_lock")
    one.strategy.woken = True
    assert one.tick() > 1
    life.database.end(other)


def test_a_worker_that_was_not_woken_only_reads(worker: tuple[Life, Worker]) -> None:
    _, one = worker
    one.tick()
    with trips() as found:
        one.tick()
        one.strategy.woken = True
        one.tick()
    assert found == ["pin_plans claim_view", "pin_plans try_claim_lock claim_view"]


def test_a_worker_woken_for_nothing_reads_first_until_it_claims(worker: tuple[Life, Worker]) -> None:
    life, one = worker
    one.tick()
    one.strategy.woken = True
    one.tick()
    with trips() as found:
        one.tick()
    assert found == ["pin_plans claim_view"]
    assert not one.strategy.keen
    life.enqueue()
    with pytest.raises(HeadwayError):  # it knows no task: nothing here can run what was claimed
        one.tick()
    assert one.strategy.keen
