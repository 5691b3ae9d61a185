"""Read-only access to SQLite, for diagnosis: without changes or long waits."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import apsw

from headway.errors import Unreachable
from headway.store.db import FileUnusable, Tx
from headway.store.sqlite.busy import Patience
from headway.store.sqlite.database import SqliteDatabase
from headway.store.sqlite.errors import translated
from headway.store.sqlite.files import Files
from headway.store.sqlite.schema_trust import distrust
from headway.store.sqlite.transaction import SqliteTx

PATIENCE = 3.0
STEPS = 10_000


@contextmanager
def _soon() -> Iterator[None]:
    """Translates errors; a busy error names no time, because PATIENCE is short."""
    try:
        with translated():
            yield
    except Unreachable as error:
        if isinstance(error.__cause__, apsw.BusyError):
            raise Unreachable("another process keeps the database locked", hint="end it or try again") from error
        raise


class SqliteToLookAt(SqliteDatabase):
    """A database file opened as it is, also where it cannot be written."""

    def _connect(self) -> apsw.Connection:
        self._refuse_remains()
        try:
            connection = apsw.Connection(self.path, flags=self.flags)
        except apsw.Error as error:
            raise FileUnusable(f"cannot open the database {self.path}", cause=str(error)) from error
        with _soon():
            connection.set_busy_handler(Patience(PATIENCE))
            distrust(connection)
            connection.execute("pragma query_only = 1")
            self._refuse_foreign(connection)
        self.connections.add(connection)
        return connection

    def _refuse_place(self) -> None:
        """Accepts any place: `headway doctor` has a check of its own for it."""

    def _files(self) -> Files:
        """Returns no identity: nothing is written here, and there may be no log."""
        return Files.__new__(Files)

    def _refuse_remains(self) -> None:
        """Refuses a file that this user may only read if -wal or -shm is missing.

        Opening creates missing -wal and -shm files owned by this user. With read-only access the user could not remove
        them, and the owner could no longer write.
        """
        writable = os.access(self.path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
        complete = all(os.path.exists(f"{self.path}{ending}") for ending in ("-wal", "-shm"))
        if os.path.exists(self.path) and not writable and not complete:
            text = "this user may only read it, and opening it would leave files that its owner cannot use"
            raise Unreachable(text, hint="run this as its owner")

    @cached_property
    def flags(self) -> int:
        """Returns the flags to open the file with.

        The last connection to close the file deletes the log, unless it is read-only. So a file without a log is opened
        for writing and leaves nothing behind; a file with a log is opened read-only, and a log left by a crash stays.
        Decided once, because the first connection creates a log.
        """
        logged = os.path.exists(f"{self.path}-wal")
        return apsw.SQLITE_OPEN_READONLY if logged else apsw.SQLITE_OPEN_READWRITE

    def journal(self) -> tuple[str, int]:
        """Returns the journal mode and the size of the log."""
        with self.read() as tx:
            assert isinstance(tx, SqliteTx)
            mode = str(tx.connection.execute("pragma journal_mode").get)
        try:
            return mode, os.stat(f"{self.path}-wal").st_size
        except FileNotFoundError:
            return mode, 0

    def check_for(self, seconds: float) -> list[str] | None:
        """Returns what SQLite's quick check reports; None if the time ran out."""
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


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """A server's version, role and durability settings."""

    version: int
    standby: bool
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    vacuums: bool
    user: str


def server(tx: Tx) -> ServerFacts:
    (row,) = tx.run("server_postgres")
    return ServerFacts(*row)
