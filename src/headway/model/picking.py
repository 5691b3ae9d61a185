"""Which queued jobs run next: the merge of a tenant's open buckets in queue order, aging, and turns between tenants."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count as numbers
from typing import Generic, NamedTuple, Protocol, TypeVar

from headway.model.lanes import Bucket, Place, Rooms, Stage, stage_of


class Pick(NamedTuple):
    """A job that is taken. `turn`: as which turn of its tenant, where several tenants have work."""

    job_id: int
    bucket: Bucket
    stage: Stage | None = None
    turn: int | None = None


Source = Callable[[Bucket], Iterator[Place]]
Others = Callable[[], Iterable[Bucket]]
# The number of each tenant's last turn; by 0, the last number that was given.
Turns = Mapping[int, int]


def in_turn(tenants: Iterable[int], turns: Turns) -> list[int]:
    """Who had its last turn longest ago comes first."""
    return sorted(tenants, key=lambda tenant_id: (turns.get(tenant_id, 0), tenant_id))


def told(picks: Iterable[Pick]) -> dict[int, int]:
    """The turns that were taken: each tenant's last one, and by 0 the last number."""
    found = {one.bucket.tenant_id: one.turn for one in picks if one.turn is not None}
    return {**found, 0: max(found.values())} if found else {}


def plan(
    count: int,
    buckets: Sequence[Bucket],
    rooms: Rooms,
    places: Source,
    others: Others = tuple,
    turns: Turns | None = None,
) -> list[Pick]:
    """The next `count` jobs in queue order, each with room in all its lanes when its turn comes.

    `places` yields the places of one bucket in order; it is never asked for more than the claim needs. Whoever is
    passed over because stages fill a lane keeps further members off it, also one of the `others`, which are not to be
    picked. With `turns`, tenants with eligible work take turns; without, all jobs stand in one line.
    """
    fresh: Fresh | None = None if turns is None else {}
    lines: _Lines[tuple[Bucket, int, bool]] = _Lines(
        lambda number, come: _Line(_Side(number, rooms, fresh), places, come), one=turns is None
    )
    for bucket in buckets:
        lines.come(bucket, (bucket, bucket.id, True))
    watch, ties = _Watch(buckets), numbers(1)

    def look() -> None:
        if rooms.joins and watch.news(rooms):
            for bucket in watch.waiting(others(), rooms):
                lines.come(bucket, (bucket, -next(ties), False))

    return _take_turns(count, lines, turns, look)


def plan_line(count: int, line: Iterable[tuple[Bucket, Place]], rooms: Rooms) -> list[Pick] | None:
    """The same where all stand in one line already. None where a member of a stage is among them: what that does to a
    lane depends on whoever else waits for it."""
    picks: list[Pick] = []
    for bucket, place in line:
        if place[4] is not None:
            return None
        if place[3] in rooms.barred:
            continue
        if rooms.admits(bucket):
            rooms.enter(bucket)
            picks.append(Pick(place[3], bucket))
            if len(picks) == count:
                break
        elif rooms.keeps(bucket):
            rooms.drain(bucket.lanes)
    return picks


C = TypeVar("C")


class _Queue(Protocol):
    """The jobs of one tenant, as a claim goes through them."""

    def ready(self) -> bool:
        """Whether one may run now. Whoever waits for stages to leave a lane says so."""
        ...

    def take(self) -> Pick: ...


class _Lines(Generic[C]):
    """The queue of each tenant, or `one` of all, made when its turn comes. `coming`: what was not looked into yet."""

    def __init__(self, make: Callable[[int, list[C]], _Queue], *, one: bool) -> None:
        self.make, self.one = make, one
        self.coming: dict[int, list[C]] = {}
        self.made: dict[int, _Queue] = {}

    def come(self, bucket: Bucket, thing: C) -> None:
        self.coming.setdefault(0 if self.one else bucket.tenant_id, []).append(thing)

    def of(self, number: int) -> _Queue:
        if number not in self.made:
            self.made[number] = self.make(number, self.coming[number])
        return self.made[number]


def _take_turns(count: int, lines: _Lines[C], turns: Turns | None, look: Callable[[], None]) -> list[Pick]:
    """One job of each tenant after the other, as far as they have one that may run. `look` may add to the lines."""
    picks: list[Pick] = []
    had = dict(turns or {})
    order = in_turn(lines.coming, had)
    while len(picks) < count:
        look()
        if len(order) < len(lines.coming):
            order = in_turn(lines.coming, had)
        for number in order:
            line = lines.of(number)
            if line.ready():
                break
        else:
            return picks
        pick = line.take()
        if turns is not None:
            had[0] = had[number] = had.get(0, 0) + 1
            order.remove(number)
            order.append(number)
            pick = pick._replace(turn=had[0])
        picks.append(pick)
    return picks


