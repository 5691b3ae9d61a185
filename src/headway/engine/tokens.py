"""What people do to tokens: make, list, revoke; and who somebody is that shows one."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from headway.clock import micros
from headway.errors import NotFound
from headway.model.access import BYTES, PREFIX, Role, Token, Visitor, fingerprint, hint_of, looks_like_token
from headway.model.values import check_name, instant, refuse, seconds
from headway.store import sessions, tokens
from headway.store.db import Database, Tx

if TYPE_CHECKING:
    from headway.engine.client import Client


class Tokens:
    """The verbs on tokens, for one actor. Whether they may is for the caller to ask: see `model.access`."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def create(self, name: str, role: Role | str, *, tenant: str | None, expires: object = None) -> tuple[Token, str]:
        """The token, and its text, which is shown here and never again. Without a tenant it is the system's.

        `expires` is a time or a duration from now. The text is empty when an idempotency key was used again.
        """
        client, wished = self.client, Role.parse(role)
        check_name(name, field="name")
        plain = PREFIX + secrets.token_urlsafe(BYTES)

        def work(tx: Tx) -> Token:
            return tokens.insert(
                tx,
                tenant_id=_tenant(tx, tenant),
                name=name,
                role=wished,
                hash=fingerprint(plain),
                hint=hint_of(plain),
                expires_at=_end(tx, expires),
                actor=client.actor,
            )

        made = self._database(everywhere=tenant != client.tenant).transact("create_token", work)
        return made, "" if client.replayed else plain

    def list(self, *, everywhere: bool = False, after: int = 0, limit: int = 200) -> list[Token]:
        """This tenant's, or everybody's with those of the system; revoked and expired ones too, the oldest first."""
        with self._database(everywhere=everywhere).read() as tx:
            tenant_id = self.client.tenant_id
            return tokens.page(tx, tenant_id=tenant_id, everywhere=everywhere, after=after, limit=limit)

    def get(self, token_id: int, *, everywhere: bool = False) -> Token:
        with self._database(everywhere=everywhere).read() as tx:
            return self._own(tokens.get(tx, token_id), everywhere)

    def revoke(self, token_id: int, *, everywhere: bool = False) -> Token:
        """From its commit on it opens nothing, in no process."""

        def work(tx: Tx) -> Token:
            self._own(tokens.get(tx, token_id), everywhere)
            return tokens.revoke(tx, token_id, self.client.actor)

        return self._database(everywhere=everywhere).transact("revoke_token", work)

    def _database(self, *, everywhere: bool) -> Database:
        """What is not of this tenant alone is beyond the wall around it."""
        database = self.client.database
        return database.beyond() if everywhere else database

    def _own(self, token: Token, everywhere: bool) -> Token:
        if not everywhere and token.tenant_id != self.client.tenant_id:
            raise NotFound(f"there is no token {token.id}")
        return token

    def find(self, plain: str) -> Token | None:
        """The token that this text is, if it is live. Looked up each time: a revoked one is refused at once."""
        if not looks_like_token(plain):
            return None
        with self._database(everywhere=True).read() as tx:
            return tokens.find(tx, plain)

    def visitor(self, plain: str, tenant: str | None = None) -> Visitor | None:
        """Who shows this token. Those of the system act for the tenant they name, or for this client's own."""
        token = self.find(plain)
        return None if token is None else visitor_of(self.client, token, tenant)


def visitor_of(client: Client, token: Token, tenant: str | None) -> Visitor:
    """Who has this token, which is live."""
    if token.tenant_id is not None and token.tenant is not None:
        if tenant not in (None, token.tenant):
            raise NotFound(f"there is no tenant {tenant!r}")
        return Visitor(token.actor, token.tenant, token.tenant_id, token.role, system=False)
    acting = tenant or client.tenant
    with client.database.beyond().read() as tx:
        return Visitor(token.actor, acting, _known_tenant(tx, acting), token.role, system=True)


def any_token(database: Database) -> bool:
    """Whether anybody has to show a token: there is one that was not revoked."""
    with database.read() as tx:
        return tokens.any_token(tx)


@dataclass(frozen=True, slots=True)
class Live:
    """Which tokens open something now, which sessions have not ended, and whether anybody has to show a token."""

    tokens: frozenset[int]
    sessions: frozenset[str]
    needed: bool


def live_among(database: Database, ids: Sequence[int], hashes: Sequence[str] = ()) -> Live:
    """Of these tokens, and of the sessions with these hashes."""
    with database.beyond().read() as tx:
        return Live(tokens.live_among(tx, ids), sessions.live_among(tx, hashes), tokens.any_token(tx))


def _tenant(tx: Tx, name: str | None) -> int | None:
    return None if name is None else _known_tenant(tx, name)


def _known_tenant(tx: Tx, name: str) -> int:
    found = tx.run("tenant_by_name", name=name)
    if not found:
        raise NotFound(f"there is no tenant {name!r}")
    return int(found[0][0])


def _end(tx: Tx, wish: object) -> int | None:
    if wish is None:
        return None
    ((now,),) = tx.run("time")
    at = int(now) + micros(seconds(wish, field="expires")) if _is_duration(wish) else instant(wish, field="expires")
    if at <= now:
        refuse("expires", "is not in the future: a token that has expired opens nothing")
    return at


def _is_duration(wish: object) -> bool:
    """Not `2026-03-01T09:00:00Z`."""
    return wish[4:5] != "-" if isinstance(wish, str) else not isinstance(wish, datetime)
