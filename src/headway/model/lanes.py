"""Which queued jobs run next: room in lanes, the merge of the open buckets in queue order, and aging."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

# After so many direct calls in a row, a job that waits for the same lane goes first.
BURST = 8


# (-priority, position, created_at, id): comparing two of these compares two places in the queue.
Place = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Bucket:
    """All that decides whether a job may run, except its own place and target."""

    id: int
    tenant_id: int
    task: str
    lanes: tuple[int, ...]
    on_target: bool = False


@dataclass(frozen=True, slots=True)
class Reserved:
    """An active reservation, as the claim sees it."""

    id: int
    lanes: tuple[int, ...]
    target_id: int | None = None
    granted: bool = False


@dataclass(slots=True)
class Rooms:
    """What is free now. An unlimited lane is not in `free`. Lanes in `closed` are reserved; one in `turns` too, but
    direct calls had it so long that one job goes first. `barred` are jobs whose target is reserved.
    """

    free: dict[int, int] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)
    turns: set[int] = field(default_factory=set)
    barred: set[int] = field(default_factory=set)

    def admits(self, bucket: Bucket) -> bool:
        # Not `all(…)`, which costs thrice as much: every claim comes here for every bucket.
        for lane in bucket.lanes:  # noqa: SIM110
            if self.free.get(lane, 1) <= 0 or lane in self.closed:
                return False
        return True

    def take(self, lanes: Iterable[int]) -> None:
        for lane in lanes:
            if lane in self.free:
                self.free[lane] -= 1
            if lane in self.turns:
                self.turns.discard(lane)
                self.closed.add(lane)


def rooms_of(buckets: Sequence[Bucket], capacity: Mapping[int, int | None], running: Mapping[int, int]) -> Rooms:
    """Free places per limited lane. `running` counts the running jobs per bucket."""
    free = {lane: limit for lane, limit in capacity.items() if limit is not None}
    for bucket in buckets:
        count = running.get(bucket.id, 0)
        for lane in bucket.lanes:
            if lane in free:
                free[lane] -= count
    return Rooms(free)


def reserve(rooms: Rooms, reserved: Sequence[Reserved], streaks: Mapping[int, int]) -> None:
    """Closes the lanes that are reserved for direct calls; granted ones take their places like claims."""
    for one in reserved:
        if one.granted:
            rooms.take(one.lanes)
    lanes = {lane for one in reserved for lane in one.lanes}
    rooms.turns = {lane for lane in lanes if streaks.get(lane, 0) >= BURST}
    rooms.closed = lanes - rooms.turns


def shut_targets(reserved: Sequence[Reserved], streaks: Mapping[int, int]) -> set[int]:
    """The targets that are reserved for direct calls, but for those on which a job goes first now."""
    granted = {one.target_id for one in reserved if one.granted}
    targets = {one.target_id for one in reserved if one.target_id is not None}
    return {target for target in targets if target in granted or streaks.get(target, 0) < BURST}


Source = Callable[[Bucket], Iterator[Place]]
Pick = tuple[int, Bucket]  # a job's id and its bucket


def plan(count: int, buckets: Sequence[Bucket], rooms: Rooms, places: Source) -> list[Pick]:
    """The next `count` jobs in queue order, each with room in all its lanes when its turn comes.

    `places` yields the places of one bucket in order; it is never asked for more than the claim needs.
    """
    heap: list[tuple[Place, int, Bucket, Iterator[Place]]] = []
    for bucket in buckets:
        source = places(bucket)
        first = next(source, None) if rooms.admits(bucket) else None
        if first is not None:
            heapq.heappush(heap, (first, bucket.id, bucket, source))
    picks: list[Pick] = []
    while heap and len(picks) < count:
        place, _, bucket, source = heap[0]
        if not rooms.admits(bucket):
            heapq.heappop(heap)
            continue
        if place[3] not in rooms.barred:
            picks.append((place[3], bucket))
            rooms.take(bucket.lanes)
            if len(picks) == count:
                break
        following = next(source, None)
        if following is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (following, bucket.id, bucket, source))
    return picks


@dataclass(frozen=True, slots=True)
class Aging:
    """Waiting for `interval` microseconds counts as one more priority."""

    interval: int
    now: int

    def effective(self, priority: int, queued_at: int) -> int:
        return min(100, priority + max(0, self.now - queued_at) // self.interval)


Aged = tuple[int, int, int, int]  # position, created_at, id, queued_at: a place within one priority, and since when
Levels = Mapping[int, Sequence[tuple[Bucket, Iterator[Aged]]]]  # by plain priority


def plan_aged(count: int, levels: Levels, rooms: Rooms, aging: Aging) -> list[Pick]:
    """As `plan`, but the first eligible job of each priority competes with its priority raised by its age.

    Ties go to the higher plain priority; the order within a priority never changes.
    """
    queues = {priority: _Level(sources) for priority, sources in levels.items()}
    picks: list[Pick] = []
    while len(picks) < count:
        firsts = [(p, queue.first(rooms)) for p, queue in queues.items()]
        best = max(((aging.effective(p, place[3]), p) for p, place in firsts if place is not None), default=None)
        if best is None:
            break
        picks.append(queues[best[1]].take(rooms))
    return picks


class _Level:
    """The jobs of one priority, over all buckets."""

    def __init__(self, sources: Sequence[tuple[Bucket, Iterator[Aged]]]) -> None:
        self.heap: list[tuple[Aged, int, Bucket, Iterator[Aged]]] = []
        for bucket, source in sources:
            self._push(bucket, source)

    def _push(self, bucket: Bucket, source: Iterator[Aged]) -> None:
        place = next(source, None)
        if place is not None:
            heapq.heappush(self.heap, (place, bucket.id, bucket, source))

    def first(self, rooms: Rooms) -> Aged | None:
        """The first job that may run; what cannot run any more in this claim is dropped."""
        while self.heap:
            place, _, bucket, source = self.heap[0]
            if rooms.admits(bucket) and place[2] not in rooms.barred:
                return place
            heapq.heappop(self.heap)
            if rooms.admits(bucket):
                self._push(bucket, source)
        return None

    def take(self, rooms: Rooms) -> Pick:
        place, _, bucket, source = heapq.heappop(self.heap)
        rooms.take(bucket.lanes)
        self._push(bucket, source)
        return place[2], bucket


# --- targets ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue of one target. `holder`: the job that holds it; `resumed`: and that waits for its next claim."""

    target_id: int
    paused: bool
    holder: int | None
    resumed: bool
    first: int | None
    open: int | None


def head(queue: Queue) -> int | None:
    """The one job of a target that may be claimed as far as the target goes."""
    if queue.paused:
        return None
    if queue.holder is not None:
        return queue.holder if queue.resumed else None
    return queue.first


# --- granting -----------------------------------------------------------------------------------------------------


def grants(reserved: Sequence[Reserved], rooms: Rooms, busy: Collection[int], first: Collection[int]) -> list[int]:
    """Which waiting reservations get their lanes now: in order, all lanes at once, none past one that waits for them.

    `rooms` counts the granted ones already. `busy` are targets that a job holds or a person paused, `first` lanes on
    which a job goes first.
    """
    found: list[int] = []
    lanes, targets = set(first), set(busy) | {one.target_id for one in reserved if one.granted}
    targets.discard(None)
    for one in reserved:
        if one.granted:
            continue
        free = all(lane not in lanes and rooms.free.get(lane, 1) > 0 for lane in one.lanes)
        if free and one.target_id not in targets:
            found.append(one.id)
            rooms.take(one.lanes)
        else:
            lanes.update(one.lanes)
        if one.target_id is not None:
            targets.add(one.target_id)
    return found
