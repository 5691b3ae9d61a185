"""Finds deadlocks: claims that wait for jobs which cannot start, or end, until those claims end."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from headway.model.queue.place import Stage

# A kind (`lane`, `target`, `tenant`) and its id. Each has its own limit.
LaneKey = tuple[str, int]
# A job's id and the fence of its claim; for a direct call, 0 and the id of its reservation.
WaitKey = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Limit:
    """The number of places in a lane. `staged` means that all claims of one stage take one place."""

    most: int
    staged: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """A claim that waits for the end of a job: the lanes it occupies, and the lanes that job needs.

    `needs` is None if the job already runs. `tenant_id` is the tenant of the claim.
    """

    key: WaitKey
    tenant_id: int
    holds: frozenset[LaneKey]
    awaited_id: int
    needs: frozenset[LaneKey] | None = None
    stage: Stage | None = None

    @property
    def name(self) -> str:
        job_id, number = self.key
        return f"job {job_id}" if job_id else f"reservation {number}"

    @property
    def rank(self) -> tuple[bool, WaitKey]:
        """Returns the sort key of a deadlock: jobs by age, then direct calls, whose callers may leave."""
        return not self.key[0], self.key


def knot(own: WaitKey, waits: Sequence[Wait], limits: Mapping[LaneKey, Limit]) -> list[Wait]:
    """Returns the claims of a deadlock if the claim `own` must fail to end it; otherwise an empty list.

    A claim is stuck if only stuck claims block the job it waits for: the job runs and its own claim is stuck, or the
    job is queued and stuck claims take every place of a lane, a target or a tenant that it needs. All other claims may
    end by themselves, and so may jobs that are on hold, paused, or wait for a time. The order of the queue does not
    count: a job with free places is assumed to start. Stuck claims form a knot if each of them waits, over any number
    of steps, for every other one and for no stuck claim outside. A knot ends only if one of its claims fails. The
    claim that was made last fails, so that the others can continue.
    """
    stuck = _stuck(waits, limits)
    if own not in stuck:
        return []
    found = _reach(own, stuck, limits)
    if own not in found or any(own not in _reach(key, stuck, limits) for key in found):
        return []
    knotted = sorted((stuck[key] for key in found), key=lambda wait: wait.rank)
    return knotted if knotted[-1].key == own else []


def _stuck(waits: Sequence[Wait], limits: Mapping[LaneKey, Limit]) -> dict[WaitKey, Wait]:
    """Returns the stuck claims: removes every claim that may end, until no further claim can be removed."""
    left = {wait.key: wait for wait in waits}
    while True:
        still = {key: wait for key, wait in left.items() if any(_in_the_way(wait, left.values(), limits))}
        if len(still) == len(left):
            return left
        left = still


def _reach(own: WaitKey, stuck: Mapping[WaitKey, Wait], limits: Mapping[LaneKey, Limit]) -> set[WaitKey]:
    """Returns the claims that `own` waits for, over any number of steps."""
    found: set[WaitKey] = set()
    todo = [own]
    while todo:
        fresh = {other.key for other in _in_the_way(stuck[todo.pop()], stuck.values(), limits)} - found
        found |= fresh
        todo += fresh
    return found


def _in_the_way(wait: Wait, others: Collection[Wait], limits: Mapping[LaneKey, Limit]) -> Iterator[Wait]:
    """Yields the claims that prevent the awaited job from ending as long as they do not end."""
    if wait.needs is None:
        yield from (other for other in others if other.key[0] == wait.awaited_id)
        return
    for lane in wait.needs:
        limit = limits.get(lane)
        takers = [other for other in others if lane in other.holds]
        if limit is not None and takers and _places(takers, limit) >= limit.most:
            yield from takers


def _places(takers: Collection[Wait], limit: Limit) -> int:
    return len({other.stage if limit.staged and other.stage is not None else other.key for other in takers})
