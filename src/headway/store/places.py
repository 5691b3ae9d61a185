"""Places in the queue: where a moved job goes, with as few changed rows as possible."""

from __future__ import annotations

import json

from headway.errors import BadInput
from headway.model.job import Actor, Job
from headway.store import jobs, rows
from headway.store.db import Row, Tx

GAP = 1 << 20
_FIRST_WINDOW = 1 << 10
_WIDEST = 1 << 61


def top(tx: Tx, job: Job, priority: int) -> int:
    """Ahead of all of a priority."""
    ((first,),) = tx.run("first_place", tenant_id=job.tenant_id, priority=priority, moving=job.id)
    return int(first) - GAP if first is not None else job.position


def bottom(tx: Tx) -> int:
    ((position,),) = tx.run("next_position")
    return int(position)


def front(tx: Tx, job: Job) -> tuple[int, int]:
    """Ahead of everything: the highest priority there is, and its first place."""
    ((highest,),) = tx.run("highest_priority", tenant_id=job.tenant_id, moving=job.id)
    priority = max(job.priority, int(highest or 0))
    return priority, top(tx, job, priority)


def neighbours(tx: Tx, job: Job) -> tuple[int | None, int | None]:
    """Who stands directly before and after a waiting job in its priority."""
    place = {"position": job.position, "created_at": job.created_at, "id": job.id}
    ahead = tx.run("queue_ahead", tenant_id=job.tenant_id, priority=job.priority, **place)
    behind = tx.run("queue_rest", tenant_id=job.tenant_id, priority=job.priority, **place, limit=1)
    return (ahead[0][0] if ahead else None), (rows.job(behind[0]).id if behind else None)


def at_rank(tx: Tx, job: Job, rank: int) -> tuple[Job | None, bool]:
    """The job that now stands where this one wants to be, and True; beyond the end, the last one and False."""
    if rank < 1:
        raise BadInput("rank begins at 1", field="rank")
    scope = {"tenant_id": job.tenant_id, "moving": job.id}
    found = tx.run("nth_queued", **scope, rank=rank - 1)
    beyond = not found
    found = found or tx.run("last_queued", **scope)
    return (jobs.lock(tx, found[0][0]) if found else None), not beyond


def beside(tx: Tx, job: Job, other: Job, actor: Actor, *, before: bool) -> int:
    """Directly before or after another job, respacing the smallest neighbourhood when there is no gap."""
    scope = {"tenant_id": job.tenant_id, "priority": other.priority, "moving": job.id}
    same = tx.run("window", **scope, low=other.position, high=other.position)
    if len(same) > 1:
        return _respace(tx, job, other, actor, before=before)
    found = tx.run("neighbour_before" if before else "neighbour_after", **scope, position=other.position)
    if not found:
        # The end is where the next new job would be: beyond it that one would come too early.
        return other.position - GAP if before else bottom(tx)
    low, high = sorted((int(found[0][0]), other.position))
    return (low + high) // 2 if high - low > 1 else _respace(tx, job, other, actor, before=before)


def _respace(tx: Tx, job: Job, other: Job, actor: Actor, *, before: bool) -> int:
    """Spreads the neighbours of a place evenly and returns the gap that is left for the moving job."""
    scope = {"tenant_id": job.tenant_id, "priority": other.priority, "moving": job.id}
    ((last,),) = tx.run("last_place", **scope)
    width = _FIRST_WINDOW
    while True:
        low, high = other.position - width, min(other.position + width, int(last))
        found = tx.run("window", **scope, low=low, high=high)
        step = (high - low) // (len(found) + 2)
        if step >= 2 or width >= _WIDEST:
            break
        width *= 4
    ids = [row[0] for row in found]
    ids.insert(ids.index(other.id) + (0 if before else 1), job.id)
    places = {job_id: low + step * (n + 1) for n, job_id in enumerate(ids)}
    moved = [(job_id, places[job_id]) for job_id, position, _ in found if places[job_id] != position]
    if moved:
        spread = tx.run("respace", rows=json.dumps(moved), priority=other.priority)
        _record(tx, spread, other.priority, actor)
    return places[job.id]


def _record(tx: Tx, moved: list[Row], priority: int, actor: Actor) -> None:
    events = [
        (tenant_id, "job", job_id, version, "job.moved", status, actor.text(), fence or None,
         json.dumps({"priority": priority, "position": position}))
        for job_id, tenant_id, version, position, status, fence in moved
    ]  # fmt: skip
    tx.run("add_events", rows=json.dumps(events))
