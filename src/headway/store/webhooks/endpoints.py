"""Stores endpoints: address, events and secret.

An endpoint's row is locked before its deliveries are. A change writes an event with everything but the secret.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from headway.clock import micros
from headway.errors import NotFound, WrongState
from headway.model.event import NewEvent
from headway.model.jobs.job import Actor
from headway.model.webhooks.webhook import KEEPS_OLD_SECRET, Endpoint
from headway.store import events
from headway.store.db import Tx
from headway.store.webhooks import outbox

_SAVED = ("id", "url", "events", "description", "secret", "old_secret", "old_until", "max_tries", "enabled", "reason")
_SAVED_TOO = ("failures", "opened_at", "probe_at", "deleted_at", "version")


class Signer(NamedTuple):
    """The current secret, and the previous one while receivers may still use it."""

    secret: str
    old_secret: str | None
    old_until: int | None

    def secrets(self, now: int) -> tuple[str, ...]:
        """Returns the secrets to sign with, newest first."""
        if self.old_secret is None or self.old_until is None or self.old_until <= now:
            return (self.secret,)
        return self.secret, self.old_secret


def now(tx: Tx) -> int:
    instant = tx.now()
    return int(instant)


def insert(tx: Tx, tenant_id: int, *, actor: Actor, **fields: object) -> Endpoint:
    """Creates an endpoint; its caller runs inside `outbox.armed`."""
    outbox.lock(tx)
    ((number,),) = tx.run("add_endpoint", tenant_id=tenant_id, actor=actor.text(), **fields)
    tx.run("count_endpoints")
    made = Endpoint(*tx.run("endpoint_by_id", id=number)[0])
    record(tx, made, "created", actor)
    return made


def find(tx: Tx, tenant_id: int, number: int, *, deleted: bool = False) -> Endpoint:
    """Finds an endpoint. A deleted one raises NotFound, unless `deleted` is given."""
    found = [Endpoint(*row) for row in tx.run("endpoint_by_id", id=number)]
    if not found or found[0].tenant_id != tenant_id or (found[0].deleted_at is not None and not deleted):
        raise NotFound(f"there is no webhook {number}", noun="webhook", code="unknown_webhook")
    return found[0]


def lock(tx: Tx, tenant_id: int, number: int) -> Endpoint:
    find(tx, tenant_id, number)
    locked = lock_all(tx, [number])[number]
    if locked.deleted_at is not None:  # deleted between the two reads
        raise NotFound(f"there is no webhook {number}", noun="webhook", code="unknown_webhook")
    return locked


def lock_all(tx: Tx, ids: Collection[int]) -> dict[int, Endpoint]:
    found = tx.run("lock_endpoints", ids=json.dumps(sorted(ids))) if ids else []
    return {one.id: one for one in (Endpoint(*row) for row in found)}


def some(tx: Tx, ids: Collection[int]) -> dict[int, Endpoint]:
    """Returns endpoints by number, deleted ones too."""
    found = tx.run("endpoints_of", ids=json.dumps(sorted(ids))) if ids else []
    return {one.id: one for one in (Endpoint(*row) for row in found)}


def page(tx: Tx, tenant_id: int, *, after: int = 0, limit: int = 50, deleted: bool = False) -> list[Endpoint]:
    """Lists endpoints in the order of their creation, or the deleted ones."""
    statement = "deleted_endpoints" if deleted else "endpoints_after"
    return [Endpoint(*row) for row in tx.run(statement, tenant_id=tenant_id, after=after, limit=limit)]


def failing(tx: Tx, tenant_id: int, limit: int) -> list[Endpoint]:
    """Returns endpoints whose last tries failed; open circuit breakers come first."""
    return [Endpoint(*row) for row in tx.run("failing_endpoints", tenant_id=tenant_id, limit=limit)]


def save(tx: Tx, endpoint: Endpoint, kind: str, actor: Actor, **facts: object) -> Endpoint:
    """Stores a change of a locked endpoint with its event."""
    saved = store(tx, replace(endpoint, version=endpoint.version + 1))
    record(tx, saved, kind, actor, **facts)
    return saved


def store(tx: Tx, endpoint: Endpoint) -> Endpoint:
    """Stores a change without an event."""
    tx.run("save_endpoint", **{name: getattr(endpoint, name) for name in (*_SAVED, *_SAVED_TOO)})
    return endpoint


def set_probe(tx: Tx, endpoint: Endpoint, at: int) -> None:
    tx.run("set_probe", id=endpoint.id, probe_at=at)


def delete(tx: Tx, endpoint: Endpoint, actor: Actor) -> Endpoint:
    """Deletes an endpoint. The caller runs `outbox.disarm` afterwards.

    It may have been the last endpoint.
    """
    tx.run("lock_outbox")
    gone = replace(endpoint, enabled=0, deleted_at=now(tx), opened_at=None, probe_at=None)
    saved = save(tx, gone, "deleted", actor)
    tx.run("count_endpoints")
    return saved


def record(tx: Tx, endpoint: Endpoint, kind: str, actor: Actor, **more: object) -> None:
    """Records an event of an endpoint, without its secret."""
    facts = {
        "url": endpoint.url,
        "events": json.loads(endpoint.events),
        "description": endpoint.description,
        "max_tries": endpoint.max_tries,
        "enabled": bool(endpoint.enabled),
        **more,
    }
    data = json.dumps({name: fact for name, fact in facts.items() if fact is not None}, separators=(",", ":"))
    event = NewEvent(
        f"webhook.{kind}",
        actor,
        tenant_id=endpoint.tenant_id,
        thing_id=endpoint.id,
        version=endpoint.version,
        data=data,
    )
    events.record(tx, event)


def expect(endpoint: Endpoint, version: int | None) -> None:
    if version is not None and version != endpoint.version:
        raise WrongState(
            f"webhook {endpoint.id} has changed since it was read (version {endpoint.version}, not {version})",
            code="version_mismatch",
            status="enabled" if endpoint.enabled else "disabled",
        )


# --- what signs for jobs that bring an address of their own -------------------------------------------------------


def signers(tx: Tx, tenants: Collection[int]) -> dict[int, Signer]:
    found = tx.run("signers_of", ids=json.dumps(sorted(tenants))) if tenants else []
    return {tenant_id: Signer(*rest) for tenant_id, *rest in found}


def make_signer(tx: Tx, tenant_id: int, secret: str) -> Signer:
    """Returns the tenant's signer, created with this secret if there was none."""
    tx.run("add_signer", tenant_id=tenant_id, secret=secret)
    return signers(tx, [tenant_id])[tenant_id]


def rotate_signer(tx: Tx, tenant_id: int, secret: str) -> Signer:
    make_signer(tx, tenant_id, secret)
    tx.run("rotate_signer", tenant_id=tenant_id, secret=secret, keeps=micros(KEEPS_OLD_SECRET))
    return signers(tx, [tenant_id])[tenant_id]
