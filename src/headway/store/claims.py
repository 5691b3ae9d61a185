"""Claims in the database: what is ready, what has room, taking jobs, and ending the commonest way."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from headway.clock import micros
from headway.model import lanes as rules
from headway.model.job import Actor, Carried, Claim
from headway.model.lanes import Bucket, Place, Reserved, Rooms, Stage, rooms_of
from headway.model.picking import (
    Aged,
    Aging,
    Levels,
    Others,
    Pick,
    Source,
    Turns,
    in_turn,
    plan,
    plan_aged,
    told,
)
from headway.store import reservations, targets
from headway.store.db import Row, Tx
from headway.store.lanes import Lanes
from headway.store.reservations import Active

Knows = Callable[[str], bool]
# As `Claim._make`, at a third of the time.
_claim: Callable[[Row], Claim] = partial(tuple.__new__, Claim)
_FIRST, NEVER = -(1 << 63), (1 << 63) - 1
# Of jobs that are not for this worker, mostly the first tells all.
FEW = 2


class View:
    """What a claim has to know before it looks at single jobs."""

    def __init__(self, answer: list[Row]) -> None:
        things: tuple[dict[int, int], ...] = ({}, {}, {}, {}, {}, {}, {})
        facts: list[int | None] = [None] * 6
        # The limited lanes of the policy, and how many of each stage run in each bucket.
        self.policy: set[int] = set()
        self.members: dict[tuple[int, Stage], int] = {}
        for kind, thing, number, group, stage in answer:
            if kind > 6:
                facts[kind - 7] = number
            elif group is None:
                things[kind][thing] = number
            elif kind == 1:
                self.policy.add(thing)
                things[1][thing] = number
            else:
                self.members[thing, (group, stage)] = number
        self.ready, self.capacity, self.running, self.paused, self.streaks, self.target_streaks, self.limits = things
        for (bucket_id, _), count in self.members.items():
            self.running[bucket_id] = self.running.get(bucket_id, 0) + count
        now, version, touched, expires, *instants = facts
        self.now: int = now or 0
        self.version: int = version or 0
        self.touched: bool = touched is not None
        self.reservations: bool = expires is not None
        # Jobs that are open and no longer first on their target: somebody had them in hand when they were to be closed.
        self.barred: set[int] = set()
        # Jobs that were picked and not taken: somebody had them in hand.
        self.missed: set[int] = set()
        known = [i for i in (expires, *instants, *self.paused.values()) if i is not None and i < NEVER]
        self.due: int | None = min(known) if known else None

    @property
    def due_now(self) -> bool:
        """Whether a waiting time, an expiry or the end of a reservation has come."""
        return self.due is not None and self.due <= self.now


def look(tx: Tx) -> View:
    return View(tx.run("claim_view"))


def glance(tx: Tx) -> View:
    """A look in a transaction of its own, with the plans of a claim."""
    return View(tx.run_all(("pin_plans", {}), ("claim_view", {}))[1])


def lock_and_look(tx: Tx, lanes: Lanes, actor: Actor) -> tuple[View, bool]:
    """Takes the lock that makes limits exact, in a statement of its own, then looks, and settles what is unsettled:
    times that have come, targets whose first job may be another one, jobs that were made under an older policy.

    The answer also says whether something is due that somebody else has in hand right now.
    """
    barred: set[int] = set()
    if tx.touched:  # known beforehand: one look is enough
        barred = _choose_heads(tx, tx.run_all(("claim_lock", {}), ("take_touched", {}))[1])
        view = look(tx)
    else:
        view = View(tx.run_all(("claim_lock", {}), ("claim_view", {}))[1])
    moved = promote(tx, actor) if view.due_now else 0
    changed, elsewhere = bool(moved), view.due_now and not moved
    if view.touched or tx.touched:
        barred |= _choose_heads(tx, tx.run("take_touched"))
        changed = True
    if changed:
        view = look(tx)
    stale = lanes.stale(tx, view.version, view.ready)
    for bucket in stale:
        lanes.relane(tx, bucket, actor)
    view = look(tx) if stale else view
    view.barred |= barred
    return view, elsewhere


def _choose_heads(tx: Tx, found: Sequence[Row]) -> set[int]:
    """Of the targets that others touched, and of those that this transaction did."""
    touched = tx.touched | {row[0] for row in found}
    tx.touched.clear()
    return targets.choose_heads(tx, touched)


def unsettled(tx: Tx, view: View, lanes: Lanes) -> bool:
    """Whether the next claim has something to settle first: what is ready may be another job than it seems."""
    return view.touched or bool(lanes.stale(tx, view.version, view.ready))


class Sight:
    """What a claim sees: its view, and the jobs and reservations behind it as it asks for them.

    Whoever only wants to know what a claim would do sees them as they would be once it has settled everything.
    """

    def __init__(self, tx: Tx, view: View, lanes: Lanes) -> None:
        self.tx, self.view, self.lanes = tx, view, lanes

    def ready(self) -> list[Bucket]:
        """The buckets with jobs, but for those of an older policy: what is left there gets its lanes first."""
        current = self.lanes.current
        return [bucket for bucket in self.lanes.load(self.tx, self.view.ready) if current.get(bucket.id, True)]

    def places(self, buckets: Sequence[Bucket], count: int, others: Others) -> Source:
        return _Places(self.tx, buckets, count, others).of

    def levels(self, buckets: Collection[Bucket]) -> Levels:
        return _levels(self.tx, buckets)

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
    open_buckets = [b for b in ready if rooms.admits(b) and b.tenant_id not in paused and knows(b.task)]
    if rooms.joins:
        open_buckets += [b for b in ready if rooms.keeps(b) and b.tenant_id not in paused and knows(b.task)]
    if not open_buckets:
        return []
    rooms.barred |= view.barred

    def others() -> list[Bucket]:
        """What is not for this worker may still wait for a lane."""
        return [b for b in ready if b.tenant_id not in paused and not knows(b.task)]

    turns = _turns(sight, ready)
    if aging is not None:
        levels = sight.levels(open_buckets)
        return plan_aged(count, levels, rooms, Aging(micros(aging), view.now), others, sight.levels, turns)
    near, far = _near(open_buckets, turns, count)
    places = sight.places(near, count, lambda: [*far, *others()])
    return plan(count, open_buckets, rooms, places, others, turns)


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


# --- places -------------------------------------------------------------------------------------------------------


class _Places:
    """The places of the open buckets, in order: a first chunk of each at once, more when they are asked for. Those of
    others only when one of them is asked for."""

    def __init__(self, tx: Tx, buckets: Sequence[Bucket], count: int, others: Others) -> None:
        self.tx, self.others = tx, others
        self.chunk = count if len(buckets) == 1 else min(count, max(2, 2 * count // len(buckets)))
        self.first = self._first_of([bucket.id for bucket in buckets], self.chunk)
        self.first_of_others: dict[int, list[Place]] = {}

    def _of_others(self) -> dict[int, list[Place]]:
        if not self.first_of_others:
            self.first_of_others = self._first_of([bucket.id for bucket in self.others()], FEW)
        return self.first_of_others

    def _first_of(self, ids: Sequence[int], chunk: int) -> dict[int, list[Place]]:
        if len(ids) == 1:
            return {ids[0]: [row[1:] for row in self.tx.run("first_of_bucket", bucket_id=ids[0], limit=chunk)]}
        first: dict[int, list[Place]] = {bucket_id: [] for bucket_id in ids}
        for row in sorted(self.tx.run("first_places", ids=json.dumps(ids), limit=chunk)):
            first[row[0]].append(row[1:])
        return first

    def of(self, bucket: Bucket) -> Iterator[Place]:
        if bucket.id in self.first:
            places, chunk = self.first[bucket.id], self.chunk
        else:
            places, chunk = self._of_others()[bucket.id], FEW
        while places:
            yield from places
            if len(places) < chunk:
                return
            chunk *= 4
            places = [row[1:] for row in self._after(bucket.id, places[-1], chunk)]

    def _after(self, bucket_id: int, last: Place, limit: int) -> list[Row]:
        minus_priority, position, created_at, job_id, *_ = last
        after = {"priority": -minus_priority, "position": position, "created_at": created_at, "id": job_id}
        return self.tx.run("bucket_places", bucket_id=bucket_id, limit=limit, **after)


def _levels(tx: Tx, buckets: Collection[Bucket]) -> dict[int, list[tuple[Bucket, Iterator[Aged]]]]:
    """The priorities of the open buckets, each with its jobs in order."""
    by_id = {bucket.id: bucket for bucket in buckets}
    levels: dict[int, list[tuple[Bucket, Iterator[Aged]]]] = {}
    for bucket_id, priority in tx.run("bucket_levels", ids=json.dumps(list(by_id))):
        levels.setdefault(priority, []).append((by_id[bucket_id], _level(tx, bucket_id, priority)))
    return levels


def _level(tx: Tx, bucket_id: int, priority: int) -> Iterator[Aged]:
    last: Aged = (_FIRST, 0, 0, 0, None, None)
    chunk = 8
    while True:
        after = {"position": last[0], "created_at": last[1], "id": last[2]}
        found = tx.run("level_places", bucket_id=bucket_id, priority=priority, limit=chunk, **after)
        yield from found
        if len(found) < chunk:
            return
        last, chunk = found[-1], chunk * 4


# --- taking -------------------------------------------------------------------------------------------------------


def claim(
    tx: Tx,
    view: View,
    lanes: Lanes,
    *,
    worker_id: int,
    actor: Actor,
    knows: Knows,
    slots: Sequence[int],
    freed: bool = False,
) -> list[Claim]:
    """After `lock_and_look`: gives reservations what is theirs, then the free slots to the next jobs, and commits.

    `freed`: jobs ended in this transaction; what they leave and we do not take, others are told of.
    """
    if not (slots or view.reservations or freed) or not (view.ready or view.reservations):
        return []
    sight = Sight(tx, view, lanes)
    rooms = open_rooms(sight, grant=True)
    picks = pick_open(sight, rooms, knows, len(slots)) if slots else []
    if freed and not tx.database.one_writer and _left_to_others(sight, rooms, knows, full=len(picks) == len(slots)):
        tx.wake()
    if not picks:
        return []
    if view.streaks or view.target_streaks:
        _end_streaks(tx, view, picks)
    taken = take(tx, worker_id, actor, [one.job_id for one in picks], slots, turns=told(picks))
    if len(taken) < len(picks):
        view.missed = {one.job_id for one in picks}.difference(claim.job_id for claim in taken)
    return taken


def _left_to_others(sight: Sight, rooms: Rooms, knows: Knows, *, full: bool) -> bool:
    """Whether there is room for a job that we do not take, where there may have been none before."""
    if 0 in sight.view.paused:
        return False
    waiting = (b for b in sight.ready() if b.tenant_id not in sight.view.paused and (full or not knows(b.task)))
    return any(
        (rooms.admits(b) and (b.on_target or b.tenant_id in rooms.tenants or not rooms.free.keys().isdisjoint(b.lanes)))
        or rooms.keeps(b)
        for b in waiting
    )


def take(
    tx: Tx, worker_id: int, actor: Actor, picks: Sequence[int], slots: Sequence[int], *, turns: Turns | None = None
) -> list[Claim]:
    """Makes the picked jobs RUNNING in the given slots, commits, and returns the claims in the order of the picks."""
    chosen = json.dumps(dict(zip(picks, slots, strict=False)))
    had = [("save_turns", {"rows": json.dumps(sorted(turns.items()))})] if turns else []
    taking = ("take", {"picks": chosen, "worker_id": worker_id, "actor": actor.text()})
    *_, answer = tx.run_all(*had, taking, commit=True)
    order = {job_id: n for n, job_id in enumerate(picks)}
    return sorted(map(_claim, answer), key=lambda claim: order[claim.job_id])


def _end_streaks(tx: Tx, view: View, picks: Sequence[Pick]) -> None:
    """Jobs get these lanes: direct calls begin to count anew."""
    lanes = {lane for one in picks for lane in one.bucket.lanes} & view.streaks.keys()
    if lanes:
        tx.run("reset_streaks", ids=json.dumps(sorted(lanes)))
    on_target = [one.job_id for one in picks if one.bucket.on_target]
    if on_target and view.target_streaks:
        tx.run("reset_target_streaks", ids=json.dumps(on_target))


def own(tx: Tx, worker_id: int) -> list[Claim]:
    """What the database says this worker holds."""
    return [Claim._make(row) for row in tx.run("own_claims", worker_id=worker_id)]


def carried(tx: Tx, ids: Sequence[int]) -> dict[int, Carried]:
    """What earlier claims and jobs of the chain left for these jobs."""
    found = tx.run("carried", ids=json.dumps(list(ids)))
    return {job_id: Carried(checkpoint, json.loads(spent) if spent else {}) for job_id, checkpoint, spent in found}


def complete(tx: Tx, worker_id: int, actor: Actor, ended: Mapping[int, int], results: Mapping[int, str]) -> set[int]:
    """Ends many jobs as COMPLETED: {id: fence}, and their results. Returns the ids that landed."""
    answer = tx.run("complete", ended=json.dumps(ended), worker_id=worker_id, actor=actor.text())
    landed = {job_id for (job_id,) in answer}
    kept = [(job_id, body) for job_id, body in results.items() if job_id in landed]
    if kept:
        tx.run("save_results", rows=json.dumps(kept))
    return landed


def promote(tx: Tx, actor: Actor) -> int:
    """Moves what is due: SCHEDULED to QUEUED, expired to SKIPPED. Returns how many."""
    moved = tx.run("promote", actor=actor.text()) + tx.run("expire", actor=actor.text())
    for _, target_id in moved:
        tx.touch(target_id)
    return len(moved)


def record_stuck(tx: Tx, tenant_id: int, claim: Claim, version: int, actor: Actor) -> None:
    event = (tenant_id, "job", claim.job_id, version, "job.not_stopping", 3, actor.text(), claim.fence, None)
    tx.run("add_events", rows=json.dumps([event]))
