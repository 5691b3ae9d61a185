"""Capacity: the free places that running jobs and reservations leave in lanes and in tenants' limits."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields

from headway.model.queue.place import Stage
from headway.model.queue.stage_sharing import StageSharing

# After this many direct calls in a row on a lane, a job that waits for it goes first.
BURST = 8


@dataclass(frozen=True, slots=True)
class Bucket:
    """Everything that decides if a job may run, except its own place and target."""

    id: int
    tenant_id: int
    task: str
    lanes: tuple[int, ...]
    on_target: bool = False


@dataclass(frozen=True, slots=True)
class Reserved:
    """An active reservation, as a claim needs it."""

    id: int
    lanes: tuple[int, ...]
    target_id: int | None = None
    granted: bool = False


@dataclass(slots=True)
class Capacity:
    """The free places of lanes and tenants.

    An unlimited lane is not in `free`. Lanes in `closed` are reserved for direct calls. Lanes in `job_first` are
    reserved too, but had so many direct calls in a row that one job goes first. `barred` are jobs whose target is
    reserved. `tenants` is the number of jobs that each limited tenant may still run. `sharing` decides which jobs
    share a place.
    """

    free: dict[int, int] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)
    job_first: set[int] = field(default_factory=set)
    barred: set[int] = field(default_factory=set)
    tenants: dict[int, int] = field(default_factory=dict)
    sharing: StageSharing = field(default_factory=StageSharing)

    def has_room(self, bucket: Bucket) -> bool:
        if self.tenants and self.tenants.get(bucket.tenant_id, 1) <= 0:
            return False
        # A loop, because `all(…)` takes three times as long, and every claim calls this for every bucket.
        for lane in bucket.lanes:  # noqa: SIM110
            if self.free.get(lane, 1) <= 0 or lane in self.closed:
                return False
        return True

    def has_room_for_members(self, bucket: Bucket, queue: int = 0) -> bool:
        """Returns True if members of the stages in this bucket's full lanes may join every one of these lanes."""
        if not self.sharing.accepts_members(bucket.lanes, queue) or self.tenants.get(bucket.tenant_id, 1) <= 0:
            return False
        joinable = self.sharing.joinable
        return all(
            lane in joinable or (self.free.get(lane, 1) > 0 and lane not in self.closed) for lane in bucket.lanes
        )

    def begin_claim(self) -> None:
        """Opens the full lanes in which stages run to further members, except reserved lanes."""
        reserved = self.closed | self.job_first
        running = (lane for lane, inside in self.sharing.stages.items() if inside)
        self.sharing.begin_claim(lane for lane in running if self.free[lane] <= 0 and lane not in reserved)

    def occupy(self, bucket: Bucket, stage: Stage | None = None, queue: int | None = None) -> None:
        """Takes the places of a job that starts. `queue` is its queue if this claim starts it."""
        self.occupy_lanes(bucket.lanes, stage, queue)
        if bucket.tenant_id in self.tenants:
            self.tenants[bucket.tenant_id] -= 1

    def occupy_lanes(self, lanes: Iterable[int], stage: Stage | None = None, queue: int | None = None) -> None:
        for lane in lanes:
            if lane in self.job_first:
                self.job_first.discard(lane)
                self.closed.add(lane)
            if lane in self.free and self.sharing.takes_place(lane, stage, queue):
                self.free[lane] -= 1
                if self.free[lane] <= 0 and lane not in self.closed and lane not in self.job_first:
                    self.sharing.fill(lane)

    def copy(self) -> Capacity:
        sets = (set(self.closed), set(self.job_first), set(self.barred))
        return Capacity(dict(self.free), *sets, dict(self.tenants), self.sharing.copy())

    def adopt(self, other: Capacity) -> None:
        """Becomes the other one."""
        for attribute in fields(self):
            setattr(self, attribute.name, getattr(other, attribute.name))


Members = Mapping[tuple[int, Stage], int]  # the number of running jobs per bucket and stage


