"""Room: what running jobs and reservations leave of the lanes, and of what each tenant may run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields

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
    of these that take further members. `tenants` is what those with a limit may still run.
    """

    free: dict[int, int] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)
    turns: set[int] = field(default_factory=set)
    barred: set[int] = field(default_factory=set)
    stages: dict[int, set[Stage]] = field(default_factory=dict)
    joins: set[int] = field(default_factory=set)
    tenants: dict[int, int] = field(default_factory=dict)

    def admits(self, bucket: Bucket) -> bool:
        if self.tenants and self.tenants.get(bucket.tenant_id, 1) <= 0:
            return False
        # Not `all(…)`, which costs thrice as much: every claim comes here for every bucket.
        for lane in bucket.lanes:  # noqa: SIM110
            if self.free.get(lane, 1) <= 0 or lane in self.closed:
                return False
        return True

    def copy(self) -> Rooms:
        stages = {lane: set(inside) for lane, inside in self.stages.items()}
        sets = (set(self.closed), set(self.turns), set(self.barred), stages, set(self.joins))
        return Rooms(dict(self.free), *sets, dict(self.tenants))

    def become(self, other: Rooms) -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(other, one.name))

    def keeps(self, bucket: Bucket) -> bool:
        """Whether all that is in the way of these jobs are lanes that take members of the stages in them."""
        joins = self.joins
        if joins.isdisjoint(bucket.lanes) or self.tenants.get(bucket.tenant_id, 1) <= 0:
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

    def enter(self, bucket: Bucket, stage: Stage | None = None) -> None:
        """A job runs."""
        self.take(bucket.lanes, stage)
        if bucket.tenant_id in self.tenants:
            self.tenants[bucket.tenant_id] -= 1

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
    limits: Mapping[int, int] | None = None,
) -> Rooms:
    """Free places per limited lane. `running` counts the running jobs per bucket, `members` those of stages among them.
    In the lanes of the `policy` a stage takes one place. `limits`: how many jobs tenants may run."""
    free = {lane: limit for lane, limit in capacity.items() if limit is not None}
    for bucket in buckets:
        count = running.get(bucket.id, 0)
        for lane in bucket.lanes:
            if lane in free:
                free[lane] -= count
    rooms = Rooms(free, stages={lane: set() for lane in policy if lane in free})
    if limits:
        rooms.tenants = dict(limits)
        for bucket in buckets:
            if bucket.tenant_id in limits:
                rooms.tenants[bucket.tenant_id] -= running.get(bucket.id, 0)
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
