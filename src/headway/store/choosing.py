"""Which jobs come next and have room, and which reservations get theirs. Nothing is taken here: whoever only wants to
know what a claim would do chooses by the same rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence

from headway.clock import micros
from headway.model import lanes as rules
from headway.model.lanes import Bucket, Reserved, Rooms, rooms_of
from headway.model.picking import Aging, Levels, Others, Pick, Source, Turns, in_turn, plan, plan_aged, plan_line
from headway.store import reservations
from headway.store.claim_view import Places, View, levels_of
from headway.store.db import Row, Tx
from headway.store.lanes import Lanes
from headway.store.reservations import Active

Knows = Callable[[str], bool]
# From so many kinds of work on, the front of the queue is looked at before the first jobs of each kind; and how many
# more of its jobs than the claim can take.
MANY, SPARE = 16, 8


class Sight:
    """What a claim sees: its view, and the jobs and reservations behind it as it asks for them.

    Whoever only wants to know what a claim would do sees them as they would be once it has settled everything.
    """

    def __init__(self, tx: Tx, view: View, lanes: Lanes) -> None:
        self.tx, self.view, self.lanes = tx, view, lanes

    def ready(self) -> list[Bucket]:
        """The buckets with jobs, but for those of an older policy: what is left there gets its lanes first."""
        current, found = self.lanes.current, self.lanes.load(self.tx, self.view.ready)
        if False in map(current.get, self.view.ready):
            return [bucket for bucket in found if current.get(bucket.id, True)]
        return found

    def places(self, buckets: Sequence[Bucket], count: int, others: Others) -> Source:
        return Places(self.tx, self.view, buckets, count, others).of

    def front(self, tenant_id: int, most: int) -> list[Row] | None:
        """The first jobs of a tenant's queue as (bucket, gate, *place), also those that are not to be claimed yet."""
        return self.tx.run("front", tenant_id=tenant_id, limit=most)

    def levels(self, buckets: Collection[Bucket]) -> Levels:
        return levels_of(self.tx, buckets)

    def heads(self, targets: Collection[int]) -> list[tuple[int, int]]:
        """The open jobs of some targets: (job, target)."""
        return [(job_id, target) for job_id, target in self.tx.run("open_jobs_of", ids=json.dumps(sorted(targets)))]

    def busy(self, targets: Collection[int]) -> set[int]:
        """Those of these targets that a job holds or a person paused."""
        return {target for (target,) in self.tx.run("busy_targets", ids=json.dumps(sorted(targets)))}

    def resumed(self, targets: Collection[int]) -> set[int]:
        """Those of these targets whose holder was resumed and waits for its next claim."""
        return {target for (target,) in self.tx.run("resumed_targets", ids=json.dumps(sorted(targets)))}

    def served(self) -> tuple[set[str], int]:
        """The tasks that a living worker with a free slot knows, and how many slots are free."""
        found = self.tx.run("served_now")
        return {task for tasks, _ in found for task in json.loads(tasks)}, sum(free for _, free in found)

    def turns(self, tenants: Collection[int]) -> dict[int, int]:
        """When these tenants had their last turns; by 0, the last number that was given."""
        return dict(self.tx.run("turns", ids=json.dumps([0, *sorted(tenants)])))

    def rooms(self) -> Rooms:
        """What running jobs leave of the lanes, and of what tenants may run."""
        view = self.view
        if not view.capacity and not view.limits:
            return Rooms()
        buckets = self.lanes.load(self.tx, view.running)
        return rooms_of(buckets, view.capacity, view.running, view.policy, view.members, view.limits)

    def active(self) -> list[Active]:
        return reservations.active(self.tx)

    def settle(self) -> list[Active]:
        """Ends what has expired and grants what can be granted. The claim lock must be held. Returns what is active."""
        found = reservations.drop_expired(self.tx, self.active(), self.view.now)
        numbers = grantable(self, found)
        given = [one for one in found if one.id in numbers]
        if not given:
            return found
        reservations.grant(self.tx, given, *self.awaited(given))
        return self.active()

    def awaited(self, given: Sequence[Active]) -> tuple[set[int], set[int]]:
        """The lanes, and of these reservations' targets those, for which a job waits."""
        paused = self.view.paused
        if 0 in paused:
            return set(), set()
        lanes = {lane for bucket in self.ready() if bucket.tenant_id not in paused for lane in bucket.lanes}
        wanted = {one.target_id for one in given if one.target_id is not None and one.tenant_id not in paused}
        return lanes, {target for _, target in self.heads(wanted)} if wanted else set()


def pick(tx: Tx, view: View, lanes: Lanes, knows: Knows, count: int, *, grant: bool = False) -> list[Pick]:
    """The next jobs that may run, in queue order. With `grant`, the claim lock is held and reservations get theirs
    first."""
    if not view.reservations and (0 in view.paused or not view.ready):
        return []
    sight = Sight(tx, view, lanes)
    return pick_open(sight, open_rooms(sight, grant=grant), knows, count)


def open_rooms(sight: Sight, *, grant: bool) -> Rooms:
    """What running jobs and reservations leave to the queue."""
    if not sight.view.reservations:
        return sight.rooms()
    reserved = sight.settle() if grant else sight.active()
    return _close_reserved(sight, reserved)


