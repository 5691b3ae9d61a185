"""Tokens in the database: their hashes, who made them, when they end. Functions of a transaction."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping, Sequence

from headway.errors import NotFound, WrongState
from headway.model.access import Role, Token, fingerprint
from headway.model.job import Actor
from headway.store.db import Row, Tx

# The events of a token of the system are those of the installation.
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
    wishes = {"tenant_id": tenant_id, "name": name, "hash": hash, "hint": hint, "expires_at": expires_at}
    ((token_id,),) = tx.run("add_token", role=role.value, actor=actor.text(), **wishes)
    token = get(tx, token_id)
    facts = {"name": name, "role": role.value, "tenant": token.tenant, "expires_at": expires_at}
    _record(tx, token, "token.created", 1, actor, facts)
    return token


def get(tx: Tx, token_id: int) -> Token:
    found = tx.run("token_by_id", id=token_id)
    if not found:
        raise NotFound(f"there is no token {token_id}")
    return token_of(found[0])


def find(tx: Tx, plain: str) -> Token | None:
    """The live token that this is. Found by its hash, then compared in constant time: no answer comes sooner."""
    hash = fingerprint(plain)
    for *row, stored in tx.run("token_by_hash", hash=hash):
        if hmac.compare_digest(hash, stored):
            return token_of(tuple(row))
    return None


def live_among(tx: Tx, ids: Sequence[int]) -> frozenset[int]:
    return frozenset(number for (number,) in tx.run("live_tokens", ids=json.dumps(list(ids))))


def any_token(tx: Tx) -> bool:
    return bool(tx.run("any_token"))


def page(tx: Tx, *, tenant_id: int, everywhere: bool, after: int = 0, limit: int = 50) -> list[Token]:
    wishes = {"everywhere": int(everywhere), "after": after, "limit": limit}
    return [token_of(row) for row in tx.run("tokens_after", tenant_id=tenant_id, **wishes)]


def revoke(tx: Tx, token_id: int, actor: Actor) -> Token:
    landed = tx.run("revoke_token", id=token_id)
    token = get(tx, token_id)
    if not landed:
        raise WrongState(f"token {token_id} ({token.name!r}) is revoked already", status="revoked")
    _record(tx, token, "token.revoked", landed[0][0], actor, {"name": token.name})
    return token


def token_of(row: Row) -> Token:
    values = list(row)
    values[4] = Role(values[4])
    return Token(*values)


def _record(tx: Tx, token: Token, kind: str, version: int, actor: Actor, facts: Mapping[str, object]) -> None:
    tenant_id = SYSTEM_TENANT if token.tenant_id is None else token.tenant_id
    data = json.dumps({name: fact for name, fact in facts.items() if fact is not None})
    event = (tenant_id, "token", token.id, version, kind, None, actor.text(), None, data)
    tx.run("add_events", rows=json.dumps([event]))
