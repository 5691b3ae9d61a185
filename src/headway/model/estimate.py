"""When a waiting job may start: the queue played forward with the durations of past runs."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from headway.model.lanes import Bucket, Place, Queue, Reserved, Rooms, Stage, grants, head
from headway.model.lanes import reserve as close_reserved
from headway.model.picking import Aged, Aging, Pick, plan, plan_aged, told
from headway.model.picking import Levels as Sources

Kind = tuple[int, str]  # a tenant and a task: what durations are known by
NO_STAGE = (None, None)
_UNITS = ((86_400, "days"), (3_600, "h"), (60, "min"), (1, "s"))


def span(micros: int) -> str:
    """A length of time in one unit, for people: `3 min`."""
    seconds = max(0, round(micros / 1e6))
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{round(seconds / size)} {unit}"
    return f"{seconds} s"


@dataclass(frozen=True, slots=True)
class Estimate:
    """When a job starts if work takes as long as half of the past runs took, and as long as nine in ten did."""

    p50: int
    p90: int

    def shown(self, now: int) -> str:
        likely = f"in about {span(self.p50 - now)}" if self.p50 - now >= 1_000_000 else "any moment now"
        latest = f" (at most {span(self.p90 - now)})" if self.p90 - max(self.p50, now) >= 1_000_000 else ""
        return f"starts {likely}{latest}"


@dataclass(frozen=True, slots=True)
class Waiter:
    """A job in line. `due`: not before. `ran`: so long it ran already. `holds`: it was resumed and has its target."""

    id: int
    bucket: Bucket
    priority: int
    position: int
    created_at: int
    queued_at: int
    due: int = 0
    target_id: int | None = None
    ran: int = 0
    holds: bool = False
    stage: Stage | None = None

    @property
    def kind(self) -> Kind:
        return (self.bucket.tenant_id, self.bucket.task)

    @property
    def aged(self) -> Aged:
        return (self.position, self.created_at, self.id, max(self.queued_at, self.due), *(self.stage or NO_STAGE))

    @property
    def place(self) -> Place:
        return (-self.priority, self.position, self.created_at, self.id, *(self.stage or NO_STAGE))


@dataclass(frozen=True, slots=True)
class Occupant:
    """A running job, or a direct call. `hand`: whose slot is free when it ends, `call`: which reservation is over.
    Without a `kind` nobody knows when that is. `tenant_id`: of a job."""

    lanes: tuple[int, ...]
    kind: Kind | None
    since: int
    ran: int = 0
    target_id: int | None = None
    hand: int | None = None
    call: int | None = None
    stage: Stage | None = None
    tenant_id: int | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A reservation, and since when it has its lanes if it was granted."""

    reserved: Reserved
    kind: Kind | None
    since: int = 0

    @property
    def occupant(self) -> Occupant:
        one = self.reserved
        return Occupant(one.lanes, self.kind, self.since, target_id=one.target_id, call=one.id)


@dataclass(frozen=True, slots=True)
class Line:
    """Everything that decides when the jobs in it start. `hands`: the tasks and free slots of each living worker.
    `paused`: tenants (0: all) and until when. `shut`: targets that a person has to open. `aging` in microseconds.
    `policy`: the lanes in which the jobs of a stage count as one. `limits`: how many jobs tenants may run. `turns`: the
    number of each tenant's last turn."""

    now: int
    waiting: Sequence[Waiter]
    running: Sequence[Occupant] = ()
    hands: Sequence[tuple[frozenset[str], int]] = ()
    capacity: Mapping[int, int | None] = field(default_factory=dict)
    calls: Sequence[Call] = ()
    paused: Mapping[int, int | None] = field(default_factory=dict)
    shut: frozenset[int] = frozenset()
    aging: int | None = None
    policy: frozenset[int] = frozenset()
    limits: Mapping[int, int] = field(default_factory=dict)
    turns: Mapping[int, int] = field(default_factory=dict)


History = Mapping[Kind, Sequence[int]]


def estimate(job_id: int, line: Line, history: History) -> Estimate | None:
    """None where it depends on something that nobody can foresee: a person, or work without a history."""
    return estimates({job_id}, line, history).get(job_id)


def estimates(wanted: Collection[int], line: Line, history: History) -> dict[int, Estimate]:
    """The same of several jobs; those that nobody can foresee are left out."""
    p50, p90 = (_Play(line, _durations(history, share)).starts_of(wanted) for share in (0.5, 0.9))
    # Longer work may by chance let a job start sooner; people want to know when at the latest.
    return {job_id: Estimate(p50[job_id], max(p50[job_id], p90[job_id])) for job_id in p50.keys() & p90.keys()}


def _durations(history: History, share: float) -> dict[Kind, int]:
    return {kind: quantile(took, share) for kind, took in history.items() if took}