def pick_open(sight: Sight, rooms: Rooms, knows: Knows, count: int) -> list[Pick]:
    """The next jobs that have room. `rooms` is what they leave."""
    view, aging = sight.view, sight.lanes.concurrency.aging
    if 0 in view.paused:
        return []
    paused, ready = view.paused, sight.ready()
    rooms.barred |= view.barred
    turns = _turns(sight, ready)
    if turns is None and aging is None and len(ready) > MANY and not rooms.joins:
        picks = _from_the_front(sight, ready, rooms, knows, count)
        if picks is not None:
            return picks
    open_buckets = [b for b in ready if rooms.admits(b) and b.tenant_id not in paused and knows(b.task)]
    if rooms.joins:
        open_buckets += [b for b in ready if rooms.keeps(b) and b.tenant_id not in paused and knows(b.task)]
    if not open_buckets:
        return []

    def others() -> list[Bucket]:
        """What is not for this worker may still wait for a lane."""
        return [b for b in ready if b.tenant_id not in paused and not knows(b.task)]

    if aging is not None:
        levels = sight.levels(open_buckets)
        return plan_aged(count, levels, rooms, Aging(micros(aging), view.now), others, sight.levels, turns)
    near, far = _near(open_buckets, turns, count)
    places = sight.places(near, count, lambda: [*far, *others()])
    return plan(count, open_buckets, rooms, places, others, turns)


def _from_the_front(sight: Sight, ready: Sequence[Bucket], rooms: Rooms, knows: Knows, count: int) -> list[Pick] | None:
    """The same from the first jobs of one tenant's queue alone, which costs the same however many kinds of work there
    are. None if they do not fill the claim: then the best of what is left may be anywhere."""
    first = next((b for b in ready if rooms.admits(b) and b.tenant_id not in sight.view.paused and knows(b.task)), None)
    if first is None:
        return None
    limit = 2 * count + SPARE
    found = sight.front(first.tenant_id, limit)
    if found is None:
        return None
    known = {bucket.id: bucket for bucket in ready}
    left = rooms.copy()
    picks = plan_line(
        count,
        ((known[row[0]], row[2:]) for row in found if row[1] == 1 and row[0] in known and knows(known[row[0]].task)),
        left,
    )
    if picks is None or (len(picks) < count and len(found) == limit):
        return None
    rooms.become(left)
    return picks


def _turns(sight: Sight, ready: Sequence[Bucket]) -> Turns | None:
    """Where several tenants have work they take turns."""
    tenants = {bucket.tenant_id for bucket in ready}.difference(sight.view.paused)
    return sight.turns(tenants) if len(tenants) > 1 else None


def _near(buckets: Sequence[Bucket], turns: Turns | None, count: int) -> tuple[list[Bucket], list[Bucket]]:
    """The kinds of work of those tenants whose turn comes in this claim if each has a job, and the others."""
    if turns is None:
        return list(buckets), []
    first = set(in_turn({bucket.tenant_id for bucket in buckets}, turns)[:count])
    return [b for b in buckets if b.tenant_id in first], [b for b in buckets if b.tenant_id not in first]


# --- reservations -------------------------------------------------------------------------------------------------


def closing(sight: Sight, reserved: Sequence[Active]) -> list[Reserved]:
    """The reservations that close what they are for. One that waits for a target whose holder was resumed does not: it
    waits for that job, which may need the same lanes, and both would wait for ever."""
    found = [one.reserved for one in reserved]
    wanted = {one.target_id for one in found if one.target_id is not None and not one.granted}
    resumed = sight.resumed(wanted) if wanted else set()
    return [one for one in found if one.granted or one.target_id not in resumed]


def _close_reserved(sight: Sight, reserved: Sequence[Active]) -> Rooms:
    """What is reserved is closed to the queue, and jobs on reserved targets are barred."""
    rooms, found = sight.rooms(), closing(sight, reserved)
    rules.reserve(rooms, found, sight.view.streaks)
    shut = rules.shut_targets(found, sight.view.target_streaks)
    if shut:
        rooms.barred = {job_id for job_id, _ in sight.heads(shut)}
    return rooms


def lets_in(tx: Tx, view: View, lanes: Lanes) -> bool:
    """Whether a reservation waits that could have its lanes now."""
    if not view.reservations:
        return False
    sight = Sight(tx, view, lanes)
    return bool(grantable(sight, sight.active()))


def settle_reservations(tx: Tx, view: View, lanes: Lanes) -> list[Active]:
    """Ends what has expired and grants what can be granted. The claim lock must be held. Returns what is active."""
    return Sight(tx, view, lanes).settle() if view.reservations else []


def grantable(sight: Sight, found: Sequence[Active]) -> set[int]:
    """Which waiting reservations get their lanes now, in order."""
    reserved = [one.reserved for one in found]
    if all(one.granted for one in reserved):
        return set()
    rooms = sight.rooms()
    for one in reserved:
        if one.granted:
            rooms.take(one.lanes)
    targets = {one.target_id for one in reserved if one.target_id is not None}
    busy = sight.busy(targets) if targets else set()
    lanes, held_back = _would_go_first(sight, found)
    return set(rules.grants(reserved, rooms, busy | held_back, lanes))


def _would_go_first(sight: Sight, found: Sequence[Active]) -> tuple[set[int], set[int]]:
    """On which lanes and targets that direct calls had so often a job would be claimed now, by a worker with a free
    slot, if one went first."""
    tired, tired_targets = reservations.tired(found, sight.view.streaks, sight.view.target_streaks)
    if not tired and not tired_targets:
        return set(), set()
    tasks, free = sight.served()
    picks = pick_open(sight, _close_reserved(sight, found), tasks.__contains__, free)
    on = {one.job_id for one in picks}
    heads = sight.heads(tired_targets) if tired_targets else []
    return {lane for one in picks for lane in one.bucket.lanes} & tired, {t for job_id, t in heads if job_id in on}
