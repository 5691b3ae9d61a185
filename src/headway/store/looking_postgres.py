"""PostgreSQL as somebody opens it who only looks."""

from __future__ import annotations

import secrets
import time
from typing import Any

import psycopg

from headway.store.looking import PATIENCE
from headway.store.postgres import CONNECT_SECONDS, PostgresDatabase, PostgresTx, translated, with_keepalives

CHANNEL = "headway_look_"


class PostgresToLookAt(PostgresDatabase):
    """No statement may take long, or wait for a lock."""

    def begin_read(self, more: str = "") -> PostgresTx:
        limits = {"statement_timeout": PATIENCE, "lock_timeout": PATIENCE / 2}
        said = "".join(f"; set local {name} = '{seconds * 1000:.0f}ms'" for name, seconds in limits.items())
        return super().begin_read(said + more)

    def listening(self) -> psycopg.Connection[Any]:
        """A connection to where workers listen."""
        address = with_keepalives(self.listen_url)
        with translated():
            return psycopg.connect(address, autocommit=True, connect_timeout=int(CONNECT_SECONDS))

    def round_trip(self, listening: psycopg.Connection[Any], seconds: float) -> float | None:
        """How long a notification takes from where jobs are made to where workers listen; None if none came. On a
        channel of its own, so that nobody else is woken."""
        channel = CHANNEL + secrets.token_hex(8)
        with translated():
            listening.execute(f"listen {channel}".encode())
            began = time.monotonic()
            self.once("knock_postgres", channel=channel)
            for _ in listening.notifies(timeout=seconds, stop_after=1):
                return time.monotonic() - began
        return None
