"""The claims of one transaction, judged one after the other: what the later ones brought into each lane, and which
lanes the jobs of a stage joined although they were full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from headway.verify.board import UNKNOWN, Board, Occupant
from headway.verify.records import Bucket, Moment


class Claimed(NamedTuple):
    """A claim: how the job stood, its kind of work, and the tasks its worker has (None: nobody knows any more)."""

    moment: Moment
    place: int
    queued_at: int
    bucket: Bucket
    serves: frozenset[str] | None


class Batch:
    """`later`: of what is in each lane, how many came with the claims that are not judged yet."""

    def __init__(self, board: Board, claims: Iterable[Claimed]) -> None:
        self.board = board
        self.brought: Counter[tuple[int, Occupant]] = Counter()
        for claim in claims:
            self.brought.update(self._places(claim))
        self.later = Counter(lane for place, n in self.brought.items() for lane in self._new(place, n))

    def _places(self, claim: Claimed) -> list[tuple[int, Occupant]]:
        return [(lane, self.board.occupant(lane, claim.moment)) for lane in claim.bucket.lanes]

    def _new(self, place: tuple[int, Occupant], count: int) -> tuple[int, ...]:
        """Its lane, if so many claims brought all that there is of this occupant."""
        lane, occupant = place
        return (lane,) if count > 0 and self.board.inside[lane][occupant] <= count else ()

    def judged(self, claim: Claimed) -> None:
        for place in self._places(claim):
            before = self._new(place, self.brought[place])
            self.brought[place] -= 1
            if before != self._new(place, self.brought[place]):
                self.later[place[0]] -= 1

    def joined(self, claim: Claimed) -> frozenset[int]:
        """The full lanes in which others of its stage were. On PostgreSQL one that was just left may have had room."""
        if claim.moment.group_id is None:
            return frozenset()
        board = self.board
        return frozenset(
            lane
            for lane, occupant in self._places(claim)
            if board.inside[lane][occupant] > self.brought[lane, occupant] and self._full(lane)
            if not (board.settle and board.leaving(lane, claim.moment, 1))
        )

    def _full(self, lane: int) -> bool:
        limit = self.board.capacity.get(lane, UNKNOWN)
        known = limit is not None and limit != UNKNOWN
        return known and len(self.board.inside[lane]) - self.later[lane] >= (limit or 0)
