"""Endpoints in the database: who is told what, under which secret. Functions of a transaction.

An endpoint's row is locked before its deliveries are. What changes it writes an event with all that it says from now on
but the secret.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from headway.clock import micros
from headway.errors import NotFound, WrongState
from headway.model.job import Actor
from headway.model.webhooks import KEEPS_OLD_SECRET, Endpoint
from headway.store import outbox
from headway.store.db import Tx

_SAVED = ("id", "url", "events", "description", "secret", "old_secret", "old_until", "max_tries", "enabled", "reason")
_SAVED_TOO = ("failures", "opened_at", "probe_at", "deleted_at", "version")


class Signer(NamedTuple):
    """What signs: the secret in use, and the one before it as long as it is still believed."""

    secret: str
    old_secret: str | None
    old_until: int | None

    def secrets(self, now: int) -> tuple[str, ...]:
        """The newest first."""
        if self.old_secret is None or self.old_until is None or self.old_until <= now:
            return (self.secret,)
        return self.secret, self.old_secret


def now(tx: Tx) -> int:
    ((instant,),) = tx.run("time")
    return int(instant)


def insert(tx: Tx, tenant_id: int, *, actor: Actor, **fields: object) -> Endpoint:
    """In `outbox.armed`."""
    outbox.lock(tx)
    ((number,),) = tx.run("add_endpoint", tenant_id=tenant_id, actor=actor.text(), **fields)
    tx.run("count_endpoints")
    made = Endpoint(*tx.run("endpoint_by_id", id=number)[0])
    record(tx, made, "created", actor)
    return made


def find(tx: Tx, tenant_id: int, number: int) -> Endpoint:
    """Deleted ones are gone."""
    found = [Endpoint(*row) for row in tx.run("endpoint_by_id", id=number)]
    if not found or found[0].tenant_id != tenant_id or found[0].deleted_at is not None:
        raise NotFound(f"there is no webhook {number}", code="unknown_webhook")
    return found[0]


def lock(tx: Tx, tenant_id: int, number: int) -> Endpoint:
    find(tx, tenant_id, number)
    locked = lock_all(tx, [number])[number]
    if locked.deleted_at is not None:  # between the two looks
        raise NotFound(f"there is no webhook {number}", code="unknown_webhook")
    return locked


def lock_all(tx: Tx, ids: Collection[int]) -> dict[int, Endpoint]:
    found = tx.run("lock_endpoints", ids=json.dumps(sorted(ids))) if ids else []
    return {one.id: one for one in (Endpoint(*row) for row in found)}


def some(tx: Tx, ids: Collection[int]) -> dict[int, Endpoint]:
    """By number, deleted ones too."""
    found = tx.run("endpoints_of", ids=json.dumps(sorted(ids))) if ids else []
    return {one.id: one for one in (Endpoint(*row) for row in found)}


def page(tx: Tx, tenant_id: int, *, after: int = 0, limit: int = 50) -> list[Endpoint]:
    """In the order in which they were made."""
    return [Endpoint(*row) for row in tx.run("endpoints_after", tenant_id=tenant_id, after=after, limit=limit)]


def failing(tx: Tx, tenant_id: int, limit: int) -> list[Endpoint]:
    """Those whose last tries failed, those that are not sent to any more first."""
    return [Endpoint(*row) for row in tx.run("failing_endpoints", tenant_id=tenant_id, limit=limit)]


def save(tx: Tx, endpoint: Endpoint, kind: str, actor: Actor, **facts: object) -> Endpoint:
    """The endpoint must be locked."""
    saved = store(tx, replace(endpoint, version=endpoint.version + 1))
    record(tx, saved, kind, actor, **facts)
    return saved


def store(tx: Tx, endpoint: Endpoint) -> Endpoint:
    """What a try changes on the way, without an event of its own."""
    tx.run("save_endpoint", **{name: getattr(endpoint, name) for name in (*_SAVED, *_SAVED_TOO)})
    return endpoint


def set_probe(tx: Tx, endpoint: Endpoint, at: int) -> None:
    tx.run("set_probe", id=endpoint.id, probe_at=at)


def delete(tx: Tx, endpoint: Endpoint, actor: Actor) -> Endpoint:
    """`outbox.disarm` afterwards: it may have been the last one."""
    tx.run("lock_outbox")
    gone = replace(endpoint, enabled=0, deleted_at=now(tx), opened_at=None, probe_at=None)
    saved = save(tx, gone, "deleted", actor)
    tx.run("count_endpoints")
    return saved


def record(tx: Tx, endpoint: Endpoint, kind: str, actor: Actor, **facts: object) -> None:
    """One event of an endpoint. Its secret is nobody's to see."""
    told = {
        "url": endpoint.url,
        "events": json.loads(endpoint.events),
        "description": endpoint.description,
        "max_tries": endpoint.max_tries,
        "enabled": bool(endpoint.enabled),
        **facts,
    }
    data = json.dumps({name: fact for name, fact in told.items() if fact is not None}, separators=(",", ":"))
    event = (endpoint.tenant_id, "webhook", endpoint.id, endpoint.version, f"webhook.{kind}", None, actor.text(), None)
    tx.run("add_events", rows=json.dumps([(*event, data)]))


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
    """The tenant's own, made of this secret if there was none."""
    tx.run("add_signer", tenant_id=tenant_id, secret=secret)
    return signers(tx, [tenant_id])[tenant_id]


def rotate_signer(tx: Tx, tenant_id: int, secret: str) -> Signer:
    make_signer(tx, tenant_id, secret)
    tx.run("rotate_signer", tenant_id=tenant_id, secret=secret, keeps=micros(KEEPS_OLD_SECRET))
    return signers(tx, [tenant_id])[tenant_id]
