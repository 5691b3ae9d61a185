"""Time, as the process sees it. Instants are integer microseconds UTC, durations float seconds."""

from __future__ import annotations

import time
from typing import Protocol

SECOND = 1_000_000


class Clock(Protocol):
    def now(self) -> int:
        """The wall clock, microseconds since 1970 UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never step back; only differences mean anything."""
        ...


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()


def micros(seconds: float) -> int:
    return round(seconds * SECOND)
