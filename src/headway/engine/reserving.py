"""Reservations in one transaction each: take the claim lock, change, and let in whoever is next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headway.errors import NotFound, WrongState
from headway.model.job import SYSTEM, Actor, Reservation
from headway.store import choosing, claims, reservations, tenants
from headway.store.db import Tx
from headway.store.lanes import Lanes
from headway.store.reservations import Active


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be reserved, and what for. Without a task it is a program outside."""

    tenant_id: int
    holder: str
    resources: tuple[str, ...] = ()
    target_id: int | None = None
    task: str | None = None
    params: str | None = None


@dataclass(frozen=True, slots=True)
class End:
    """How a reservation ended: COMPLETED, FAILED, SKIPPED or ABANDONED, and why. None: nobody knows what was done."""

    outcome: str | None = None
    error: str | None = None


def reserve(
    tx: Tx, lanes: Lanes, wish: Wish, actor: Actor, *, worker_id: int | None = None, ttl: int | None = None
) -> tuple[int, bool]:
    """A place at the end of the line: its number, and whether it is let in at once."""
    _lock(tx)
    tenants.check_active(tx.run, wish.tenant_id)
    needed = lanes.needed(tx, wish.tenant_id, wish.task, wish.resources, on_target=wish.target_id is not None)
    number = reservations.add(
        tx,
        wish.tenant_id,
        lanes=needed,
        target_id=wish.target_id,
        holder=wish.holder,
        actor=actor,
        worker_id=worker_id,
        ttl=ttl,
        task=wish.task,
        params=wish.params,
    )
    return number, any(one.id == number and one.granted_at is not None for one in _settle(tx, lanes))


def settle(tx: Tx, lanes: Lanes) -> list[Active]:
    """Ends what has expired, lets in who is next; what is active from here on."""
    _lock(tx)
    return _settle(tx, lanes)


def _settle(tx: Tx, lanes: Lanes) -> list[Active]:
    view, _ = claims.lock_and_look(tx, lanes, SYSTEM)
    return choosing.settle_reservations(tx, view, lanes)


def end(tx: Tx, lanes: Lanes, ends: Mapping[int, End], actor: Actor) -> None:
    """Gives places back. One that has ended already stays as it ended."""
    _lock(tx)
    for number, one in sorted(ends.items()):
        reservations.end(tx, number, status="RELEASED", actor=actor, outcome=one.outcome, error=one.error)
    _settle(tx, lanes)


def renew(tx: Tx, lanes: Lanes, tenant_id: int, number: int) -> Reservation:
    """Another ttl for one that is active. One whose time is over has ended: it cannot be had back."""
    settle(tx, lanes)
    tx.run("renew_reservation", id=number, tenant_id=tenant_id)
    return find(tx, tenant_id, number)


def give_back(tx: Tx, lanes: Lanes, tenant_id: int, number: int, actor: Actor) -> bool:
    """Ends one of a program outside. False: it had ended before."""
    settle(tx, lanes)
    found = find(tx, tenant_id, number)
    if found.worker_id is not None:
        raise WrongState(f"reservation {number} is held by {found.holder}: end that program", status=found.status)
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
