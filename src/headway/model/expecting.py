"""How long work usually takes, by its past runs, and what that says about work under way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headway.model.estimate import Estimate, quantile, span
from headway.model.waiting import Blocker

# An estimate so near is shown as any moment now.
_MOMENT = 1_000_000


@dataclass(frozen=True, slots=True)
class Usual:
    """In microseconds: half of the past runs took at most `p50`, nine in ten at most `p90`."""

    p50: int
    p90: int
    count: int

    def shown(self) -> str:
        return f"usually {span(self.p50)}" if self.count > 1 else f"{span(self.p50)} the last time"

    def exceeded(self, elapsed: int) -> bool:
        """Whether work that has gone on for so long takes longer than usual."""
        return elapsed > self.p90

    def compared(self, elapsed: int) -> str | None:
        """What there is to say about work that has gone on for so long."""
        if self.exceeded(elapsed):
            return f"longer than {self._longest()}"
        return f"about {span(self.p50 - elapsed)} left" if elapsed < self.p50 else None

    def _longest(self) -> str:
        """Beyond which it is unusual, after `longer than`."""
        return f"usual: 9 of 10 took under {span(self.p90)}" if self.count > 1 else f"the last time: {span(self.p90)}"


def usual(took: Sequence[int]) -> Usual | None:
    """None of work that never completed."""
    return Usual(quantile(took, 0.5), quantile(took, 0.9), len(took)) if took else None


def is_overdue(start: Estimate | None, blockers: Sequence[Blocker], now: int) -> bool:
    """Whether something is still in its way though nine in ten of what runs would have ended."""
    return start is not None and bool(blockers) and start.p90 <= now + _MOMENT


def by_progress(elapsed: int, done: float | None, total: float | None) -> str | None:
    """What its own progress says about work that has gone on for so long: it knows better than past runs."""
    if not done or not total or not 0 < done < total:
        return None
    return f"about {span(round(elapsed * (total - done) / done))} left by its progress"
