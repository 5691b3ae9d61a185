"""Claims in the database: what is ready, what has room, taking jobs, and ending the commonest way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from headway.clock import micros
from headway.model import lanes as rules
from headway.model.job import Actor, Carried, Claim
from headway.model.lanes import Aged, Aging, Bucket, Pick, Place, Rooms, plan, plan_aged, rooms_of
from headway.store import reservations, targets
from headway.store.db import Row, Tx
from headway.store.lanes import Lanes
from headway.store.reservations import Active

Knows = Callable[[str], bool]
_FIRST = -(1 << 63)


class View:
    """What a claim has to know before it looks at single jobs."""

    def __init__(self, answer: list[Row]) -> None:
        kinds: tuple[dict[int, int], ...] = tuple({} for _ in range(12))
        for kind, thing, number in answer:
            kinds[kind][thing] = number
        self.ready, self.capacity, self.running, self.paused = kinds[:4]
        self.now: int = kinds[6][0]
        self.version: int = kinds[7].get(0, 0)
        self.touched: bool = kinds[8].get(0) is not None
        ((self.reservations, expires),) = kinds[9].items()
        self.streaks, self.target_streaks = kinds[10:]
        instants = [kinds[4].get(0), kinds[5].get(0), expires, *self.paused.values()]
        self.due: int | None = min((instant for instant in instants if instant is not None), default=None)

    @property
    def due_now(self) -> bool:
        """Whether a waiting time, an expiry or the end of a reservation has come."""
        return self.due is not None and self.due <= self.now


def look(tx: Tx) -> View:
    return View(tx.run("claim_view"))


def lock_and_look(tx: Tx, lanes: Lanes, actor: Actor) -> tuple[View, bool]:
    """Takes the lock that makes limits exact, in a statement of its own, then looks, and settles what is unsettled:
    times that have come, targets whose first job may be another one, jobs that were made under an older policy.

    The answer also says whether something is due that somebody else has in hand right now.
    """
    view = View(tx.run_all(("claim_lock", {}), ("claim_view", {}))[1])
    moved = promote(tx, actor) if view.due_now else 0
    changed = bool(moved)
    if view.touched or tx.touched:
        touched = tx.touched | {row[0] for row in tx.run("take_touched")}
        tx.touched.clear()
        targets.choose_heads(tx, touched)
        changed = True
    elsewhere = view.due_now and not moved
    if changed:
        view = look(tx)
    stale = lanes.stale(tx, view.version, view.ready)
    for bucket in stale:
        lanes.relane(tx, bucket, actor)
    return (look(tx) if stale else view), elsewhere


def unsettled(tx: Tx, view: View, lanes: Lanes) -> bool:
    """Whether the next claim has something to settle first: what is ready may be another job than it seems."""
    return view.touched or bool(lanes.stale(tx, view.version, view.ready))


def pick(tx: Tx, view: View, lanes: Lanes, knows: Knows, count: int, *, grant: bool = False) -> list[Pick]:
    """The next jobs that may run, in queue order. With `grant`, the claim lock is held and reservations get theirs
    first."""
    if not view.reservations and (0 in view.paused or not view.ready):
        return []
    rooms, reserved = _rooms(tx, view, lanes), []
    if view.reservations:
        reserved = _settle(tx, view, lanes, rooms) if grant else reservations.active(tx)
        rooms = _rooms(tx, view, lanes)
        _close_reserved(tx, rooms, view, reserved)
    return _pick(tx, view, lanes, rooms, knows, count)


def _rooms(tx: Tx, view: View, lanes: Lanes) -> Rooms:
    if not view.capacity:
        return Rooms()
    return rooms_of(lanes.load(tx, view.running), view.capacity, view.running)


def _pick(tx: Tx, view: View, lanes: Lanes, rooms: Rooms, knows: Knows, count: int) -> list[Pick]:
    if 0 in view.paused:
        return []
    waiting = [b for b in lanes.load(tx, view.ready) if b.tenant_id not in view.paused and knows(b.task)]
    open_buckets = [bucket for bucket in waiting if rooms.admits(bucket)]
    if not open_buckets:
        return []
    if lanes.concurrency.aging is not None:
        aging = Aging(micros(lanes.concurrency.aging), view.now)
        return plan_aged(count, _levels(tx, open_buckets), rooms, aging)
    return plan(count, open_buckets, rooms, _Places(tx, open_buckets, count).of)


# --- reservations -------------------------------------------------------------------------------------------------


def _close_reserved(tx: Tx, rooms: Rooms, view: View, reserved: Sequence[Active]) -> None:
    """What is reserved is closed to the queue, and jobs on reserved targets are barred."""
    found = [one.reserved for one in reserved]
    rules.reserve(rooms, found, view.streaks)
    shut = rules.shut_targets(found, view.target_streaks)
    if shut:
        rooms.barred = {job_id for job_id, _ in tx.run("open_jobs_of", ids=json.dumps(sorted(shut)))}


def settle_reservations(tx: Tx, view: View, lanes: Lanes) -> list[Active]:
    """Ends what has expired and grants what can be granted. The claim lock must be held. Returns what is active."""
    return _settle(tx, view, lanes, _rooms(tx, view, lanes)) if view.reservations else []


def _settle(tx: Tx, view: View, lanes: Lanes, rooms: Rooms) -> list[Active]:
    found = reservations.drop_expired(tx, reservations.active(tx), view.now)
    for one in found:
        if one.granted_at is not None:
            rooms.take(one.reserved.lanes)

    def waits(tired: set[int], tired_targets: set[int]) -> tuple[set[int], set[int]]:
        return _would_go_first(tx, view, lanes, found, tired, tired_targets)

    return reservations.grant(tx, found, rooms, view.streaks, view.target_streaks, waits)


def _would_go_first(
    tx: Tx, view: View, lanes: Lanes, found: Sequence[Active], tired: set[int], tired_targets: set[int]
) -> tuple[set[int], set[int]]:
    """On which lanes and targets a job would be claimed now, by a worker with a free slot, if one went first."""
    knows = {task for (tasks,) in tx.run("served_now") for task in json.loads(tasks)}.__contains__
    rooms = _rooms(tx, view, lanes)
    _close_reserved(tx, rooms, view, found)
    picks = _pick(tx, view, lanes, rooms, knows, 1 + len(tired) + len(tired_targets))
    on = {job_id for job_id, _ in picks}
    heads = tx.run("open_jobs_of", ids=json.dumps(sorted(tired_targets))) if tired_targets else []
    return {lane for _, bucket in picks for lane in bucket.lanes} & tired, {t for job_id, t in heads if job_id in on}


# --- places -------------------------------------------------------------------------------------------------------


class _Places:
    """The places of the open buckets, in order: a first chunk of each at once, more when they are asked for."""

    def __init__(self, tx: Tx, buckets: Sequence[Bucket], count: int) -> None:
        self.tx = tx
        self.chunk = count if len(buckets) == 1 else min(count, max(8, 2 * count // len(buckets)))
        self.first: dict[int, list[Place]] = {bucket.id: [] for bucket in buckets}
        if len(buckets) == 1:
            found = tx.run("first_of_bucket", bucket_id=buckets[0].id, limit=self.chunk)
        else:
            found = sorted(tx.run("first_places", ids=json.dumps(list(self.first)), limit=self.chunk))
        for bucket_id, *place in found:
            self.first[bucket_id].append(tuple(place))

    def of(self, bucket: Bucket) -> Iterator[Place]:
        places, chunk = self.first[bucket.id], self.chunk
        while places:
            yield from places
            if len(places) < chunk:
                return
            chunk *= 4
            places = [tuple(row[1:]) for row in self._after(bucket.id, places[-1], chunk)]

    def _after(self, bucket_id: int, last: Place, limit: int) -> list[Row]:
        minus_priority, position, created_at, job_id = last
        after = {"priority": -minus_priority, "position": position, "created_at": created_at, "id": job_id}
        return self.tx.run("bucket_places", bucket_id=bucket_id, limit=limit, **after)


def _levels(tx: Tx, buckets: Sequence[Bucket]) -> dict[int, list[tuple[Bucket, Iterator[Aged]]]]:
    """The priorities of the open buckets, each with its jobs in order."""
    by_id = {bucket.id: bucket for bucket in buckets}
    levels: dict[int, list[tuple[Bucket, Iterator[Aged]]]] = {}
    for bucket_id, priority in tx.run("bucket_levels", ids=json.dumps(list(by_id))):
        levels.setdefault(priority, []).append((by_id[bucket_id], _level(tx, bucket_id, priority)))
    return levels


def _level(tx: Tx, bucket_id: int, priority: int) -> Iterator[Aged]:
    last: Aged = (_FIRST, 0, 0, 0)
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
    tx: Tx, view: View, lanes: Lanes, *, worker_id: int, actor: Actor, knows: Knows, slots: Sequence[int]
) -> list[Claim]:
    """After `lock_and_look`: gives reservations what is theirs, then the free slots to the next jobs, and commits."""
    if not slots and not view.reservations:
        return []
    picks = pick(tx, view, lanes, knows, len(slots), grant=True)
    if not picks:
        return []
    if view.streaks or view.target_streaks:
        _end_streaks(tx, view, picks)
    return take(tx, worker_id, actor, [job_id for job_id, _ in picks], slots)


def take(tx: Tx, worker_id: int, actor: Actor, picks: Sequence[int], slots: Sequence[int]) -> list[Claim]:
    """Makes the picked jobs RUNNING in the given slots, commits, and returns the claims in the order of the picks."""
    chosen = json.dumps(dict(zip(picks, slots, strict=False)))
    (answer,) = tx.run_all(("take", {"picks": chosen, "worker_id": worker_id, "actor": actor.text()}), commit=True)
    order = {job_id: n for n, job_id in enumerate(picks)}
    return sorted(map(Claim._make, answer), key=lambda claim: order[claim.job_id])


def _end_streaks(tx: Tx, view: View, picks: Sequence[Pick]) -> None:
    """Jobs get these lanes: direct calls begin to count anew."""
    lanes = {lane for _, bucket in picks for lane in bucket.lanes} & view.streaks.keys()
    if lanes:
        tx.run("reset_streaks", ids=json.dumps(sorted(lanes)))
    on_target = [job_id for job_id, bucket in picks if bucket.on_target]
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
