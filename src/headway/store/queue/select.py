"""Selects the next jobs and reservations with capacity, without claiming them.

A claim and its dry run select by the same rules.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence

from headway.clock import micros
from headway.model.explain.snapshot import WorkerSlots
from headway.model.queue import capacity as rules
from headway.model.queue.capacity import Bucket, Capacity, Reserved, capacity_of
from headway.model.queue.place import place_of
from headway.model.queue.select import Pick, ReadPlaces, Turns, in_turn, select_from_line, select_jobs
from headway.model.queue.select_aged import Aging, Levels, select_aged
from headway.store.db import Row, Tx
from headway.store.queue import reservations
from headway.store.queue.claim_snapshot import Places, View, levels_of
from headway.store.queue.lanes import BucketCache
from headway.store.queue.reservations import Active
from headway.store.workers import served_tenants

Knows = Callable[[str], bool]
# Decides if a worker serves a bucket's tenant, besides its tasks. None stands for all tenants.
Serves = Callable[[Bucket], bool] | None
# From MANY buckets on, the front of the queue is read before the first jobs of each bucket: twice as many jobs as the
# claim can take, and SPARE more.
MANY, SPARE = 16, 8


class ClaimSource:
    """The reads of a claim: its overview, then jobs and reservations on demand.

    A dry run overrides it to see them as they would be once everything is settled.
    """

    def __init__(self, tx: Tx, view: View, lanes: BucketCache) -> None:
        self.tx, self.view, self.lanes = tx, view, lanes

    def ready(self) -> list[Bucket]:
        """Returns the buckets with ready jobs, without those of an older policy.

        Their jobs get their new lanes first.
        """
        current, found = self.lanes.current, self.lanes.load(self.tx, self.view.ready)
        if False in map(current.get, self.view.ready):
            return [bucket for bucket in found if current.get(bucket.id, True)]
        return found

    def places(self, buckets: Sequence[Bucket], count: int, others: Sequence[Bucket]) -> ReadPlaces:
        return Places(self.tx, self.view, buckets, count, others).of

    def front(self, tenant_id: int, most: int) -> list[Row] | None:
        """Returns the first jobs of a tenant's queue as (bucket, gate, *place).

        Jobs with a closed gate are included. None means: use the buckets instead.
        """
        return self.tx.run("front", tenant_id=tenant_id, limit=most)

    def levels(self, buckets: Collection[Bucket]) -> Levels:
        return levels_of(self.tx, buckets)

    def heads(self, targets: Collection[int]) -> list[tuple[int, int]]:
        """Returns the open jobs of targets as (job, target)."""
        return [(job_id, target) for job_id, target in self.tx.run("open_jobs_of", ids=json.dumps(sorted(targets)))]

    def busy(self, targets: Collection[int]) -> set[int]:
        """Returns the targets that a job holds or a person paused."""
        return {target for (target,) in self.tx.run("busy_targets", ids=json.dumps(sorted(targets)))}

    def resumed(self, targets: Collection[int]) -> set[int]:
        """Returns the targets whose holder was resumed and waits for its next claim."""
        return {target for (target,) in self.tx.run("resumed_targets", ids=json.dumps(sorted(targets)))}

    def free_slots(self) -> list[WorkerSlots]:
        """Returns the live workers with free slots."""
        found = self.tx.run("served_now")
        return [WorkerSlots(frozenset(json.loads(tasks)), n, n, tenants=served_tenants(ids)) for tasks, n, ids in found]

    def turns(self, tenants: Collection[int]) -> dict[int, int]:
        """Returns the last turns of tenants; key 0 has the last number given."""
        return dict(self.tx.run("turns", ids=json.dumps([0, *sorted(tenants)])))

    def capacity(self) -> Capacity:
        """Returns the capacity that running jobs leave, of lanes and of tenants."""
        view = self.view
        if not view.capacity and not view.limits:
            return Capacity()
        buckets = self.lanes.load(self.tx, view.running)
        return capacity_of(buckets, view.capacity, view.running, view.policy, view.members, view.limits)

    def active(self) -> list[Active]:
        return reservations.active(self.tx)

    def settle(self) -> list[Active]:
        """Expires and grants reservations, and returns the active ones.

        The claim lock must be held.
        """
        found = reservations.drop_expired(self.tx, self.active(), self.view.now)
        numbers = grantable(self, found)
        given = [one for one in found if one.id in numbers]
        if not given:
            return found
        reservations.grant(self.tx, given, *self.awaited(given))
        return self.active()

    def awaited(self, given: Sequence[Active]) -> tuple[set[int], set[int]]:
        """Returns the lanes, and the targets of these reservations, that jobs wait for."""
        paused = self.view.paused
        if 0 in paused:
            return set(), set()
        lanes = {lane for bucket in self.ready() if bucket.tenant_id not in paused for lane in bucket.lanes}
        wanted = {one.target_id for one in given if one.target_id is not None and one.tenant_id not in paused}
        return lanes, {target for _, target in self.heads(wanted)} if wanted else set()


def pick(
    tx: Tx, view: View, lanes: BucketCache, knows: Knows, count: int, *, serves: Serves = None, grant: bool = False
) -> list[Pick]:
    """Returns the next jobs that may run, in queue order.

    With `grant`, the claim lock is held, and reservations are granted first.
    """
    if not view.reservations and (0 in view.paused or not view.ready):
        return []
    source = ClaimSource(tx, view, lanes)
    return pick_open(source, open_capacity(source, grant=grant), knows, count, serves)


def open_capacity(source: ClaimSource, *, grant: bool) -> Capacity:
    """Returns the capacity that running jobs and reservations leave to the queue."""
    if not source.view.reservations:
        return source.capacity()
    reserved = source.settle() if grant else source.active()
    return _close_reserved(source, reserved)


def pick_open(source: ClaimSource, capacity: Capacity, knows: Knows, count: int, serves: Serves = None) -> list[Pick]:
    """Picks the next jobs with capacity, and takes it from `capacity`.

    Jobs of tenants that the worker does not serve are like those of tasks that it does not know.
    """
    view, aging = source.view, source.lanes.concurrency.aging
    if 0 in view.paused:
        return []
    paused, ready = view.paused, source.ready()
    capacity.barred |= view.barred
    turns = _turns(source, ready)
    served = ready if serves is None else list(filter(serves, ready))
    if turns is None and aging is None and len(ready) > MANY and not capacity.sharing.joinable:
        picks = _from_the_front(source, served, capacity, knows, count)
        if picks is not None:
            return picks
    open_buckets = [b for b in served if capacity.has_room(b) and b.tenant_id not in paused and knows(b.task)]
    if capacity.sharing.joinable:
        open_buckets += [
            b for b in served if capacity.has_room_for_members(b) and b.tenant_id not in paused and knows(b.task)
        ]
    if not open_buckets:
        return []
    # Jobs of other workers' tasks and tenants may wait for a lane that stages share.
    others: list[Bucket] = []
    if capacity.sharing.stages:
        others = [
            b for b in ready if b.tenant_id not in paused and not (knows(b.task) and (serves is None or serves(b)))
        ]
    if aging is not None:
        aged = Aging(micros(aging), view.now)
        return select_aged(count, open_buckets, capacity, source.levels, aged, others, turns)
    near, far = _near(open_buckets, turns, count)
    return select_jobs(count, open_buckets, capacity, source.places(near, count, [*far, *others]), others, turns)


def _from_the_front(
    source: ClaimSource, ready: Sequence[Bucket], capacity: Capacity, knows: Knows, count: int
) -> list[Pick] | None:
    """Picks from the first jobs of a tenant's queue, however many buckets there are.

    Returns None if these jobs do not fill the claim: the best of the rest may be in any bucket.
    """
    first = next(
        (b for b in ready if capacity.has_room(b) and b.tenant_id not in source.view.paused and knows(b.task)), None
    )
    if first is None:
        return None
    limit = 2 * count + SPARE
    found = source.front(first.tenant_id, limit)
    if found is None:
        return None
    by_id = {bucket.id: bucket for bucket in ready}
    left = capacity.copy()
    jobs = ((by_id[row[0]], row) for row in found if row[1] == 1 and row[0] in by_id)
    line = ((bucket, place_of(row[2:])) for bucket, row in jobs if knows(bucket.task))
    picks = select_from_line(count, line, left)
    if picks is None or (len(picks) < count and len(found) == limit):
        return None
    capacity.adopt(left)
    return picks


def _turns(source: ClaimSource, ready: Sequence[Bucket]) -> Turns | None:
    """Returns the turns if several tenants have ready jobs, otherwise None."""
    tenants = {bucket.tenant_id for bucket in ready}.difference(source.view.paused)
    return source.turns(tenants) if len(tenants) > 1 else None


def _near(buckets: Sequence[Bucket], turns: Turns | None, count: int) -> tuple[list[Bucket], list[Bucket]]:
    """Splits buckets into those of tenants with a turn in this claim, and others."""
    if turns is None:
        return list(buckets), []
    first = set(in_turn({bucket.tenant_id for bucket in buckets}, turns)[:count])
    return [b for b in buckets if b.tenant_id in first], [b for b in buckets if b.tenant_id not in first]


# --- reservations -------------------------------------------------------------------------------------------------


def closing(source: ClaimSource, reserved: Sequence[Active]) -> list[Reserved]:
    """Returns the reservations that close their lanes and targets to the queue.

    A reservation that waits for a target whose holder was resumed does not: that job may need the same lanes, and both
    would wait for ever.
    """
    found = [one.reserved for one in reserved]
    wanted = {one.target_id for one in found if one.target_id is not None and not one.granted}
    resumed = source.resumed(wanted) if wanted else set()
    return [one for one in found if one.granted or one.target_id not in resumed]


def _close_reserved(source: ClaimSource, reserved: Sequence[Active]) -> Capacity:
    """Returns the capacity without reserved lanes; bars jobs on reserved targets."""
    capacity, found = source.capacity(), closing(source, reserved)
    rules.reserve(capacity, found, source.view.streaks)
    shut = rules.shut_targets(found, source.view.target_streaks)
    if shut:
        capacity.barred = {job_id for job_id, _ in source.heads(shut)}
    return capacity


def may_grant(tx: Tx, view: View, lanes: BucketCache) -> bool:
    """Returns True if a waiting reservation could be granted now."""
    if not view.reservations:
        return False
    source = ClaimSource(tx, view, lanes)
    return bool(grantable(source, source.active()))


def settle_reservations(tx: Tx, view: View, lanes: BucketCache) -> list[Active]:
    """Expires and grants reservations, and returns the active ones.

    The claim lock must be held.
    """
    return ClaimSource(tx, view, lanes).settle() if view.reservations else []


def grantable(source: ClaimSource, found: Sequence[Active]) -> set[int]:
    """Returns the waiting reservations to grant now."""
    reserved = [one.reserved for one in found]
    if all(one.granted for one in reserved):
        return set()
    capacity = source.capacity()
    for one in reserved:
        if one.granted:
            capacity.occupy_lanes(one.lanes)
    targets = {one.target_id for one in reserved if one.target_id is not None}
    busy = source.busy(targets) if targets else set()
    lanes, held_back = _would_go_first(source, found)
    return set(rules.grants(reserved, capacity, busy | held_back, lanes))


def _would_go_first(source: ClaimSource, found: Sequence[Active]) -> tuple[set[int], set[int]]:
    """Returns lanes and targets that a job would get after a burst of direct calls.

    A worker with a free slot must be able to claim that job.
    """
    tired, tired_targets = reservations.tired(found, source.view.streaks, source.view.target_streaks)
    if not tired and not tired_targets:
        return set(), set()
    all_slots = source.free_slots()
    tasks = {task for worker_slots in all_slots for task in worker_slots.tasks}
    serves = None if all(worker_slots.tenants is None for worker_slots in all_slots) else _any_of(all_slots)
    free = sum(worker_slots.left for worker_slots in all_slots)
    picks = pick_open(source, _close_reserved(source, found), tasks.__contains__, free, serves)
    on = {one.job_id for one in picks}
    heads = source.heads(tired_targets) if tired_targets else []
    return {lane for one in picks for lane in one.bucket.lanes} & tired, {t for job_id, t in heads if job_id in on}


def _any_of(all_slots: Sequence[WorkerSlots]) -> Serves:
    """Returns True for a bucket that at least one of these workers claims from."""
    return lambda bucket: any(worker_slots.claims_from(bucket) for worker_slots in all_slots)
