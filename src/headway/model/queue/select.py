"""Selects the next jobs: merges the buckets in queue order, and lets tenants take turns."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count as numbers
from typing import Generic, NamedTuple, Protocol, TypeVar

from headway.model.queue.capacity import Bucket, Capacity
from headway.model.queue.place import AgedPlace, Place, Stage, stage_of


class Pick(NamedTuple):
    """A selected job. `turn` is the number of its tenant's turn if tenants take turns."""

    job_id: int
    bucket: Bucket
    stage: Stage | None = None
    turn: int | None = None


# Yields the places of a bucket in order. The selection reads it only as far as it needs.
ReadPlaces = Callable[[Bucket], Iterator[Place]]
# The number of each tenant's last turn. The key 0 has the last number given.
Turns = Mapping[int, int]


def in_turn(tenants: Iterable[int], turns: Turns) -> list[int]:
    """Sorts tenants by their last turn, the oldest first."""
    return sorted(tenants, key=lambda tenant_id: (turns.get(tenant_id, 0), tenant_id))


def last_turns(picks: Iterable[Pick]) -> dict[int, int]:
    """Returns the turns that these picks took: the last one of each tenant, and under 0 the last number."""
    last = {pick.bucket.tenant_id: pick.turn for pick in picks if pick.turn is not None}
    return {**last, 0: max(last.values())} if last else {}


def select_jobs(
    count: int,
    buckets: Sequence[Bucket],
    capacity: Capacity,
    places: ReadPlaces,
    others: Sequence[Bucket] = (),
    turns: Turns | None = None,
) -> list[Pick]:
    """Selects the next `count` jobs in queue order, each with a free place in all its lanes.

    Takes their places from `capacity`. A job that is passed over because stages fill a lane blocks that lane for
    further members (`StageSharing`). That also holds for jobs of the `others` buckets, which this claim may not pick.
    With `turns`, tenants take turns; without, all jobs share one queue.
    """
    return _QueueOrder(buckets, capacity, places, others, turns).select(count)


def select_from_line(count: int, line: Iterable[tuple[Bucket, Place]], capacity: Capacity) -> list[Pick] | None:
    """Selects the next jobs from one sorted line; returns None if a member of a stage is among them.

    The effect of a member on a lane depends on the other jobs that wait for it, which are not in the line.
    """
    picks: list[Pick] = []
    for bucket, place in line:
        if place.group_id is not None:
            return None
        if place.job_id in capacity.barred:
            continue
        if capacity.has_room(bucket):
            capacity.occupy(bucket)
            picks.append(Pick(place.job_id, bucket))
            if len(picks) == count:
                break
        elif capacity.has_room_for_members(bucket):
            capacity.sharing.block(bucket.lanes)
    return picks


# --- turns --------------------------------------------------------------------------------------------------------


class JobQueue(Protocol):
    """The jobs of one tenant in the order in which a claim picks them."""

    def ready(self) -> bool:
        """Moves to the first job that may run; returns False if there is none."""
        ...

    def take(self) -> Pick:
        """Picks the job that `ready` found, and takes its places."""
        ...


class Selection(ABC):
    """A selection in progress: one queue per tenant, or one for all without `turns`.

    `own` are the buckets to pick from. `others` are buckets of tasks that this worker does not know: their jobs are not
    picked, but one of them may wait for a lane that becomes joinable. They are read only then.
    """

    def __init__(self, own: Iterable[Bucket], capacity: Capacity, others: Sequence[Bucket], turns: Turns | None):
        self.own, self.capacity, self.others = own, capacity, others
        self.turns = None if turns is None else dict(turns)
        self.queues: dict[int, JobQueue] = {}

    @abstractmethod
    def add(self, buckets: Sequence[Bucket], *, pickable: bool) -> None:
        """Adds the jobs of buckets to the queues of their tenants."""

    def queue_number(self, bucket: Bucket) -> int:
        return 0 if self.turns is None else bucket.tenant_id

    def select(self, count: int) -> list[Pick]:
        """Picks one job of each queue in turn until none has a job that may run."""
        picks: list[Pick] = []
        order: list[int] = []
        while len(picks) < count:
            if self.others and self.capacity.sharing.joinable:
                self._compare_others()
            if len(order) < len(self.queues):
                order = in_turn(self.queues, self.turns or {})
            for number in order:
                queue = self.queues[number]
                if queue.ready():
                    break
            else:
                return picks
            pick = queue.take()
            if self.turns is not None:
                order.remove(number)
                order.append(number)
                pick = pick._replace(turn=self._next_turn(number, self.turns))
            picks.append(pick)
        return picks

    def _next_turn(self, number: int, turns: dict[int, int]) -> int:
        turns[0] = turns[number] = turns.get(0, 0) + 1
        return turns[0]

    def _compare_others(self) -> None:
        """Adds the other buckets whose jobs may wait for lanes that became joinable.

        Buckets that share no lane with our own keep none of our jobs back. One that does is compared as soon as any of
        its lanes becomes joinable: later, its jobs would wait for lanes that this claim has filled meanwhile.
        """
        fresh = self.capacity.sharing.newly_joinable()
        if fresh:
            own = {lane for bucket in self.own for lane in bucket.lanes}
            waiting = [b for b in self.others if not (fresh.isdisjoint(b.lanes) or own.isdisjoint(b.lanes))]
            self.add([b for b in waiting if self.capacity.has_room_for_members(b)], pickable=False)


