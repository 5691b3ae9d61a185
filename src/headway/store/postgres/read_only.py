"""Read-only access to PostgreSQL, for diagnosis."""

from __future__ import annotations

import secrets
import time
from typing import Any

import psycopg

from headway.store.postgres.database import PostgresDatabase
from headway.store.postgres.errors import translated
from headway.store.postgres.transaction import PostgresTx
from headway.store.sqlite.read_only import PATIENCE

CHANNEL = "headway_look_"


class PostgresToLookAt(PostgresDatabase):
    """A database whose statements neither take long nor wait long for a lock."""

    def begin_read(self, more: str = "") -> PostgresTx:
        limits = {"statement_timeout": PATIENCE, "lock_timeout": PATIENCE / 2}
        settings = "".join(f"; set local {name} = '{seconds * 1000:.0f}ms'" for name, seconds in limits.items())
        return super().begin_read(settings + more)

    def listening(self) -> psycopg.Connection[Any]:
        """Opens a connection to the address where workers listen."""
        with translated():
            return self.connect(self.listen_url)

    def round_trip(self, listening: psycopg.Connection[Any], seconds: float) -> float | None:
        """Measures how long a notification takes to a listener; None if it is lost.

        It uses a channel of its own, so that it wakes no worker.
        """
        channel = CHANNEL + secrets.token_hex(8)
        with translated():
            listening.execute(f"listen {channel}".encode())
            began = time.monotonic()
            self.once("knock_postgres", channel=channel)
            for _ in listening.notifies(timeout=seconds, stop_after=1):
                return time.monotonic() - began
        return None
