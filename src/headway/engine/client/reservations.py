"""Reservations of external programs, which renew them while they need the slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headway.clock import micros
from headway.engine.client import idempotency
from headway.engine.direct import reservations
from headway.errors import BadInput, WrongState
from headway.model.jobs.job import Reservation
from headway.model.values.names import check_resources
from headway.model.values.times import duration_text, seconds
from headway.store.db import Tx
from headway.store.queue.lanes import BucketCache, find_target

if TYPE_CHECKING:
    from headway.engine.client.client import Client

LONGEST_TTL = 600.0


def reserve(client: Client, *, resources: Sequence[str], target: str | None, ttl: float | str | None) -> Reservation:
    names, micros_to_live = check_resources(resources), _ttl(client, ttl)
    tenant_id, lanes = client.tenant_id, BucketCache(client.database, resources=client.lanes.defined)

    def work(tx: Tx) -> Reservation:
        target_id = None if target is None else int(find_target(tx, tenant_id, target)[0])
        given = reservations.ReservationRequest(tenant_id, client.actor.shown, names, target_id)
        number, _ = reservations.reserve(tx, lanes, given, client.actor, ttl=micros_to_live)
        return reservations.find(tx, tenant_id, number)

    look = "headway limits ls"
    return idempotency.create_once(
        client, "reserve", work, noun=Reservation, look=look, database=client.database.beyond()
    )


def _ttl(client: Client, given: float | str | None) -> int:
    most = min(client.longest_ttl, LONGEST_TTL)
    ttl = most if given is None else seconds(given, field="ttl")
    if not 0 < ttl <= most:
        longest = duration_text(most)
        raise BadInput(
            f"ttl must be more than 0 and at most {longest}",
            hint="renew the reservation to keep it longer",
            field="ttl",
        )
    return micros(ttl)


def renew(client: Client, number: int) -> Reservation:
    tenant_id, lanes = client.tenant_id, BucketCache(client.database)
    found = client.transact(
        "renew_reservation",
        lambda tx: reservations.renew(tx, lanes, tenant_id, number),
        noun=Reservation,
        database=client.database.beyond(),
    )
    if found.finished_at is not None:
        raise WrongState(f"reservation {number} is {found.status}", hint="make a new one", status=found.status)
    if found.ttl is None:
        raise WrongState(f"reservation {number} is renewed by its holder, {found.holder}", status=found.status)
    return found


def release(client: Client, number: int) -> Reservation:
    tenant_id, lanes = client.tenant_id, BucketCache(client.database)
    ended = client.transact(
        "release_reservation",
        lambda tx: reservations.give_back(tx, lanes, tenant_id, number, client.actor),
        database=client.database.beyond(),
    )
    found = client.reservation(number)
    if not ended:
        raise WrongState(f"reservation {number} is already {found.status}", status=found.status)
    return found
