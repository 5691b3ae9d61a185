"""Copies the log into the database file, beside the writers."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import apsw

from headway.errors import HeadwayError
from headway.store.sqlite.busy import Patience
from headway.store.sqlite.transaction import SqliteTx

if TYPE_CHECKING:
    from headway.store.sqlite.database import SqliteDatabase

log = logging.getLogger("headway")

# Log sizes in pages: where checkpoints begin, how much the log grows until the next try, and where writers begin to
# wait for a checkpoint.
LOG_PAGES = 1000
LOG_STEP = 250
LOG_PAGES_AT_MOST = 4000
# How long readers may block such a checkpoint, and the checkpoint the writers.
CHECKPOINT_SECONDS = 0.01
CHECKPOINT = "headway-checkpoint"


class Checkpoints:
    """The size of the log, and the thread that copies it into the database file.

    `log_pages` and `due_at` are written by the thread that has the write lock.
    """

    def __init__(self, database: SqliteDatabase) -> None:
        self.database = database
        self.thread: threading.Thread | None = None
        self.begin_log()

    def begin_log(self) -> None:
        """Counts from zero, for a new writer."""
        self.log_pages, self.due_at = 0, LOG_PAGES

    def hear_commit(self, connection: apsw.Connection, name: str, pages: int) -> int:
        """Records the log's size, inside a commit, instead of SQLite's checkpoint."""
        if pages < self.log_pages:  # the log was restarted
            self.due_at = LOG_PAGES
        self.log_pages = pages
        return apsw.SQLITE_OK

    def begin(self) -> None:
        """Checkpoints in a thread of its own, so that no writer waits for the disk.

        Beyond LOG_PAGES_AT_MOST the writer waits for that thread and checkpoints itself: otherwise, on a disk slower
        than its writers, the log would grow without bound.
        """
        too_long = self.log_pages > LOG_PAGES_AT_MOST
        thread = self.thread
        if thread is not None and thread.is_alive():
            if not too_long:
                return
            thread.join()
        self.due_at = self.log_pages + LOG_STEP
        if too_long or not self._started():
            self.checkpoint()

    def _started(self) -> bool:
        # Assigned before it starts, because an interrupt may come in between.
        thread = self.thread = threading.Thread(target=self.checkpoint, name=CHECKPOINT, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads, or the interpreter is exiting
            self.thread = None
            return False
        return True

    def checkpoint(self) -> None:
        """Copies the log into the database file.

        The rest of a long log is copied while no other process writes.
        """
        try:
            with self.database.read() as tx:
                assert isinstance(tx, SqliteTx)
                self._copy_log(tx.connection)
        except (HeadwayError, apsw.Error) as error:
            if not self.database.closed:
                log.warning("the checkpoint of %s failed: %s; it will be tried again", self.database.path, error)

    @staticmethod
    def _copy_log(connection: apsw.Connection) -> None:
        try:
            # Fails at once while another process runs a checkpoint.
            pages, _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            if pages > LOG_PAGES_AT_MOST:
                connection.set_busy_handler(Patience(CHECKPOINT_SECONDS))
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        except apsw.BusyError:  # the next checkpoint comes when the log has grown
            pass
        finally:
            connection.set_busy_handler(Patience())

    def wait(self) -> None:
        """Waits for the end of a checkpoint, before the database is closed."""
        if self.thread is not None and self.thread.is_alive():
            self.thread.join()
