"""Positions in the queue: finds a moved job's place with few changed rows."""

from __future__ import annotations

import json

from headway.errors import BadInput
from headway.model.event import NewEvent
from headway.model.jobs.job import Actor, JobRecord
from headway.store import events, rows
from headway.store.db import Row, Tx
from headway.store.jobs import changes as jobs

GAP = 1 << 20
_FIRST_WINDOW = 1 << 10
_WIDEST = 1 << 61


def top(tx: Tx, job: JobRecord, priority: int) -> int:
    """Returns the position before all jobs of a priority."""
    ((first,),) = tx.run("first_place", tenant_id=job.tenant_id, priority=priority, moving=job.id)
    return int(first) - GAP if first is not None else job.position


def bottom(tx: Tx) -> int:
    ((position,),) = tx.run("next_position")
    return int(position)


def front(tx: Tx, job: JobRecord) -> tuple[int, int]:
    """Returns the highest priority in use, and the position before all jobs of it."""
    ((highest,),) = tx.run("highest_priority", tenant_id=job.tenant_id, moving=job.id)
    priority = max(job.priority, int(highest or 0))
    return priority, top(tx, job, priority)


def neighbours(tx: Tx, job: JobRecord) -> tuple[int | None, int | None]:
    """Returns the ids of the jobs directly before and after a waiting job."""
    place = {"position": job.position, "created_at": job.created_at, "id": job.id}
    ahead = tx.run("queue_ahead", tenant_id=job.tenant_id, priority=job.priority, **place)
    behind = tx.run("queue_rest", tenant_id=job.tenant_id, priority=job.priority, **place, limit=1)
    return (ahead[0][0] if ahead else None), (rows.job(behind[0]).id if behind else None)


def at_rank(tx: Tx, job: JobRecord, rank: int) -> tuple[JobRecord | None, bool]:
    """Returns the job at a rank and True; beyond the end, the last job and False."""
    if rank < 1:
        raise BadInput("rank begins at 1", field="rank")
    scope = {"tenant_id": job.tenant_id, "moving": job.id}
    found = tx.run("nth_queued", **scope, rank=rank - 1)
    beyond = not found
    found = found or tx.run("last_queued", **scope)
    return (jobs.lock(tx, found[0][0]) if found else None), not beyond


def beside(tx: Tx, job: JobRecord, other: JobRecord, actor: Actor, *, before: bool) -> int:
    """Returns the position directly before or after another job.

    If there is no gap, it respaces the smallest neighbourhood that has room.
    """
    scope = {"tenant_id": job.tenant_id, "priority": other.priority, "moving": job.id}
    same = tx.run("window", **scope, low=other.position, high=other.position)
    if len(same) > 1:
        return _respace(tx, job, other, actor, before=before)
    found = tx.run("neighbour_before" if before else "neighbour_after", **scope, position=other.position)
    if not found:
        # At the end, the job takes the next new job's position; a position beyond it would put that one ahead.
        return other.position - GAP if before else bottom(tx)
    low, high = sorted((int(found[0][0]), other.position))
    return (low + high) // 2 if high - low > 1 else _respace(tx, job, other, actor, before=before)


def _respace(tx: Tx, job: JobRecord, other: JobRecord, actor: Actor, *, before: bool) -> int:
    """Spreads a place's neighbours evenly and returns the gap for the moving job."""
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
    made = [
        NewEvent(
            "job.moved",
            actor,
            tenant_id=tenant_id,
            thing_id=job_id,
            version=version,
            status=status,
            fence=fence or None,
            data=json.dumps({"priority": priority, "position": position}),
        )
        for job_id, tenant_id, version, position, status, fence in moved
    ]
    events.record(tx, *made)
