"""Which queued jobs run next: lanes and their room, and the merge of the open buckets in queue order."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

GLOBAL = "global"

# (-priority, position, created_at, id): comparing two of these compares two places in the queue.
Place = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Bucket:
    """All that decides whether a job may run except its own place: jobs of one bucket differ in nothing else."""

    id: int
    tenant_id: int
    task: str
    lanes: tuple[int, ...]


def room(buckets: Sequence[Bucket], capacity: Mapping[int, int | None], running: Mapping[int, int]) -> dict[int, int]:
    """Free places per limited lane. `running` counts the running jobs per bucket; an unlimited lane is left out."""
    rooms = {lane: limit for lane, limit in capacity.items() if limit is not None}
    for bucket in buckets:
        for lane in bucket.lanes:
            if lane in rooms:
                rooms[lane] -= running.get(bucket.id, 0)
    return rooms


def has_room(bucket: Bucket, rooms: Mapping[int, int]) -> bool:
    return all(rooms.get(lane, 1) > 0 for lane in bucket.lanes)


def plan(
    count: int, buckets: Sequence[Bucket], rooms: dict[int, int], places: Callable[[Bucket], Iterator[Place]]
) -> list[int]:
    """The ids of the next `count` jobs in queue order, each with room in all its lanes when its turn comes.

    `places` yields the places of one bucket in order; it is never asked for more than the claim needs.
    """
    heap: list[tuple[Place, int, Bucket, Iterator[Place]]] = []
    for bucket in buckets:
        source = places(bucket)
        first = next(source, None) if has_room(bucket, rooms) else None
        if first is not None:
            heapq.heappush(heap, (first, bucket.id, bucket, source))
    picks: list[int] = []
    while heap and len(picks) < count:
        place, _, bucket, source = heap[0]
        if not has_room(bucket, rooms):
            heapq.heappop(heap)
            continue
        picks.append(place[3])
        for lane in bucket.lanes:
            if lane in rooms:
                rooms[lane] -= 1
        if len(picks) == count:
            break
        following = next(source, None)
        if following is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (following, bucket.id, bucket, source))
    return picks
