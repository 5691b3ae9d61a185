"""The running jobs of one parallel stage count as one on the policy's lane: they run together, make way for whoever
stands before them, and count one by one everywhere else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headway.engine.client import limits
from headway.model.explain.blockers import Explanation
from headway.model.explain.forecast import Estimate
from headway.model.groups.group import NewGroup, NewMember
from headway.model.jobs.outcome import Completed
from headway.model.queue.policies import Concurrency
from headway.store.db import Tx
from headway.store.queue import claims, queue_views, reservations, select
from headway.store.queue.lanes import BucketCache
from headway.verify import check
from tests.support.life import ADA, FINAL, HOUR, TASK, Life

OTHER = "other.task"


class Stages(Life):
    """A database with groups, and claims that are given back by the numbers of their jobs."""

    def stage(self, count: int, *more: str, **fields: Any) -> list[int]:
        """A group of so many jobs side by side; with `more`, of tasks of these names beside them."""
        tasks = [*[fields.pop("task", TASK)] * count, *more]
        members = tuple(NewMember(self.new(task=t, retry=0, **fields), 0, f"step{n}") for n, t in enumerate(tasks))
        number = self.client.groups.create(NewGroup("group", "parallel", "continue", members))
        return [job_id for (job_id,) in self.sql(f"select id from hw_job where group_id = {number} order by id")]

    def taken(self, count: int = 9, **wishes: Any) -> list[int]:
        return [claim.job_id for claim in self.claim_next(count, **wishes)]

    def over(self, *ids: int) -> None:
        """These have ended."""
        with self.database.read() as tx:
            held = {claim.job_id: claim for claim in claims.own(tx, self.worker_id)}
        for job_id in ids:
            assert self.end(held[job_id], Completed())

    def reserve(self, *lanes: str) -> int:
        known = {name: lane for lane, name in self.sql("select id, name from hw_lane")}

        def work(tx: Tx) -> int:
            tx.run("claim_lock")
            numbers = [known[lane] for lane in lanes]
            wish: dict[str, Any] = {"target_id": None, "holder": "call", "actor": ADA, "ttl": HOUR}
            return reservations.add(tx, 1, lanes=numbers, **wish)

        return self.database.transact("reserve", work)

    def granted(self) -> list[int]:
        lanes = BucketCache(self.database)

        def work(tx: Tx) -> list[int]:
            view, _ = claims.lock_and_look(tx, lanes, ADA)
            return [one.id for one in select.settle_reservations(tx, view, lanes) if one.granted_at is not None]

        return self.database.transact("look", work)

    def leave(self, number: int) -> None:
        def work(tx: Tx) -> None:
            tx.run("claim_lock")
            reservations.end(tx, number, status="RELEASED", actor=ADA)

        self.database.transact("leave", work)

    def adopt(self, *, resources: dict[str, int] | None = None, **wishes: Any) -> None:
        limits.settle(self.database, Concurrency(**wishes), resources or {}, actor=ADA, adopt=True)

    def explain(self, job_id: int) -> Explanation:
        with self.database.read() as tx:
            return queue_views.explain(tx, 1, job_id)


@pytest.fixture
def stages(database_url: str) -> Iterator[Stages]:
    with Stages(database_url) as life:
        yield life
        assert [one for one in check(life.database, settle=0.0).findings if one.invariant in ("I-05", "I-11")] == []


# --- together -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [True, False])
def test_the_jobs_of_a_stage_run_together_although_the_limit_is_one(stages: Stages, at_once: bool) -> None:
    members = stages.stage(3)
    behind = stages.enqueue()
    found = stages.taken() if at_once else [job_id for _ in range(5) for job_id in stages.taken(1)]
    assert found == members
    stages.over(*members[:2])
    assert stages.taken() == []  # the third still has the place
    stages.over(members[2])
    assert stages.taken() == [behind]


def test_two_stages_do_not_share_a_place(stages: Stages) -> None:
    first, second = stages.stage(2), stages.stage(2)
    assert stages.taken() == first
    stages.over(*first)
    assert stages.taken() == second


def test_the_stages_of_one_group_do_not_share_a_place_either(stages: Stages) -> None:
    """A retry of the first one runs while the second is open, say."""
    members = stages.stage(2)
    stages.database.transact("move", lambda tx: _sql(tx, f"update hw_job set stage = 1 where id = {members[1]}"))
    assert stages.taken() == members[:1]
    stages.database.transact("back", lambda tx: _sql(tx, f"update hw_job set stage = 0 where id = {members[1]}"))
    assert stages.taken() == members[1:]


def _sql(tx: Tx, text: str) -> None:
    tx.connection.execute(text)  # type: ignore[attr-defined]


def test_with_a_limit_of_two_a_stage_takes_one_of_two_places(stages: Stages) -> None:
    stages.adopt(limit=2)
    alone, *more = stages.enqueue(), stages.enqueue()
    members = stages.stage(3)
    assert stages.taken() == [alone, *more]
    stages.over(alone)
    assert stages.taken() == members
    third, last = stages.stage(2), stages.enqueue()
    stages.over(*more)
    assert stages.taken() == third
    stages.over(*third)
    assert stages.taken() == [last]


def test_a_stage_of_several_tasks_shares_the_global_lane_and_no_lane_of_a_task(stages: Stages) -> None:
    members = stages.stage(2, OTHER, OTHER)
    assert stages.taken() == members
    stages.over(*members)
    stages.adopt(policy="per_task")
    members = stages.stage(2, OTHER, OTHER)
    assert stages.taken() == members
    behind = [stages.enqueue(), stages.enqueue(task=OTHER)]
    stages.over(*members[:2])
    assert stages.taken() == behind[:1]  # the lane of the other task has its stage in it


def test_resources_count_each_of_them(stages: Stages) -> None:
    stages.adopt(resources={"gpu": 2})
    members = stages.stage(3, resources=("gpu",))
    assert stages.taken() == members[:2]
    assert stages.taken() == []
    stages.over(members[0])
    assert stages.taken() == members[2:]


def test_targets_count_each_of_them(stages: Stages) -> None:
    stages.adopt(targets="global")
    members = stages.stage(2, target="desk")
    assert stages.taken() == members[:1]
    stages.over(members[0])
    assert stages.taken() == members[1:]


def test_a_lowered_limit_stops_nobody_from_joining_what_runs(stages: Stages) -> None:
    stages.adopt(limit=2)
    alone, members = stages.enqueue(), stages.stage(3)
    assert stages.taken(2) == [alone, members[0]]
    stages.adopt(limit=1)
    assert stages.taken(1) == [members[1]]  # two are in a lane of one, and it takes no place


# --- making way ---------------------------------------------------------------------------------------------------


def test_a_better_job_that_comes_later_drains_the_stage(stages: Stages) -> None:
    members = stages.stage(4)
    assert stages.taken(2) == members[:2]
    better = stages.enqueue(priority=9)
    assert stages.taken() == []
    stages.over(members[0])
    assert stages.taken() == []
    stages.over(members[1])
    assert stages.taken() == [better]
    assert stages.taken() == []
    stages.over(better)
    assert stages.taken() == members[2:]


def test_a_job_behind_all_of_them_keeps_nobody_off(stages: Stages) -> None:
    members = stages.stage(3)
    stages.enqueue()
    assert stages.taken(1) == members[:1]
    assert stages.taken() == members[1:]


def test_a_job_between_them_keeps_those_behind_it_off(stages: Stages) -> None:
    members = stages.stage(3)
    between = stages.enqueue()
    stages.client.move(between, before=members[2])
    assert stages.taken() == members[:2]
    stages.over(*members[:2])
    assert stages.taken() == [between]


@pytest.mark.parametrize("known", [True, False])
def test_a_better_job_counts_whoever_knows_its_task(stages: Stages, known: bool) -> None:
    """It waits for the lane, also if another worker will take it."""
    members = stages.stage(3)
    assert stages.taken(1) == members[:1]
    better = stages.enqueue(task=OTHER, priority=9)
    assert stages.taken(knows=lambda task: known or task == TASK) == []
    stages.over(members[0])
    assert stages.taken(knows=lambda task: task == OTHER) == [better]


def test_in_one_claim_too(stages: Stages) -> None:
    """It had room when the first member was taken, and waits from then on."""
    stages.enqueue(task=OTHER, priority=9)
    members = stages.stage(3)
    assert stages.taken(knows=lambda task: task == TASK) == members[:1]


def test_a_member_of_a_task_unknown_here_is_nobody_to_wait_for(stages: Stages) -> None:
    members = stages.stage(1, OTHER, OTHER, TASK)
    assert stages.taken(knows=lambda task: task == TASK) == [members[0], members[3]]


@pytest.mark.parametrize("way", ["a full resource", "a busy target", "a pause", "another time"])
def test_a_better_job_that_waits_for_something_else_keeps_nobody_off(stages: Stages, way: str) -> None:
    stages.adopt(resources={"gpu": 1}, targets="own" if way == "a busy target" else "global")
    stages.reserve("gpu")
    members = stages.stage(3)
    assert stages.taken(1) == members[:1]
    match way:
        case "a full resource":
            stages.enqueue(priority=9, resources=("gpu",))
        case "a busy target":
            stages.enqueue(priority=9, target="desk")
            (running,) = stages.taken(1)
            stages.adopt(resources={"gpu": 1}, targets="global")
            stages.enqueue(priority=9, target="desk")
            assert stages.status(running) == "RUNNING"
        case "a pause":
            stages.enqueue(priority=9, target="desk")
            stages.client.pause_target("desk")
        case "another time":
            stages.enqueue(priority=9, delay=HOUR)
    assert stages.taken() == members[1:]


def test_a_reservation_goes_first(stages: Stages) -> None:
    members = stages.stage(3)
    assert stages.taken(2) == members[:2]
    call = stages.reserve("global")
    assert stages.taken() == []
    stages.over(members[0])
    assert (stages.taken(), stages.granted()) == ([], [])
    stages.over(members[1])
    assert stages.granted() == [call]
    assert stages.taken() == []
    stages.leave(call)
    assert stages.taken() == members[2:]


def test_by_age_too(stages: Stages) -> None:
    """Who has waited long enough keeps better ones of a stage off; while it has not, it does not."""
    stages.adopt(aging=10.0)
    old = stages.enqueue()
    stages.clock.advance(35)
    members = stages.stage(3, priority=3)
    assert stages.taken(1) == members[:1]  # 3 and 3: ties go to the higher plain priority
    assert stages.taken(1) == members[1:2]
    stages.clock.advance(5)
    assert stages.taken() == []  # 4 against 3
    stages.over(*members[:2])
    assert stages.taken() == [old]


# --- what people are told -----------------------------------------------------------------------------------------


def kinds(explained: Explanation) -> list[str]:
    return [one.kind for one in explained.blockers]


def test_a_member_that_joins_next_has_nothing_in_its_way(stages: Stages) -> None:
    members = stages.stage(3)
    assert stages.taken(1) == members[:1]
    assert [kinds(stages.explain(job_id)) for job_id in members[1:]] == [[], []]


def test_who_is_not_of_the_stage_hears_of_the_full_lane(stages: Stages) -> None:
    members, behind = stages.stage(2), stages.enqueue()
    assert stages.taken() == members
    (lane,) = stages.explain(behind).blockers
    assert lane.detail == "the global lane is full: 1 of 1 run, the jobs of a stage counted as one"
    assert lane.by == f"job {members[0]}, job {members[1]}"


def test_a_member_that_is_kept_off_hears_behind_whom(stages: Stages) -> None:
    members = stages.stage(3)
    assert stages.taken(1) == members[:1]
    better = stages.enqueue(priority=9)
    for job_id in members[1:]:
        (behind,) = stages.explain(job_id).blockers
        assert (behind.kind, behind.by) == ("behind", f"job {better}")


def test_the_estimate_lets_a_stage_run_side_by_side(stages: Stages) -> None:
    done = stages.enqueue()
    assert stages.taken(1) == [done]
    stages.clock.advance(60)
    stages.over(done)
    members, behind = stages.stage(3), stages.enqueue()
    start = stages.clock.now()
    assert stages.explain(behind).start_estimate == Estimate(start + HOUR // 60, start + HOUR // 60)
    assert stages.explain(members[2]).start_estimate == Estimate(start, start)


def test_a_stage_that_failed_in_part_still_makes_room(stages: Stages) -> None:
    members, behind = stages.stage(2), stages.enqueue()
    held = stages.claim_next(2)
    assert [one.job_id for one in held] == members
    assert stages.end(held[0], FINAL)
    assert stages.taken() == []
    assert stages.end(held[1], FINAL)
    assert stages.taken() == [behind]
