"""Decides whether a failure gets an automatic retry, and how long the retry waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headway.model.jobs.outcome import FailureKind
from headway.model.values.times import MAX_SECONDS

# A retry with the same params, or beyond the same cap, would fail again.
NEVER_RETRIED = frozenset({FailureKind.BAD_PARAMS, FailureKind.BUDGET})
# The failure is not the job's fault, so the retry uses up no attempt.
PAYS_NOTHING = frozenset({FailureKind.INTERRUPTED})


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """A retry policy. `max_attempts` counts automatic retries, so an always-failing job runs once more."""

    max_attempts: int = 3
    base_delay: float = 10.0
    max_delay: float | None = None
    jitter: float = 0.0

    def delay(self, used: int, rng: Callable[[], float]) -> float:
        """Returns the seconds before the retry after `used` paid ones: base, 2 * base, 4 * base …

        The jitter comes on top; `max_delay` bounds both.
        """
        # The exponent is bounded because 2.0 ** 1024 raises, and the delay because an instant has 64 bits.
        wait: float = min(self.base_delay * 2.0 ** min(used, 64), MAX_SECONDS)
        if self.jitter:
            wait *= 1.0 + self.jitter * rng()
        return wait if self.max_delay is None else min(wait, self.max_delay)


def paid(failures: Iterable[FailureKind]) -> int:
    """Returns how many of these failures, which led to automatic retries, used up an attempt."""
    return sum(1 for kind in failures if kind not in PAYS_NOTHING)


def retries(policy: RetryPolicy, kind: FailureKind, *, used: int, final: bool) -> bool:
    """Returns True if a failure of this kind gets an automatic retry."""
    if final or kind in NEVER_RETRIED:
        return False
    if kind in PAYS_NOTHING:
        return policy.max_attempts > 0
    return used < policy.max_attempts
