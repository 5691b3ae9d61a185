"""Makes calls at a given time.

One thread makes them, which no event loop and no task can block.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable

log = logging.getLogger("headway")
# The errors of a process that is out of descriptors, processes, memory or threads.
NO_ROOM = (OSError, MemoryError, RuntimeError)
# Delay before such a call is tried again.
AGAIN_SECONDS = 0.5


class Deadline:
    """One call that is due at a time of the monotonic clock."""

    __slots__ = ("call", "when")

    def __init__(self, when: float, call: Callable[[], object]) -> None:
        self.when = when
        self.call = call


class Deadlines:
    """The deadlines of one worker.

    Any thread may set and cancel; the first deadline starts the thread. `made` is called after each call, so that the
    worker can react at once.
    """

    def __init__(self, made: Callable[[], None] = lambda: None) -> None:
        self.made = made
        self.changed = threading.Condition()
        self.pending: set[Deadline] = set()
        self.next = math.inf
        self.closed = False
        self.thread: threading.Thread | None = None

    def set(self, seconds: float, call: Callable[[], object]) -> Deadline:
        """Schedules a call in this many seconds.

        Raises RuntimeError if no thread can be started.
        """
        deadline = Deadline(time.monotonic() + seconds, call)
        with self.changed:
            if self.thread is None:
                thread = threading.Thread(target=self._live, name="headway-deadlines", daemon=True)
                thread.start()
                self.thread = thread
            self.pending.add(deadline)
            if deadline.when < self.next:
                self.next = deadline.when
                self.changed.notify()
        return deadline

    def cancel(self, deadline: Deadline) -> None:
        """Cancels a call. Does nothing if the call has been made, or is being made."""
        with self.changed:
            self.pending.discard(deadline)

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify()

    def _live(self) -> None:
        while (due := self._await_due()) is not None:
            for deadline in due:
                self._make(deadline)

    def _await_due(self) -> list[Deadline] | None:
        with self.changed:
            while not self.closed:
                now = time.monotonic()
                if due := [deadline for deadline in self.pending if deadline.when <= now]:
                    self.pending.difference_update(due)
                    return due
                self.next = min((deadline.when for deadline in self.pending), default=math.inf)
                self.changed.wait(None if self.next == math.inf else self.next - now)
        return None

    def _make(self, deadline: Deadline) -> None:
        try:
            deadline.call()
            self.made()
        except NO_ROOM as error:
            log.warning("a job is past its timeout and could not be stopped: %s; trying again", error)
            deadline.when = time.monotonic() + AGAIN_SECONDS
            with self.changed:
                self.pending.add(deadline)
