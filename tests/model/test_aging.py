"""Aging: waiting raises a job's priority, against an oracle that looks at every job before each choice."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.model.queue.capacity import Bucket, Capacity
from headway.model.queue.place import AgedPlace
from headway.model.queue.select_aged import Aging, select_aged
from tests.support.properties import examples

Queues = dict[int, dict[int, list[AgedPlace]]]  # by priority, by bucket, in order
NOW = 1_000


def test_whole_intervals_count_up_to_a_hundred() -> None:
    aging = Aging(interval=60, now=NOW)
    assert [aging.effective(5, NOW - waited) for waited in (0, 59, 60, 119, 120)] == [5, 5, 6, 6, 7]
    assert aging.effective(98, 0) == 100
    assert aging.effective(5, NOW + 500) == 5  # a clock that went back makes nobody younger


def oracle(
    count: int, buckets: Mapping[int, Bucket], free: Mapping[int, int], queues: Queues, aging: Aging
) -> list[int]:
    """Straight from the words: the first eligible job of each priority competes; ties go to the higher plain one."""
    room, taken = dict(free), list[int]()
    while len(taken) < count:
        best: tuple[int, int, int, Bucket] | None = None
        for priority, by_bucket in queues.items():
            eligible = [
                (place, buckets[n])
                for n, places in by_bucket.items()
                for place in places
                if place.job_id not in taken and all(room.get(lane, 1) > 0 for lane in buckets[n].lanes)
            ]
            if eligible:
                place, bucket = min(eligible, key=lambda one: one[0][:3])
                candidate = (aging.effective(priority, place.queued_at), priority, place.job_id, bucket)
                best = candidate if best is None or candidate[:2] > best[:2] else best
        if best is None:
            return taken
        taken.append(best[2])
        for lane in best[3].lanes:
            if lane in room:
                room[lane] -= 1
    return taken


@st.composite
def situations(draw: st.DrawFn) -> tuple[dict[int, Bucket], dict[int, int], Queues]:
    some_lanes = st.lists(st.sampled_from([1, 2]), max_size=2, unique=True)
    buckets = {n: Bucket(n, 1, f"task{n}", tuple(sorted(draw(some_lanes)))) for n in (1, 2, 3)}
    free = {lane: draw(st.integers(0, 4)) for lane in (1, 2)}
    ids = iter(draw(st.permutations(range(1, 61))))
    queues: Queues = {}
    for priority in draw(st.lists(st.sampled_from([0, 1, 2, 5, 99, 100]), min_size=1, max_size=4, unique=True)):
        queues[priority] = {
            n: sorted(
                AgedPlace(draw(st.integers(0, 3)), 0, next(ids), draw(st.integers(0, NOW + 100)))
                for _ in range(draw(st.integers(0, 4)))
            )
            for n in buckets
        }
    return buckets, free, queues


@settings(max_examples=examples(400), deadline=None)
@given(st.integers(1, 12), situations(), st.sampled_from([1, 60, 333, 10_000]))
def test_the_plan_is_what_a_look_at_every_job_takes(
    count: int, situation: tuple[dict[int, Bucket], dict[int, int], Queues], interval: int
) -> None:
    buckets, free, queues = situation
    aging = Aging(interval, NOW)
    levels = {
        priority: [(buckets[n], iter(places)) for n, places in by_bucket.items()]
        for priority, by_bucket in queues.items()
    }
    picks = select_aged(count, [], Capacity(dict(free)), lambda _: levels, aging)
    assert [one.job_id for one in picks] == oracle(count, buckets, free, queues, aging)
