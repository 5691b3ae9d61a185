"""The seam on SQLite, through apsw: WAL, every commit synced, one writer at a time, wake-ups by inotify."""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from queue import Empty, LifoQueue

import apsw

from headway.clock import Clock
from headway.errors import HeadwayError, Refused, Unreachable
from headway.store.db import Database, Row, Tx, Waiter, load_statements, render, statements_of
from headway.store.rows import fragments as column_fragments
from headway.store.sealing import SAID, TABLE, refuse_moved

BUSY_SECONDS = 30.0
# What a commit may be late behind the first write to the log, seen from another process.
VISIBLE_WITHIN = 0.03
POLL_WITHOUT_INOTIFY = 0.01
NUDGED_WITHIN = 0.001
# SQLite versions that can corrupt a WAL database on a reset (fixed in 3.51.3).
AFFECTED = ((3, 7, 0), (3, 51, 2))
PRAGMAS = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "journal_size_limit": 67108864}


def _rows(columns: str) -> str:
    names = [column.split()[0] for column in columns.split(",")]
    picks = ", ".join(f"json_extract(value, '$[{n}]') as {name}" for n, name in enumerate(names))
    return f"(select key as n, {picks} from json_each(:rows))"


FRAGMENTS = {
    "pk": "integer primary key",
    "pkp": "integer primary key",
    "now": ":now",
    "rows": _rows,
    "ids": "(select value as id from json_each(:ids))",
    # Scheme, host and port of an address.
    "address": lambda url: f"substr({url}, 1, instr(substr({url}, 9) || '/', '/') + 7)",
    "for_update": "",
    "skip_locked": "",
    "json_names": "json_group_array(a.name)",
    "json_ids": "json_group_array(w.id)",
    "json_rows": lambda columns: f"json_group_array(json_array({columns}))",
    "for_update_j": "",
    **column_fragments(),
}


@cache
def texts() -> dict[str, list[str]]:
    """Every named statement as the driver takes it."""
    return {name: statements_of(render(text, FRAGMENTS)) for name, text in load_statements("sqlite").items()}


def refuse_affected(version: tuple[int, int, int]) -> None:
    if AFFECTED[0] <= version <= AFFECTED[1]:
        text = ".".join(map(str, version))
        raise Refused(f"SQLite {text} can corrupt a database in WAL mode: install apsw 3.51.3 or newer")


def lib_version() -> tuple[int, int, int]:
    """Of the library that is loaded, which need not be the one apsw was built with."""
    major, minor, patch, *_ = map(int, apsw.sqlite_lib_version().split("."))
    return major, minor, patch


