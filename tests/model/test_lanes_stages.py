"""The jobs of a stage take one place in a lane of the policy: `select_jobs` and `select_aged` against a walk through
all jobs before each choice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from headway.model.queue import capacity as rules
from headway.model.queue.capacity import Bucket, Capacity, Reserved, capacity_of
from headway.model.queue.place import AgedPlace, Place, Stage, stage_of
from headway.model.queue.select import Pick, select_jobs
from headway.model.queue.select_aged import Aging, Levels, PriorityLevel, select_aged
from headway.model.queue.stage_sharing import StageSharing
from tests.support.properties import examples

POLICY, OTHER_POLICY, GPU = 1, 2, 3
AGING = Aging(interval=10, now=100)


class Job(NamedTuple):
    """A job in the queue."""

    place: Place
    queued_at: int
    bucket: Bucket

    @property
    def id(self) -> int:
        return self.place.job_id

    @property
    def priority(self) -> int:
        return -self.place.minus_priority

    @property
    def aged(self) -> AgedPlace:
        place = self.place
        return AgedPlace(place.position, place.created_at, place.job_id, self.queued_at, place.group_id, place.stage)

    @property
    def stage(self) -> Stage | None:
        return stage_of(self.place.group_id, self.place.stage)

    @property
    def rank(self) -> tuple[int, int]:
        return AGING.effective(self.priority, self.queued_at), self.priority


@dataclass
class Situation:
    """Lanes 1 and 2 are the policy's. `running`: the bucket and the stage of each."""

    limits: dict[int, int]
    buckets: list[Bucket]
    running: list[tuple[Bucket, Stage | None]] = field(default_factory=list)
    queue: list[Job] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    reserved: list[Reserved] = field(default_factory=list)
    tired: set[int] = field(default_factory=set)
    barred: set[int] = field(default_factory=set)

    def rooms(self) -> Capacity:
        alone = {bucket.id: sum(one == bucket for one, _ in self.running) for bucket in self.buckets}
        members: dict[tuple[int, Stage], int] = {}
        for bucket, stage in self.running:
            if stage is not None:
                members[bucket.id, stage] = members.get((bucket.id, stage), 0) + 1
        rooms = capacity_of(self.buckets, self.limits, alone, {POLICY, OTHER_POLICY}, members)
        if self.reserved:
            rules.reserve(rooms, self.reserved, dict.fromkeys(self.tired, rules.BURST))
        rooms.barred = set(self.barred)
        return rooms

    def places(self, bucket: Bucket) -> Iterator[Place]:
        return iter(sorted(job.place for job in self.queue if job.bucket == bucket))

    def levels(self, buckets: Collection[Bucket]) -> Levels:
        found: dict[int, list[tuple[Bucket, Iterator[AgedPlace]]]] = {}
        for priority in {job.priority for job in self.queue}:
            for bucket in buckets:
                jobs = sorted(job for job in self.queue if job.bucket == bucket and job.priority == priority)
                aged = iter([job.aged for job in jobs])
                found.setdefault(priority, []).append((bucket, aged))
        return found

    def ours(self) -> list[Bucket]:
        return [bucket for bucket in self.buckets if bucket.task in self.known]

    def others(self) -> list[Bucket]:
        return [bucket for bucket in self.buckets if bucket.task not in self.known]

    def planned(self, count: int, *, aged: bool) -> list[int]:
        if aged:
            picks = select_aged(count, self.ours(), self.rooms(), self.levels, AGING, self.others())
        else:
            picks = select_jobs(count, self.ours(), self.rooms(), self.places, self.others())
        return ids(picks)


def ids(picks: list[Pick]) -> list[int]:
    return [one.job_id for one in picks]


