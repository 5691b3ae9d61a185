"""Claims in the database: settling what is due, taking jobs, and ending the commonest way."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from headway.model.job import Actor, Carried, Claim
from headway.model.lanes import Rooms
from headway.model.picking import Pick, Turns, told
from headway.store import targets
from headway.store.choosing import Knows, Sight, open_rooms, pick_open
from headway.store.claim_view import Likely, View, look
from headway.store.db import Call, Row, Tx
from headway.store.lanes import Lanes

# As `Claim._make`, at a third of the time.
_claim: Callable[[Row], Claim] = partial(tuple.__new__, Claim)


def lock_and_look(tx: Tx, lanes: Lanes, actor: Actor, likely: Likely | None = None) -> tuple[View, bool]:
    """Takes the lock that makes limits exact, in a statement of its own, then looks, and settles what is unsettled:
    times that have come, targets whose first job may be another one, jobs that were made under an older policy.

    The answer also says whether something is due that somebody else has in hand right now. `likely`: the first places
    that will be asked for, if nothing has changed since last time; they come in the same round trip.
    """
    barred: set[int] = set()
    if tx.touched:  # known beforehand: one look is enough
        barred = _choose_heads(tx, tx.run_all(("claim_lock", {}), ("take_touched", {}))[1])
        view = look(tx)
    else:
        view = look(tx, ("claim_lock", {}), likely=likely)
    return _settle(tx, view, lanes, actor, barred)


def look_if_free(tx: Tx, lanes: Lanes, actor: Actor, likely: Likely | None) -> tuple[View, bool] | None:
    """`lock_and_look`; None if somebody has the lock. For a transaction that has touched no target."""
    free = tx.send("try_claim_lock")
    view = look(tx, likely=likely)
    return _settle(tx, view, lanes, actor, set()) if free()[0][0] else None


def _settle(tx: Tx, view: View, lanes: Lanes, actor: Actor, barred: set[int]) -> tuple[View, bool]:
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
    had = [("save_turns", {"rows": json.dumps(sorted(turns.items()))})] if turns else []
    by = {"worker_id": worker_id, "actor": actor.text()}
    if len(picks) == 1 and tx.database.one_writer:
        taking: Call = ("take_one", {"id": picks[0], "slot": slots[0], **by})
    else:
        taking = ("take", {"picks": json.dumps(dict(zip(picks, slots, strict=False))), **by})
    *_, answer = tx.run_all(*had, taking, commit=True)
    if tx.released:
        tx.released.difference_update(row[0] for row in answer)
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


def complete(
    tx: Tx, worker_id: int, actor: Actor, ended: Mapping[int, int], results: Mapping[int, str]
) -> Callable[[], set[int]]:
    """Ends many jobs as COMPLETED: {id: fence}, and their results. It is sent; the ids that landed are to be asked for
    before the commit."""
    if len(ended) == 1 and tx.database.one_writer:
        ((job_id, fence),) = ended.items()
        if results:
            tx.run("result_of_one", id=job_id, fence=fence, result=results[job_id], worker_id=worker_id)
        answer = tx.send("complete_one", id=job_id, fence=fence, worker_id=worker_id, actor=actor.text())
    else:
        bodies = json.dumps({job_id: (ended[job_id], body) for job_id, body in results.items()}) if results else "{}"
        answer = tx.send("complete", ended=json.dumps(ended), results=bodies, worker_id=worker_id, actor=actor.text())
    return lambda: {job_id for (job_id,) in answer()}


def promote(tx: Tx, actor: Actor) -> int:
    """Moves what is due: SCHEDULED to QUEUED, expired to SKIPPED. Returns how many."""
    moved = tx.run("promote", actor=actor.text()) + tx.run("expire", actor=actor.text())
    for _, target_id in moved:
        tx.touch(target_id)
    return len(moved)


def record_stuck(tx: Tx, tenant_id: int, claim: Claim, version: int, actor: Actor) -> None:
    event = (tenant_id, "job", claim.job_id, version, "job.not_stopping", 3, actor.text(), claim.fence, None)
    tx.run("add_events", rows=json.dumps([event]))
