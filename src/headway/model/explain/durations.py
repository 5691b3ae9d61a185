"""Usual durations of a task from its past runs, compared with a job that is running."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headway.model.explain.blockers import Blocker
from headway.model.explain.forecast import Estimate, quantile, span

# A shorter estimate is shown as "any moment now".
_MOMENT = 1_000_000


@dataclass(frozen=True, slots=True)
class Usual:
    """Durations in microseconds: half of the past runs took at most `p50`, nine in ten at most `p90`."""

    p50: int
    p90: int
    count: int

    def shown(self) -> str:
        return f"usually {span(self.p50)}" if self.count > 1 else f"{span(self.p50)} the last time"

    def exceeded(self, elapsed: int) -> bool:
        """Returns True if a job that has run this long takes longer than usual."""
        return elapsed > self.p90

    def compared(self, elapsed: int) -> str | None:
        """Compares a job that has run this long with past runs; None if there is nothing to report."""
        if self.exceeded(elapsed):
            return f"longer than {self._longest()}"
        return f"about {span(self.p50 - elapsed)} left" if elapsed < self.p50 else None

    def _longest(self) -> str:
        """Returns the usual maximum, as the words after `longer than`."""
        return f"usual: 9 of 10 took under {span(self.p90)}" if self.count > 1 else f"the last time: {span(self.p90)}"


def usual(took: Sequence[int]) -> Usual | None:
    """Returns the usual durations of past runs; None if no run completed."""
    return Usual(quantile(took, 0.5), quantile(took, 0.9), len(took)) if took else None


def is_overdue(start: Estimate | None, blockers: Sequence[Blocker], now: int) -> bool:
    """Returns True if a job still has blockers although nine in ten such waits would have ended."""
    return start is not None and bool(blockers) and start.p90 <= now + _MOMENT


def by_progress(elapsed: int, done: float | None, total: float | None) -> str | None:
    """Estimates the time left from a job's own progress; None without usable progress."""
    if not done or not total or not 0 < done < total:
        return None
    return f"about {span(round(elapsed * (total - done) / done))} left by its progress"
