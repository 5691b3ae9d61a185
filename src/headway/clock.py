"""The clock of a process. Instants are integer microseconds UTC, durations float seconds."""

from __future__ import annotations

import time
from typing import Protocol

SECOND = 1_000_000


class Clock(Protocol):
    def now(self) -> int:
        """Returns the wall clock's time in microseconds since 1970 UTC."""
        ...

    def monotonic(self) -> float:
        """Returns seconds that never step back; only differences have a meaning."""
        ...


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()


def micros(seconds: float) -> int:
    return round(seconds * SECOND)
