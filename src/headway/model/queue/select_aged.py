"""Selects the next jobs with aging: waiting raises the priority of a job."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count as numbers

from headway.model.queue.capacity import Bucket, Capacity
from headway.model.queue.place import AgedPlace, stage_of
from headway.model.queue.select import BucketJobs, Pick, Selection, Turns


@dataclass(frozen=True, slots=True)
class Aging:
    """Adds 1 to the priority of a job for each `interval` (microseconds) of waiting, up to 100."""

    interval: int
    now: int

    def effective(self, priority: int, queued_at: int) -> int:
        return min(100, priority + max(0, self.now - queued_at) // self.interval)


# Buckets by plain priority, each with its jobs of that priority in order.
Levels = Mapping[int, Sequence[tuple[Bucket, Iterator[AgedPlace]]]]
ReadLevels = Callable[[Collection[Bucket]], Levels]


def select_aged(
    count: int,
    buckets: Collection[Bucket],
    capacity: Capacity,
    read: ReadLevels,
    aging: Aging,
    others: Sequence[Bucket] = (),
    turns: Turns | None = None,
) -> list[Pick]:
    """Selects as `select_jobs` does, but each priority's first eligible job competes with its aged priority.

    Ties go to the higher plain priority; the order within a priority never changes. A job that is passed over because
    stages fill a lane blocks that lane for further members if it would have been taken before the next pick.
    """
    return _AgedOrder(buckets, capacity, read, aging, others, turns).select(count)


class _AgedOrder(Selection):
    """A selection with aging."""

    def __init__(
        self,
        buckets: Collection[Bucket],
        capacity: Capacity,
        read: ReadLevels,
        aging: Aging,
        others: Sequence[Bucket],
        turns: Turns | None,
    ) -> None:
        self.read, self.aging = read, aging
        self.aged: dict[int, AgedQueue] = {}
        levels = read(buckets)
        super().__init__({b for sources in levels.values() for b, _ in sources}, capacity, others, turns)
        self._add_levels(levels, pickable=True)

    def add(self, buckets: Collection[Bucket], *, pickable: bool) -> None:
        self._add_levels(self.read(buckets), pickable=pickable)

    def _add_levels(self, levels: Levels, *, pickable: bool) -> None:
        for priority, sources in levels.items():
            for bucket, places in sources:
                number = self.queue_number(bucket)
                if number not in self.aged:
                    self.aged[number] = self.queues[number] = AgedQueue(number, self.capacity, self.aging)
                self.aged[number].added.append((priority, BucketJobs(bucket, places, pickable)))


class AgedQueue:
    """The jobs of one queue, in one level per priority."""

    def __init__(self, number: int, capacity: Capacity, aging: Aging) -> None:
        self.number, self.capacity, self.aging = number, capacity, aging
        # Sources that were not read yet, with their priority.
        self.added: list[tuple[int, BucketJobs[AgedPlace]]] = []
        self.levels: dict[int, PriorityLevel] = {}
        # The plain priority of the job that `ready` found.
        self.best = 0

    def ready(self) -> bool:
        """Finds the best of the levels' first jobs; blocks lanes for the jobs that it passes over."""
        for priority, source in self.added:
            self.levels.setdefault(priority, PriorityLevel(self.number, self.capacity)).push(source)
        self.added.clear()
        while True:
            firsts = [(priority, level.first()) for priority, level in self.levels.items()]
            ages = ((self.aging.effective(p, place.queued_at), p) for p, place in firsts if place is not None)
            best = max(ages, default=None)
            waited_for = {lane for p, level in self.levels.items() for lane in level.ahead_of(best, p, self.aging)}
            blocked = self.capacity.sharing.block(waited_for, self.number)
            if best is None:
                return False
            if not blocked:
                self.best = best[1]
                return True

    def take(self) -> Pick:
        return self.levels[self.best].take()


class PriorityLevel:
    """The jobs of one plain priority, over all buckets.

    `passed` has the jobs that wait for stages to leave a lane, each with the lanes that later jobs may not join.
    """

    def __init__(self, number: int, capacity: Capacity) -> None:
        self.number, self.capacity = number, capacity
        self.heap: list[tuple[AgedPlace, int, BucketJobs[AgedPlace]]] = []
        self.passed: list[tuple[AgedPlace, set[int]]] = []
        self.ties = numbers()

    def push(self, source: BucketJobs[AgedPlace]) -> None:
        place = next(source.places, None)
        if place is not None:
            heapq.heappush(self.heap, (place, next(self.ties), source))

    def first(self) -> AgedPlace | None:
        """Returns the first job that may run; drops those that can no longer run in this claim."""
        capacity = self.capacity
        while self.heap:
            place, _, source = self.heap[0]
            bucket = source.bucket
            has_room = capacity.has_room(bucket)
            if not has_room and not self._accepts_members(bucket):
                heapq.heappop(self.heap)
                continue
            fits = has_room or capacity.sharing.may_join(bucket.lanes, stage_of(place.group_id, place.stage))
            barred = place.job_id in capacity.barred
            if fits and source.pickable and not barred:
                return place
            heapq.heappop(self.heap)
            if fits or barred:
                self.push(source)
            else:
                self.passed.append((place, capacity.sharing.joinable.intersection(bucket.lanes)))
        return None

    def _accepts_members(self, bucket: Bucket) -> bool:
        return self.capacity.has_room_for_members(bucket, self.number) and not self._passed_waits_for(bucket)

    def _passed_waits_for(self, bucket: Bucket) -> bool:
        return any(not lanes.isdisjoint(bucket.lanes) for _, lanes in self.passed)

    def ahead_of(self, best: tuple[int, int] | None, priority: int, aging: Aging) -> Iterator[int]:
        """Yields the lanes of passed-over jobs that come before the best job; without one, all of them.

        `best` is the effective and the plain priority of the best job.
        """
        for place, lanes in self.passed:
            if best is None or priority == best[1] or (aging.effective(priority, place.queued_at), priority) > best:
                yield from lanes

    def take(self) -> Pick:
        place, _, source = heapq.heappop(self.heap)
        stage = stage_of(place.group_id, place.stage)
        self.capacity.occupy(source.bucket, stage, self.number)
        self.push(source)
        return Pick(place.job_id, source.bucket, stage)
