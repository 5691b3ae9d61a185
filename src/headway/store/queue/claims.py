"""Stores claims: settling due changes, claiming jobs, and completing them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from headway.model.event import NewEvent
from headway.model.jobs.job import Actor, Carried, Claim
from headway.model.jobs.states import State
from headway.model.queue.capacity import Bucket, Capacity
from headway.model.queue.select import Pick, Turns, last_turns
from headway.store import events
from headway.store.db import Call, Row, Tx
from headway.store.queue import targets
from headway.store.queue.claim_snapshot import Likely, View, look
from headway.store.queue.lanes import BucketCache
from headway.store.queue.select import ClaimSource, Knows, Serves, may_grant, open_capacity, pick, pick_open
from headway.store.round_trip import Pending

# Like `Claim._make`, in a third of its time.
_claim: Callable[[Row], Claim] = partial(tuple.__new__, Claim)


class ClaimPlan(NamedTuple):
    """The statements that make picked jobs RUNNING. The caller runs and commits them in one round trip."""

    tx: Tx
    picks: Sequence[int]
    statements: list[Call]

    def claims(self, answers: Sequence[Sequence[Row]]) -> list[Claim]:
        """Returns the claims in the order of the picks, from the answers to the statements."""
        taken = answers[-1]
        if self.tx.released:
            self.tx.released.difference_update(row[0] for row in taken)
        order = {job_id: n for n, job_id in enumerate(self.picks)}
        return sorted(map(_claim, taken), key=lambda claim: order[claim.job_id])

    def missed(self, taken: Sequence[Claim]) -> set[int]:
        """Returns the picked jobs that another transaction had locked."""
        return set(self.picks).difference(claim.job_id for claim in taken) if len(taken) < len(self.picks) else set()


def lock_and_look(tx: Tx, lanes: BucketCache, actor: Actor, likely: Likely | None = None) -> tuple[View, bool]:
    """Takes the claim lock, reads the overview and settles what is due.

    The lock makes limits exact and needs a statement of its own. To settle are due times, targets whose first job may
    have changed, and jobs with lanes of an older policy. The second value is True if a due job was locked by another
    transaction. `likely` are the places that the claim will read if nothing has changed; they come in the same round
    trip.
    """
    barred: set[int] = set()
    if tx.touched:  # targets to settle are known, so one overview is enough
        barred = _choose_heads(tx, tx.run_all(("claim_lock", {}), ("take_touched", {}))[1])
        view = look(tx)
    else:
        view = look(tx, ("claim_lock", {}), likely=likely)
    return _settle(tx, view, lanes, actor, barred)


def look_if_free(tx: Tx, lanes: BucketCache, actor: Actor, likely: Likely | None) -> tuple[View, bool] | None:
    """Does the same without waiting; returns None if the claim lock is taken.

    For a transaction that has touched no target.
    """
    free = tx.send("try_claim_lock")
    view = look(tx, likely=likely)
    return _settle(tx, view, lanes, actor, set()) if free.result()[0][0] else None


def _settle(tx: Tx, view: View, lanes: BucketCache, actor: Actor, barred: set[int]) -> tuple[View, bool]:
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
    """Chooses the first jobs of targets touched here and by other transactions."""
    touched = tx.touched | {row[0] for row in found}
    tx.touched.clear()
    return targets.choose_heads(tx, touched)


def has_claimable_work(tx: Tx, view: View, lanes: BucketCache, knows: Knows, count: int, serves: Serves = None) -> bool:
    """Returns True if `claim` would find something to settle, to grant or to claim now.

    Reads only and needs no lock. If there is something to settle, the ready jobs may be others than they seem.
    """
    if needs_settling(tx, view, lanes) or may_grant(tx, view, lanes):
        return True
    return bool(pick(tx, view, lanes, knows, count, serves=serves))


def needs_settling(tx: Tx, view: View, lanes: BucketCache) -> bool:
    """Returns True if a claim would choose first jobs of targets or give jobs new lanes before it selects."""
    return view.touched or bool(lanes.stale(tx, view.version, view.ready))


def claim(
    tx: Tx,
    view: View,
    lanes: BucketCache,
    *,
    worker_id: int,
    actor: Actor,
    knows: Knows,
    slots: Sequence[int],
    serves: Serves = None,
    freed: bool = False,
) -> ClaimPlan | None:
    """Grants reservations, then picks jobs for the free slots. Returns None if there is nothing to claim.

    Runs after `lock_and_look`. `freed`: jobs ended in this transaction, so other workers are woken for the capacity
    that this worker does not use.
    """
    if not (slots or view.reservations or freed) or not (view.ready or view.reservations):
        return None
    source = ClaimSource(tx, view, lanes)
    capacity = open_capacity(source, grant=True)
    picks = pick_open(source, capacity, knows, len(slots), serves) if slots else []
    if freed and not tx.database.one_writer:
        full = len(picks) == len(slots)
        if _left_to_others(source, capacity, lambda b: full or not (knows(b.task) and (serves is None or serves(b)))):
            tx.wake()
    if not picks:
        return None
    if view.streaks or view.target_streaks:
        _end_streaks(tx, view, picks)
    return take(tx, worker_id, actor, [one.job_id for one in picks], slots, turns=last_turns(picks))


def _left_to_others(source: ClaimSource, capacity: Capacity, leaves: Callable[[Bucket], bool]) -> bool:
    """Returns True if capacity is left for a job of a bucket that this worker leaves.

    Only capacity that may be new counts.
    """
    if 0 in source.view.paused:
        return False
    waiting = (b for b in source.ready() if b.tenant_id not in source.view.paused and leaves(b))
    return any(
        (
            capacity.has_room(b)
            and (b.on_target or b.tenant_id in capacity.tenants or not capacity.free.keys().isdisjoint(b.lanes))
        )
        or capacity.has_room_for_members(b)
        for b in waiting
    )


def take(
    tx: Tx, worker_id: int, actor: Actor, picks: Sequence[int], slots: Sequence[int], *, turns: Turns | None = None
) -> ClaimPlan:
    """Plans to make the picked jobs RUNNING in the given slots."""
    had: list[Call] = [("save_turns", {"rows": json.dumps(sorted(turns.items()))})] if turns else []
    by = {"worker_id": worker_id, "actor": actor.text()}
    if len(picks) == 1 and tx.database.one_writer:
        taking: Call = ("take_one", {"id": picks[0], "slot": slots[0], **by})
    else:
        taking = ("take", {"picks": json.dumps(dict(zip(picks, slots, strict=False))), **by})
    return ClaimPlan(tx, picks, [*had, taking])


def _end_streaks(tx: Tx, view: View, picks: Sequence[Pick]) -> None:
    """Resets the count of direct calls in a row on the lanes that jobs get."""
    lanes = {lane for one in picks for lane in one.bucket.lanes} & view.streaks.keys()
    if lanes:
        tx.run("reset_streaks", ids=json.dumps(sorted(lanes)))
    on_target = [one.job_id for one in picks if one.bucket.on_target]
    if on_target and view.target_streaks:
        tx.run("reset_target_streaks", ids=json.dumps(on_target))


def own(tx: Tx, worker_id: int) -> list[Claim]:
    """Returns the claims that the database has for this worker, under the claim lock.

    Every transaction that changes them takes the lock in an earlier round trip than its commit. So a transaction whose
    connection broke keeps the lock until it is decided, and none is under way here.
    """
    _, held = tx.run_all(("claim_lock", {}), ("own_claims", {"worker_id": worker_id}))
    return [Claim._make(row) for row in held]


def carried(tx: Tx, ids: Sequence[int]) -> dict[int, Carried]:
    """Returns checkpoints and meters left by earlier claims and jobs of the chain."""
    found = tx.run("carried", ids=json.dumps(list(ids)))
    return {job_id: Carried(checkpoint, json.loads(spent) if spent else {}) for job_id, checkpoint, spent in found}


def tenants_of(tx: Tx, ids: Sequence[int]) -> dict[int, str]:
    """Returns the names of the tenants of jobs."""
    return dict(tx.run("tenants_of_jobs", ids=json.dumps(list(ids))))


def complete(
    tx: Tx,
    worker_id: int,
    actor: Actor,
    ended: Mapping[int, int],
    results: Mapping[int, str],
    codes: Mapping[int, int] | None = None,
) -> Pending[set[int]]:
    """Ends jobs as COMPLETED, given as {id: fence}, with their results, and with the exit codes of commands.

    The result is the ids that landed; the commit refuses a transaction that has not read it.
    """
    if len(ended) == 1 and tx.database.one_writer:
        ((job_id, fence),) = ended.items()
        if results:
            tx.run("result_of_one", id=job_id, fence=fence, result=results[job_id], worker_id=worker_id)
        code = codes.get(job_id) if codes else None
        rows = tx.send("complete_one", id=job_id, fence=fence, exit_code=code, worker_id=worker_id, actor=actor.text())
    else:
        bodies = json.dumps({job_id: (ended[job_id], body) for job_id, body in results.items()}) if results else "{}"
        more = {"results": bodies, "codes": json.dumps(codes) if codes else "{}"}
        rows = tx.send("complete", ended=json.dumps(ended), **more, worker_id=worker_id, actor=actor.text())
    return rows.map(lambda found: {job_id for (job_id,) in found})


def promote(tx: Tx, actor: Actor) -> int:
    """Promotes due jobs to QUEUED, skips expired ones, and returns how many."""
    moved = tx.run("promote", actor=actor.text()) + tx.run("expire", actor=actor.text())
    for _, target_id in moved:
        tx.touch(target_id)
    return len(moved)


def record_stuck(tx: Tx, tenant_id: int, claim: Claim, version: int, actor: Actor) -> None:
    event = NewEvent(
        "job.not_stopping",
        actor,
        tenant_id=tenant_id,
        thing_id=claim.job_id,
        version=version,
        status=State.RUNNING,
        fence=claim.fence,
    )
    events.record(tx, event)
