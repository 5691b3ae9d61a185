"""When a job may start: the queue played forward, compared with a slow and simple play of the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.model.explain.forecast import (
    Estimate,
    ForecastInput,
    Occupant,
    estimate,
    estimates,
    quantile,
    span,
)
from headway.model.explain.snapshot import QueuedJob, WorkerSlots
from tests.support.properties import examples
from tests.support.queued import BUCKETS, queued, reservation

SECOND = 1_000_000
NOW = 1_000 * SECOND
GLOBAL, GPU = 1, 2
ALL = frozenset({"a", "b", "c"})
TOOK = {(1, "a"): [10 * SECOND], (1, "b"): [30 * SECOND], (1, "c"): [7 * SECOND]}


def waiter(number: int, task: str = "a", lanes: tuple[int, ...] = (GLOBAL,), **more: Any) -> QueuedJob:
    return queued(number, task, lanes, **{"created_at": NOW, "queued_at": NOW, **more})


def line(*waiting: QueuedJob, **more: Any) -> ForecastInput:
    usual: dict[str, Any] = {"all_slots": [(ALL, 4)], "capacity": {GLOBAL: 1, GPU: 1}}
    facts = {**usual, **more}
    facts["all_slots"] = [
        worker_slots if isinstance(worker_slots, WorkerSlots) else WorkerSlots(*worker_slots)
        for worker_slots in facts["all_slots"]
    ]
    return ForecastInput(NOW, waiting, BUCKETS, **facts)


def seconds(found: Estimate | None) -> tuple[float, float] | None:
    return None if found is None else ((found.p50 - NOW) / SECOND, (found.p90 - NOW) / SECOND)


def start(job_id: int, where: ForecastInput) -> float | None:
    found = seconds(estimate(job_id, where, TOOK))
    assert found is None or found[0] == found[1]
    return None if found is None else found[0]


# --- words --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "words"),
    [(0, "0 s"), (1.4, "1 s"), (119, "119 s"), (120, "2 min"), (190, "3 min"), (7_200, "2 h"), (200_000, "2 days")],
)
def test_spans(amount: float, words: str) -> None:
    assert span(round(amount * SECOND)) == words


def test_an_estimate_in_words() -> None:
    later = Estimate(NOW + 180 * SECOND, NOW + 720 * SECOND)
    assert later.shown(NOW) == "starts in about 3 min (at most 12 min)"
    assert replace(later, p90=later.p50).shown(NOW) == "starts in about 3 min"
    assert later.shown(NOW + 300 * SECOND) == "starts any moment now (at most 7 min)"
    assert Estimate(NOW, NOW).shown(NOW) == "starts any moment now"


def test_quantiles() -> None:
    assert quantile([5], 0.5) == quantile([5], 0.9) == 5
    assert [quantile(list(range(1, 11)), share) for share in (0.5, 0.9)] == [5, 9]
    assert [quantile([9, 1, 5], share) for share in (0.5, 0.9)] == [5, 9]


# --- one thing at a time ------------------------------------------------------------------------------------------


def test_one_after_the_other_with_half_and_with_nine_in_ten_of_the_durations() -> None:
    history = {(1, "a"): [n * SECOND for n in range(1, 11)]}
    queue = line(*(waiter(n) for n in range(4)))
    assert [seconds(estimate(n, queue, history)) for n in range(4)] == [(0, 0), (5, 9), (10, 18), (15, 27)]


def test_what_runs_ends_after_its_usual_time_or_is_overdue() -> None:
    for since, expected in ((NOW - 4 * SECOND, 6), (NOW - 400 * SECOND, 0)):
        running = [Occupant((GLOBAL,), (1, "a"), since, worker_slots=0)]
        assert start(1, line(waiter(1), running=running, all_slots=[(ALL, 3)])) == expected
    resumed = [Occupant((GLOBAL,), (1, "a"), NOW, ran=8 * SECOND, worker_slots=0)]
    assert start(1, line(waiter(1), running=resumed, all_slots=[(ALL, 3)])) == 2
    assert start(2, line(waiter(1, ran=8 * SECOND), waiter(2))) == 2


def test_overdue_work_keeps_its_lanes_until_what_can_start_beside_it_has_started() -> None:
    """The slots of this moment go to jobs without blockers, as the next claim gives them."""
    overdue = [Occupant((GLOBAL,), (1, "a"), NOW - 10 * SECOND, worker_slots=0)]
    behind, beside = waiter(1, "b", (GLOBAL,), priority=9), waiter(2, "b", ())
    where = line(behind, beside, running=overdue, all_slots=[(ALL, 1)])
    assert [start(n, where) for n in (1, 2)] == [0, 0]
    third = line(behind, beside, waiter(3, "c", ()), running=overdue, all_slots=[(ALL, 1)])
    assert [start(n, third) for n in (1, 2, 3)] == [0, 0, 30], "the slot of the overdue work goes to the best placed"
    one_slot = line(behind, beside, running=[replace(overdue[0], worker_slots=None)], all_slots=[(ALL, 1)])
    assert [start(n, one_slot) for n in (1, 2)] == [30, 0], "the free slot is not kept for a job behind overdue work"


def test_slots_are_respected_and_belong_to_those_who_know_the_task() -> None:
    jobs = [waiter(n, "a", ()) for n in range(3)] + [waiter(9, "b", ())]
    assert [start(n, line(*jobs, all_slots=[(ALL, 2)])) for n in (0, 1, 2, 9)] == [0, 0, 10, 10]
    all_slots = [(frozenset({"a"}), 1), (frozenset({"b"}), 1)]
    assert [start(n, line(*jobs, all_slots=all_slots)) for n in (0, 1, 2, 9)] == [0, 10, 20, 0]
    busy = [Occupant((), (1, "b"), NOW, worker_slots=0)]
    assert start(9, line(jobs[3], all_slots=[(ALL, 0)], running=busy)) == 30
    assert (
        start(9, line(jobs[3], all_slots=[(frozenset({"b"}), 0)], running=[replace(busy[0], worker_slots=None)]))
        is None
    )


def test_a_worker_of_other_tenants_starts_nothing_here() -> None:
    jobs = [waiter(n, "a", ()) for n in range(2)]
    own, other = (WorkerSlots(ALL, 1, 1, tenants=frozenset({number})) for number in (1, 2))
    assert [start(n, line(*jobs, all_slots=[own, other])) for n in (0, 1)] == [0, 10]
    assert start(0, line(*jobs, all_slots=[other])) is None


def test_a_full_lane_does_not_hold_up_the_others() -> None:
    jobs = [waiter(1, "b", (GPU,)), waiter(2, "b", (GPU,)), waiter(3, "a", ()), waiter(4, "c", (GPU, GLOBAL))]
    assert [start(n, line(*jobs)) for n in (1, 2, 3, 4)] == [0, 30, 0, 60]


def test_targets_are_strict_and_a_resumed_job_goes_first() -> None:
    jobs = [waiter(1, "b", (), target_id=7), waiter(2, "a", (), target_id=7), waiter(3, "a", (), target_id=8)]
    assert [start(n, line(*jobs)) for n in (1, 2, 3)] == [0, 30, 0]
    resumed = jobs[1]._replace(fence=1)
    assert [start(n, line(jobs[0], resumed, jobs[2])) for n in (1, 2)] == [10, 0]
    running = [Occupant((), (1, "c"), NOW, target_id=7, worker_slots=0)]
    assert start(1, line(*jobs, running=running)) == 7


def test_times_and_pauses() -> None:
    later = waiter(1, due=NOW + 60 * SECOND)
    assert start(1, line(later)) == 60
    assert start(1, line(later, waiter(2, "b"))) == 60
    assert start(1, line(later._replace(not_before=NOW + 20 * SECOND), waiter(2, "b"))) == 30
    assert start(2, line(later, waiter(2, "b"), paused={1: NOW + 90 * SECOND})) == 100
    assert start(2, line(waiter(2), paused={0: NOW + 90 * SECOND})) == 90


def test_what_nobody_can_foresee() -> None:
    assert start(1, line(waiter(1), paused={0: None})) is None
    assert start(1, line(waiter(1), paused={1: None})) is None
    assert start(1, line(waiter(1), all_slots=[])) is None
    assert start(1, line(waiter(1, target_id=7), shut=frozenset({7}))) is None
    assert (
        start(2, line(waiter(2), all_slots=[(ALL | {"unknown"}, 1)], running=[Occupant((GLOBAL,), None, NOW)])) is None
    )
    unknown = line(waiter(1, "unknown"), waiter(2), all_slots=[(ALL | {"unknown"}, 2)])
    assert start(1, unknown) == 0  # how long it takes does not matter for its own start
    assert start(2, unknown) is None
    assert start(3, line(waiter(1, "unknown", (GPU,)), waiter(3), all_slots=[(ALL | {"unknown"}, 2)])) == 0
    assert start(9, line(waiter(1))) is None


def test_direct_calls_go_first_on_their_lanes() -> None:
    waits = reservation(5, (GPU,), task="a")
    jobs = [waiter(1, "b", (GPU,)), waiter(2, "a", ())]
    assert [start(n, line(*jobs, calls=[waits])) for n in (1, 2)] == [10, 0]
    running = [Occupant((GPU,), (1, "c"), NOW, worker_slots=0)]
    assert start(1, line(*jobs, calls=[waits], running=running)) == 17
    granted = reservation(5, (GPU,), task="a", granted_at=NOW - 4 * SECOND)
    assert start(1, line(*jobs, calls=[granted])) == 6
    assert start(1, line(*jobs, calls=[granted, reservation(6, (GPU,), task="b")])) == 36
    assert start(1, line(*jobs, calls=[granted._replace(task=None)])) is None
    on_target = [waiter(3, "a", (), target_id=7), waiter(4, "a", (), target_id=8)]
    call = reservation(5, (), 7, task="b")
    assert [start(n, line(*on_target, calls=[call])) for n in (3, 4)] == [30, 0]


def test_aging() -> None:
    old = waiter(9, "b", priority=0, queued_at=NOW - 100 * SECOND)
    jobs = [*(waiter(n, priority=1) for n in range(3)), old]
    assert start(9, line(*jobs)) == 30
    assert start(9, line(*jobs, aging=60 * SECOND)) == 20  # it has waited for two minutes then
    assert start(9, line(*jobs, aging=40 * SECOND)) == 0


# --- against a simple play ----------------------------------------------------------------------------------------


@dataclass
class Simple:
    """Second by second: what ends goes, then the list is walked from the front, again and again.

    Work that is overdue now still runs: what can start beside it starts first, then the overdue work ends."""

    line: ForecastInput
    lasts: Mapping[tuple[int, str], int]

    def starts(self) -> dict[int, int]:
        time, found = self.line.now, dict[int, int]()
        running = [(one.since + max(0, self.lasts[one.kind or (0, "")] - one.ran), one) for one in self.line.running]
        waiting = sorted(self.line.waiting, key=lambda one: one.place)
        while waiting:
            chosen = next((one for one in waiting if self._may(one, waiting, [r for _, r in running], time)), None)
            if chosen is None:
                overdue = any(end <= time for end, _ in running)
                time += 0 if overdue else SECOND
                running = [(end, one) for end, one in running if end > time]
                continue
            waiting.remove(chosen)
            found[chosen.id] = time
            bucket = BUCKETS[chosen.bucket_id]
            kind = (bucket.tenant_id, bucket.task)
            one = Occupant(bucket.lanes, kind, time, 0, chosen.target_id, 0)
            running.append((time + max(0, self.lasts[kind] - chosen.ran), one))
        return found

    def _may(self, one: QueuedJob, waiting: list[QueuedJob], running: list[Occupant], time: int) -> bool:
        if one.due(NOW) > time or len(running) >= self.line.all_slots[0].free + len(self.line.running):
            return False
        for lane in BUCKETS[one.bucket_id].lanes:
            limit = self.line.capacity.get(lane)
            if limit is not None and sum(lane in other.lanes for other in running) >= limit:
                return False
        if one.target_id is None:
            return True
        here = [other for other in waiting if other.target_id == one.target_id and other.due(NOW) <= time]
        first = next((other for other in here if other.holds), here[0])
        return first is one and all(other.target_id != one.target_id for other in running)


lane_sets = st.sampled_from([(), (GLOBAL,), (GPU,), (GLOBAL, GPU)])
kinds = st.tuples(
    st.sampled_from(sorted(ALL)),
    lane_sets,
    st.sampled_from([None, None, 7, 8]),
    st.integers(0, 2),
    st.sampled_from([0, 0, 3, 25]),
)


@settings(deadline=None, max_examples=examples(150))
@given(
    st.lists(kinds, min_size=1, max_size=10),
    st.lists(st.tuples(st.sampled_from(sorted(ALL)), lane_sets, st.integers(0, 40)), max_size=3),
    st.integers(1, 3),
    st.fixed_dictionaries({GLOBAL: st.sampled_from([1, 2, None]), GPU: st.sampled_from([1, 2])}),
)
def test_every_start_is_where_a_simple_play_puts_it(queue: Any, runs: Any, free: int, capacity: Any) -> None:
    waiting = [
        waiter(n, task, lanes, priority=priority, due=NOW + due * SECOND if due else 0, target_id=target)
        for n, (task, lanes, target, priority, due) in enumerate(queue)
    ]
    running = [Occupant(lanes, (1, task), NOW - since * SECOND, worker_slots=0) for task, lanes, since in runs]
    where = line(*waiting, running=running, all_slots=[(ALL, free)], capacity=capacity)
    expected = Simple(where, {kind: took[0] for kind, took in TOOK.items()}).starts()
    assert {one.id: found.p50 for one in waiting if (found := estimate(one.id, where, TOOK))} == expected


def test_a_thousand_jobs_are_no_trouble() -> None:
    queue = line(*(waiter(n, "abc"[n % 3], (GLOBAL,) if n % 2 else (GPU,)) for n in range(1_000)))
    found = estimate(999, queue, TOOK)
    assert found is not None
    assert found.p50 > NOW


def test_several_jobs_at_once_start_when_each_does() -> None:
    shut = waiter(4, target_id=9)
    where = line(waiter(1), waiter(2, "b"), waiter(3, due=NOW + 5 * SECOND), shut, shut=frozenset({9}))
    alone = {number: found for number in (1, 2, 3, 4, 5) if (found := estimate(number, where, TOOK)) is not None}
    assert estimates((1, 2, 3, 4, 5), where, TOOK) == alone
    assert set(alone) == {1, 2, 3}
