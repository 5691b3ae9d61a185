"""Which queued jobs run next: room in lanes, the merge of the open buckets in queue order, and aging."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count as numbers
from typing import NamedTuple

# After so many direct calls in a row, a job that waits for the same lane goes first.
BURST = 8


# A group and one of its stages: whose running jobs count as one on the policy's lanes.
Stage = tuple[int, int]
# (-priority, position, created_at, id): comparing two of these compares two places in the queue; then group and stage.
Place = tuple[int, int, int, int, int | None, int | None]


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


def stage_of(group_id: int | None, stage: int | None) -> Stage | None:
    return None if group_id is None or stage is None else (group_id, stage)


@dataclass(slots=True)
class Rooms:
    """What is free now. An unlimited lane is not in `free`. Lanes in `closed` are reserved; one in `turns` too, but
    direct calls had it so long that one job goes first. `barred` are jobs whose target is reserved.

    `stages` has the stages in each limited lane of the policy, where a stage takes one place. `joins` are the full ones
    of these that take further members.
    """

    free: dict[int, int] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)
    turns: set[int] = field(default_factory=set)
    barred: set[int] = field(default_factory=set)
    stages: dict[int, set[Stage]] = field(default_factory=dict)
    joins: set[int] = field(default_factory=set)

    def admits(self, bucket: Bucket) -> bool:
        # Not `all(…)`, which costs thrice as much: every claim comes here for every bucket.
        for lane in bucket.lanes:  # noqa: SIM110
            if self.free.get(lane, 1) <= 0 or lane in self.closed:
                return False
        return True

    def keeps(self, bucket: Bucket) -> bool:
        """Whether all that is in the way of these jobs are lanes that take members of the stages in them."""
        joins = self.joins
        if joins.isdisjoint(bucket.lanes):
            return False
        return all(lane in joins or (self.free.get(lane, 1) > 0 and lane not in self.closed) for lane in bucket.lanes)

    def lets_join(self, bucket: Bucket, stage: Stage | None) -> bool:
        """Of one that these lanes keep: whether its stage is in all that are full."""
        return stage is not None and all(stage in self.stages[lane] for lane in bucket.lanes if lane in self.joins)

    def drain(self, lanes: Collection[int]) -> bool:
        """Somebody better placed waits for these lanes: nobody joins the stages there any more. Whether that is new."""
        if self.joins.isdisjoint(lanes):
            return False
        self.joins.difference_update(lanes)
        return True

    def find_joins(self) -> None:
        """A lane that is reserved takes no members: whoever has reserved it goes before them."""
        shut = self.closed | self.turns
        self.joins = {n for n, inside in self.stages.items() if inside and self.free[n] <= 0 and n not in shut}

    def take(self, lanes: Iterable[int], stage: Stage | None = None) -> None:
        for lane in lanes:
            if lane in self.turns:
                self.turns.discard(lane)
                self.closed.add(lane)
            if lane in self.free:
                self._enter(lane, stage)

    def _enter(self, lane: int, stage: Stage | None) -> None:
        inside = self.stages.get(lane)
        if inside is not None and stage is not None:
            if stage in inside:
                return
            inside.add(stage)
        self.free[lane] -= 1
        if inside and self.free[lane] <= 0 and lane not in self.closed and lane not in self.turns:
            self.joins.add(lane)


Members = Mapping[tuple[int, Stage], int]  # how many of each stage run in each bucket


def rooms_of(
    buckets: Sequence[Bucket],
    capacity: Mapping[int, int | None],
    running: Mapping[int, int],
    policy: Collection[int] = (),
    members: Members | None = None,
) -> Rooms:
    """Free places per limited lane. `running` counts the running jobs per bucket, `members` those of stages among them.
    In the lanes of the `policy` a stage takes one place."""
    free = {lane: limit for lane, limit in capacity.items() if limit is not None}
    for bucket in buckets:
        count = running.get(bucket.id, 0)
        for lane in bucket.lanes:
            if lane in free:
                free[lane] -= count
    rooms = Rooms(free, stages={lane: set() for lane in policy if lane in free})
    if members:
        by_id = {bucket.id: bucket for bucket in buckets}
        for (bucket_id, stage), count in members.items():
            _gather(rooms, by_id[bucket_id].lanes, stage, count)
        rooms.find_joins()
    return rooms


def _gather(rooms: Rooms, lanes: Iterable[int], stage: Stage, count: int) -> None:
    """Jobs of one stage that were counted one by one take one place together."""
    for lane in lanes:
        inside = rooms.stages.get(lane)
        if inside is not None:
            rooms.free[lane] += count - (stage not in inside)
            inside.add(stage)


def reserve(rooms: Rooms, reserved: Sequence[Reserved], streaks: Mapping[int, int]) -> None:
    """Closes the lanes that are reserved for direct calls; granted ones take their places like claims."""
    for one in reserved:
        if one.granted:
            rooms.take(one.lanes)
    lanes = {lane for one in reserved for lane in one.lanes}
    rooms.turns = {lane for lane in lanes if streaks.get(lane, 0) >= BURST}
    rooms.closed = lanes - rooms.turns
    rooms.find_joins()


def shut_targets(reserved: Sequence[Reserved], streaks: Mapping[int, int]) -> set[int]:
    """The targets that are reserved for direct calls, but for those on which a job goes first now."""
    granted = {one.target_id for one in reserved if one.granted}
    targets = {one.target_id for one in reserved if one.target_id is not None}
    return {target for target in targets if target in granted or streaks.get(target, 0) < BURST}


class Pick(NamedTuple):
    job_id: int
    bucket: Bucket
    stage: Stage | None = None


Source = Callable[[Bucket], Iterator[Place]]
Others = Callable[[], Iterable[Bucket]]
_Entry = tuple[Place, int, Bucket, Iterator[Place], bool]


def plan(count: int, buckets: Sequence[Bucket], rooms: Rooms, places: Source, others: Others = tuple) -> list[Pick]:
    """The next `count` jobs in queue order, each with room in all its lanes when its turn comes.

    `places` yields the places of one bucket in order; it is never asked for more than the claim needs. Whoever is
    passed over because stages fill a lane keeps further members off it, also one of the `others`, which are not to be
    picked.
    """
    heap: list[_Entry] = []

    def push(bucket: Bucket, tie: int, *, ours: bool) -> None:
        source = places(bucket)
        first = next(source, None)
        if first is not None:
            heapq.heappush(heap, (first, tie, bucket, source, ours))

    for bucket in buckets:
        if rooms.admits(bucket) or rooms.keeps(bucket):
            push(bucket, bucket.id, ours=True)
    watch, ties = _Watch(buckets), numbers(1)
    picks: list[Pick] = []
    while heap and len(picks) < count:
        if rooms.joins and watch.news(rooms):
            for bucket in watch.waiting(others(), rooms):
                push(bucket, -next(ties), ours=False)
        place, tie, bucket, source, ours = heap[0]
        admits = rooms.admits(bucket)
        if not admits and not rooms.keeps(bucket):
            heapq.heappop(heap)
            continue
        if place[3] not in rooms.barred:
            stage = None if place[4] is None else stage_of(*place[4:])
            if not admits and not rooms.lets_join(bucket, stage):
                rooms.drain(bucket.lanes)
                heapq.heappop(heap)
                continue
            if ours:
                picks.append(Pick(place[3], bucket, stage))
                rooms.take(bucket.lanes, stage)
                if len(picks) == count:
                    break
        following = next(source, None)
        if following is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (following, tie, bucket, source, ours))
    return picks


class _Watch:
    """Which lanes members may join that whoever plans has jobs for. Where there is a new one, jobs that are not to be
    picked, and had room until now, may wait for it."""

    def __init__(self, buckets: Iterable[Bucket]) -> None:
        self.buckets = buckets
        self.seen: set[int] = set()
        self.new: set[int] = set()

    def news(self, rooms: Rooms) -> bool:
        self.new = rooms.joins - self.seen
        if self.new:
            self.seen |= self.new
            self.new &= {lane for bucket in self.buckets for lane in bucket.lanes}
        return bool(self.new)

    def waiting(self, others: Iterable[Bucket], rooms: Rooms) -> list[Bucket]:
        return [one for one in others if not self.new.isdisjoint(one.lanes) and rooms.keeps(one)]


@dataclass(frozen=True, slots=True)
class Aging:
    """Waiting for `interval` microseconds counts as one more priority."""

    interval: int
    now: int

    def effective(self, priority: int, queued_at: int) -> int:
        return min(100, priority + max(0, self.now - queued_at) // self.interval)


# position, created_at, id, queued_at: a place within one priority, and since when; then group and stage.
Aged = tuple[int, int, int, int, int | None, int | None]
Levels = Mapping[int, Sequence[tuple[Bucket, Iterator[Aged]]]]  # by plain priority
OtherLevels = Callable[[Collection[Bucket]], Levels]


def plan_aged(
    count: int, levels: Levels, rooms: Rooms, aging: Aging, others: Others = tuple, of_others: OtherLevels | None = None
) -> list[Pick]:
    """As `plan`, but the first eligible job of each priority competes with its priority raised by its age.

    Ties go to the higher plain priority; the order within a priority never changes. Who is passed over because stages
    fill a lane keeps further members off it if, with room there, it would have been taken before the next pick.
    """
    queues = {priority: _Level(sources) for priority, sources in levels.items()}
    watch = _Watch({bucket for sources in levels.values() for bucket, _ in sources})
    picks: list[Pick] = []
    while len(picks) < count:
        if rooms.joins and of_others is not None and watch.news(rooms):
            for priority, sources in of_others(watch.waiting(others(), rooms)).items():
                queues.setdefault(priority, _Level(())).watch(sources)
        firsts = [(p, queue.first(rooms)) for p, queue in queues.items()]
        best = max(((aging.effective(p, place[3]), p) for p, place in firsts if place is not None), default=None)
        if best is None:
            break
        passed = {lane for p, queue in queues.items() for lane in queue.ahead_of(best, p, aging)}
        if not rooms.drain(passed):
            picks.append(queues[best[1]].take(rooms))
    return picks


class _Level:
    """The jobs of one priority, over all buckets. `passed` are those that wait for members to make way, and the lanes
    that nobody of this priority joins behind them."""

    def __init__(self, sources: Sequence[tuple[Bucket, Iterator[Aged]]]) -> None:
        self.heap: list[tuple[Aged, int, Bucket, Iterator[Aged], bool]] = []
        self.passed: list[tuple[Aged, set[int]]] = []
        self.ties = numbers()
        for bucket, source in sources:
            self._push(bucket, source, ours=True)

    def watch(self, sources: Sequence[tuple[Bucket, Iterator[Aged]]]) -> None:
        """Jobs that are not to be picked."""
        for bucket, source in sources:
            self._push(bucket, source, ours=False)

    def _push(self, bucket: Bucket, source: Iterator[Aged], *, ours: bool) -> None:
        place = next(source, None)
        if place is not None:
            heapq.heappush(self.heap, (place, next(self.ties), bucket, source, ours))

    def first(self, rooms: Rooms) -> Aged | None:
        """The first job that may run; what cannot run any more in this claim is dropped."""
        while self.heap:
            place, _, bucket, source, ours = self.heap[0]
            admits = rooms.admits(bucket)
            if not admits and not (rooms.keeps(bucket) and self._lets_join(bucket)):
                heapq.heappop(self.heap)
                continue
            fits = admits or rooms.lets_join(bucket, stage_of(*place[4:]))
            barred = place[2] in rooms.barred
            if fits and ours and not barred:
                return place
            heapq.heappop(self.heap)
            if fits or barred:
                self._push(bucket, source, ours=ours)
            else:
                self.passed.append((place, rooms.joins.intersection(bucket.lanes)))
        return None

    def _lets_join(self, bucket: Bucket) -> bool:
        return all(lanes.isdisjoint(bucket.lanes) for _, lanes in self.passed)

    def ahead_of(self, best: tuple[int, int], priority: int, aging: Aging) -> Iterator[int]:
        """The lanes of those that were passed over and come before the best one: its effective and plain priority."""
        for place, lanes in self.passed:
            if priority == best[1] or (aging.effective(priority, place[3]), priority) > best:
                yield from lanes

    def take(self, rooms: Rooms) -> Pick:
        place, _, bucket, source, _ = heapq.heappop(self.heap)
        stage = stage_of(*place[4:])
        rooms.take(bucket.lanes, stage)
        self._push(bucket, source, ours=True)
        return Pick(place[2], bucket, stage)


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
