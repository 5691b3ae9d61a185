"""Base classes of loops.

A loop is a tick that returns its delay, and the only `while` is here.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from contextlib import suppress

from headway.errors import HeadwayError, Unreachable
from headway.store.db import Database, Waiter
from headway.store.migrations import NEWER, migrated

log = logging.getLogger("headway")
BACKOFF = 2.0


class Loop(ABC):
    """A repeated action, in a thread of its own, or by calls of `tick` in a test."""

    name = "loop"

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.thread: threading.Thread | None = None
        self.unreachable = False
        # True if the process must end, because the data moved or a newer program migrated the schema.
        self.moved = False
        # Time of the last successful tick, and the delay it returned.
        self.went_at: float | None = None
        self.pace = 0.0

    @abstractmethod
    def tick(self) -> float:
        """Does the due work. Returns the seconds until the next tick."""

    def wait(self, seconds: float) -> None:
        self.ended.wait(seconds)

    def start(self) -> None:
        thread = threading.Thread(target=self.run, name=f"headway-{self.name}", daemon=True)
        thread.start()  # may raise; then there is no thread to join
        self.thread = thread

    def run(self) -> None:
        while not self.ended.is_set():
            self.wait(self.safely())

    def safely(self) -> float:
        """Runs one tick. A failed tick is logged and retried, so that the loop never dies."""
        try:
            delay = self.tick()
        except Unreachable as error:
            if not self.unreachable:
                log.warning("%s: %s; trying again every %g s", self.name, error, BACKOFF)
            self.unreachable = True
            return BACKOFF
        except Exception as error:
            return self._failed(error)
        if self.unreachable:
            log.warning("%s: the database is back", self.name)
        self.unreachable = False
        self.went_at, self.pace = time.monotonic(), delay
        return delay

    def _failed(self, error: Exception) -> float:
        """Handles an error, which may come from a schema that was migrated meanwhile."""
        refusal = error if isinstance(error, HeadwayError) else self._refusal()
        match refusal:
            case HeadwayError(code="moved"):
                return self._end_moved(refusal)
            case HeadwayError(code=code) if code == NEWER:
                return self._ask_for_end(refusal)
        log.error("%s: a tick failed and will be retried", self.name, exc_info=error)
        return BACKOFF

    def _refusal(self) -> HeadwayError | None:
        database: Database | None = getattr(self, "database", None)  # some loops have no database
        with suppress(Exception):  # the check may fail as the tick did, and must not end the loop
            return None if database is None else migrated(database)
        return None

    def _ask_for_end(self, error: HeadwayError) -> float:
        """Logs once that the process must restart.

        The supervisor then ends it: claiming stops, and running jobs get their grace.
        """
        if not self.moved:
            log.error(
                "%s: %s, and start this process again. It shuts down now, after its running jobs", self.name, error
            )
        self.moved = True
        return BACKOFF

    def _end_moved(self, error: HeadwayError) -> float:
        """Ends this loop for good, because the data are in another database now."""
        log.error("%s: %s. This part ends: start the process again with that address", self.name, error)
        self.moved = True
        self.stop()
        return 0.0

    def quiet_for(self) -> float | None:
        """Returns the seconds since the last successful tick; None before the first."""
        return None if self.went_at is None else time.monotonic() - self.went_at

    def stop(self) -> None:
        self.ended.set()

    def join(self, seconds: float | None = None) -> None:
        if self.thread is not None and self.thread is not threading.current_thread():
            self.thread.join(seconds)


class WokenLoop(Loop):
    """A loop that a wake-up also runs, when there may be new work."""

    def __init__(self, waiter: Waiter) -> None:
        super().__init__()
        self.waiter = waiter

    def wait(self, seconds: float) -> None:
        if seconds > 0:
            self.waiter.wait(seconds)

    def stop(self) -> None:
        super().stop()
        self.waiter.wake()
