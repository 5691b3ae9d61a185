"""A database as somebody opens it who only looks: nothing is made or changed, and nothing is waited for for long."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import apsw

from headway.errors import Unreachable
from headway.store.db import Tx
from headway.store.sqlite import SqliteDatabase, SqliteTx, translated

PATIENCE = 3.0
STEPS = 10_000


@contextmanager
def _soon() -> Iterator[None]:
    """As for everybody, but nobody has waited as long here as others do for a lock."""
    try:
        with translated():
            yield
    except Unreachable as error:
        if isinstance(error.__cause__, apsw.BusyError):
            raise Unreachable("another process keeps the database locked: end it or try again") from error
        raise


class SqliteToLookAt(SqliteDatabase):
    """No pragma of ours is set: the file is judged as it is. It can also be read where it cannot be written."""

    def _connect(self) -> apsw.Connection:
        self._refuse_remains()
        try:
            connection = apsw.Connection(self.path, flags=self.flags)
        except apsw.Error as error:
            raise Unreachable(f"cannot open the database {self.path}: {error}") from error
        with _soon():
            connection.set_busy_timeout(round(PATIENCE * 1000))
            connection.execute("pragma query_only = 1")
            self._refuse_foreign(connection)
        self.connections.append(connection)
        return connection

    def _refuse_remains(self) -> None:
        """Whoever opens the file makes what is missing beside it, and owns that. One who may not write the file is not
        let to take it away again, and its owner could write nothing from then on."""
        writable = os.access(self.path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
        complete = all(os.path.exists(f"{self.path}{ending}") for ending in ("-wal", "-shm"))
        if os.path.exists(self.path) and not writable and not complete:
            text = "this user may only read it, and opening it would leave files that its owner cannot use"
            raise Unreachable(f"{text}: run this as its owner")

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


def server(tx: Tx) -> Server:
    ((version, standby, read_only, *rest),) = tx.run("server_postgres")
    fsync, pages, commit, vacuums, user = rest
    return Server(version, standby, standby or read_only == "on", fsync, pages, commit, vacuums, user)
