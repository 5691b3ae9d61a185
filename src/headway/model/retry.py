"""Who gets an automatic retry, and how long it waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headway.model.outcome import FailureKind
from headway.model.values import MAX_SECONDS

# Trying again with the same params, or beyond the same cap, cannot end differently.
NEVER_RETRIED = frozenset({FailureKind.BAD_PARAMS, FailureKind.BUDGET})
# The job did nothing wrong, so it does not pay for the retry.
PAYS_NOTHING = frozenset({FailureKind.INTERRUPTED})


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`max_attempts` counts automatic retries: an always-failing job runs one time more than that."""

    max_attempts: int = 3
    base_delay: float = 10.0
    max_delay: float | None = None
    jitter: float = 0.0

    def delay(self, used: int, rng: Callable[[], float]) -> float:
        """Seconds before the retry that follows `used` paid ones: base, 2 * base, 4 * base …"""
        # Bounded twice: 2.0 ** 1024 is an error, and an instant has to fit into 64 bits.
        wait: float = min(self.base_delay * 2.0 ** min(used, 64), MAX_SECONDS)
        if self.max_delay is not None:
            wait = min(wait, self.max_delay)
        return wait * (1.0 + self.jitter * rng()) if self.jitter else wait


def paid(failures: Iterable[FailureKind]) -> int:
    """How many of the failures that led to automatic retries used up an attempt."""
    return sum(1 for kind in failures if kind not in PAYS_NOTHING)


def retries(policy: RetryPolicy, kind: FailureKind, *, used: int, final: bool) -> bool:
    """Whether a failure of this kind is followed by an automatic retry."""
    if final or kind in NEVER_RETRIED:
        return False
    if kind in PAYS_NOTHING:
        return policy.max_attempts > 0
    return used < policy.max_attempts
