"""The storage interface on SQLite, through apsw.

WAL mode, every commit synced, one writer at a time, wake-ups by inotify.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

import apsw

from headway import forks
from headway.clock import Clock
from headway.errors import HeadwayError, Refused, Unreachable
from headway.store.db import Database, FileUnusable, Row, Tx, TxStage, Waiter
from headway.store.sqlite.busy import Patience
from headway.store.sqlite.checkpoints import Checkpoints
from headway.store.sqlite.errors import ours, translated
from headway.store.sqlite.files import Files, create_private, refuse_network
from headway.store.sqlite.fragments import FRAGMENTS, texts
from headway.store.sqlite.schema_trust import distrust, refuse_code
from headway.store.sqlite.transaction import SqliteTx
from headway.store.sqlite.values import Calls
from headway.store.sqlite.version import lib_version, refuse_affected
from headway.store.sqlite.waiter import SqliteWaiter
from headway.store.statements import render
from headway.store.transfer.seal import TABLE, refuse_moved

# How long a fork waits for open transactions.
FORK_SECONDS = 5.0
TORN = (
    "this process was forked during a transaction and cannot use the SQLite file that its parent had open: start a new"
    " program for that work (spawn or exec), or fork outside of transactions"
)
PRAGMAS = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "journal_size_limit": 67108864}


class SqliteDatabase(Database):
    dialect = "sqlite"
    one_writer = True

    def __init__(self, path: str, *, clock: Clock | None = None, even_moved: bool = False) -> None:
        super().__init__(path, clock)
        refuse_affected(lib_version())
        self.even_moved = even_moved
        self.path = str(Path(path).absolute())
        self._refuse_place()
        self._refuse_torn()
        self.texts = texts()
        self.calls = Calls(self.texts)
        self._new_locks()
        self.closed = False
        # True in a child that was forked during a transaction: SQLite cannot be used on this file there.
        self.torn = False
        self.fork_locks: list[Any] = []
        self.checkpoints = Checkpoints(self)
        self.at_rest = True
        forks.follow(self)  # a fork finds no half-made database: one that cannot be opened has no connection
        self._open()

    def _refuse_torn(self) -> None:
        """Refuses a file whose connections this process inherited in the middle of a transaction.

        SQLite keeps its locks per process and file: a new connection would rely on locks that only the parent has.
        """
        if forks.torn_files and Path(self.path).exists() and os.stat(self.path)[1:3] in forks.torn_files:
            raise HeadwayError(TORN)

    def _refuse_place(self) -> None:
        refuse_network(self.path)

    def _new_locks(self) -> None:
        # An RLock records its owner in the same step as it is taken, so it is released once and only by its owner.
        self.writing = threading.RLock()
        # The thread whose transaction may be open on the writer; 0 if none.
        self.owner = 0
        # Taken while a reader is borrowed, and by a fork.
        self.lending = threading.RLock()
        # Taken while the file is opened again after a fork.
        self.opening = threading.RLock()
        self.readers: list[apsw.Cursor] = []
        self.connections: WeakSet[apsw.Connection] = WeakSet()

    def _open(self) -> None:
        self.writer = self._connect()
        self.cursor = self.writer.cursor()
        self.checkpoints.begin_log()
        self.writer.set_wal_hook(self.checkpoints.hear_commit)
        self.files = self._files()
        self.at_rest = False

    def _files(self) -> Files:
        with translated():
            self.writer.execute("select 1 from sqlite_schema").fetchall()  # opens the log
        return Files(self.path)

    def _connect(self) -> apsw.Connection:
        folder = Path(self.path).parent
        if not folder.is_dir():
            raise Unreachable(
                f"the folder {folder} of the database does not exist", hint="create it or change `database`"
            )
        create_private(self.path)
        try:
            connection = apsw.Connection(self.path)
        except apsw.Error as error:
            raise FileUnusable(f"cannot open the database {self.path}", cause=str(error)) from error
        with translated():
            connection.set_busy_handler(Patience())
            distrust(connection)
            self._refuse_foreign(connection)
            for pragma, wanted in PRAGMAS.items():
                # One pragma per call: a string of several stops at the first that returns a row.
                list(connection.execute(f"pragma {pragma} = {wanted}"))
                found = connection.execute(f"pragma {pragma}").get
                if found != wanted:
                    raise Refused(
                        f"SQLite did not accept {pragma} = {wanted} (it is {found})",
                        hint="is the file on a network disk?",
                    )
        self.connections.add(connection)
        return connection

    def _refuse_foreign(self, connection: apsw.Connection) -> None:
        """Refuses, before any change, a file without Headway's tables, or with code of another program."""
        objects = connection.execute("select type, name, tbl_name, rootpage from sqlite_schema").fetchall()
        tables = {name for kind, name, *_ in objects if kind == "table"}
        if tables and "hw_schema" not in tables:
            raise Unreachable(f"{self.path} is a database of another program", hint="name another file in `database`")
        if TABLE in tables and not self.even_moved:
            refuse_moved(connection, self.path)
        refuse_code(connection, objects, self.path)

    def begin(self, label: str) -> SqliteTx:
        tx = SqliteTx(self, label)
        try:
            self._begin(tx)
        except BaseException as error:
            self.end(tx)
            if isinstance(error, apsw.Error):
                raise ours(error, self.path) from error
            raise
        return tx

    def _begin(self, tx: SqliteTx) -> None:
        me = threading.get_ident()
        if self.owner == me:
            raise HeadwayError("this thread already has an open transaction: a signal handler cannot begin another")
        tx.stage = TxStage.TAKING
        self.writing.acquire()
        self._open_or_refuse()
        tx.connection = writer = self.writer
        tx.cursor = cursor = self.cursor
        tx.files = self.files
        self.owner = me
        if writer.in_transaction:  # left by a rollback that failed
            cursor.execute("rollback")
        cursor.execute("begin immediate")
        tx.files.refuse_other_log()

    def begin_read(self) -> SqliteTx:
        tx = SqliteTx(self, "read", reads=True)
        try:
            tx.stage = TxStage.TAKING
            tx.cursor = self._reader()
            tx.connection = tx.cursor.connection
            tx.stage = TxStage.HELD
            tx.cursor.execute("begin")
        except BaseException as error:
            self.end(tx)
            if isinstance(error, apsw.Error):
                raise ours(error) from error
            raise
        return tx

    def _reader(self) -> apsw.Cursor:
        self.lending.acquire()
        self._open_or_refuse()
        try:
            cursor = self.readers.pop()
        except IndexError:
            cursor = self._connect().cursor()
        self.lending.release()
        return cursor

    def _open_or_refuse(self) -> None:
        if self.closed:
            raise HeadwayError("this database was closed")
        if self.torn:
            raise HeadwayError(TORN)
        if self.at_rest:
            with self.opening:  # a writer and a reader come here under different locks
                if self.at_rest:
                    self._open()

    def end(self, tx: Tx) -> None:
        assert isinstance(tx, SqliteTx)
        if tx.reads:
            self._end_read(tx)
        elif tx.stage is TxStage.TAKING:
            self._end_write(tx)

    def _end_write(self, tx: SqliteTx) -> None:
        """Rolls back and releases the write lock. Every step may run again.

        A transaction that was interrupted before it became the owner has begun nothing.
        """
        mine = self.owner == threading.get_ident()
        try:
            if mine:
                tx.rollback()
        finally:
            if mine:
                self.owner = 0
            try:  # noqa: SIM105 - `suppress` costs more than all the rest
                self.writing.release()
            except RuntimeError:  # the lock was not taken yet, or is released already
                pass
            tx.stage = TxStage.GIVEN
        checkpoints = self.checkpoints
        if checkpoints.log_pages >= checkpoints.due_at:
            checkpoints.begin()

    def _end_read(self, tx: SqliteTx) -> None:
        if tx.stage is TxStage.HELD:
            try:
                tx.rollback()
            except BaseException:
                tx.stage = TxStage.GIVEN
                # A fork waits for every connection in this set that is not idle.
                self.connections.discard(tx.connection)
                tx.connection.close(True)
                raise
            # An interrupt from here on may find the cursor in the list or not; if not, its last reference closes it.
            tx.stage = TxStage.GIVING
            self.readers.append(tx.cursor)
        elif tx.stage is TxStage.TAKING:
            with suppress(RuntimeError):  # interrupted before the lock was taken, or after its release
                self.lending.release()
        tx.stage = TxStage.GIVEN

    def once(self, name: str, /, **params: object) -> list[Row]:
        return self.transact(name, lambda tx: tx.run(name, **params))

    def execute_script(self, tx: Tx, text: str) -> None:
        assert isinstance(tx, SqliteTx)
        with translated():
            list(tx.connection.execute(render(text, FRAGMENTS)))

    def foreign_commits(self) -> int | None:
        """Returns a number that changes at other processes' commits; None while writing.

        SQLite counts for each connection the commits of all others, and this process commits on its writer only.
        """
        if self.owner:
            return None
        with self.writing:
            if self.closed or self.owner:
                return None
            self._open_or_refuse()
            return int(self.writer.execute("pragma data_version").get)

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

    def close(self) -> None:
        with self.writing:
            self.closed = True
            self.checkpoints.wait()
            for waiter in list(self.waiters):
                waiter.close()
            if not self.torn:
                self._close_connections()

    def _close_connections(self) -> None:
        self.readers.clear()
        for connection in list(self.connections):
            connection.close()

    # --- forks ---

    def before_fork(self) -> None:
        """Waits for open transactions and closes every connection.

        SQLite keeps its locks per process and file, and does not know of forks: while the parent has a connection, a
        connection that the child opens believes it has the parent's locks, and takes none.
        """
        if self.closed or self.torn or self.owner == threading.get_ident():
            return
        deadline = time.monotonic() + FORK_SECONDS
        locks: list[Any] = [self.writing, self.lending]
        for lock in locks:
            if not lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
                return
            self.fork_locks.append(lock)
        while len(self.connections) > 1 + len(self.readers) and not self.at_rest:
            if time.monotonic() > deadline:
                return
            time.sleep(0.0005)
        if not self.at_rest:
            self._keep_log()
            self._close_connections()
            self.at_rest = True

    def _keep_log(self) -> None:
        """Makes SQLite keep the log file at the last close, because waiters watch it."""
        import ctypes  # needed at a fork only

        enabled = ctypes.c_int(1)
        self.writer.file_control("main", apsw.SQLITE_FCNTL_PERSIST_WAL, ctypes.addressof(enabled))

    def after_fork_in_parent(self) -> None:
        while self.fork_locks:
            with suppress(RuntimeError):  # released before an interrupt
                self.fork_locks[-1].release()
            self.fork_locks.pop()

    def after_fork_in_child(self) -> None:
        self._forget_waiters()
        self.fork_locks.clear()
        self.checkpoints.thread = None
        self.torn = not self.closed and not self.at_rest
        if self.torn:
            forks.torn_files.add(self.files.file)
        for thing in (*self.connections, self.cursor, *self.readers) if self.torn else ():
            forks.never_free(thing)
        self._new_locks()
