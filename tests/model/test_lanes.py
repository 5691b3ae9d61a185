"""Which jobs run next: `rooms_of` and `plan` against an oracle that walks the whole queue in order."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.model import lanes as rules
from headway.model.lanes import Bucket, Pick, Place, Rooms, plan

Queue = dict[int, list[Place]]


def oracle(
    count: int, buckets: list[Bucket], capacity: dict[int, int | None], running: list[Bucket], queue: Queue
) -> list[int]:
    """Straight from the words: walk all jobs in order, take each that has room in all its lanes at that moment."""
    used = {lane: sum(lane in bucket.lanes for bucket in running) for lane in capacity}
    taken: list[int] = []
    everyone = sorted((place, bucket.id, bucket) for bucket in buckets for place in queue[bucket.id])
    for place, _, bucket in everyone:
        if len(taken) == count:
            break
        limits = [(lane, capacity[lane]) for lane in bucket.lanes]
        if all(limit is None or used[lane] < limit for lane, limit in limits):
            taken.append(place[3])
            for lane in bucket.lanes:
                used[lane] += 1
    return taken


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[Bucket], dict[int, int | None], list[Bucket], Queue]:
    lanes = range(1, draw(st.integers(1, 4)) + 1)
    capacity = {lane: draw(st.sampled_from([None, 0, 1, 1, 2, 3])) for lane in lanes}
    some_lanes = st.lists(st.sampled_from(list(lanes)), max_size=3, unique=True)
    count = draw(st.integers(1, 5))
    buckets = [Bucket(n, 1, f"task{n}", tuple(sorted(draw(some_lanes)))) for n in range(1, count + 1)]
    running = draw(st.lists(st.sampled_from(buckets), max_size=5))
    ids = iter(draw(st.permutations(range(1, 31))))
    queue: Queue = {}
    for bucket in buckets:
        # Few different values, so that ties go down to the id.
        size = draw(st.integers(0, 6))
        tie = st.integers(0, 2)
        queue[bucket.id] = sorted((-draw(tie), draw(tie), draw(tie), next(ids)) for _ in range(size))
    return buckets, capacity, running, queue


class Source:
    """The places of a bucket, and how many were asked for."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.asked = 0

    def of(self, bucket: Bucket) -> Iterator[Place]:
        for place in self.queue[bucket.id]:
            self.asked += 1
            yield place


def rooms_of(buckets: list[Bucket], capacity: dict[int, int | None], running: list[Bucket]) -> Rooms:
    return rules.rooms_of(buckets, capacity, {bucket.id: running.count(bucket) for bucket in buckets})


def ids(picks: list[Pick]) -> list[int]:
    return [job_id for job_id, _ in picks]


@settings(max_examples=600, deadline=None)
@given(st.integers(1, 12), situations())
def test_the_plan_is_what_a_walk_through_the_whole_queue_takes(
    count: int, situation: tuple[list[Bucket], dict[int, int | None], list[Bucket], Queue]
) -> None:
    buckets, capacity, running, queue = situation
    source = Source(queue)
    picks = plan(count, buckets, rooms_of(buckets, capacity, running), source.of)
    assert ids(picks) == oracle(count, buckets, capacity, running, queue)
    assert source.asked <= len(picks) + len(buckets)


@settings(max_examples=200, deadline=None)
@given(situations())
def test_room_is_capacity_less_what_runs(
    situation: tuple[list[Bucket], dict[int, int | None], list[Bucket], Queue],
) -> None:
    buckets, capacity, running, _ = situation
    rooms = rooms_of(buckets, capacity, running)
    assert rooms.free == {
        lane: limit - sum(lane in bucket.lanes for bucket in running)
        for lane, limit in capacity.items()
        if limit is not None
    }
    for bucket in buckets:
        full = [lane for lane in bucket.lanes if capacity[lane] is not None and rooms.free[lane] <= 0]
        assert rooms.admits(bucket) == (not full)


def test_a_claim_of_one_looks_at_one_place_per_bucket() -> None:
    buckets = [Bucket(n, 1, "t", (1,)) for n in (1, 2)]
    source = Source({1: [(0, n, 0, n) for n in range(1, 9)], 2: [(0, n, 0, n) for n in range(11, 19)]})
    assert ids(plan(1, buckets, Rooms({1: 5}), source.of)) == [1]
    assert source.asked == 2


def test_a_full_bucket_is_not_even_looked_at() -> None:
    source = Source({1: [(0, 1, 0, 1)]})
    assert plan(9, [Bucket(1, 1, "t", (1,))], Rooms({1: 0}), source.of) == []
    assert source.asked == 0


def test_all_lanes_or_none() -> None:
    """A job that has room in one lane but not in the other takes neither: the next one gets it."""
    both, one = Bucket(1, 1, "both", (1, 2)), Bucket(2, 1, "one", (1,))
    source = Source({1: [(0, 1, 0, 1)], 2: [(0, 2, 0, 2)]})
    assert ids(plan(9, [both, one], Rooms({1: 1, 2: 0}), source.of)) == [2]


def test_a_lowered_limit_below_what_runs_lets_nothing_in() -> None:
    bucket = Bucket(1, 1, "t", (1,))
    rooms = rules.rooms_of([bucket], {1: 2}, {1: 5})
    assert rooms.free == {1: -3}
    assert plan(9, [bucket], rooms, Source({1: [(0, 1, 0, 1)]}).of) == []
