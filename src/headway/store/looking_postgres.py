"""PostgreSQL as somebody opens it who only looks, and what it says about itself."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

import psycopg

from headway.store.db import Tx
from headway.store.looking import PATIENCE
from headway.store.postgres import CONNECT_SECONDS, PostgresDatabase, PostgresTx, translated, with_keepalives

CHANNEL = "headway_look_"


@dataclass(frozen=True, slots=True)
class Server:
    """What a server says of itself. `read_only`: it takes no writes, as a standby does."""

    version: int
    standby: bool
    read_only: bool
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    vacuums: bool
    user: str


class PostgresToLookAt(PostgresDatabase):
    """No statement may take long, or wait for a lock."""

    def begin_read(self, more: str = "") -> PostgresTx:
        limits = {"statement_timeout": PATIENCE, "lock_timeout": PATIENCE / 2}
        said = "".join(f"; set local {name} = '{seconds * 1000:.0f}ms'" for name, seconds in limits.items())
        return super().begin_read(said + more)

    def round_trip(self, seconds: float) -> float | None:
        """How long a notification takes from where jobs are made to where workers listen; None if none came. On a
        channel of its own, so that nobody else is woken."""
        channel = CHANNEL + secrets.token_hex(8)
        address = with_keepalives(self.listen_url)
        with translated(), psycopg.connect(address, autocommit=True, connect_timeout=int(CONNECT_SECONDS)) as listening:
            listening.execute(f"listen {channel}".encode())
            began = time.monotonic()
            self.once("knock_postgres", channel=channel)
            for _ in listening.notifies(timeout=seconds, stop_after=1):
                return time.monotonic() - began
        return None


def server(tx: Tx) -> Server:
    ((version, standby, read_only, *rest),) = tx.run("server_postgres")
    fsync, pages, commit, vacuums, user = rest
    return Server(version, standby, standby or read_only == "on", fsync, pages, commit, vacuums, user)