class SqliteTx(Tx):
    def __init__(self, database: SqliteDatabase, connection: apsw.Connection, label: str) -> None:
        super().__init__(database, label)
        self.connection = connection
        self.texts = database.texts
        self.now = database.clock.now()
        self.writes = False

    def run(self, name: str, /, **params: object) -> list[Row]:
        params["now"] = self.now
        execute = self.connection.execute
        try:
            texts = self.texts[name]
            if len(texts) == 1:
                return execute(texts[0], params).fetchall()
            rows: list[Row] = []
            for text in texts:
                rows += execute(text, params).fetchall()
            return rows
        except apsw.Error as error:
            raise ours(error) from error

    def _commit(self) -> None:
        try:
            self.connection.execute("commit")
        except apsw.Error as error:
            raise ours(error) from error

    def rollback(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("rollback")


def ours(error: apsw.Error) -> Exception:
    """The driver's error as one of ours: what is wrong, and what to do. What is our own mistake stays as it is."""
    match error:
        case apsw.BusyError():
            seconds = f"{BUSY_SECONDS:.0f} s"
            return Unreachable(f"another process has kept the database locked for {seconds}: end it or try again")
        case apsw.NotADBError() | apsw.CorruptError():
            return Unreachable(
                f"the database file is damaged ({error}): look with `headway db check`, or bring a backup back"
                " with `headway db restore`"
            )
        case apsw.ReadOnlyError():
            return Unreachable("the database file or its folder is read-only: make both writable for this user")
        case apsw.FullError():
            return Unreachable("the disk is full: free some space; nothing was changed")
        case apsw.IOError() | apsw.CantOpenError():
            return Unreachable(f"the database file cannot be read or written: {error}")
        case apsw.ConstraintError() if str(error).startswith(SAID):
            return Refused(f"{error}: set `database` to that address", code="moved")
    return error


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise ours(error) from error


class SqliteDatabase(Database):
    dialect = "sqlite"
    one_writer = True

    def __init__(self, path: str, *, clock: Clock | None = None, even_moved: bool = False) -> None:
        super().__init__(path, clock)
        refuse_affected(lib_version())
        self.even_moved = even_moved
        self.path = str(Path(path).absolute())
        self.texts = texts()
        self.writing = threading.Lock()
        self.readers: LifoQueue[apsw.Connection] = LifoQueue()
        self.connections: list[apsw.Connection] = []
        self.closed = False
        self.writer = self._connect()
        found = os.stat(self.path)
        self.file = (found.st_dev, found.st_ino)

    def _connect(self) -> apsw.Connection:
        folder = Path(self.path).parent
        if not folder.is_dir():
            raise Unreachable(f"the folder {folder} of the database does not exist: create it or change `database`")
        try:
            connection = apsw.Connection(self.path)
        except apsw.Error as error:
            raise Unreachable(f"cannot open the database {self.path}: {error}") from error
        with translated():
            connection.set_busy_handler(_patience())
            self._refuse_foreign(connection)
            for pragma, wanted in PRAGMAS.items():
                # One pragma per call: a string of several stops at the first that returns a row.
                list(connection.execute(f"pragma {pragma} = {wanted}"))
                found = connection.execute(f"pragma {pragma}").get
                if found != wanted:
                    raise Refused(
                        f"SQLite did not accept {pragma} = {wanted} (it is {found}): is the file on a network disk?"
                    )
        self.connections.append(connection)
        return connection

    def _refuse_foreign(self, connection: apsw.Connection) -> None:
        """Before anything is changed in it: a file with tables, none of which is ours, is somebody else's."""
        tables = {name for (name,) in connection.execute("select name from sqlite_schema where type = 'table'")}
        if tables and "hw_schema" not in tables:
            raise Unreachable(f"{self.path} is a database of another program: name another file in `database`")
        if TABLE in tables and not self.even_moved:
            refuse_moved(connection, self.path)

    def begin(self, label: str) -> SqliteTx:
        self.writing.acquire()
        try:
            self._open_or_refuse()
            self._same_file_or_refuse()
            self.writer.execute("begin immediate")
        except BaseException as error:
            self.writing.release()
            if isinstance(error, apsw.Error):
                raise ours(error) from error
            raise
        return SqliteTx(self, self.writer, label)

    def _same_file_or_refuse(self) -> None:
        """Writing into a file that was deleted or replaced would lose what is acknowledged."""
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise Unreachable(f"the database file {self.path} is gone: put it back and start again") from error
        if (found.st_dev, found.st_ino) != self.file:
            raise Unreachable(f"the database file {self.path} was replaced by another one: start again to use that")

    def begin_read(self) -> SqliteTx:
        self._open_or_refuse()
        try:
            connection = self.readers.get_nowait()
        except Empty:
            connection = self._connect()
        with translated():
            connection.execute("begin")
        return SqliteTx(self, connection, "read")

    def _open_or_refuse(self) -> None:
        if self.closed:
            raise HeadwayError("this database was closed")

    def end(self, tx: Tx) -> None:
        assert isinstance(tx, SqliteTx)
        try:
            tx.rollback()
        finally:
            if tx.connection is self.writer:
                self.writing.release()
            else:
                self.readers.put(tx.connection)

    def once(self, name: str, /, **params: object) -> list[Row]:
        return self.transact(name, lambda tx: tx.run(name, **params))

    def execute_script(self, tx: Tx, text: str) -> None:
        assert isinstance(tx, SqliteTx)
        with translated():
            list(tx.connection.execute(render(text, FRAGMENTS)))

    def foreign_commits(self) -> int | None:
        """A number that changes when another process commits, and not when this one does; None while we write.

        SQLite counts for each connection the commits of all others; our writer makes all of ours.
        """
        if not self.writing.acquire(blocking=False):
            return None
        try:
            return None if self.closed else int(self.writer.execute("pragma data_version").get)
        finally:
            self.writing.release()

    def waiter(self) -> Waiter:
        waiter = SqliteWaiter(self)
        self.waiters.append(waiter)
        return waiter

    def check(self) -> list[str]:
        with self.read() as tx:
            assert isinstance(tx, SqliteTx)
            with translated():
                answers = [str(row[0]) for row in tx.connection.execute("pragma integrity_check")]
        return [] if answers == ["ok"] else answers

    def backup(self, destination: str) -> None:
        """A consistent copy of the whole database, taken while others write."""
        with translated():
            target = apsw.Connection(destination)
            try:
                with target.backup("main", self._connect(), "main") as copy:
                    while not copy.done:
                        copy.step(1000)
            finally:
                target.close()

    def close(self) -> None:
        with self.writing:
            self.closed = True
            for waiter in list(self.waiters):
                waiter.close()
            for connection in self.connections:
                connection.close()


class _patience:
    """SQLite's own waits grow to 100 ms; a queue wants to be next when the lock is free."""

    def __init__(self) -> None:
        self.began = 0.0

    def __call__(self, tries: int) -> bool:
        if tries == 0:
            self.began = time.monotonic()
        time.sleep(0.0003 if tries < 20 else 0.002)
        return time.monotonic() - self.began < BUSY_SECONDS


_NUDGE = (1).to_bytes(8, sys.byteorder)


def _nudge_descriptors() -> tuple[int, int]:
    """Where to wait and where to nudge: one counter where the system has that, otherwise a pipe."""
    if hasattr(os, "eventfd"):
        counter = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        return counter, counter
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    return reading, writing


class SqliteWaiter(Waiter):
    """Sleeps on two file descriptors: one that this process nudges, one that sees the log file change."""

    def __init__(self, database: SqliteDatabase) -> None:
        self.database = database
        self.lock = threading.Lock()
        self.closed = False
        self.seen = database.foreign_commits()
        self.suspicious_until = 0.0
        self.reading, self.writing = _nudge_descriptors()
        self.nudges = select.poll()
        self.nudges.register(self.reading, select.POLLIN)
        self.poll = select.poll()
        self.poll.register(self.reading, select.POLLIN)
        self.watch = self._watch_log()

    def _watch_log(self) -> int | None:
        if sys.platform != "linux":
            return None
        from inotify_simple import INotify, flags  # type: ignore[import-untyped]

        self.inotify = INotify(nonblocking=True)
        self.inotify.add_watch(self.database.path + "-wal", flags.MODIFY)
        fd: int = self.inotify.fileno()
        self.poll.register(fd, select.POLLIN)
        return fd

    def wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        # The log tells of our own commits too. Who is busy is nudged by its own work before that is worth a look.
        if self.nudges.poll(max(0.0, min(seconds, NUDGED_WITHIN)) * 1000):
            self._drain(self.reading)
            return True
        timeout, step = 0.0, 0.001
        while True:
            ready = [fd for fd, _ in self.poll.poll(timeout * 1000)]
            if self.reading in ready:
                self._drain(self.reading)
                return True
            now = time.monotonic()
            if self.watch in ready and self._drain(self.watch):
                # The log is written before the commit can be seen: look again for a moment.
                self.suspicious_until, step = now + VISIBLE_WITHIN, 0.001
            suspicious = now < self.suspicious_until or self.watch is None
            if suspicious and self._others_committed():
                return True
            if now >= deadline:
                return False
            timeout = deadline - now
            if suspicious:
                timeout, step = min(timeout, step), min(step * 2, POLL_WITHOUT_INOTIFY)

    def _others_committed(self) -> bool:
        version = self.database.foreign_commits()
        changed = version is not None and version != self.seen
        self.seen = self.seen if version is None else version
        return changed

    @staticmethod
    def _drain(fd: int) -> bool:
        """Takes what is in a ready descriptor; should there be more, it is ready again."""
        try:
            return bool(os.read(fd, 65536))
        except BlockingIOError:
            return False

    def nudge(self) -> None:
        # Under the lock, because a closed descriptor's number may belong to another file by now.
        with self.lock:
            if not self.closed:
                with suppress(BlockingIOError):  # full of nudges: it will wake up
                    os.write(self.writing, _NUDGE)

    def close(self) -> None:
        with self.lock:
            if self.closed:
                return
            self.closed = True
            self.database.waiters.remove(self)
            os.close(self.writing)
            if self.reading != self.writing:
                os.close(self.reading)
            if self.watch is not None:
                self.inotify.close()
