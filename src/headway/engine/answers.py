"""At most one thing for each idempotency key: what a request made is stored with its key, in one transaction, and its
answer when that is known. Repeated, the request gets the same answer; after a crash between the two, the same thing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headway.errors import NotFound
from headway.model.access import Token
from headway.model.job import Job, Reservation
from headway.model.schedule import Schedule
from headway.model.template import Template
from headway.model.tenant import Tenant
from headway.model.values import check_name
from headway.model.webhooks import Delivery, Endpoint
from headway.store import (
    answers,
    deliveries_reading,
    endpoints,
    jobs,
    reservations,
    schedules,
    templates,
    tenants,
    tokens,
)
from headway.store.answers import Begun, Key, Keyed, Making, Replayed
from headway.store.db import Database, Tx

if TYPE_CHECKING:
    from headway.engine.client import Client

__all__ = ["Replayed", "complete", "keyed"]

Find = Callable[[Tx, int, int], Any]  # a tenant's thing with this number


def _kept(found: Mapping[int, Any], number: int) -> Any:
    """What was deleted since was made all the same."""
    if number not in found:
        raise NotFound(f"what was made with this key is there no more: its number was {number}")
    return found[number]


FIND: dict[type, Find] = {
    Job: lambda tx, tenant_id, number: jobs.find(tx, number, tenant_id),
    Template: templates.find,
    Schedule: lambda tx, tenant_id, number: _kept(schedules.kept(tx, tenant_id, [number]), number),
    Reservation: lambda tx, _, number: reservations.find(tx, number),
    Token: lambda tx, _, number: tokens.get(tx, number),
    Tenant: lambda tx, _, number: tenants.by_id(tx, number),
    Endpoint: lambda tx, _, number: _kept(endpoints.some(tx, [number]), number),
    Delivery: deliveries_reading.find,
}
# Their answers show a secret: they are kept without it, or not at all.
CONFIDENTIAL = (Token, Endpoint)
_BY_NAME = {kind.__name__: find for kind, find in FIND.items()}


def keyed(database: Database, tenant_id: int, route: str, key: str, digest: str, *, several: bool = False) -> Keyed:
    """A database whose next transaction is the one of this key.

    A request that was answered is `Replayed` here, before anybody judges it by what has changed since.
    """
    wished = Key(tenant_id, route, check_name(key, field="Idempotency-Key"), digest)
    with database.read() as tx:
        kept = answers.look(tx, wished)
    if several and kept is not None:
        raise answers.in_progress(wished)
    kind = Begun if several else Keyed
    return kind(database, wished, Making(pack, lambda tx, kept: unpack(tx, tenant_id, kept)), kept)


def complete(
    client: Client, status: int, headers: Mapping[str, str], body: str, *, without_secrets: bool = False
) -> None:
    """Keeps the answer to what this client made."""
    database = client.database
    assert isinstance(database, Keyed), "only a client of `keyed` has a key"
    if isinstance(database, Begun):
        database.begin_request()  # nothing had to be changed: that is an answer too
    if without_secrets or not isinstance(database.made, CONFIDENTIAL):
        database.inner.once("complete_answer", **answers.completed(database.key, status, headers, body))


def pack(made: object) -> object:
    """What a transaction made, by its numbers."""
    match made:
        case None | bool() | int():
            return made
        case list() | tuple():
            return [pack(one) for one in made]
    if type(made) not in FIND:
        raise TypeError(
            f"a transaction with an idempotency key made a {type(made).__name__}: say how it is found again"
        )
    return {type(made).__name__: made.id}  # type: ignore[attr-defined]


def unpack(tx: Tx, tenant_id: int, kept: Any) -> Any:
    """The same as it is now."""
    match kept:
        case list():
            return [tuple(one) if isinstance(one, list) else unpack(tx, tenant_id, one) for one in kept]
        case dict():
            ((name, number),) = kept.items()
            return _BY_NAME[name](tx, tenant_id, number)
    return kept
