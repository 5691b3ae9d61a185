"""Database files: where they may be, who may read them, and whether they were replaced."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from headway.errors import Refused, Unreachable
from headway.model.values.file_systems import is_network, mounted

PRIVATE = 0o600


def refuse_network(path: str) -> None:
    """Refuses a file on a network file system.

    Only the mount table is read: if the file server is gone, an access to the file would hang.
    """
    if sys.platform != "linux":
        return
    table = Path("/proc/self/mountinfo").read_text()
    for find in (str, os.path.realpath):  # the path as given, before links are followed
        kind = mounted(table, find(path))
        if kind is not None and is_network(kind):
            raise Refused(
                f"{path} is on {kind}, a network file system, and SQLite's log needs memory shared by all processes",
                hint="move the file to a local disk, or use PostgreSQL",
                code="network_file_system",
            )


def create_private(path: str) -> None:
    """Creates a missing database file for its owner alone, whatever the umask.

    SQLite gives the log and the shared memory beside it the mode of the file. An existing file is not opened here: the
    end of any descriptor of a file releases the locks that SQLite holds on it in this process.
    """
    if not os.path.exists(path):
        with suppress(OSError):  # SQLite reports the reason; another process may have created the file
            os.close(os.open(os.path.realpath(path), os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, PRIVATE))


def create_new(path: str) -> None:
    """Creates an empty file for its owner alone; a file or a link of that name is removed first."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, PRIVATE))


def private(path: str, flags: int) -> int:
    """Opens a file, as an `opener` of `open`, so that a new one is its owner's alone."""
    return os.open(path, flags | os.O_CLOEXEC, PRIVATE)


class Files:
    """The identity of the database file and its log when they were opened.

    A write into a deleted or replaced file would lose an acknowledged commit.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.log_path = path + "-wal"
        # Inode and device. The system does not reuse the inode of an open file, so its number identifies the file.
        self.file = os.stat(path)[1:3]
        self.log = os.stat(self.log_path)[1:3]

    def refuse_other_log(self) -> None:
        """Refuses a deleted or replaced log before anything is written.

        Other processes that have the same deleted log open would see the write.
        """
        try:
            if os.stat(self.log_path)[1:3] == self.log:
                return
        except OSError:
            pass
        self._refuse()

    def refuse_other(self) -> None:
        """Refuses a deleted or replaced file or log before a commit is acknowledged."""
        try:
            if os.stat(self.log_path)[1:3] == self.log and os.stat(self.path)[1:3] == self.file:
                return
        except OSError:
            pass
        self._refuse()

    def tell(self) -> None:
        """Wakes the waiters of all processes after a slow commit.

        They saw the log change some time before the commit became visible. Opening the file for writing and closing it
        is an event without a write, which would wait for the disk again.
        """
        with suppress(OSError):  # a hint; if the log is gone, the next transaction raises
            os.close(os.open(self.log_path, os.O_WRONLY | os.O_CLOEXEC))

    def _refuse(self) -> None:
        try:
            file = os.stat(self.path)
        except OSError as error:
            raise Unreachable(f"the database file {self.path} is gone", hint="put it back and restart") from error
        if file[1:3] != self.file:
            raise Unreachable(f"the database file {self.path} was replaced", hint="restart to use the new file")
        raise Unreachable(
            f"the log {self.log_path} was deleted or replaced while the database was in use, and the last writes are"
            " lost",
            hint="restart, and let no program remove files beside a database",
        )
