"""The jobs of a stage take one place in a lane of the policy: `plan` and `plan_aged` against a walk through all jobs
before each choice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from headway.model import lanes as rules
from headway.model import picking
from headway.model.lanes import Bucket, Place, Reserved, Rooms, Stage, rooms_of
from headway.model.picking import Aging, Pick, plan, plan_aged

POLICY, OTHER_POLICY, GPU = 1, 2, 3
AGING = Aging(interval=10, now=100)


class Job(NamedTuple):
    """A job in the queue."""

    place: Place
    queued_at: int
    bucket: Bucket

    @property
    def id(self) -> int:
        return self.place[3]

    @property
    def stage(self) -> Stage | None:
        return rules.stage_of(*self.place[4:])

    @property
    def rank(self) -> tuple[int, int]:
        return AGING.effective(-self.place[0], self.queued_at), -self.place[0]


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

    def rooms(self) -> Rooms:
        alone = {bucket.id: sum(one == bucket for one, _ in self.running) for bucket in self.buckets}
        members: dict[tuple[int, Stage], int] = {}
        for bucket, stage in self.running:
            if stage is not None:
                members[bucket.id, stage] = members.get((bucket.id, stage), 0) + 1
        rooms = rooms_of(self.buckets, self.limits, alone, {POLICY, OTHER_POLICY}, members)
        if self.reserved:
            rules.reserve(rooms, self.reserved, dict.fromkeys(self.tired, rules.BURST))
        rooms.barred = set(self.barred)
        return rooms

    def places(self, bucket: Bucket) -> Iterator[Place]:
        return iter(sorted(job.place for job in self.queue if job.bucket == bucket))

    def levels(self, buckets: Collection[Bucket]) -> picking.Levels:
        found: dict[int, list[tuple[Bucket, Iterator[picking.Aged]]]] = {}
        for priority in {-job.place[0] for job in self.queue}:
            for bucket in buckets:
                jobs = sorted(job for job in self.queue if job.bucket == bucket and -job.place[0] == priority)
                aged = iter([(*job.place[1:4], job.queued_at, *job.place[4:]) for job in jobs])
                found.setdefault(priority, []).append((bucket, aged))
        return found

    def ours(self) -> list[Bucket]:
        return [bucket for bucket in self.buckets if bucket.task in self.known]

    def others(self) -> list[Bucket]:
        return [bucket for bucket in self.buckets if bucket.task not in self.known]

    def planned(self, count: int, *, aged: bool) -> list[int]:
        if aged:
            picks = plan_aged(count, self.levels(self.ours()), self.rooms(), AGING, self.others, self.levels)
        else:
            picks = plan(count, self.ours(), self.rooms(), self.places, self.others)
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
        levels = [[job for job in queue if -job.place[0] == p] for p in range(101)] if self.aged else [queue]
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
        return not self.aged or job.place[0] == best.place[0] or job.rank > best.rank


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
        place = (-draw(st.sampled_from([0, 0, 1, 3])), draw(tie), 0, number, *(stage or (None, None)))
        found.queue.append(Job(place, draw(st.integers(0, 100)), draw(st.sampled_from(buckets))))
    found.known = set(draw(st.sampled_from([tasks, tasks, tasks[:1], tasks[:2], tasks[1:]])))
    calls = st.builds(Reserved, st.just(1), st.sampled_from([(POLICY,), (GPU,)]), granted=st.booleans())
    found.reserved = draw(st.lists(calls, max_size=1)) if draw(st.integers(0, 4)) == 0 else []
    found.tired = draw(st.sets(st.sampled_from([POLICY, GPU]))) if found.reserved else set()
    found.barred = draw(st.sets(st.integers(1, 8), max_size=1))
    return found


@settings(max_examples=1_000, deadline=None)
@given(st.integers(1, 6), situations(), st.booleans())
def test_the_plan_is_what_a_walk_through_the_whole_queue_takes(count: int, now: Situation, aged: bool) -> None:
    assert now.planned(count, aged=aged) == Walk(now, aged=aged).take(count)


# --- the walk can fail --------------------------------------------------------------------------------------------


def _join_reserved(self: Rooms) -> None:
    self.joins = {lane for lane, inside in self.stages.items() if inside and self.free[lane] <= 0}


def _join_anywhere(self: Rooms, bucket: Bucket, stage: Stage | None) -> bool:
    return any(stage in inside for inside in self.stages.values())


MUTANTS: dict[str, tuple[object, str, Callable[..., object]]] = {
    "nobody joins a full lane": (Rooms, "keeps", lambda self, bucket: False),
    "anybody's stage joins": (Rooms, "lets_join", lambda self, bucket, stage: stage is not None),
    "who has a sibling in one lane joins all": (Rooms, "lets_join", _join_anywhere),
    "each member takes a place": (rules, "_gather", lambda rooms, lanes, stage, count: None),
    "members join past whoever waits": (Rooms, "drain", lambda self, lanes: False),
    "members join before those who reserved": (Rooms, "find_joins", _join_reserved),
    "members join past jobs of tasks unknown here": (picking._Watch, "waiting", lambda self, others, rooms: []),
    "members join past jobs that have aged": (picking._Level, "ahead_of", lambda self, best, priority, aging: ()),
    "who was passed over bars nobody of its priority": (picking._Level, "_lets_join", lambda self, bucket: True),
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
