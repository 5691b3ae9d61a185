"""Reads the occupants of lanes and the queue of a target."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headway.model.explain.snapshot import ActiveReservation
from headway.store import rows
from headway.store.db import Tx
from headway.store.jobs import views as job_views
from headway.store.jobs.views import JobView
from headway.store.paging import check_limit
from headway.store.queue.explain import RunningClaim
from headway.store.queue.reservations import holders


@dataclass(frozen=True, slots=True)
class Taker:
    """A job or reservation on a lane; one that is not `granted` waits for its place.

    For another tenant's, only kind and times are shown. A reservation ends at `until`, unless it is renewed.
    """

    kind: str
    since: int
    own: bool
    granted: bool = True
    job_id: int | None = None
    reservation_id: int | None = None
    task: str | None = None
    holder: str | None = None
    until: int | None = None


def takers(tx: Tx, tenant_id: int) -> dict[int, list[Taker]]:
    """Returns occupants by lane: running jobs, then reservations in order."""
    found: dict[int, list[Taker]] = {}
    for lanes, taker in (*_jobs(tx, tenant_id), *_reservations(tx, tenant_id)):
        for lane in lanes:
            found.setdefault(lane, []).append(taker)
    return found


def _jobs(tx: Tx, tenant_id: int) -> Iterator[tuple[Sequence[int], Taker]]:
    running = [RunningClaim(*row) for row in tx.run("running_jobs")]
    ids = json.dumps(sorted({one.bucket_id for one in running}))
    lanes = {row[0]: json.loads(row[3]) for row in tx.run("buckets_by_id", ids=ids)} if running else {}
    for one in running:
        own = one.tenant_id == tenant_id
        names = {"job_id": one.id, "task": one.task} if own else {}
        yield lanes[one.bucket_id], Taker("job", one.claimed_at, own, **names)  # type: ignore[arg-type]


def _reservations(tx: Tx, tenant_id: int) -> Iterator[tuple[Sequence[int], Taker]]:
    for one in holders(tx):
        yield one.lanes, reserved(one, tenant_id)


def reserved(one: ActiveReservation, tenant_id: int) -> Taker:
    own = one.tenant_id == tenant_id
    return Taker(
        "hold" if one.task is None else "direct call",
        one.since,
        own,
        one.granted_at is not None,
        reservation_id=one.id if own else None,
        task=one.task if own else None,
        holder=one.holder if own else None,
        until=one.expires_at,
    )


def on_target(tx: Tx, tenant_id: int, target_id: int) -> list[Taker]:
    """Returns the direct calls and holds of a target, in order."""
    found = holders(tx)
    return [reserved(one, tenant_id) for one in found if one.target_id == target_id]


def target_queue(tx: Tx, tenant_id: int, target_id: int, limit: int = 50) -> list[JobView]:
    """Returns the first jobs of a target's queue, in claim order."""
    found = tx.run("queue_of_target", target_id=target_id, limit=check_limit(limit))
    return job_views.views(tx, tenant_id, [rows.job(row) for row in found])
