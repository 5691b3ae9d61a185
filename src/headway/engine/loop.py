"""A loop is a tick that returns its delay; the only `while` of the moving parts is here."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod

from headway.errors import HeadwayError, Unreachable
from headway.store.db import Waiter

log = logging.getLogger("headway")
BACKOFF = 2.0


class Loop(ABC):
    """Something that happens again and again, in a thread of its own or by calling `tick` in a test."""

    name = "loop"

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.thread: threading.Thread | None = None
        self.unreachable = False
        # Whether it ended itself, because the data are somewhere else.
        self.moved = False
        # When a round last went well, and how long it then wanted to wait.
        self.went_at: float | None = None
        self.pace = 0.0

    @abstractmethod
    def tick(self) -> float:
        """Does what is due and returns the seconds until it should happen again."""

    def wait(self, seconds: float) -> None:
        self.ended.wait(seconds)

    def start(self) -> None:
        self.thread = threading.Thread(target=self.run, name=f"headway-{self.name}", daemon=True)
        self.thread.start()

    def run(self) -> None:
        while not self.ended.is_set():
            self.wait(self.safely())

    def safely(self) -> float:
        """One tick. A failed one is told and tried again: the loop itself must not die."""
        try:
            delay = self.tick()
        except Unreachable as error:
            if not self.unreachable:
                log.warning("%s: %s; trying again every %g s", self.name, error, BACKOFF)
            self.unreachable = True
            return BACKOFF
        except Exception as error:
            if isinstance(error, HeadwayError) and error.code == "moved":
                return self._end_moved(error)
            log.exception("%s: a round failed and will be tried again", self.name)
            return BACKOFF
        if self.unreachable:
            log.warning("%s: the database is back", self.name)
        self.unreachable = False
        self.went_at, self.pace = time.monotonic(), delay
        return delay

    def _end_moved(self, error: HeadwayError) -> float:
        """The data are in another database now: here there is nothing to do any more, and never will be."""
        log.error("%s: %s. This part ends: start the process again with that address", self.name, error)
        self.moved = True
        self.stop()
        return 0.0

    def quiet_for(self) -> float | None:
        """Seconds since a round last went well; None before the first."""
        return None if self.went_at is None else time.monotonic() - self.went_at

    def stop(self) -> None:
        self.ended.set()

    def join(self, seconds: float | None = None) -> None:
        if self.thread is not None and self.thread is not threading.current_thread():
            self.thread.join(seconds)


class WokenLoop(Loop):
    """A loop that also runs when somebody may have made work."""

    def __init__(self, waiter: Waiter) -> None:
        super().__init__()
        self.waiter = waiter

    def wait(self, seconds: float) -> None:
        if seconds > 0:
            self.waiter.wait(seconds)

    def stop(self) -> None:
        super().stop()
        self.waiter.nudge()
