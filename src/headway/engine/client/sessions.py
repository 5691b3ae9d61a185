"""Browser sessions. A session begins with a token and ends at logout or expiry.

It also ends when its token expires or is revoked.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from headway.engine.client.tokens import visitor_of
from headway.model.access.cookies import CookieKey
from headway.model.access.permissions import BYTES, SESSION_PREFIX, Visitor, fingerprint, looks_like_session
from headway.store.access import sessions, tokens
from headway.store.db import Database, Tx

if TYPE_CHECKING:
    from headway.engine.client.client import Client


class Sessions:
    """The verbs on sessions.

    They bypass row-level security, because the tenant is known only after the session is found.
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    def begin(self, plain_token: str) -> str | None:
        """Begins a session.

        Returns its plain text for the cookie; only its hash is stored. None if the token is not valid.
        """
        if self.client.tokens.find(plain_token) is None:  # an invalid token never takes the write lock
            return None
        plain = SESSION_PREFIX + secrets.token_urlsafe(BYTES)

        def work(tx: Tx) -> str | None:
            token = tokens.find(tx, plain_token)
            if token is None:
                return None
            sessions.insert(tx, token, fingerprint(plain))
            return plain

        return self._database.repeat("begin_session", work)

    def visitor(self, plain_session: str, tenant: str | None = None) -> Visitor | None:
        """Returns the visitor of this session, with the rights of its token.

        The session is looked up on every call. None if it is not valid.
        """
        if not looks_like_session(plain_session):
            return None
        with self._database.read() as tx:
            token = sessions.find(tx, plain_session)
        return None if token is None else visitor_of(self.client, token, tenant)

    def end(self, plain_session: str) -> None:
        """Logs out. Does nothing if the session has already ended."""
        if looks_like_session(plain_session):
            hash = fingerprint(plain_session)
            self._database.transact("end_session", lambda tx: sessions.end(tx, hash))

    def cookie_key(self) -> CookieKey:
        """Returns the key that signs cookies; makes it once for the installation."""
        with self._database.read() as tx:
            stored = sessions.cookie_key(tx)
        if stored is None:
            made = secrets.token_hex(BYTES)
            stored = self._database.repeat("make_cookie_key", lambda tx: sessions.make_cookie_key(tx, made))
        return CookieKey(bytes.fromhex(stored))

    @property
    def _database(self) -> Database:
        return self.client.database.beyond()
