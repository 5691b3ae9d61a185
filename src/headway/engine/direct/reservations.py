"""Reservations, each verb in one transaction under the claim lock.

Every change also grants the next reservations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.errors import NotFound, Refused, WrongState
from headway.model.jobs.job import SYSTEM, Actor, Reservation
from headway.store import workers
from headway.store.access import tenants
from headway.store.db import Tx
from headway.store.queue import claims, reservations, select
from headway.store.queue.lanes import BucketCache
from headway.store.queue.reservations import Active

# Active reservations of programs outside that a tenant may have: each claim of every tenant reads them all.
MOST_OUTSIDE = 200


@dataclass(frozen=True, slots=True)
class ReservationRequest:
    """The lanes to reserve, and the task.

    Without a task the holder is an external program.
    """

    tenant_id: int
    holder: str
    resources: tuple[str, ...] = ()
    target_id: int | None = None
    task: str | None = None
    params: str | None = None


@dataclass(frozen=True, slots=True)
class End:
    """End of a reservation: COMPLETED, FAILED, SKIPPED or ABANDONED, with the error.

    The outcome is None if it is not known.
    """

    outcome: str | None = None
    error: str | None = None


def reserve(
    tx: Tx,
    lanes: BucketCache,
    request: ReservationRequest,
    actor: Actor,
    *,
    worker_id: int | None = None,
    ttl: int | None = None,
) -> tuple[int, bool]:
    """Adds a reservation at the end of the line.

    Returns its id, and True if it was granted.
    """
    _lock(tx)
    tenants.check_active(tx.run, request.tenant_id)
    needed = lanes.needed(
        tx, request.tenant_id, request.task, request.resources, on_target=request.target_id is not None
    )
    number = reservations.add(
        tx,
        request.tenant_id,
        lanes=needed,
        target_id=request.target_id,
        holder=request.holder,
        actor=actor,
        worker_id=worker_id,
        ttl=ttl,
        task=request.task,
        params=request.params,
    )
    line = _settle(tx, lanes)
    if ttl is not None:
        _check_share(line, request.tenant_id)
    return number, any(active.id == number and active.granted_at is not None for active in line)


def _check_share(line: Sequence[Active], tenant_id: int) -> None:
    """Refuses a tenant that has too many reservations of programs outside; a server limits its own direct calls."""
    if sum(active.tenant_id == tenant_id and active.expires_at is not None for active in line) > MOST_OUTSIDE:
        text = f"this tenant has {MOST_OUTSIDE} reservations of programs outside, the limit for one tenant"
        raise Refused(text, hint="release one of them, or wait until one ends", code="limit_reached")


def settle(tx: Tx, lanes: BucketCache) -> list[Active]:
    """Expires and grants reservations. Returns the active ones."""
    _lock(tx)
    return _settle(tx, lanes)


def _settle(tx: Tx, lanes: BucketCache) -> list[Active]:
    view, _ = claims.lock_and_look(tx, lanes, SYSTEM)
    return select.settle_reservations(tx, view, lanes)


def end(tx: Tx, lanes: BucketCache, ends: Mapping[int, End], actor: Actor) -> None:
    """Releases reservations. One that has already ended keeps its end."""
    _lock(tx)
    for number, how in sorted(ends.items()):
        reservations.end(tx, number, status="RELEASED", actor=actor, outcome=how.outcome, error=how.error)
    _settle(tx, lanes)


def held_by(tx: Tx, worker_id: int) -> list[int]:
    """Returns the active reservations of a holder, under the claim lock.

    The lock excludes transactions of that holder that are still open.
    """
    _lock(tx)
    return [number for number, fence in workers.held(tx, worker_id) if fence == 0]


def renew(tx: Tx, lanes: BucketCache, tenant_id: int, number: int) -> Reservation:
    """Extends an active reservation by its ttl. An expired one has ended for good."""
    settle(tx, lanes)
    tx.run("renew_reservation", id=number, tenant_id=tenant_id)
    return find(tx, tenant_id, number)


def give_back(tx: Tx, lanes: BucketCache, tenant_id: int, number: int, actor: Actor) -> bool:
    """Releases the reservation of an external program. False if it had ended before."""
    settle(tx, lanes)
    found = find(tx, tenant_id, number)
    if found.worker_id is not None:
        raise WrongState(
            f"reservation {number} is held by the process {found.holder}", hint="stop that process", status=found.status
        )
    if found.finished_at is None:
        end(tx, lanes, {number: End()}, actor)
    return found.finished_at is None


def find(tx: Tx, tenant_id: int, number: int) -> Reservation:
    found = reservations.find(tx, number)
    if found is None or found.tenant_id != tenant_id:
        raise NotFound(f"there is no reservation {number}: it may have been pruned")
    return found


def _lock(tx: Tx) -> None:
    tx.run("pin_plans")
    tx.run("claim_lock")