Fresh = dict[int, set[int]]  # the lanes in which stages took places in this claim, and whose


class _Side:
    """The rooms as one tenant finds them. `kept_off` are the lanes that its own jobs, and nobody else, wait for."""

    def __init__(self, tenant_id: int, rooms: Rooms, fresh: Fresh | None) -> None:
        self.tenant_id, self.rooms, self.fresh = tenant_id, rooms, fresh
        self.kept_off: set[int] = set()

    def keeps(self, bucket: Bucket) -> bool:
        return self.rooms.keeps(bucket) and (not self.kept_off or self.kept_off.isdisjoint(bucket.lanes))

    def drain(self, lanes: Collection[int]) -> bool:
        """Somebody waits for these lanes. Whether that is new.

        A stage that came in with this claim is there with all that the claim can take of it: a turn is worth a place,
        and its members share one. What waits for it at another tenant keeps off the members that come later.
        """
        if not self.fresh:
            return self.rooms.drain(lanes)
        spared = {lane for lane in lanes if self.fresh.get(lane, set()) - {self.tenant_id}}
        new = (spared & self.rooms.joins) - self.kept_off
        self.kept_off |= new
        return self.rooms.drain([lane for lane in lanes if lane not in spared]) or bool(new)

    def enter(self, bucket: Bucket, stage: Stage | None) -> None:
        if stage is not None and self.fresh is not None:
            for lane in bucket.lanes:
                if stage not in self.rooms.stages.get(lane, (stage,)):
                    self.fresh.setdefault(lane, set()).add(self.tenant_id)
        self.rooms.enter(bucket, stage)


class _Line:
    """A tenant's jobs in queue order: the first of each of its buckets on a heap."""

    def __init__(self, side: _Side, places: Source, come: list[tuple[Bucket, int, bool]]) -> None:
        self.side, self.places, self.come = side, places, come
        self.heap: list[tuple[Place, int, Bucket, Iterator[Place], bool]] = []
        # Whether the first one was taken: who comes after it is not asked for before somebody wants to know.
        self.taken = False

    def _let_come(self) -> None:
        for bucket, tie, ours in self.come:
            if self.side.rooms.admits(bucket) or self.side.keeps(bucket):
                source = self.places(bucket)
                first = next(source, None)
                if first is not None:
                    heapq.heappush(self.heap, (first, tie, bucket, source, ours))
        self.come.clear()

    def ready(self) -> bool:
        rooms, keeps = self.side.rooms, self.side.keeps
        if self.taken:
            self._follow()
        if self.come:
            self._let_come()
        while self.heap:
            place, _, bucket, _, ours = self.heap[0]
            admits = rooms.admits(bucket)
            if not admits and not keeps(bucket):
                heapq.heappop(self.heap)
            elif place[3] in rooms.barred:
                self._follow()
            elif not admits and not rooms.lets_join(bucket, stage_of(*place[4:])):
                self.side.drain(bucket.lanes)
                heapq.heappop(self.heap)
            elif ours:
                return True
            else:
                self._follow()
        return False

    def take(self) -> Pick:
        place, _, bucket, _, _ = self.heap[0]
        stage = None if place[4] is None else stage_of(*place[4:])
        self.side.enter(bucket, stage)
        self.taken = True
        return Pick(place[3], bucket, stage)

    def _follow(self) -> None:
        """The next one of the same bucket."""
        self.taken = False
        _, tie, bucket, source, ours = self.heap[0]
        following = next(source, None)
        if following is None:
            heapq.heappop(self.heap)
        else:
            heapq.heapreplace(self.heap, (following, tie, bucket, source, ours))


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


