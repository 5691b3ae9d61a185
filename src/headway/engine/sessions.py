"""Who has logged in with a token in a browser: from the login until the logout, the session's end or the token's."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from headway.engine.tokens import visitor_of
from headway.model.access import BYTES, SESSION_PREFIX, Visitor, fingerprint, looks_like_session
from headway.store import sessions, tokens
from headway.store.db import Database, Tx

if TYPE_CHECKING:
    from headway.engine.client import Client


class Sessions:
    """The verbs on sessions. Whose one is shows only when it is looked up: all of it is beyond the wall."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def begin(self, plain_token: str) -> str | None:
        """The text of a new session, for the cookie: it is stored nowhere. None: this token opens nothing."""
        if self.client.tokens.find(plain_token) is None:  # whoever guesses does not get as far as the write lock
            return None
        plain = SESSION_PREFIX + secrets.token_urlsafe(BYTES)

        def work(tx: Tx) -> str | None:
            token = tokens.find(tx, plain_token)
            if token is None:
                return None
            sessions.insert(tx, token, fingerprint(plain))
            return plain

        return self._database.transact("begin_session", work)

    def visitor(self, plain_session: str, tenant: str | None = None) -> Visitor | None:
        """Who comes with this session: whoever shows its token. Looked up each time, as the token is."""
        if not looks_like_session(plain_session):
            return None
        with self._database.read() as tx:
            token = sessions.find(tx, plain_session)
        return None if token is None else visitor_of(self.client, token, tenant)

    def end(self, plain_session: str) -> None:
        """Logs out. One that is not there has ended already."""
        if looks_like_session(plain_session):
            hash = fingerprint(plain_session)
            self._database.transact("end_session", lambda tx: sessions.end(tx, hash))

    @property
    def _database(self) -> Database:
        return self.client.database.beyond()
