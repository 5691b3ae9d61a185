"""The claims of one transaction, which are judged one after the other.

Tracks what the claims not judged yet brought into each lane, and the full lanes that jobs of a stage joined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from headway.verify.replay.state import UNKNOWN, Occupant, ReplayState
from headway.verify.rows import Bucket, Moment


class Claimed(NamedTuple):
    """A claim: the job's place in the queue, its bucket, and the tasks of its worker.

    `serves` is None if the worker's row was pruned.
    """

    moment: Moment
    place: int
    queued_at: int
    bucket: Bucket
    serves: frozenset[str] | None


class Batch:
    """The claims of one transaction.

    `later`: occupants of each lane that claims not judged yet brought.
    """

    def __init__(self, state: ReplayState, claims: Iterable[Claimed]) -> None:
        self.state = state
        self.brought: Counter[tuple[int, Occupant]] = Counter()
        for claim in claims:
            self.brought.update(self._places(claim))
        self.later = Counter(lane for place, n in self.brought.items() for lane in self._new(place, n))

    def _places(self, claim: Claimed) -> list[tuple[int, Occupant]]:
        return [(lane, self.state.occupant(lane, claim.moment)) for lane in claim.bucket.lanes]

    def _new(self, place: tuple[int, Occupant], count: int) -> tuple[int, ...]:
        """Returns the lane if these claims alone brought the occupant into it."""
        lane, occupant = place
        return (lane,) if count > 0 and self.state.inside[lane][occupant] <= count else ()

    def judged(self, claim: Claimed) -> None:
        for place in self._places(claim):
            before = self._new(place, self.brought[place])
            self.brought[place] -= 1
            if before != self._new(place, self.brought[place]):
                self.later[place[0]] -= 1

    def joined(self, claim: Claimed) -> frozenset[int]:
        """Returns the full lanes that already had jobs of the claim's stage.

        On PostgreSQL a lane that another job has just left may have had room; it is left out.
        """
        if claim.moment.group_id is None:
            return frozenset()
        state = self.state
        return frozenset(
            lane
            for lane, occupant in self._places(claim)
            if state.inside[lane][occupant] > self.brought[lane, occupant] and self._full(lane)
            if not (state.settle and state.leaving(lane, claim.moment, 1))
        )

    def _full(self, lane: int) -> bool:
        limit = self.state.capacity.get(lane, UNKNOWN)
        known = limit is not None and limit != UNKNOWN
        return known and len(self.state.inside[lane]) - self.later[lane] >= (limit or 0)
