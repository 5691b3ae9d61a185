"""How long and how often a connection asks for a lock, and which process holds it."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

BUSY_SECONDS = 30.0
# The byte of the shared-memory file that a writer locks (WAL_WRITE_LOCK in SQLite's wal.c, UNIX_SHM_BASE in os_unix.c).
_WRITE_BYTE = 120


class Patience:
    """Busy handler with short waits, which favour the longest waiter.

    SQLite's own waits grow to 100 ms, 328 ms in all. Here a process that came later asks less often, so the lock goes
    to those that have waited longer. All processes ask less often for a lock that is held for long.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = seconds
        self.began = 0.0

    def __call__(self, tries: int) -> bool:
        now = time.monotonic()
        if tries == 0:
            self.began = now
        waited = now - self.began
        time.sleep(pause_after(waited))
        return waited < (BUSY_SECONDS if self.seconds is None else self.seconds)


def pause_after(waited: float) -> float:
    """Returns the seconds until the next try after a process has waited so long."""
    if waited < 0.005:
        return 0.0005
    return 0.00025 if waited < 0.25 else 0.002


class Holder(NamedTuple):
    """A process that holds the write lock. `halted` means that a signal stopped it."""

    pid: int
    name: str
    halted: bool


def write_lock_holder(path: str) -> Holder | None:
    """Finds the process that holds the write lock of a database file.

    Returns None on systems without /proc/locks. It opens no file of the database: its end would drop all locks that
    this process has there.
    """
    with suppress(OSError, ValueError):
        shared = os.stat(f"{path}-shm")
        for line in Path("/proc/locks").read_text().splitlines():
            match line.split():
                # As `7: POSIX  ADVISORY  WRITE 4711 00:2a:1234 120 120`. A process that waits has `->` for its number.
                case [_, "POSIX", _, "WRITE", pid, place, first, last] if (
                    int(place.rpartition(":")[2]) == shared.st_ino
                    and int(first) <= _WRITE_BYTE
                    and (last == "EOF" or int(last) >= _WRITE_BYTE)
                    and _has_open(int(pid), shared)
                ):
                    return _holder(int(pid))
    return None


def _has_open(pid: int, shared: os.stat_result) -> bool:
    """Returns False if the process has no such file open. Numbers of inodes are unique on one file system only.

    The files of another user's process cannot be seen; the number decides then.
    """
    try:
        return any(os.path.samestat(found, shared) for found in _open_files(pid))
    except PermissionError:
        return True


def _open_files(pid: int) -> list[os.stat_result]:
    found = []
    for entry in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # closed meanwhile
            found.append(os.stat(f"/proc/{pid}/fd/{entry}"))
    return found


def _holder(pid: int) -> Holder:
    before, _, rest = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(") ")
    return Holder(pid, before.partition("(")[2], rest[:1] == "T")
