"""How long and how often a connection asks for a lock."""

from __future__ import annotations

import time

BUSY_SECONDS = 30.0


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
