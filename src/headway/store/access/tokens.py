"""Stores tokens: hash, creator and expiry."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping, Sequence

from headway.errors import NotFound, WrongState
from headway.model.access.permissions import Role, Token, fingerprint
from headway.model.event import NewEvent
from headway.model.jobs.job import Actor
from headway.store import events, rows
from headway.store.db import Tx

# Events of a token without a tenant belong to the installation.
SYSTEM_TENANT = 0


def insert(
    tx: Tx,
    *,
    tenant_id: int | None,
    name: str,
    role: Role,
    hash: str,
    hint: str,
    expires_at: int | None,
    actor: Actor,
) -> Token:
    """Creates a token once.

    Repeated after a commit whose answer was lost, it returns the token that exists.
    """
    values = {"tenant_id": tenant_id, "name": name, "hash": hash, "hint": hint, "expires_at": expires_at}
    made = tx.run("add_token", role=role.value, actor=actor.text(), **values)
    if not made:
        return with_hash(tx, hash)
    token = get(tx, made[0][0])
    facts = {"name": name, "role": role.value, "tenant": token.tenant, "expires_at": expires_at}
    _record(tx, token, "token.created", 1, actor, facts)
    return token


def get(tx: Tx, token_id: int) -> Token:
    found = tx.run("token_by_id", id=token_id)
    if not found:
        raise NotFound(f"there is no token {token_id}", noun="token")
    return rows.token(found[0])


def with_hash(tx: Tx, hash: str) -> Token:
    for *row, _ in tx.run("token_by_hash", hash=hash):
        return rows.token(tuple(row))
    raise WrongState("the token was created and has already ended", hint="create a new one", status="revoked")


def find(tx: Tx, plain: str) -> Token | None:
    """Returns the live token with this secret; None if there is none.

    The token is found by its hash, which is then compared in constant time.
    """
    hash = fingerprint(plain)
    for *row, stored in tx.run("token_by_hash", hash=hash):
        if hmac.compare_digest(hash, stored):
            return rows.token(tuple(row))
    return None


def live_among(tx: Tx, ids: Sequence[int]) -> frozenset[int]:
    return frozenset(number for (number,) in tx.run("live_tokens", ids=json.dumps(list(ids))))


def any_token(tx: Tx) -> bool:
    return bool(tx.run("any_token"))


def page(tx: Tx, *, tenant_id: int, everywhere: bool, after: int = 0, limit: int = 50) -> list[Token]:
    values = {"everywhere": int(everywhere), "after": after, "limit": limit}
    return [rows.token(row) for row in tx.run("tokens_after", tenant_id=tenant_id, **values)]


def revoke(tx: Tx, token_id: int, actor: Actor) -> Token:
    landed = tx.run("revoke_token", id=token_id)
    token = get(tx, token_id)
    if not landed:
        raise WrongState(f"token {token_id} ({token.name!r}) is revoked already", status="revoked")
    _record(tx, token, "token.revoked", landed[0][0], actor, {"name": token.name})
    return token


def _record(tx: Tx, token: Token, kind: str, version: int, actor: Actor, facts: Mapping[str, object]) -> None:
    tenant_id = SYSTEM_TENANT if token.tenant_id is None else token.tenant_id
    data = json.dumps({name: fact for name, fact in facts.items() if fact is not None})
    event = NewEvent(kind, actor, tenant_id=tenant_id, thing_id=token.id, version=version, data=data)
    events.record(tx, event)
