"""The verbs on tokens, and the visitor that a token identifies."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from headway.clock import micros
from headway.errors import NotFound
from headway.model.access.permissions import BYTES, PREFIX, Role, Token, Visitor, fingerprint, hint_of, looks_like_token
from headway.model.values.names import check_name
from headway.model.values.refuse import refuse
from headway.model.values.times import instant, seconds
from headway.store.access import sessions, tokens
from headway.store.db import Database, Tx

if TYPE_CHECKING:
    from headway.engine.client.client import Client


class Tokens:
    """The verbs on tokens, for one actor.

    The caller checks permissions first (`model.access`).
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    def create(self, name: str, role: Role | str, *, tenant: str | None, expires: object = None) -> tuple[Token, str]:
        """Creates a token. Returns it with its plain text, which is not stored.

        Without a tenant it is a token of the system. `expires` is a time or a duration from now. The text is empty if
        an idempotency key was reused.
        """
        client, requested = self.client, Role.parse(role)
        check_name(name, field="name")
        plain = PREFIX + secrets.token_urlsafe(BYTES)

        def work(tx: Tx) -> Token:
            return tokens.insert(
                tx,
                tenant_id=_tenant(tx, tenant),
                name=name,
                role=requested,
                hash=fingerprint(plain),
                hint=hint_of(plain),
                expires_at=_end(tx, expires),
                actor=client.actor,
            )

        database = self._database(everywhere=tenant != client.tenant)
        made = client.transact("create_token", work, noun=Token, database=database, repeatable=True)
        return made, "" if client.replayed and not self._is(made, plain) else plain

    def _is(self, token: Token, plain: str) -> bool:
        """True if `plain` is the text of this token.

        The client itself reuses a key after a lost answer; the text is still valid then.
        """
        found = self.find(plain)
        return found is not None and found.id == token.id

    def list(self, *, everywhere: bool = False, after: int = 0, limit: int = 200) -> list[Token]:
        """Returns the tokens of this tenant, or of all tenants and the system.

        Revoked and expired tokens are included.
        """
        with self._database(everywhere=everywhere).read() as tx:
            tenant_id = self.client.tenant_id
            return tokens.page(tx, tenant_id=tenant_id, everywhere=everywhere, after=after, limit=limit)

    def get(self, token_id: int, *, everywhere: bool = False) -> Token:
        with self._database(everywhere=everywhere).read() as tx:
            return self._own(tokens.get(tx, token_id), everywhere)

    def revoke(self, token_id: int, *, everywhere: bool = False) -> Token:
        """Revokes a token; every process refuses it from the commit on."""

        def work(tx: Tx) -> Token:
            self._own(tokens.get(tx, token_id), everywhere)
            return tokens.revoke(tx, token_id, self.client.actor)

        return self.client.transact("revoke_token", work, noun=Token, database=self._database(everywhere=everywhere))

    def _database(self, *, everywhere: bool) -> Database:
        """Returns the database; without row-level security for tokens of other tenants."""
        database = self.client.database
        return database.beyond() if everywhere else database

    def _own(self, token: Token, everywhere: bool) -> Token:
        if not everywhere and token.tenant_id != self.client.tenant_id:
            raise NotFound(f"there is no token {token.id}", noun="token")
        return token

    def find(self, plain: str) -> Token | None:
        """Returns the live token with this text.

        It is looked up on every call, so that a revoked token is refused immediately. None if there is no such token.
        """
        if not looks_like_token(plain):
            return None
        with self._database(everywhere=True).read() as tx:
            return tokens.find(tx, plain)

    def visitor(self, plain: str, tenant: str | None = None) -> Visitor | None:
        """Returns the visitor that this token identifies. None if the token is not valid.

        A token of the system acts for the named tenant, or for the client's own.
        """
        token = self.find(plain)
        return None if token is None else visitor_of(self.client, token, tenant)


def visitor_of(client: Client, token: Token, tenant: str | None) -> Visitor:
    """Returns the visitor of a live token."""
    if token.tenant_id is not None and token.tenant is not None:
        if tenant not in (None, token.tenant):
            raise NotFound(f"there is no tenant {tenant!r}", noun="tenant")
        return Visitor(token.actor, token.tenant, token.tenant_id, token.role, system=False)
    acting = tenant or client.tenant
    with client.database.beyond().read() as tx:
        return Visitor(token.actor, acting, _known_tenant(tx, acting), token.role, system=True)


def any_token(database: Database) -> bool:
    """True if callers must present a token: at least one was not revoked."""
    with database.read() as tx:
        return tokens.any_token(tx)


@dataclass(frozen=True, slots=True)
class Live:
    """The live tokens, the live sessions, and `needed`: callers must present a token."""

    tokens: frozenset[int]
    sessions: frozenset[str]
    needed: bool


def live_among(database: Database, ids: Sequence[int], hashes: Sequence[str] = ()) -> Live:
    """Returns the live ones of these tokens, and of the sessions with these hashes."""
    with database.beyond().read() as tx:
        return Live(tokens.live_among(tx, ids), sessions.live_among(tx, hashes), tokens.any_token(tx))


def _tenant(tx: Tx, name: str | None) -> int | None:
    return None if name is None else _known_tenant(tx, name)


def _known_tenant(tx: Tx, name: str) -> int:
    found = tx.run("tenant_by_name", name=name)
    if not found:
        raise NotFound(f"there is no tenant {name!r}", noun="tenant")
    return int(found[0][0])


def _end(tx: Tx, given: object) -> int | None:
    if given is None:
        return None
    now = tx.now()
    at = int(now) + micros(seconds(given, field="expires")) if _is_duration(given) else instant(given, field="expires")
    if at <= now:
        refuse("expires", "must be in the future")
    return at


def _is_duration(given: object) -> bool:
    """True for a duration, False for a time like `2026-03-01T09:00:00Z`."""
    return given[4:5] != "-" if isinstance(given, str) else not isinstance(given, datetime)
