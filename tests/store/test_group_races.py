"""Groups on PostgreSQL while several are at it: each stage is opened once, each group concludes once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest

from headway.engine.client import limits
from headway.engine.maintenance.recovery import Recovery
from headway.engine.tasks.registry import Registry
from headway.engine.worker import report_buffer
from headway.engine.worker.config import WorkerConfig
from headway.engine.worker.finish import Ended
from headway.engine.worker.finish import finish as finish_claims
from headway.engine.worker.worker import Worker
from headway.errors import WrongState
from headway.model.jobs.job import SYSTEM, Claim
from headway.model.jobs.outcome import Completed, Outcome, StoppedByRequest
from headway.model.queue.policies import Concurrency
from headway.store.groups.advance import lock_all, members
from headway.verify import check
from tests.support.life import BROKEN, Life
from tests.support.pair import Pair
from tests.support.plans import finish, group, group_events, job_of, make, states
from tests.support.waiting import PATIENCE, at_once

MEETINGS = 1000


@pytest.fixture
def pair(postgres_url: str) -> Iterator[Pair]:
    with Pair(postgres_url) as pair:
        limits.settle(pair.database, Concurrency(limit=None), {}, actor=SYSTEM, adopt=True)
        yield pair
        pair.check_versions()
        found = [f for f in check(pair.database).findings if f.invariant not in ("I-11", "I-13")]
        assert [f"{f.invariant} {f.thing}: {f.text}" for f in found] == []


def test_two_siblings_that_end_at_the_same_moment_open_the_next_stage_once(postgres_url: str) -> None:
    """A thousand times: two workers each end one of the last two members."""
    with Life(postgres_url) as life, ThreadPoolExecutor(2) as pool:
        limits.settle(life.database, Concurrency(limit=None), {}, actor=SYSTEM, adopt=True)
        for n in range(MEETINGS):
            made = make(life, "a b", "c")
            claims = life.take(job_of(life, made, "a"), job_of(life, made, "b"))
            outcomes: list[Outcome] = [Completed(), BROKEN if n % 10 == 0 else Completed()]
            meet = threading.Barrier(2)

            def end(one: int, claims=claims, outcomes=outcomes, meet=meet) -> bool:
                meet.wait(PATIENCE)
                return life.end(claims[one], outcomes[one])

            assert all(pool.map(end, (0, 1)))
            third = "CANCELLED" if n % 10 == 0 else "QUEUED"
            assert states(life, made)["c"] == third, f"meeting {n}"
            wanted = ["group.created", "group.finished" if n % 10 == 0 else "group.advanced"]
            assert group_events(life, made) == wanted
            if n % 10:
                life.client.cancel(job_of(life, made, "c"))
            assert life.client.groups.get(made).status == "PARTIAL"
        life.check_versions()


def test_the_second_sibling_waits_for_the_first_ones_commit(pair: Pair) -> None:
    made = make(pair, "a b", "c")
    one, other = pair.take(job_of(pair, made, "a"), job_of(pair, made, "b"))
    with pair.open_at("finish:commit", lambda: pair.end(one, Completed())):
        second = pair.waiting(lambda: pair.end(other, Completed()))
        assert states(pair, made)["c"] == "WAITING"
    assert second.result(PATIENCE)
    assert states(pair, made)["c"] == "QUEUED"
    assert group_events(pair, made) == ["group.created", "group.advanced"]


def test_a_cancel_of_the_group_meets_the_end_of_its_stage(pair: Pair) -> None:
    made = make(pair, "a", "b")
    claim = pair.claim(job_of(pair, made, "a"))
    with pair.open_at("finish:commit", lambda: pair.end(claim, Completed())):
        second = pair.waiting(lambda: pair.client.groups.cancel(made))
    second.result(PATIENCE)
    assert states(pair, made) == {"a": "COMPLETED", "b": "CANCELLED"}
    assert group(pair, made).status == "CANCELLED"


def test_the_end_of_a_stage_meets_a_cancel_of_the_group(pair: Pair) -> None:
    made = make(pair, "a", "b")
    claim = pair.claim(job_of(pair, made, "a"))
    with pair.open_at("cancel_group:commit", lambda: pair.client.groups.cancel(made)):
        second = pair.waiting(lambda: pair.end(claim, StoppedByRequest()))
    assert second.result(PATIENCE)
    assert states(pair, made) == {"a": "CANCELLED", "b": "CANCELLED"}
    assert group(pair, made).status == "CANCELLED"


def test_a_person_cancels_a_member_while_its_stage_opens(pair: Pair) -> None:
    made = make(pair, "a", "b", "c")
    claim, waiting = pair.claim(job_of(pair, made, "a")), job_of(pair, made, "b")
    with pair.open_at("finish:commit", lambda: pair.end(claim, Completed())):
        second = pair.waiting(lambda: pair.client.cancel(waiting))
    second.result(PATIENCE)
    assert states(pair, made) == {"a": "COMPLETED", "b": "CANCELLED", "c": "CANCELLED"}
    assert group(pair, made).status == "PARTIAL"


def test_two_people_retry_a_group_at_once(pair: Pair) -> None:
    made = make(pair, "a")
    finish(pair, made, "a", BROKEN)
    with pair.open_at("retry_group:commit", lambda: pair.client.groups.retry(made)) as first:
        second = pair.waiting(lambda: pair.client.groups.retry(made))
    again = first.result()
    with pytest.raises(WrongState, match=f"already being retried by {again}"):
        second.result(PATIENCE)
    finish(pair, again, "a")


def test_recovery_and_a_worker_end_the_last_two(pair: Pair) -> None:
    made = make(pair, "a b", "c")
    dead, living = pair.new_worker(), pair.new_worker()
    pair.take(job_of(pair, made, "a"), worker_id=dead)
    (claim,) = pair.take(job_of(pair, made, "b"), worker_id=living)
    pair.raw.execute(f"update hw_worker set gone_at = 1, state = 'gone' where id = {dead}")
    with pair.open_at("finish:commit", lambda: pair.end(claim, BROKEN, worker_id=living)):
        second = pair.waiting(Recovery(pair.database).tick)
    second.result(PATIENCE)
    assert states(pair, made) == {"a": "FAILED", "b": "FAILED", "c": "CANCELLED"}
    assert group_events(pair, made) == ["group.created", "group.finished"]


def test_a_follower_begins_once(pair: Pair) -> None:
    first = make(pair, "a b")
    second = make(pair, "a", after_id=first)
    claims = pair.take(job_of(pair, first, "a"), job_of(pair, first, "b"))
    at_once([partial(pair.end, claim, Completed()) for claim in claims])
    assert group_events(pair, second) == ["group.created", "group.begun"]
    with pair.database.read() as tx:
        assert [one.state.name for one in members(tx, second)] == ["QUEUED"]


def test_who_waits_for_one_that_is_cancelled_while_the_one_before_ends_begins(pair: Pair) -> None:
    """The cancelled one hands its follower over to a group that is just ending."""
    first = make(pair, "a")
    second = make(pair, "a", after_id=first)
    third = make(pair, "a", after_id=second)
    claim = pair.claim(job_of(pair, first, "a"))
    with pair.open_at("cancel_group:commit", lambda: pair.client.groups.cancel(second)):
        ending = pair.waiting(lambda: pair.end(claim, Completed()))
    assert ending.result(PATIENCE)
    assert group(pair, second).status == "CANCELLED"
    assert states(pair, third) == {"a": "QUEUED"}


def test_a_worker_that_reports_and_ends_does_not_cross_a_cancel_of_the_group(pair: Pair) -> None:
    """Groups are locked before jobs, also before those that only have something to report."""
    made = make(pair, "a b")
    one, other = pair.take(job_of(pair, made, "a"), job_of(pair, made, "b"))
    pair.database.tries = 0  # a deadlock would be tried again, and not be seen
    with pair.open_at("unfinished_members", lambda: pair.client.groups.cancel(made)):
        second = pair.waiting(lambda: turn(pair, one, other))
    assert second.result(PATIENCE) == []
    assert states(pair, made)["b"] == "COMPLETED"


def turn(pair: Pair, reports: Claim, ends: Claim) -> list[Claim]:
    """As a worker does it: reports and ends in one transaction."""
    registry = Registry()
    worker = Worker(pair.database, registry, WorkerConfig(slots=2))
    worker.lease.who, worker.lease.actor = replace(worker.who, id=pair.worker_id), pair.actor()
    report = report_buffer.BufferedReports(reports, progress=(1.0, 2.0, "half"))
    turn = worker.make_turn(ended=[Ended(ends, Completed())], reports=[report])
    pair.database.transact("turn", turn.write)
    worker.waiter.close()
    return turn.lost


def test_who_ends_several_groups_locks_what_waits_for_them_in_order(pair: Pair) -> None:
    """The second of three waits for the first. One ends the first and the third, another locks the last two."""
    first = make(pair, "a")
    waiting = make(pair, "b", after_id=first)
    third = make(pair, "c")
    claims = pair.take(job_of(pair, first, "a"), job_of(pair, third, "c"))
    ended = [Ended(claim, Completed()) for claim in claims]
    worker = pair.worker_id

    def end() -> list[Ended]:
        return pair.database.transact("ends", lambda tx: finish_claims(tx, worker, pair.actor(), ended))

    with pair.open_at("ends:end_group", end) as done:
        other = pair.waiting(lambda: pair.database.transact("looks", lambda tx: lock_all(tx, [waiting, third])))
    assert done.result(PATIENCE) == []
    assert list(other.result(PATIENCE)) == [waiting, third]
    assert pair.gated.conflicts == 0
    assert states(pair, waiting) == {"b": "QUEUED"}
