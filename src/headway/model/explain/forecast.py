"""Forecasts when a waiting job starts: simulates the queue with the durations of past runs."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from headway.model.explain.snapshot import ActiveReservation, QueuedJob, WorkerSlots
from headway.model.queue.capacity import Bucket, Capacity, Queue, grants, head
from headway.model.queue.capacity import reserve as close_reserved
from headway.model.queue.place import AgedPlace, Place, Stage
from headway.model.queue.select import Pick, last_turns, select_jobs
from headway.model.queue.select_aged import Aging, select_aged
from headway.model.queue.select_aged import Levels as Sources
from headway.model.queue.stage_sharing import StageSharing

TaskKey = tuple[int, str]  # a tenant and a task, the key of known durations
_UNITS = ((86_400, "days"), (3_600, "h"), (60, "min"), (1, "s"))


def span(micros: int) -> str:
    """Formats a duration in one unit: `3 min`."""
    seconds = max(0, round(micros / 1e6))
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{round(seconds / size)} {unit}"
    return f"{seconds} s"


@dataclass(frozen=True, slots=True)
class Estimate:
    """The start of a job if running work takes the median, and the 90th percentile, of past runs."""

    p50: int
    p90: int

    def shown(self, now: int) -> str:
        likely = f"in about {span(self.p50 - now)}" if self.p50 - now >= 1_000_000 else "any moment now"
        latest = f" (at most {span(self.p90 - now)})" if self.p90 - max(self.p50, now) >= 1_000_000 else ""
        return f"starts {likely}{latest}"


@dataclass(frozen=True, slots=True)
class Occupant:
    """A running job or a direct call, which occupies lanes.

    Its end frees a slot of the worker `worker_slots`, or ends the reservation `call`. Without a `kind` its end is
    unknown. `tenant_id` is set for a job.
    """

    lanes: tuple[int, ...]
    kind: TaskKey | None
    since: int
    ran: int = 0
    target_id: int | None = None
    worker_slots: int | None = None
    call: int | None = None
    stage: Stage | None = None
    tenant_id: int | None = None


def _occupant(call: ActiveReservation) -> Occupant:
    """Returns a granted reservation as the occupant of its lanes; only the end of a direct call can be foreseen."""
    kind = None if call.task is None else (call.tenant_id, call.task)
    return Occupant(call.lanes, kind, call.granted_at or 0, target_id=call.target_id, call=call.id)


@dataclass(frozen=True, slots=True)
class ForecastInput:
    """Everything that decides when waiting jobs start.

    `buckets` has the tasks and lanes of the waiting jobs. `all_slots` has each living worker, `paused` the end of each
    tenant's pause (0 stands for all tenants), `shut` the targets that a person must open. `aging` is in microseconds.
    `policy` has the lanes in which the jobs of a stage count as one, `limits` the tenants' limits of running jobs,
    `turns` the number of each tenant's last turn.
    """

    now: int
    waiting: Sequence[QueuedJob]
    buckets: Mapping[int, Bucket]
    running: Sequence[Occupant] = ()
    all_slots: Sequence[WorkerSlots] = ()
    capacity: Mapping[int, int | None] = field(default_factory=dict)
    calls: Sequence[ActiveReservation] = ()
    paused: Mapping[int, int | None] = field(default_factory=dict)
    shut: frozenset[int] = frozenset()
    aging: int | None = None
    policy: frozenset[int] = frozenset()
    limits: Mapping[int, int] = field(default_factory=dict)
    turns: Mapping[int, int] = field(default_factory=dict)


PastDurations = Mapping[TaskKey, Sequence[int]]


def estimate(job_id: int, line: ForecastInput, history: PastDurations) -> Estimate | None:
    """Estimates the start of a job; None if it depends on a person or on a task without past runs."""
    return estimates({job_id}, line, history).get(job_id)


def estimates(wanted: Collection[int], line: ForecastInput, history: PastDurations) -> dict[int, Estimate]:
    """Estimates the starts of several jobs; leaves out those without an estimate."""
    p50, p90 = (Simulation(line, _durations(history, share)).starts_of(wanted) for share in (0.5, 0.9))
    # Longer durations can, by chance, make a job start earlier, so p90 is at least p50.
    return {job_id: Estimate(p50[job_id], max(p50[job_id], p90[job_id])) for job_id in p50.keys() & p90.keys()}


def _durations(history: PastDurations, share: float) -> dict[TaskKey, int]:
    return {kind: quantile(took, share) for kind, took in history.items() if took}


def quantile(values: Sequence[int], share: float) -> int:
    """Returns the smallest value that at least this share of all values does not exceed."""
    rank = -(-len(values) * round(share * 100) // 100)
    return sorted(values)[max(0, rank - 1)]


PriorityQueues = dict[int, list[AgedPlace]]  # by priority, each in order


class Simulation:
    """Simulates the queue from event to event.

    A job that ends frees its lanes, its target and its slot; then free slots go to the next jobs, by the rules of the
    claim. An overdue job (it has run for at least its usual duration) still runs: the first claims find its lanes
    taken, as real claims would, so a job without blockers starts now. Then all overdue jobs end at the same time.
    """

    def __init__(self, line: ForecastInput, lasts: Mapping[TaskKey, int]) -> None:
        self.line = line
        self.lasts = lasts
        self.time = line.now
        self.free = {lane: limit for lane, limit in line.capacity.items() if limit is not None}
        self.left = dict(line.limits)
        self.turns = dict(line.turns)
        self.inside: dict[int, Counter[Stage]] = {lane: Counter() for lane in line.policy if lane in self.free}
        self.slots = [worker_slots.free for worker_slots in line.all_slots]
        self.calls = {call.id: call for call in line.calls}
        self.busy: set[int] = set()
        self.ends: list[tuple[int, int, Occupant]] = []
        self.numbers = count()
        self.levels: dict[int, PriorityQueues] = {}
        self.waiting = {job.id: job for job in line.waiting}
        self.queues: dict[int, list[Place]] = {}
        self.holders: dict[int, int] = {}
        self.open: dict[int, int] = {}
        self.started: dict[int, int] = {}
        self.sought: set[int] = set()
        self.order = sorted(range(len(self.slots)), key=lambda n: line.all_slots[n].breadth)
        self.later = sorted(((job.due(line.now), job.id) for job in line.waiting), reverse=True)
        granted = [_occupant(call) for call in line.calls if call.granted_at is not None]
        for occupant in (*line.running, *granted):
            self._take(occupant.lanes, occupant.stage)
            self._count(occupant, -1)
            self._begin(occupant)

    def starts_of(self, wanted: Collection[int]) -> dict[int, int]:
        """Returns the starts of the wanted jobs; leaves out those that never start."""
        self.sought = set(wanted) & self.waiting.keys()
        self._arrive()
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

    def _count(self, occupant: Occupant, by: int) -> None:
        """Changes the number of jobs that the occupant's tenant may still run."""
        if occupant.tenant_id in self.left:
            self.left[occupant.tenant_id] += by

    def _enter(self, lane: int, stage: Stage | None) -> bool:
        """Returns True if the job takes a place in the lane; of a stage, only the first job does."""
        if stage is None or lane not in self.inside:
            return True
        self.inside[lane][stage] += 1
        return self.inside[lane][stage] == 1

    def _exit(self, lane: int, stage: Stage | None) -> bool:
        """Returns True if the job frees a place in the lane; of a stage, only the last job does."""
        if stage is None or lane not in self.inside:
            return True
        self.inside[lane][stage] -= 1
        return self.inside[lane][stage] == 0

    def _begin(self, occupant: Occupant) -> None:
        """Schedules the end of an occupant; without past runs it never ends."""
        if occupant.target_id is not None:
            self.busy.add(occupant.target_id)
        lasts = self.lasts.get(occupant.kind) if occupant.kind is not None else None
        if lasts is not None:
            end = max(self.time, occupant.since + max(0, lasts - occupant.ran))
            heapq.heappush(self.ends, (end, next(self.numbers), occupant))

    def _leave(self, occupant: Occupant) -> None:
        for lane in occupant.lanes:
            if lane in self.free and self._exit(lane, occupant.stage):
                self.free[lane] += 1
        self._count(occupant, 1)
        if occupant.call is not None:
            del self.calls[occupant.call]
        if occupant.worker_slots is not None:
            self.slots[occupant.worker_slots] += 1
        if occupant.target_id is not None:
            self.busy.discard(occupant.target_id)
            self._choose(occupant.target_id)

    # --- the queue ---

    def _come(self, job: QueuedJob) -> None:
        if job.target_id is None:
            self._open(job)
            return
        insort(self.queues.setdefault(job.target_id, []), job.place)
        if job.holds:
            self.holders[job.target_id] = job.id
        self._choose(job.target_id)

    def _choose(self, target: int) -> None:
        """Opens the one job of a target that may be claimed, and closes the one before."""
        queue, holder = self.queues.get(target, ()), self.holders.get(target)
        first = queue[0].job_id if queue else None
        stopped = target in self.line.shut or target in self.busy
        chosen = head(Queue(target, stopped, holder, holder is not None, first, None))
        opened = self.open.get(target)
        if opened != chosen and opened is not None:
            self._close(self.waiting[opened])
        if opened != chosen and chosen is not None:
            self.open[target] = chosen
            self._open(self.waiting[chosen])

    def _open(self, job: QueuedJob) -> None:
        insort(self.levels.setdefault(job.bucket_id, {}).setdefault(job.priority, []), job.aged(self.line.now))

    def _close(self, job: QueuedJob) -> None:
        levels = self.levels[job.bucket_id]
        del levels[job.priority][bisect_left(levels[job.priority], job.aged(self.line.now))]
        if not levels[job.priority]:
            del levels[job.priority]
        if job.target_id is not None:
            del self.open[job.target_id]

    # --- grants and claims ---

    def _grant(self) -> None:
        found = [self.calls[number].reserved for number in sorted(self.calls)]
        given = grants(found, Capacity(dict(self.free)), self.busy | self.line.shut, ()) if found else []
        for number in given:
            call = self.calls[number] = self.calls[number]._replace(granted_at=self.time)
            self._take(call.lanes)
            self._begin(_occupant(call))

    def _capacity(self) -> Capacity:
        """Returns the capacity left to the queue; granted calls have already taken their places."""
        stages = {lane: {stage for stage, n in inside.items() if n} for lane, inside in self.inside.items()}
        capacity = Capacity(self.free, tenants=self.left, sharing=StageSharing(stages))
        reserved = [call.reserved for call in self.calls.values()]
        close_reserved(capacity, [replace(reservation, granted=False) for reservation in reserved], {})
        targets = {reservation.target_id for reservation in reserved}
        capacity.barred = {job_id for target, job_id in self.open.items() if target in targets}
        return capacity

    def _claim(self) -> None:
        """Claims for every worker with a free slot; workers with the fewest tasks and tenants come first."""
        if self._paused(0):
            return
        capacity = self._capacity()
        for worker_slots in self.order:
            if self.slots[worker_slots] > 0:
                capacity.begin_claim()
                for pick in self._plan(self.slots[worker_slots], self.line.all_slots[worker_slots], capacity):
                    self._start(self.waiting.pop(pick.job_id), worker_slots)

    def _ready(self) -> Iterator[Bucket]:
        for number, levels in self.levels.items():
            if levels and not self._paused(self.line.buckets[number].tenant_id):
                yield self.line.buckets[number]

    def _paused(self, tenant_id: int) -> bool:
        until = self.line.paused.get(tenant_id, 0)
        return until is None or until > self.time

    def _plan(self, count: int, worker: WorkerSlots, capacity: Capacity) -> list[Pick]:
        every = list(self._ready())
        open_buckets = (b for b in every if capacity.has_room(b) or capacity.has_room_for_members(b))
        ready = [b for b in open_buckets if worker.claims_from(b)]
        if not ready:
            return []
        turns = self.turns if len({b.tenant_id for b in every}) > 1 else None
        others = [b for b in every if not worker.claims_from(b)]
        if self.line.aging is None:
            picks = select_jobs(count, ready, capacity, self._places, others, turns)
        else:
            aging = Aging(self.line.aging, self.time)
            picks = select_aged(count, ready, capacity, self._sources, aging, others, turns)
        self.turns |= last_turns(picks)
        return picks

    def _sources(self, buckets: Iterable[Bucket]) -> Sources:
        levels: dict[int, list[tuple[Bucket, Iterator[AgedPlace]]]] = {}
        for bucket in buckets:
            for priority, places in self.levels[bucket.id].items():
                levels.setdefault(priority, []).append((bucket, iter(places)))
        return levels

    def _places(self, bucket: Bucket) -> Iterator[Place]:
        for priority, places in sorted(self.levels[bucket.id].items(), reverse=True):
            for aged in places:
                yield Place(-priority, aged.position, aged.created_at, aged.job_id, aged.group_id, aged.stage)

    def _start(self, job: QueuedJob, worker_slots: int) -> None:
        """Starts a picked job; the plan has already taken its lanes."""
        self.started[job.id] = self.time
        self.sought.discard(job.id)
        self.slots[worker_slots] -= 1
        self._close(job)
        if job.target_id is not None:
            self.queues[job.target_id].remove(job.place)
            self.holders.pop(job.target_id, None)
        bucket, stage = self.line.buckets[job.bucket_id], job.in_stage
        for lane in bucket.lanes:
            self._enter(lane, stage)
        kind = (bucket.tenant_id, bucket.task)
        took = Occupant(
            bucket.lanes, kind, self.time, job.ran, job.target_id, worker_slots, None, stage, bucket.tenant_id
        )
        self._begin(took)
