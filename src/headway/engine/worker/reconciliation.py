"""Compares the worker's claims with the database at every renewal.

This finds claims whose answer was lost. A snapshot may be older than a transaction that has ended since. Therefore only
claims that outlast several renewals count, and only a difference that the next renewal shows again. The worker then
reads its claims under the claim lock, where the answer is certain (decision 0027). Short jobs cost nothing, because no
side has them for long enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

HeldClaim = tuple[int, int]  # a job and its fence; a reservation and 0
T = TypeVar("T")
# A line of the heartbeat has to fit into one write of a pipe.
HELD_PER_LINE = 80


class Snapshots:
    """The heartbeat's side: lists the claims that two renewals in a row saw."""

    def __init__(self) -> None:
        self.before: set[HeldClaim] = set()

    def messages(self, held: Iterable[HeldClaim], at: float) -> Iterator[dict[str, Any]]:
        """Yields messages with the claims that this renewal and the one before saw."""
        now = set(held)
        steady = sorted(now & self.before)
        self.before = now
        for first in range(0, max(1, len(steady)), HELD_PER_LINE):
            yield {"held": steady[first : first + HELD_PER_LINE], "of": len(steady), "at": at}


class Reconciliation(Generic[T]):
    """The worker's side. Only the thread that listens to the heartbeat uses it."""

    def __init__(self, fence: Callable[[T], int]) -> None:
        self.fence = fence
        self.at: float | None = None
        self.held: dict[int, int] = {}
        self.here: tuple[set[int], set[int]] = (set(), set())
        self.suspects: set[HeldClaim] = set()

    def differs(self, message: dict[str, Any], here: Mapping[int, T]) -> bool:
        """Returns True if two renewals in a row found the same claim on one side only."""
        if message["at"] != self.at:
            self.at, self.held = message["at"], {}
        self.held.update(message["held"])
        if len(self.held) != message["of"]:  # more lines follow, or one was lost
            return False
        before, self.suspects = self.suspects, self._unknown(here) | self._gone(here)
        return not before.isdisjoint(self.suspects)

    def _unknown(self, here: Mapping[int, T]) -> set[HeldClaim]:
        """Returns the claims that the database has and the worker has not."""
        pairs = ((number, fence, here.get(number)) for number, fence in self.held.items())
        return {(number, fence) for number, fence, own in pairs if own is None or self.fence(own) != fence}

    def _gone(self, here: Mapping[int, T]) -> set[HeldClaim]:
        """Returns the worker's claims of three renewals that the database has not.

        Two of three renewals must have seen such a claim.
        """
        last, earlier = self.here
        now = set(here)
        self.here = now, last
        return {(number, -1) for number in (now & last & earlier) - self.held.keys()}
