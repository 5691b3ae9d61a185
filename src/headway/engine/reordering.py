"""Putting several jobs into another order: they share out the places they hold together, in one transaction."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headway.errors import BadInput, NotFound
from headway.model import verbs
from headway.model.job import Job
from headway.model.states import Verb
from headway.store import jobs, places
from headway.store.db import Tx

if TYPE_CHECKING:
    from headway.engine.client import Client

MOST = 1_000
Place = tuple[int, int]  # priority, position


def reorder(client: Client, ids: Sequence[int]) -> list[int]:
    """These jobs in this order; all others stay where they are. Those that moved."""
    if not 1 <= len(ids) <= MOST:
        raise BadInput(f"job_ids must name 1 to {MOST} jobs, not {len(ids)}", field="job_ids")
    if len(set(ids)) < len(ids):
        twice = next(job_id for job_id in ids if ids.count(job_id) > 1)
        raise BadInput(f"job_ids names job {twice} more than once", field="job_ids")
    return client.database.transact("reorder", lambda tx: _reorder(tx, client, ids))


def _reorder(tx: Tx, client: Client, ids: Sequence[int]) -> list[int]:
    tx.run("pin_plans")
    tx.run("lock_tenant", id=client.tenant_id)  # orders are decided by one at a time
    found, wished = _lock_movers(tx, client.tenant_id, ids)
    for job_id, (priority, position) in sorted(wished.items()):
        jobs.apply(tx, verbs.move(found[job_id], priority=priority, position=position), client.actor)
    moved = [*wished, *_part(tx, client, ids)]
    if moved:
        tx.wake()
    return sorted(set(moved))


def _lock_movers(tx: Tx, tenant_id: int, ids: Sequence[int]) -> tuple[dict[int, Job], dict[int, Place]]:
    """The jobs, and the new places of those that move. Only these are locked: claims go past a locked job, and one that
    stays may be claimed meanwhile."""
    locked: dict[int, Job] = {}
    while True:
        found = {job_id: locked.get(job_id) or jobs.find(tx, job_id, tenant_id) for job_id in ids}
        wished = _shared_out([found[job_id] for job_id in ids])
        if wished.keys() <= locked.keys():
            return found, wished
        # What was edited before we had its lock changes what there is to share out.
        locked |= jobs.lock_all(tx, list(wished.keys() - locked.keys()))
        if gone := wished.keys() - locked.keys():
            raise NotFound(f"there is no job {min(gone)}")


def _shared_out(wanted: Sequence[Job]) -> dict[int, Place]:
    """The new place of each that gets another one."""
    for job in wanted:
        if not job.status.claimable_later:
            raise verbs.refuse(job, Verb.MOVE)
    held = [(job.priority, job.position) for job in sorted(wanted, key=_in_order)]
    pairs = zip(wanted, held, strict=True)
    return {job.id: place for job, place in pairs if place != (job.priority, job.position)}


def _in_order(job: Job) -> tuple[int, int, int, int]:
    return -job.priority, job.position, job.created_at, job.id


def _part(tx: Tx, client: Client, ids: Sequence[int]) -> Iterator[int]:
    """Jobs on one and the same place stand by their age. Where that is not what was asked for, they get places of
    their own."""
    for first, second in itertools.pairwise(ids):
        ahead, job = jobs.find(tx, first, client.tenant_id), jobs.find(tx, second, client.tenant_id)
        if _in_order(ahead) > _in_order(job):
            jobs.lock(tx, second)
            position = places.beside(tx, job, ahead, client.actor, before=False)
            job = jobs.lock(tx, second)  # it may have been spread with its neighbours
            jobs.apply(tx, verbs.move(job, priority=ahead.priority, position=position), client.actor)
            yield second
