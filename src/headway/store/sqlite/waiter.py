"""Wakes waiters at commits of this process and, by inotify, of others."""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from headway.store.db import Waiter

if TYPE_CHECKING:
    from headway.store.sqlite.database import SqliteDatabase

# A write to the log precedes the visibility of its commit: a waiter polls for the commit for this long.
VISIBLE_WITHIN = 0.02
POLL_WITHOUT_INOTIFY = 0.01
WOKEN_WITHIN = 0.001
_WAKE = (1).to_bytes(8, sys.byteorder)


def _wake_descriptors() -> tuple[int, int]:
    """Returns the descriptors to wait on and to wake by.

    That is one event counter where the system has it, otherwise a pipe.
    """
    if hasattr(os, "eventfd"):
        counter = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        return counter, counter
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    return reading, writing


class SqliteWaiter(Waiter):
    """Sleeps on two descriptors: this process's wake-ups, and the log's changes."""

    def __init__(self, database: SqliteDatabase) -> None:
        self.database = database
        self.lock = threading.Lock()
        self.closed = False
        self.seen = database.foreign_commits()
        self.suspicious_until = 0.0
        self.reading, self.writing = _wake_descriptors()
        self.wakes = select.poll()
        self.wakes.register(self.reading, select.POLLIN)
        self.poll = select.poll()
        self.poll.register(self.reading, select.POLLIN)
        self.watch = self._watch_log()

    def _watch_log(self) -> int | None:
        if sys.platform != "linux":
            return None
        from inotify_simple import INotify, flags  # type: ignore[import-untyped]

        self.inotify = INotify(nonblocking=True)
        self.inotify.add_watch(self.database.path + "-wal", flags.MODIFY | flags.CLOSE_WRITE)
        fd: int = self.inotify.fileno()
        self.poll.register(fd, select.POLLIN)
        return fd

    def wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        # The log also changes at this process's own commits. A busy process is woken by its own work, so wait for that
        # before polling.
        if self.wakes.poll(max(0.0, min(seconds, WOKEN_WITHIN)) * 1000):
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
                # The log is written before the commit is visible, so poll for a moment.
                self.suspicious_until, step = now + VISIBLE_WITHIN, 0.001
            suspicious = self.suspicious_until > 0.0 or self.watch is None
            if suspicious:
                if self._others_committed(now):
                    return True
                if now >= self.suspicious_until:  # after the poll, which was the last
                    self.suspicious_until = 0.0
            if now >= deadline:
                return False
            timeout = deadline - now
            if suspicious:
                timeout, step = min(timeout, step), min(step * 2, POLL_WITHOUT_INOTIFY)

    def _others_committed(self, now: float) -> bool:
        version = self.database.foreign_commits()
        if version is None:  # this process writes, or waits for the lock: poll afterwards
            self.suspicious_until = now + VISIBLE_WITHIN
            return False
        changed, self.seen = version != self.seen, version
        return changed

    @staticmethod
    def _drain(fd: int) -> bool:
        """Reads a ready descriptor empty; if more follows, it is ready again."""
        try:
            return bool(os.read(fd, 65536))
        except BlockingIOError:
            return False

    def wake(self) -> None:
        # Under the lock, because a closed descriptor's number may belong to another file by now.
        with self.lock:
            if not self.closed:
                with suppress(BlockingIOError):  # the descriptor is full, so the waiter wakes anyway
                    os.write(self.writing, _WAKE)

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
