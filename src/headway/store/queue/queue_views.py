"""Views of the queue in claim order, with blockers and start estimates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headway.model.explain.blockers import Blocker, Explanation, blockers, stage_blocker
from headway.model.explain.forecast import Estimate
from headway.model.explain.snapshot import WorkerSlots
from headway.model.jobs.filter import JobFilter
from headway.model.jobs.job import JobRecord
from headway.store import rows
from headway.store.db import Row, Tx
from headway.store.groups import advance as groups
from headway.store.jobs import changes as jobs
from headway.store.jobs.views import JobView, views, views_of
from headway.store.paging import (
    BUDGET,
    Page,
    QueueCursor,
    check_limit,
    make_place_cursor,
    pick_places,
    read_place_cursor,
)
from headway.store.queue import waits
from headway.store.queue.explain import ExplainInputs
from headway.store.worker_views import Lives, WorkerView, workers

# First step of a filtered walk through the queue.
SIFTED = 500


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A queued job with its blockers, and its start estimate if it was requested."""

    view: JobView
    blockers: list[Blocker]
    start: Estimate | None = None


def queue(
    tx: Tx,
    tenant_id: int,
    limit: int = 50,
    *,
    lives: Lives = lambda worker: worker.has_lease,
    foresee: bool = False,
) -> list[WaitingJob]:
    """Returns the beginning of the queue in claim order, with ranks and blockers."""
    return queue_page(tx, tenant_id, limit, lives=lives, foresee=foresee).items


def queue_page(
    tx: Tx,
    tenant_id: int,
    limit: int = 50,
    cursor: str | None = None,
    *,
    lives: Lives = lambda worker: worker.has_lease,
    filters: JobFilter | None = None,
    foresee: bool = False,
) -> Page[WaitingJob]:
    """Returns a page of the queue in claim order, filtered or not.

    `foresee` adds start estimates.
    """
    tx.run("pin_plans")
    page = (
        _queued(tx, tenant_id, check_limit(limit), cursor)
        if filters is None
        else _sifted(tx, tenant_id, filters, limit, cursor)
    )
    first = cursor is None and filters is None and not foresee
    return Page(_waiting(tx, tenant_id, page.items, lives, first=first, foresee=foresee), page.next)


def _waiting(
    tx: Tx, tenant_id: int, found: Sequence[JobRecord], lives: Lives, *, first: bool, foresee: bool
) -> list[WaitingJob]:
    if not found:
        return []
    around = _explain_inputs(tx, tenant_id, found, lives, first=first)
    starts = around.estimates(found) if foresee else {}
    return [
        WaitingJob(one, blockers(one.job, around.snapshot), starts.get(one.job.id))
        for one in views(tx, tenant_id, found)
    ]


def _sifted(tx: Tx, tenant_id: int, filters: JobFilter, limit: int, cursor: str | None) -> Page[JobRecord]:
    """Walks the queue in growing steps until a page of matching jobs is full.

    It examines at most BUDGET jobs.
    """
    found: list[QueueCursor] = []
    last = None if cursor is None else read_place_cursor(cursor)
    step, looked, more = SIFTED, 0, True
    while more and looked < BUDGET and len(found) <= limit:
        places = _places(tx, tenant_id, step, last)
        found += pick_places(tx, tenant_id, filters, places)
        last, more, looked = (places[-1] if places else last), len(places) == step, looked + step
        step = min(4 * step, max(BUDGET - looked, 1))
    if len(found) > limit:
        last, more = found[limit - 1], True
    jobs_by_id = jobs.find_all(tx, [one.id for one in found[:limit]]) if found else {}
    shown = [jobs_by_id[one.id] for one in found[:limit] if one.id in jobs_by_id]
    return Page(shown, make_place_cursor(last) if more and last is not None else None)


def _places(tx: Tx, tenant_id: int, limit: int, after: QueueCursor | None) -> list[QueueCursor]:
    scope = {"tenant_id": tenant_id, "limit": limit}
    statement = "queue_places" if after is None else "queue_places_after"
    ((found,),) = tx.run(statement, **scope, **({} if after is None else after._asdict()))
    return sorted((QueueCursor(*one) for one in json.loads(found)), key=lambda at: (-at.priority, *at[2:], at.id))


def _queued(tx: Tx, tenant_id: int, limit: int, cursor: str | None) -> Page[JobRecord]:
    found = [rows.job(row) for row in _queue_rows(tx, tenant_id, limit + 1, cursor)]
    return Page(found[:limit], make_place_cursor(found[limit - 1]) if len(found) > limit else None)


def _queue_rows(tx: Tx, tenant_id: int, limit: int, cursor: str | None) -> list[Row]:
    if cursor is None:
        return tx.run("queue_jobs", tenant_id=tenant_id, limit=limit)
    place = read_place_cursor(cursor)
    found = tx.run("queue_rest", tenant_id=tenant_id, limit=limit, **place._asdict())
    if len(found) < limit:
        found += tx.run("queue_below", tenant_id=tenant_id, priority=place.priority, limit=limit - len(found))
    return found


def explain(tx: Tx, tenant_id: int, job_id: int, *, lives: Lives = lambda worker: worker.has_lease) -> Explanation:
    """Explains a job: its blockers and its start estimate."""
    return explain_all(tx, tenant_id, [job_id], lives=lives)[job_id]


def explain_all(tx: Tx, tenant_id: int, ids: Sequence[int], *, lives: Lives) -> dict[int, Explanation]:
    """Explains several jobs, reading their surroundings once."""
    if not ids:
        return {}
    tx.run("pin_plans")
    found = views_of(tx, tenant_id, ids)
    around = _explain_inputs(tx, tenant_id, [one.job for one in found], lives)
    starts = around.estimates([one.job for one in found])
    return {one.job.id: _explained(tx, one, around, starts.get(one.job.id)) for one in found}


def _explained(tx: Tx, one: JobView, around: ExplainInputs, start: Estimate | None) -> Explanation:
    found = blockers(one.job, around.snapshot)
    found = [_closed_stage(tx, one.job) if blocker.kind == "stage" else blocker for blocker in found]
    return Explanation(one.job.id, one.job.status.name, one.rank, tuple(found), start, around.now)


def _closed_stage(tx: Tx, job: JobRecord) -> Blocker:
    group = groups.find(tx, job.group_id or 0, job.tenant_id)
    members = [one for one in groups.members(tx, group.id) if one.stage == group.stage and not one.state.terminal]
    return stage_blocker(group, members)


def _explain_inputs(
    tx: Tx, tenant_id: int, asked: Sequence[JobRecord], lives: Lives, *, first: bool = False
) -> ExplainInputs:
    living = [worker for worker in workers(tx, within=0.0) if lives(worker)]
    all_slots = _all_slots(tx, [worker for worker in living if worker.state == "live"])
    known = {one.id for one in living if one.state in ("live", "draining")}
    return ExplainInputs(tx, tenant_id, asked, all_slots, known, first=first)


def _all_slots(tx: Tx, living: Sequence[WorkerView]) -> dict[int, WorkerSlots]:
    """Returns the slots of live workers.

    Waiting jobs are read only if a worker has no free slot.
    """
    all_slots = {worker.id: worker.worker_slots for worker in living}
    full = [worker for worker in living if not all_slots[worker.id].free]
    waiting = waits.jobs(tx) if full else set()
    for worker in full:
        if all(job_id in waiting for _, job_id, *_ in worker.running):
            all_slots[worker.id] = replace(all_slots[worker.id], waits=True)
    return all_slots