# --- queue order --------------------------------------------------------------------------------------------------

P = TypeVar("P", Place, AgedPlace)


@dataclass(slots=True, eq=False)
class BucketJobs(Generic[P]):
    """The waiting jobs of one bucket. Jobs that are not `pickable` only block lanes."""

    bucket: Bucket
    places: Iterator[P]
    pickable: bool


class _QueueOrder(Selection):
    """A selection in queue order."""

    def __init__(
        self,
        buckets: Sequence[Bucket],
        capacity: Capacity,
        places: ReadPlaces,
        others: Sequence[Bucket],
        turns: Turns | None,
    ) -> None:
        super().__init__(buckets, capacity, others, turns)
        self.places = places
        self.merged: dict[int, MergedQueue] = {}
        self.add(buckets, pickable=True)

    def add(self, buckets: Sequence[Bucket], *, pickable: bool) -> None:
        for bucket in buckets:
            number = self.queue_number(bucket)
            if number not in self.merged:
                self.merged[number] = self.queues[number] = MergedQueue(number, self.capacity)
            self.merged[number].added.append(BucketJobs(bucket, self.places(bucket), pickable))


class MergedQueue:
    """The jobs of one queue in queue order: a heap with the first job of each bucket."""

    def __init__(self, number: int, capacity: Capacity) -> None:
        self.number, self.capacity = number, capacity
        # Sources that were not read yet.
        self.added: list[BucketJobs[Place]] = []
        self.heap: list[tuple[Place, int, BucketJobs[Place]]] = []
        self.ties = numbers()
        # True if the first job was taken. The next one of its bucket is read only when it is needed.
        self.taken = False

    def ready(self) -> bool:
        """Moves to the first job that may run; blocks lanes for the jobs that it passes over."""
        capacity = self.capacity
        if self.taken:
            self._advance()
        if self.added:
            self._read_added()
        while self.heap:
            place, _, source = self.heap[0]
            bucket = source.bucket
            has_room = capacity.has_room(bucket)
            if not has_room and not capacity.has_room_for_members(bucket, self.number):
                heapq.heappop(self.heap)
            elif place.job_id in capacity.barred:
                self._advance()
            elif not has_room and not capacity.sharing.may_join(bucket.lanes, stage_of(place.group_id, place.stage)):
                capacity.sharing.block(bucket.lanes, self.number)
                heapq.heappop(self.heap)
            elif source.pickable:
                return True
            else:
                self._advance()
        return False

    def take(self) -> Pick:
        place, _, source = self.heap[0]
        stage = None if place.group_id is None else stage_of(place.group_id, place.stage)
        self.capacity.occupy(source.bucket, stage, self.number)
        self.taken = True
        return Pick(place.job_id, source.bucket, stage)

    def _read_added(self) -> None:
        for source in self.added:
            if self.capacity.has_room(source.bucket) or self.capacity.has_room_for_members(source.bucket, self.number):
                first = next(source.places, None)
                if first is not None:
                    heapq.heappush(self.heap, (first, next(self.ties), source))
        self.added.clear()

    def _advance(self) -> None:
        """Replaces the first job by the next one of the same bucket."""
        self.taken = False
        _, tie, source = self.heap[0]
        following = next(source.places, None)
        if following is None:
            heapq.heappop(self.heap)
        else:
            heapq.heapreplace(self.heap, (following, tie, source))