# --- aging --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Aging:
    """Waiting for `interval` microseconds counts as one more priority."""

    interval: int
    now: int

    def effective(self, priority: int, queued_at: int) -> int:
        return min(100, priority + max(0, self.now - queued_at) // self.interval)


# position, created_at, id, queued_at: a place within one priority, and since when; then group and stage.
Aged = tuple[int, int, int, int, int | None, int | None]
Sources = Sequence[tuple[Bucket, Iterator[Aged]]]
Levels = Mapping[int, Sources]  # by plain priority
OtherLevels = Callable[[Collection[Bucket]], Levels]


def plan_aged(
    count: int,
    levels: Levels,
    rooms: Rooms,
    aging: Aging,
    others: Others = tuple,
    of_others: OtherLevels | None = None,
    turns: Turns | None = None,
) -> list[Pick]:
    """As `plan`, but the first eligible job of each priority of a tenant competes with its priority raised by its age.

    Ties go to the higher plain priority; the order within a priority never changes. Who is passed over because stages
    fill a lane keeps further members off it if, with room there, it would have been taken before the next pick.
    """
    fresh: Fresh | None = None if turns is None else {}
    lines: _Lines[tuple[int, Bucket, Iterator[Aged], bool]] = _Lines(
        lambda number, come: _AgedLine(_Side(number, rooms, fresh), aging, come), one=turns is None
    )

    def add(levels: Levels, *, ours: bool) -> None:
        for priority, sources in levels.items():
            for bucket, source in sources:
                lines.come(bucket, (priority, bucket, source, ours))

    add(levels, ours=True)
    watch = _Watch({bucket for sources in levels.values() for bucket, _ in sources})

    def look() -> None:
        if rooms.joins and of_others is not None and watch.news(rooms):
            add(of_others(watch.waiting(others(), rooms)), ours=False)

    return _take_turns(count, lines, turns, look)


class _AgedLine:
    """A tenant's jobs, priority by priority."""

    def __init__(self, side: _Side, aging: Aging, come: list[tuple[int, Bucket, Iterator[Aged], bool]]) -> None:
        self.side, self.aging, self.come = side, aging, come
        self.levels: dict[int, _Level] = {}
        self.best = 0

    def ready(self) -> bool:
        for priority, bucket, source, ours in self.come:
            self.levels.setdefault(priority, _Level(self.side)).push(bucket, source, ours=ours)
        self.come.clear()
        while True:
            firsts = [(p, level.first()) for p, level in self.levels.items()]
            ages = ((self.aging.effective(p, place[3]), p) for p, place in firsts if place is not None)
            best = max(ages, default=None)
            passed = {lane for p, level in self.levels.items() for lane in level.ahead_of(best, p, self.aging)}
            if best is None or not self.side.drain(passed):
                break
        if best is None:
            self.side.drain(passed)
            return False
        self.best = best[1]
        return True

    def take(self) -> Pick:
        return self.levels[self.best].take()


class _Level:
    """The jobs of one priority, over all buckets. `passed` are those that wait for members to make way, and the lanes
    that nobody of this priority joins behind them."""

    def __init__(self, side: _Side) -> None:
        self.side = side
        self.heap: list[tuple[Aged, int, Bucket, Iterator[Aged], bool]] = []
        self.passed: list[tuple[Aged, set[int]]] = []
        self.ties = numbers()

    def push(self, bucket: Bucket, source: Iterator[Aged], *, ours: bool) -> None:
        place = next(source, None)
        if place is not None:
            heapq.heappush(self.heap, (place, next(self.ties), bucket, source, ours))

    def first(self) -> Aged | None:
        """The first job that may run; what cannot run any more in this claim is dropped."""
        rooms = self.side.rooms
        while self.heap:
            place, _, bucket, source, ours = self.heap[0]
            admits = rooms.admits(bucket)
            if not admits and not (self.side.keeps(bucket) and self._lets_join(bucket)):
                heapq.heappop(self.heap)
                continue
            fits = admits or rooms.lets_join(bucket, stage_of(*place[4:]))
            barred = place[2] in rooms.barred
            if fits and ours and not barred:
                return place
            heapq.heappop(self.heap)
            if fits or barred:
                self.push(bucket, source, ours=ours)
            else:
                self.passed.append((place, rooms.joins.intersection(bucket.lanes)))
        return None

    def _lets_join(self, bucket: Bucket) -> bool:
        return all(lanes.isdisjoint(bucket.lanes) for _, lanes in self.passed)

    def ahead_of(self, best: tuple[int, int] | None, priority: int, aging: Aging) -> Iterator[int]:
        """The lanes of those that were passed over and come before the best one: its effective and plain priority.
        Where there is none, all do."""
        for place, lanes in self.passed:
            if best is None or priority == best[1] or (aging.effective(priority, place[3]), priority) > best:
                yield from lanes

    def take(self) -> Pick:
        place, _, bucket, source, _ = heapq.heappop(self.heap)
        stage = stage_of(*place[4:])
        self.side.enter(bucket, stage)
        self.push(bucket, source, ours=True)
        return Pick(place[2], bucket, stage)
