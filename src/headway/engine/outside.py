"""Reservations of programs outside: they get a slot of resources or a target, and renew it while they need it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headway.clock import micros
from headway.engine import reserving
from headway.errors import BadInput, WrongState
from headway.model.job import Reservation
from headway.model.values import check_resources, duration_text, seconds
from headway.store.db import Tx
from headway.store.lanes import Lanes, find_target

if TYPE_CHECKING:
    from headway.engine.client import Client

LONGEST_TTL = 600.0


def reserve(client: Client, *, resources: Sequence[str], target: str | None, ttl: float | str | None) -> Reservation:
    names, micros_to_live = check_resources(resources), _ttl(client, ttl)
    if not names and target is None:
        raise BadInput("name a resource or a target to reserve", field="resources")
    tenant_id, lanes = client.tenant_id, Lanes(client.database, resources=client.lanes.defined)

    def work(tx: Tx) -> Reservation:
        target_id = None if target is None else int(find_target(tx, tenant_id, target)[0])
        wish = reserving.Wish(tenant_id, client.actor.shown, names, target_id)
        number, _ = reserving.reserve(tx, lanes, wish, client.actor, ttl=micros_to_live)
        return reserving.find(tx, tenant_id, number)

    return client.database.beyond().transact("reserve", work)


def _ttl(client: Client, wish: float | str | None) -> int:
    most = min(client.longest_ttl, LONGEST_TTL)
    ttl = most if wish is None else seconds(wish, field="ttl")
    if not 0 < ttl <= most:
        longest = duration_text(most)
        raise BadInput(f"ttl must be more than 0 and at most {longest}: renew it while you need it", field="ttl")
    return micros(ttl)


def renew(client: Client, number: int) -> Reservation:
    tenant_id, lanes = client.tenant_id, Lanes(client.database)
    found = client.database.beyond().transact(
        "renew_reservation", lambda tx: reserving.renew(tx, lanes, tenant_id, number)
    )
    if found.finished_at is not None:
        raise WrongState(f"reservation {number} is {found.status}: make a new one", status=found.status)
    if found.ttl is None:
        raise WrongState(f"reservation {number} is renewed by {found.holder} itself", status=found.status)
    return found


def release(client: Client, number: int) -> Reservation:
    tenant_id, lanes = client.tenant_id, Lanes(client.database)
    ended = client.database.beyond().transact(
        "release_reservation", lambda tx: reserving.give_back(tx, lanes, tenant_id, number, client.actor)
    )
    found = client.reservation(number)
    if not ended:
        raise WrongState(f"reservation {number} is {found.status} already", status=found.status)
    return found