class Walk:
    """From the words, over all jobs before each choice."""

    def __init__(self, now: Situation, *, aged: bool) -> None:
        self.now, self.aged = now, aged
        self.taken: list[Job] = []
        self.shut: set[int] = set()
        self.passed: list[tuple[Job, set[int]]] = []

    def inside(self, lane: int) -> set[tuple[str, object]]:
        jobs = [
            *((b, s, n) for n, (b, s) in enumerate(self.now.running)),
            *((j.bucket, j.stage, j) for j in self.taken),
        ]
        found: set[tuple[str, object]] = {
            ("call", one.id) for one in self.now.reserved if one.granted and lane in one.lanes
        }
        for bucket, stage, job in jobs:
            if lane in bucket.lanes:
                found.add(("stage", stage) if stage is not None and lane != GPU else ("job", job))
        return found

    def full(self, lane: int) -> bool:
        return lane in self.now.limits and len(self.inside(lane)) >= self.now.limits[lane]

    def reserved(self, lane: int) -> bool:
        return any(lane in one.lanes for one in self.now.reserved)

    def closed(self, lane: int) -> bool:
        had = any(lane in job.bucket.lanes for job in self.taken)
        return self.reserved(lane) and (lane not in self.now.tired or had)

    def stages_fill(self, lane: int) -> bool:
        return any(kind == "stage" for kind, _ in self.inside(lane)) and not self.reserved(lane)

    def first(self, line: list[Job]) -> Job | None:
        """The first that may run. Those before it that only wait for stages to make way are passed over."""
        for job in line:
            shut = self.shut.union(*(lanes for one, lanes in self.passed if one in line))
            full = {lane for lane in job.bucket.lanes if self.full(lane)}
            if job in self.taken or job.id in self.now.barred or any(map(self.closed, job.bucket.lanes)):
                continue
            if full & shut or not all(map(self.stages_fill, full)):
                continue
            if not all(("stage", job.stage) in self.inside(lane) for lane in full):
                self.passed.append((job, full))
            elif job.bucket.task in self.now.known:
                return job
        return None

    def take(self, count: int) -> list[int]:
        queue = sorted(self.now.queue)
        levels = [[job for job in queue if job.priority == p] for p in range(101)] if self.aged else [queue]
        while len(self.taken) < count:
            firsts = [job for job in map(self.first, levels) if job is not None]
            if not firsts:
                break
            best = max(firsts, key=lambda job: job.rank) if self.aged else firsts[0]
            lanes = set[int]().union(*(lanes for job, lanes in self.passed if self.before(job, best)))
            if lanes <= self.shut:
                self.taken.append(best)
            self.shut |= lanes
        return [job.id for job in self.taken]

    def before(self, job: Job, best: Job) -> bool:
        return not self.aged or job.priority == best.priority or job.rank > best.rank


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    limits = {lane: draw(st.sampled_from([1, 1, 2, 3])) for lane in (POLICY, OTHER_POLICY, GPU)}
    lanes = [(POLICY,), (POLICY,), (POLICY, GPU), (POLICY, OTHER_POLICY), (OTHER_POLICY,), (GPU,), ()]
    tasks = draw(st.permutations(["a", "b", "c", "d"]))
    chosen = draw(st.lists(st.sampled_from(lanes), min_size=2, max_size=4))
    buckets = [Bucket(n, 1, tasks[n], lanes) for n, lanes in enumerate(chosen)]
    stages = st.sampled_from([None, None, (8, 0), (8, 0), (9, 0), (9, 1)])
    found = Situation(limits, buckets)
    found.running = draw(st.lists(st.tuples(st.sampled_from(buckets), stages), max_size=3))
    tie = st.integers(0, 3)
    for number in range(1, draw(st.integers(2, 8)) + 1):
        stage = draw(stages)
        place = Place(-draw(st.sampled_from([0, 0, 1, 3])), draw(tie), 0, number, *(stage or (None, None)))
        found.queue.append(Job(place, draw(st.integers(0, 100)), draw(st.sampled_from(buckets))))
    found.known = set(draw(st.sampled_from([tasks, tasks, tasks[:1], tasks[:2], tasks[1:]])))
    calls = st.builds(Reserved, st.just(1), st.sampled_from([(POLICY,), (GPU,)]), granted=st.booleans())
    found.reserved = draw(st.lists(calls, max_size=1)) if draw(st.integers(0, 4)) == 0 else []
    found.tired = draw(st.sets(st.sampled_from([POLICY, GPU]))) if found.reserved else set()
    found.barred = draw(st.sets(st.integers(1, 8), max_size=1))
    return found


@settings(max_examples=examples(1_000), deadline=None)
@given(st.integers(1, 6), situations(), st.booleans())
def test_the_plan_is_what_a_walk_through_the_whole_queue_takes(count: int, now: Situation, aged: bool) -> None:
    assert now.planned(count, aged=aged) == Walk(now, aged=aged).take(count)


def test_a_job_of_an_unknown_task_closes_only_lanes_that_were_full_before_the_claim() -> None:
    """It waits for lane 2 from the start. That this claim fills lane 1 keeps no member off lane 1."""
    ours, theirs = Bucket(0, 1, "a", (POLICY,)), Bucket(1, 1, "b", (POLICY, OTHER_POLICY))
    now = Situation({POLICY: 3, OTHER_POLICY: 1, GPU: 1}, [ours, theirs], [(ours, None), (theirs, (8, 0))])
    places = [(Place(-3, 0, 0, 3), theirs), (Place(-1, 0, 0, 2), ours), (Place(-1, 0, 0, 5, 8, 0), ours)]
    now.queue = [Job(place, 0, bucket) for place, bucket in places]
    now.known = {"a"}
    for known in ({"a"}, {"a", "b"}):
        now.known = known
        assert now.planned(2, aged=False) == Walk(now, aged=False).take(2) == [2, 5]


# --- the walk can fail --------------------------------------------------------------------------------------------


def _join_reserved(self: Capacity) -> None:
    self.sharing.begin_claim(n for n, inside in self.sharing.stages.items() if inside and self.free[n] <= 0)


def _join_anywhere(self: StageSharing, lanes: object, stage: Stage | None) -> bool:
    return any(stage in inside for inside in self.stages.values())


MUTANTS: dict[str, tuple[object, str, Callable[..., object]]] = {
    "nobody joins a full lane": (StageSharing, "accepts_members", lambda self, lanes, queue=0: False),
    "anybody's stage joins": (StageSharing, "may_join", lambda self, lanes, stage: stage is not None),
    "who has a sibling in one lane joins all": (StageSharing, "may_join", _join_anywhere),
    "each member takes a place": (rules, "_count_as_one", lambda capacity, lanes, stage, count: None),
    "members join past whoever waits": (StageSharing, "_close", lambda self, lanes: False),
    "members join before those who reserved": (Capacity, "begin_claim", _join_reserved),
    "members join past jobs of tasks unknown here": (StageSharing, "newly_joinable", lambda self: set()),
    "members join past jobs that have aged": (PriorityLevel, "ahead_of", lambda self, best, priority, aging: ()),
    "who was passed over bars nobody of its priority": (PriorityLevel, "_passed_waits_for", lambda self, bucket: False),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTANTS[mutant])

    @settings(max_examples=5_000, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
    @given(st.integers(1, 6), situations(), st.booleans())
    def check(count: int, now: Situation, aged: bool) -> None:
        assert now.planned(count, aged=aged) == Walk(now, aged=aged).take(count)

    with pytest.raises(AssertionError):
        check()