def quantile(values: Sequence[int], share: float) -> int:
    """The smallest value that at least this share of all does not exceed."""
    rank = -(-len(values) * round(share * 100) // 100)
    return sorted(values)[max(0, rank - 1)]


Levels = dict[int, list[Aged]]  # by priority, each in order


class _Play:
    """The line, played forward from event to event. What ends frees its lanes, its target and its slot; then the free
    slots go to the next jobs, by the rules of the claim."""

    def __init__(self, line: Line, lasts: Mapping[Kind, int]) -> None:
        self.line = line
        self.lasts = lasts
        self.time = line.now
        self.free = {lane: limit for lane, limit in line.capacity.items() if limit is not None}
        self.left = dict(line.limits)
        self.turns = dict(line.turns)
        self.inside: dict[int, Counter[Stage]] = {lane: Counter() for lane in line.policy if lane in self.free}
        self.slots = [free for _, free in line.hands]
        self.calls = {call.reserved.id: call for call in line.calls}
        self.busy: set[int] = set()
        self.ends: list[tuple[int, int, Occupant]] = []
        self.numbers = count()
        self.buckets: dict[int, Bucket] = {}
        self.levels: dict[int, Levels] = {}
        self.waiting = {one.id: one for one in line.waiting}
        self.queues: dict[int, list[Place]] = {}
        self.holders: dict[int, int] = {}
        self.open: dict[int, int] = {}
        self.started: dict[int, int] = {}
        self.sought: set[int] = set()
        self.order = sorted(range(len(self.slots)), key=lambda n: len(line.hands[n][0]))
        self.later = sorted(((one.due, one.id) for one in line.waiting), reverse=True)
        granted = [call.occupant for call in line.calls if call.reserved.granted]
        for one in (*line.running, *granted):
            self._take(one.lanes, one.stage)
            self._count(one, -1)
            self._begin(one)

    def starts_of(self, wanted: Collection[int]) -> dict[int, int]:
        """When these start, as far as they do."""
        self.sought = set(wanted) & self.waiting.keys()
        self._arrive()  # what is overdue ends at any moment, but has not ended yet
        while True:
            self._grant()
            self._claim()
            following = self._next_event() if self.sought else None
            if following is None:
                return {job_id: self.started[job_id] for job_id in wanted if job_id in self.started}
            self.time = following
            self._end()
            self._arrive()

    # --- time ---

    def _next_event(self) -> int | None:
        instants = [until for until in self.line.paused.values() if until is not None and until > self.time]
        if self.ends:
            instants.append(self.ends[0][0])
        if self.later:
            instants.append(self.later[-1][0])
        return min(instants, default=None)

    def _end(self) -> None:
        while self.ends and self.ends[0][0] <= self.time:
            self._leave(heapq.heappop(self.ends)[2])

    def _arrive(self) -> None:
        while self.later and self.later[-1][0] <= self.time:
            self._come(self.waiting[self.later.pop()[1]])

    def _take(self, lanes: Iterable[int], stage: Stage | None = None) -> None:
        for lane in lanes:
            if lane in self.free and self._enter(lane, stage):
                self.free[lane] -= 1

    def _count(self, one: Occupant, by: int) -> None:
        """Of what its tenant may run."""
        if one.tenant_id in self.left:
            self.left[one.tenant_id] += by

    def _enter(self, lane: int, stage: Stage | None) -> bool:
        """Whether it takes a place: the first of a stage does."""
        if stage is None or lane not in self.inside:
            return True
        self.inside[lane][stage] += 1
        return self.inside[lane][stage] == 1

    def _exit(self, lane: int, stage: Stage | None) -> bool:
        """Whether it leaves a place: the last of a stage does."""
        if stage is None or lane not in self.inside:
            return True
        self.inside[lane][stage] -= 1
        return self.inside[lane][stage] == 0

    def _begin(self, one: Occupant) -> None:
        """It has its lanes: without a history, for ever."""
        if one.target_id is not None:
            self.busy.add(one.target_id)
        lasts = self.lasts.get(one.kind) if one.kind is not None else None
        if lasts is not None:
            end = max(self.time, one.since + max(0, lasts - one.ran))
            heapq.heappush(self.ends, (end, next(self.numbers), one))

    def _leave(self, one: Occupant) -> None:
        for lane in one.lanes:
            if lane in self.free and self._exit(lane, one.stage):
                self.free[lane] += 1
        self._count(one, 1)
        if one.call is not None:
            del self.calls[one.call]
        if one.hand is not None:
            self.slots[one.hand] += 1
        if one.target_id is not None:
            self.busy.discard(one.target_id)
            self._choose(one.target_id)

    # --- the queue ---

    def _come(self, one: Waiter) -> None:
        self.buckets[one.bucket.id] = one.bucket
        if one.target_id is None:
            self._open(one)
            return
        insort(self.queues.setdefault(one.target_id, []), one.place)
        if one.holds:
            self.holders[one.target_id] = one.id
        self._choose(one.target_id)

    def _choose(self, target: int) -> None:
        """The one job of a target that may be claimed is open."""
        queue, holder = self.queues.get(target, ()), self.holders.get(target)
        first = queue[0][3] if queue else None
        stopped = target in self.line.shut or target in self.busy
        chosen = head(Queue(target, stopped, holder, holder is not None, first, None))
        opened = self.open.get(target)
        if opened != chosen and opened is not None:
            self._close(self.waiting[opened])
        if opened != chosen and chosen is not None:
            self.open[target] = chosen
            self._open(self.waiting[chosen])

    def _open(self, one: Waiter) -> None:
        insort(self.levels.setdefault(one.bucket.id, {}).setdefault(one.priority, []), one.aged)

    def _close(self, one: Waiter) -> None:
        levels = self.levels[one.bucket.id]
        del levels[one.priority][bisect_left(levels[one.priority], one.aged)]
        if not levels[one.priority]:
            del levels[one.priority]
        if one.target_id is not None:
            del self.open[one.target_id]

    # --- turns ---

    def _grant(self) -> None:
        found = [self.calls[number].reserved for number in sorted(self.calls)]
        given = grants(found, Rooms(dict(self.free)), self.busy | self.line.shut, ()) if found else []
        for number in given:
            call = self.calls[number]
            self.calls[number] = replace(call, reserved=replace(call.reserved, granted=True), since=self.time)
            self._take(call.reserved.lanes)
            self._begin(self.calls[number].occupant)

    def _rooms(self) -> Rooms:
        """What is left to the queue. Granted calls have taken theirs already."""
        stages = {lane: {stage for stage, n in inside.items() if n} for lane, inside in self.inside.items()}
        rooms = Rooms(self.free, stages=stages, tenants=self.left)
        reserved = [call.reserved for call in self.calls.values()]
        close_reserved(rooms, [replace(one, granted=False) for one in reserved], {})
        targets = {one.target_id for one in reserved}
        rooms.barred = {job_id for target, job_id in self.open.items() if target in targets}
        return rooms

    def _claim(self) -> None:
        """Every worker with a free slot claims, those that know least first."""
        if self._paused(0):
            return
        rooms = self._rooms()
        for hand in self.order:
            if self.slots[hand] > 0:
                rooms.find_joins()
                for one in self._plan(self.slots[hand], self.line.hands[hand][0], rooms):
                    self._start(self.waiting.pop(one.job_id), hand)

    def _ready(self) -> Iterator[Bucket]:
        for number, levels in self.levels.items():
            if levels and not self._paused(self.buckets[number].tenant_id):
                yield self.buckets[number]

    def _paused(self, tenant_id: int) -> bool:
        until = self.line.paused.get(tenant_id, 0)
        return until is None or until > self.time

    def _plan(self, count: int, tasks: frozenset[str], rooms: Rooms) -> list[Pick]:
        every = list(self._ready())
        ready = [b for b in every if b.task in tasks and (rooms.admits(b) or rooms.keeps(b))]
        if not ready:
            return []
        turns = self.turns if len({b.tenant_id for b in every}) > 1 else None

        def others() -> list[Bucket]:
            return [b for b in self._ready() if b.task not in tasks]

        if self.line.aging is None:
            picks = plan(count, ready, rooms, self._places, others, turns)
        else:
            aging = Aging(self.line.aging, self.time)
            picks = plan_aged(count, self._sources(ready), rooms, aging, others, self._sources, turns)
        self.turns |= told(picks)
        return picks

    def _sources(self, buckets: Iterable[Bucket]) -> Sources:
        levels: dict[int, list[tuple[Bucket, Iterator[Aged]]]] = {}
        for bucket in buckets:
            for priority, places in self.levels[bucket.id].items():
                levels.setdefault(priority, []).append((bucket, iter(places)))
        return levels

    def _places(self, bucket: Bucket) -> Iterator[Place]:
        for priority, places in sorted(self.levels[bucket.id].items(), reverse=True):
            for position, created_at, job_id, _, group_id, stage in places:
                yield (-priority, position, created_at, job_id, group_id, stage)

    def _start(self, one: Waiter, hand: int) -> None:
        """The plan took the lanes already."""
        self.started[one.id] = self.time
        self.sought.discard(one.id)
        self.slots[hand] -= 1
        self._close(one)
        if one.target_id is not None:
            self.queues[one.target_id].remove(one.place)
            self.holders.pop(one.target_id, None)
        for lane in one.bucket.lanes:
            self._enter(lane, one.stage)
        stage, tenant_id = one.stage, one.bucket.tenant_id
        took = Occupant(one.bucket.lanes, one.kind, self.time, one.ran, one.target_id, hand, None, stage, tenant_id)
        self._begin(took)
