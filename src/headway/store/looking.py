"""A database as somebody opens it who only looks: nothing is made or changed, and nothing is waited for for long."""

from __future__ import annotations

import os
import time
from functools import cached_property

import apsw

from headway.errors import HeadwayError, Unreachable
from headway.store.db import Database
from headway.store.sqlite import SqliteDatabase, SqliteTx, translated

PATIENCE = 3.0
STEPS = 10_000


class SqliteToLookAt(SqliteDatabase):
    """No pragma of ours is set: the file is judged as it is. It can also be read where it cannot be written."""

    def _connect(self) -> apsw.Connection:
        try:
            connection = apsw.Connection(self.path, flags=self.flags)
        except apsw.Error as error:
            raise Unreachable(f"cannot open the database {self.path}: {error}") from error
        with translated():
            connection.set_busy_timeout(round(PATIENCE * 1000))
            connection.execute("pragma query_only = 1")
            self._refuse_foreign(connection)
        self.connections.append(connection)
        return connection

    @cached_property
    def flags(self) -> int:
        """Whoever is the last to close the file takes the log away, but not one who may only read. So with no log there
        it is opened as usual, and leaves nothing behind; with one, what a crash left stays as it is. Found out once:
        the first connection of ours makes a log."""
        logged = os.path.exists(f"{self.path}-wal")
        return apsw.SQLITE_OPEN_READONLY if logged else apsw.SQLITE_OPEN_READWRITE

    def journal(self) -> tuple[str, int]:
        """How the file keeps its changes, and the size of its log."""
        with self.read() as tx:
            assert isinstance(tx, SqliteTx)
            mode = str(tx.connection.execute("pragma journal_mode").get)
        try:
            return mode, os.stat(f"{self.path}-wal").st_size
        except FileNotFoundError:
            return mode, 0

    def check_for(self, seconds: float) -> list[str] | None:
        """What SQLite finds wrong with the file; None if it came to no end in this time."""
        until = time.monotonic() + seconds
        with self.read() as tx:
            assert isinstance(tx, SqliteTx)
            tx.connection.set_progress_handler(lambda: time.monotonic() > until, STEPS)
            try:
                answers = [str(row[0]) for row in tx.connection.execute("pragma quick_check(5)")]
            except apsw.InterruptError:
                return None
            except apsw.CorruptError as error:
                return [str(error)]
            finally:
                tx.connection.set_progress_handler(None)
        return [] if answers == ["ok"] else answers


def open_to_look(url: str, *, listen: str | None = None) -> Database:
    if not url.startswith(("postgresql://", "postgres://")):
        return SqliteToLookAt(url.removeprefix("sqlite:///"))
    try:
        from headway.store.looking_postgres import PostgresToLookAt
    except ImportError as error:
        raise HeadwayError("PostgreSQL needs its driver: install headway[postgres]", code="missing_driver") from error
    return PostgresToLookAt(url, listen=listen)