def capacity_of(
    buckets: Sequence[Bucket],
    limits: Mapping[int, int | None],
    running: Mapping[int, int],
    policy: Collection[int] = (),
    members: Members | None = None,
    tenant_limits: Mapping[int, int] | None = None,
) -> Capacity:
    """Computes the free places per limited lane and tenant.

    `running` counts the running jobs per bucket, `members` those among them that belong to a stage. In the lanes of
    the `policy` a stage takes one place. `tenant_limits` are the limits of running jobs.
    """
    free = {lane: limit for lane, limit in limits.items() if limit is not None}
    for bucket in buckets:
        count = running.get(bucket.id, 0)
        for lane in bucket.lanes:
            if lane in free:
                free[lane] -= count
    capacity = Capacity(free, sharing=StageSharing({lane: set() for lane in policy if lane in free}))
    if tenant_limits:
        capacity.tenants = dict(tenant_limits)
        for bucket in buckets:
            if bucket.tenant_id in tenant_limits:
                capacity.tenants[bucket.tenant_id] -= running.get(bucket.id, 0)
    if members:
        by_id = {bucket.id: bucket for bucket in buckets}
        for (bucket_id, stage), count in members.items():
            _count_as_one(capacity, by_id[bucket_id].lanes, stage, count)
        capacity.begin_claim()
    return capacity


def _count_as_one(capacity: Capacity, lanes: Iterable[int], stage: Stage, count: int) -> None:
    """Corrects the free places: the jobs of one stage were counted singly and take one place together."""
    for lane in lanes:
        inside = capacity.sharing.stages.get(lane)
        if inside is not None:
            capacity.free[lane] += count - (stage not in inside)
            inside.add(stage)


def reserve(capacity: Capacity, reserved: Sequence[Reserved], streaks: Mapping[int, int]) -> None:
    """Closes the lanes reserved for direct calls; granted reservations take places like claims."""
    for reservation in reserved:
        if reservation.granted:
            capacity.occupy_lanes(reservation.lanes)
    lanes = {lane for reservation in reserved for lane in reservation.lanes}
    capacity.job_first = {lane for lane in lanes if streaks.get(lane, 0) >= BURST}
    capacity.closed = lanes - capacity.job_first
    capacity.begin_claim()


def shut_targets(reserved: Sequence[Reserved], streaks: Mapping[int, int]) -> set[int]:
    """Returns the targets reserved for direct calls, without those on which a job goes first now."""
    granted = {reservation.target_id for reservation in reserved if reservation.granted}
    targets = {reservation.target_id for reservation in reserved if reservation.target_id is not None}
    return {target for target in targets if target in granted or streaks.get(target, 0) < BURST}


# --- targets ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue of one target. `holder` is the job that holds it; `resumed` means that it is queued again."""

    target_id: int
    paused: bool
    holder: int | None
    resumed: bool
    first: int | None
    open: int | None


def head(queue: Queue) -> int | None:
    """Returns the one job that the target allows to be claimed; None if it allows none."""
    if queue.paused:
        return None
    if queue.holder is not None:
        return queue.holder if queue.resumed else None
    return queue.first


# --- granting -----------------------------------------------------------------------------------------------------


def grants(
    reserved: Sequence[Reserved], capacity: Capacity, busy: Collection[int], first: Collection[int]
) -> list[int]:
    """Returns the waiting reservations that get their lanes now, all lanes at once and in order.

    A reservation does not overtake an earlier one that waits for the same lane. `capacity` already counts the granted
    reservations. `busy` are targets that a job holds or a person paused, `first` are lanes on which a job goes first.
    """
    found: list[int] = []
    lanes, targets = set(first), set(busy) | {waiting.target_id for waiting in reserved if waiting.granted}
    targets.discard(None)
    for waiting in reserved:
        if waiting.granted:
            continue
        free = all(lane not in lanes and capacity.free.get(lane, 1) > 0 for lane in waiting.lanes)
        if free and waiting.target_id not in targets:
            found.append(waiting.id)
            capacity.occupy_lanes(waiting.lanes)
        else:
            lanes.update(waiting.lanes)
        if waiting.target_id is not None:
            targets.add(waiting.target_id)
    return found
