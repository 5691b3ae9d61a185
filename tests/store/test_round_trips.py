"""What goes to PostgreSQL together: statements that are sent ahead, their order, their answers, and how many round
trips a worker's turn takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg
import pytest

from headway.engine.finish import Ended
from headway.engine.registry import Registry
from headway.engine.worker import Wishes, Worker
from headway.errors import HeadwayError
from headway.model.job import Claim
from headway.model.outcome import Completed
from headway.store.db import Call, Row, Tx
from headway.store.postgres import PostgresTx
from tests.support.life import TASK, Life
from tests.support.plans import make, states


@pytest.fixture
def life(database_url: str) -> Iterator[Life]:
    with Life(database_url) as life:
        life.set_limit(None)
        yield life


def note(tx: Tx, text: str) -> None:
    tx.send("save_setting", name="note", value=text)


def noted(life: Life) -> list[Row]:
    return life.sql("select value from hw_setting where name = 'note'")


def test_what_is_sent_comes_before_what_is_run_and_is_answered(life: Life) -> None:
    def work(tx: Tx) -> None:
        first = tx.send("read_setting", name="note")
        note(tx, '"one"')
        second = tx.send("read_setting", name="note")
        assert [row[0] for row in tx.run("read_setting", name="note")] == ['"one"']
        assert (first(), [row[0] for row in second()]) == ([], ['"one"'])
        note(tx, '"two"')
        third = tx.send("read_setting", name="note")
        assert [row[0] for row in third()] == ['"two"'] == [row[0] for row in third()]

    life.database.transact("work", work)
    assert noted(life) == [('"two"',)]


def test_what_is_sent_is_committed_without_another_statement(life: Life) -> None:
    life.database.transact("work", lambda tx: note(tx, '"one"'))
    assert noted(life) == [('"one"',)]


def test_what_is_sent_is_undone_with_its_transaction(life: Life) -> None:
    def work(tx: Tx) -> None:
        note(tx, '"one"')
        raise LookupError

    with pytest.raises(LookupError):
        life.database.transact("work", work)
    assert noted(life) == []


def test_what_was_sent_in_vain_has_no_answer(postgres_url: str) -> None:
    with Life(postgres_url) as life:
        tx = life.database.begin("work")
        answer = tx.send("read_setting", name="note")
        tx.send("take", picks="no JSON", worker_id=1, actor="{}")
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            answer()
        with pytest.raises(HeadwayError, match="its round trip failed"):
            answer()
        life.database.end(tx)


# --- a turn -------------------------------------------------------------------------------------------------------


@contextmanager
def trips() -> Iterator[list[str]]:
    """The round trips of transactions but for their begin: the names of what goes together."""
    found: list[str] = []
    together, send = PostgresTx._together, PostgresTx._send
    inside = False

    def pipelined(tx: PostgresTx, calls: Sequence[Call], *, commit: bool = False) -> list[list[Row]]:
        nonlocal inside
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
        if not inside:
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
        worker = Worker(life.database, Registry(), Wishes(slots=2))
        life.database.transact("register", worker._register)
        worker.serves = frozenset({TASK})
        yield life, worker


def turn(worker: Worker, *ended: Claim) -> list[Claim]:
    """Ends these and claims one."""
    lost: list[Claim] = []
    ends = [Ended(claim, Completed("7")) for claim in ended]
    fresh = worker.database.transact("turn", lambda tx: worker._write(tx, ends, [], [0], lost, set()))
    assert lost == []
    return fresh


def keen_turn(worker: Worker) -> list[Claim] | None:
    """Claims one if nobody else is claiming."""
    return worker.database.transact("turn", lambda tx: worker._take_if_free(tx, [1], set()))


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


def test_who_is_nudged_for_nothing_while_another_claims_goes_back_to_sleep(worker: tuple[Life, Worker]) -> None:
    life, one = worker
    other = life.database.begin("other")
    other.run("claim_lock")
    one.nudged = True
    assert one.tick() > 1
    life.database.end(other)


def test_who_is_not_nudged_only_reads(worker: tuple[Life, Worker]) -> None:
    _, one = worker
    one.tick()
    with trips() as found:
        one.tick()
        one.nudged = True
        one.tick()
    assert found == ["pin_plans claim_view", "pin_plans try_claim_lock claim_view"]


def test_who_was_nudged_for_nothing_reads_first_until_it_claims_again(worker: tuple[Life, Worker]) -> None:
    life, one = worker
    one.tick()
    one.nudged = True
    one.tick()
    with trips() as found:
        one.tick()
    assert found == ["pin_plans claim_view"]
    assert not one.keen
    life.enqueue()
    with pytest.raises(HeadwayError):  # it knows no task: nothing here can run what was claimed
        one.tick()
    assert one.keen
