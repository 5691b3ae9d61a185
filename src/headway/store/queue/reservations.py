"""Stores reservations: creating, granting and ending them, under the claim lock."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from headway.model.event import NewEvent
from headway.model.explain.snapshot import ActiveReservation
from headway.model.jobs.job import SYSTEM, Actor, Reservation
from headway.model.queue.capacity import BURST, Reserved
from headway.store import events
from headway.store.db import Tx
from headway.store.paging import Page, check_limit, make_cursor, read_cursor


@lru_cache(maxsize=4096)
def lanes_in(text: str) -> tuple[int, ...]:
    """Parses the lanes of a reservation. A page reads those of all reservations three times."""
    return tuple(json.loads(text))


class Active(NamedTuple):
    """An active reservation, as far as grants need it."""

    id: int
    tenant_id: int
    lanes: str
    target_id: int | None
    granted_at: int | None
    version: int
    expires_at: int | None

    @property
    def reserved(self) -> Reserved:
        return Reserved(self.id, lanes_in(self.lanes), self.target_id, self.granted_at is not None)


def active(tx: Tx) -> list[Active]:
    return [Active._make(row) for row in tx.run("active_reservations")]


def holders(tx: Tx) -> list[ActiveReservation]:
    """Returns the active reservations of all tenants with their holders, in the order of their creation."""
    found = tx.run("reservation_holders")
    return [ActiveReservation(number, tenant_id, lanes_in(lanes), *rest) for number, tenant_id, lanes, *rest in found]


def find(tx: Tx, reservation_id: int) -> Reservation | None:
    found = tx.run("reservation", id=reservation_id)
    return Reservation(*found[0]) if found else None


def listed(
    tx: Tx, tenant_id: int, *, status: str | None = None, limit: int = 50, cursor: str | None = None
) -> Page[Reservation]:
    """Lists a tenant's reservations, newest first."""
    values = {"tenant_id": tenant_id, "status": status, "before": read_cursor(cursor)}
    found = [Reservation(*row) for row in tx.run("reservations_before", limit=check_limit(limit) + 1, **values)]
    return Page(found[:limit], make_cursor(found[limit - 1].id) if len(found) > limit else None)


def named(tx: Tx, found: Sequence[Reservation]) -> list[tuple[Reservation, list[str], str | None]]:
    """Returns reservations with the names of their lanes and targets."""
    lanes = {row[0]: row[3] for row in tx.run("lanes")} if found else {}
    ids = sorted({one.target_id for one in found if one.target_id is not None})
    targets = {row[0]: row[1] for row in tx.run("targets_by_id", ids=json.dumps(ids))} if ids else {}
    return [
        (one, [lanes[lane] for lane in json.loads(one.lanes)], targets.get(one.target_id) if one.target_id else None)
        for one in found
    ]


def _record(
    tx: Tx, tenant_id: int, number: int, version: int, kind: str, actor: Actor, data: Mapping[str, object] | None = None
) -> None:
    text = json.dumps(data) if data else None
    event = NewEvent(kind, actor, tenant_id=tenant_id, thing="reservation", thing_id=number, version=version, data=text)
    events.record(tx, event)


def add(
    tx: Tx,
    tenant_id: int,
    *,
    lanes: Sequence[int],
    target_id: int | None,
    holder: str,
    actor: Actor,
    worker_id: int | None = None,
    ttl: int | None = None,
    task: str | None = None,
    params: str | None = None,
) -> int:
    """Adds a reservation at the end of the line for its lanes.

    From now on it stops the queue on them.
    """
    ((number,),) = tx.run(
        "add_reservation",
        tenant_id=tenant_id,
        lanes=json.dumps(sorted(lanes)),
        target_id=target_id,
        worker_id=worker_id,
        holder=holder,
        task=task,
        params=params,
        ttl=ttl,
        created_by=actor.text(),
    )
    data = {"lanes": sorted(lanes), "target": target_id, "task": task}
    _record(tx, tenant_id, number, 1, "reservation.created", actor, data)
    return int(number)


def end(
    tx: Tx, number: int, *, status: str, actor: Actor, outcome: str | None = None, error: str | None = None
) -> bool:
    """Ends a reservation and frees its lanes. Returns False if it ended before."""
    found = tx.run("end_reservation", id=number, status=status, outcome=outcome, error=error)
    for tenant_id, version in found:
        data = {"outcome": outcome} if outcome else None
        _record(tx, tenant_id, number, version, f"reservation.{status.lower()}", actor, data)
        tx.wake()
    return bool(found)


def drop_expired(tx: Tx, found: Sequence[Active], now: int) -> list[Active]:
    """Expires overdue reservations and returns the others."""
    left: list[Active] = []
    for one in found:
        if one.expires_at is not None and one.expires_at <= now:
            end(tx, one.id, status="EXPIRED", actor=SYSTEM, error="it was not renewed in time")
        else:
            left.append(one)
    return left


def tired(
    found: Sequence[Active], streaks: Mapping[int, int], target_streaks: Mapping[int, int]
) -> tuple[set[int], set[int]]:
    """Returns lanes and targets on which a job goes before the next direct call.

    They had BURST direct calls in a row.
    """
    lanes = {lane for one in found for lane in one.reserved.lanes if streaks.get(lane, 0) >= BURST}
    targets = {one.target_id for one in found if one.target_id is not None}
    return lanes, {target for target in targets if target_streaks.get(target, 0) >= BURST}


def grant(tx: Tx, given: Sequence[Active], lanes: Collection[int], targets: Collection[int]) -> None:
    """Grants reservations their lanes and targets.

    `lanes` and `targets` are those that a job waits for: there the count of direct calls in a row grows, elsewhere it
    is reset.
    """
    for one in given:
        for tenant_id, version in tx.run("grant_reservation", id=one.id):
            _record(tx, tenant_id, one.id, version, "reservation.granted", SYSTEM)
        _count_streaks(tx, one.reserved, lanes)
        if one.target_id is not None:
            tx.run("raise_target_streak" if one.target_id in targets else "end_target_streak", id=one.target_id)
        tx.wake()


def _count_streaks(tx: Tx, one: Reserved, awaited: Collection[int]) -> None:
    waited = [lane for lane in one.lanes if lane in awaited]
    calm = [lane for lane in one.lanes if lane not in awaited]
    if waited:
        tx.run("raise_streaks", ids=json.dumps(waited))
    if calm:
        tx.run("reset_streaks", ids=json.dumps(calm))
