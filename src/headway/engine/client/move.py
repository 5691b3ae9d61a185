"""Reorders several jobs within the places they hold together, in one transaction."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headway.errors import BadInput, NotFound
from headway.model.jobs import actions
from headway.model.jobs.job import JobRecord
from headway.model.jobs.states import Verb
from headway.store.db import Tx
from headway.store.jobs import changes as jobs
from headway.store.jobs import positions

if TYPE_CHECKING:
    from headway.engine.client.client import Client

MOST = 1_000
Position = tuple[int, int]  # priority, position


def reorder(client: Client, ids: Sequence[int]) -> list[int]:
    """Puts these jobs into this order; all others keep their place.

    Returns the ids that moved.
    """
    if not 1 <= len(ids) <= MOST:
        raise BadInput(f"job_ids must name 1 to {MOST} jobs, not {len(ids)}", field="job_ids")
    if len(set(ids)) < len(ids):
        twice = next(job_id for job_id in ids if ids.count(job_id) > 1)
        raise BadInput(f"job_ids names job {twice} more than once", field="job_ids")
    return client.transact("reorder", lambda tx: _reorder(tx, client, ids))


def _reorder(tx: Tx, client: Client, ids: Sequence[int]) -> list[int]:
    tx.run("pin_plans")
    tx.run("lock_tenant", id=client.tenant_id)  # one reorder at a time per tenant
    found, requested = _lock_movers(tx, client.tenant_id, ids)
    for job_id, (priority, position) in sorted(requested.items()):
        jobs.apply(tx, actions.move(found[job_id], priority=priority, position=position), client.actor)
    moved = [*requested, *_part(tx, client, ids)]
    if moved:
        tx.wake()
    return sorted(set(moved))


def _lock_movers(tx: Tx, tenant_id: int, ids: Sequence[int]) -> tuple[dict[int, JobRecord], dict[int, Position]]:
    """Returns the jobs, and the new places of the jobs that move.

    Only the moving jobs are locked: a claim skips a locked job, and a job that stays may be claimed meanwhile.
    """
    locked: dict[int, JobRecord] = {}
    while True:
        found = {job_id: locked.get(job_id) or jobs.find(tx, job_id, tenant_id) for job_id in ids}
        requested = _shared_out([found[job_id] for job_id in ids])
        if requested.keys() <= locked.keys():
            return found, requested
        # A job that was edited before its lock changes the set of places, so the next round computes them again.
        locked |= jobs.lock_all(tx, list(requested.keys() - locked.keys()))
        if gone := requested.keys() - locked.keys():
            raise NotFound(f"there is no job {min(gone)}")


def _shared_out(wanted: Sequence[JobRecord]) -> dict[int, Position]:
    """Returns the new place of each job whose place changes."""
    for job in wanted:
        if not job.status.claimable_later:
            raise actions.refuse(job, Verb.MOVE)
    held = [(job.priority, job.position) for job in sorted(wanted, key=_in_order)]
    pairs = zip(wanted, held, strict=True)
    return {job.id: place for job, place in pairs if place != (job.priority, job.position)}


def _in_order(job: JobRecord) -> tuple[int, int, int, int]:
    return -job.priority, job.position, job.created_at, job.id


def _part(tx: Tx, client: Client, ids: Sequence[int]) -> Iterator[int]:
    """Separates jobs that share one place and therefore sort by age.

    Where that is not the requested order, the later job gets a place of its own. Yields the ids that moved.
    """
    for first, second in itertools.pairwise(ids):
        ahead, job = jobs.find(tx, first, client.tenant_id), jobs.find(tx, second, client.tenant_id)
        if _in_order(ahead) > _in_order(job):
            jobs.lock(tx, second)
            position = positions.beside(tx, job, ahead, client.actor, before=False)
            job = jobs.lock(tx, second)  # `beside` may have respaced it with its neighbours
            jobs.apply(tx, actions.move(job, priority=ahead.priority, position=position), client.actor)
            yield second
