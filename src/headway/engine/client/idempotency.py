"""Makes at most one object for each idempotency key.

The ids of the objects are stored with the key, in the transaction that makes them; the answer is added when it is
known. A repeated request gets the same answer, or, after a crash between the two, the same objects.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from headway.errors import CommitUnknown, NotFound
from headway.model.access.permissions import Token
from headway.model.access.tenants import Tenant
from headway.model.jobs.job import JobRecord, Reservation
from headway.model.schedules.schedule import Schedule
from headway.model.templates import Template
from headway.model.values.names import check_name
from headway.model.webhooks.webhook import Delivery, Endpoint
from headway.store import idempotency, templates
from headway.store.access import tenants, tokens
from headway.store.db import Database, Tx
from headway.store.idempotency import Key, Making, Replayed, run_once
from headway.store.jobs import changes as jobs
from headway.store.queue import reservations
from headway.store.schedules import schedules
from headway.store.webhooks import delivery_views, endpoints

if TYPE_CHECKING:
    from headway.engine.client.client import Client

__all__ = ["KeyedRequest", "Replayed", "complete", "create_once"]

T = TypeVar("T")

Find = Callable[[Tx, int, int], Any]  # (transaction, tenant, id) to the object


def _kept(found: Mapping[int, Any], number: int) -> Any:
    """Returns the object with this id; raises NotFound if it was deleted since."""
    if number not in found:
        raise NotFound(f"object {number}, made with this idempotency key, was deleted since", hint="use a new key")
    return found[number]


FIND: dict[type, Find] = {
    JobRecord: lambda tx, tenant_id, number: jobs.find(tx, number, tenant_id),
    Template: templates.find,
    Schedule: lambda tx, tenant_id, number: _kept(schedules.kept(tx, tenant_id, [number]), number),
    Reservation: lambda tx, _, number: reservations.find(tx, number),
    Token: lambda tx, _, number: tokens.get(tx, number),
    Tenant: lambda tx, _, number: tenants.by_id(tx, number),
    Endpoint: lambda tx, _, number: _kept(endpoints.some(tx, [number]), number),
    Delivery: delivery_views.find,
}
# Their answers show a secret, so they are stored without it or not at all.
CONFIDENTIAL = (Token, Endpoint)
# Names in the database. They do not change when a class is renamed.
STORED_NAMES = {kind: kind.__name__ for kind in FIND} | {JobRecord: "Job"}
_BY_NAME = {STORED_NAMES[kind]: find for kind, find in FIND.items()}


class KeyedRequest:
    """One request with an idempotency key. Its first transaction runs once per key.

    The transaction stores what it made with the key. If the key is used again before the answer is known (the first
    request is still running, or its process died), the transaction makes nothing and returns the stored result, so that
    the caller continues as if it had just made it.

    `several` transactions cannot be repeated as one. A transaction of its own takes the key before the first of them,
    and another request with the key is refused until the answer is known.
    """

    def __init__(self, database: Database, key: Key, *, several: bool = False) -> None:
        """Raises `Replayed` for a request that was answered before, so that no later state is applied to it."""
        self.key = key
        self.several = several
        self.made: object = None
        # True if an earlier request with the key made it.
        self.replayed = False
        # True from the commit of the transaction with the key.
        self.landed = False
        with database.read() as tx:
            # The result stored under this key before the request arrived.
            self.kept = idempotency.look(tx, key)
        if several and self.kept is not None:
            raise idempotency.in_progress(key)

    def run(self, database: Database, label: str, work: Callable[[Tx], T], noun: type | None) -> T:
        """Runs a transaction of the request, which returns ids or an object of type `noun`."""
        if self.several:
            self.begin(database)
        if self.landed:
            return database.transact(label, work)
        # The transaction takes the key before the work begins: another request with the key waits for its end.
        made, self.replayed = database.repeat(label, run_once, self.key, _making(self.key.tenant_id, noun), work)
        self.made, self.landed = made, True
        return made

    def begin(self, database: Database) -> None:
        if not self.landed:
            database.transact("begin_request", self._take)
            self.landed = True

    def _take(self, tx: Tx) -> None:
        if idempotency.take(tx, self.key) is not None:
            raise idempotency.in_progress(self.key)

    def recall(self) -> Any:
        """Returns the packed objects that an earlier request with the key made; None if there are none."""
        if self.kept is None:
            return None
        self.made, self.landed, self.replayed = json.loads(self.kept), True, True
        return self.made


def key_of(tenant_id: int, route: str, key: str, digest: str) -> Key:
    return Key(tenant_id, route, check_name(key, field="Idempotency-Key"), digest)


def _making(tenant_id: int, noun: type | None) -> Making:
    return Making(lambda made: pack(made, noun), lambda tx, kept: unpack(tx, tenant_id, kept))


def create_once(
    client: Client,
    label: str,
    work: Callable[[Tx], T],
    *,
    look: str,
    noun: type | None = None,
    database: Database | None = None,
) -> T:
    """Runs a transaction that makes something, once even if its answer is lost.

    A transaction without an idempotency key gets a random one, so that a second try finds the objects of the first.
    `look` is the command that shows the result, for a caller that loses every answer.
    """
    database = database or client.database
    if client.request is not None or database.one_writer:  # SQLite loses no answer to a commit
        return client.transact(label, work, noun=noun, database=database)
    key = Key(client.tenant_id, f"own {label}", secrets.token_hex(16), "")
    try:
        return database.repeat(label, run_once, key, _making(client.tenant_id, noun), work)[0]
    except CommitUnknown as error:
        text = f"the connection to PostgreSQL broke during every commit of {label}: whether it was stored is not known"
        raise CommitUnknown(f"{text}; look with `{look}` before you do it again") from error


def complete(
    client: Client, status: int, headers: Mapping[str, str], body: str, *, without_secrets: bool = False
) -> None:
    """Stores the answer to the request of this client."""
    request = client.request
    assert request is not None, "only a client of `keyed` has a key"
    if request.several:
        request.begin(client.database)  # no transaction ran: store the answer all the same
    if without_secrets or not isinstance(request.made, CONFIDENTIAL):
        client.database.once("complete_answer", **idempotency.completed(request.key, status, headers, body))


def pack(made: object, noun: type | None = None) -> object:
    """Returns what a transaction made as JSON: ids as they are, an object as its noun and its id."""
    match made:
        case None | bool() | int():
            return made
        case list() | tuple():
            return [pack(item) for item in made]
    if noun is None or noun not in FIND:
        raise TypeError(f"a transaction with an idempotency key made a {type(made).__name__}: give a noun of FIND")
    return {STORED_NAMES[noun]: made.id}  # type: ignore[attr-defined]


def unpack(tx: Tx, tenant_id: int, kept: Any) -> Any:
    """Returns the objects of packed ids, as they are now."""
    match kept:
        case list():
            return [tuple(item) if isinstance(item, list) else unpack(tx, tenant_id, item) for item in kept]
        case dict():
            ((name, number),) = kept.items()
            return _BY_NAME[name](tx, tenant_id, number)
    return kept
