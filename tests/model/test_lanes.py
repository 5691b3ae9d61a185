"""Which jobs run next: `select_jobs` and `select_aged` against an oracle that walks the whole queue in order;
reservations, and the first job of a target."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.model.queue import capacity as rules
from headway.model.queue.capacity import BURST, Bucket, Capacity, Reserved, grants, head
from headway.model.queue.place import AgedPlace, Place
from headway.model.queue.select import Pick, select_from_line, select_jobs
from headway.model.queue.select_aged import Aging, Levels, select_aged
from headway.model.queue.stage_sharing import StageSharing
from tests.support.properties import examples

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
            taken.append(place.job_id)
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
        queue[bucket.id] = sorted(Place(-draw(tie), draw(tie), draw(tie), next(ids)) for _ in range(size))
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


def capacity_of(buckets: list[Bucket], capacity: dict[int, int | None], running: list[Bucket]) -> Capacity:
    return rules.capacity_of(buckets, capacity, {bucket.id: running.count(bucket) for bucket in buckets})


def ids(picks: list[Pick]) -> list[int]:
    return [one.job_id for one in picks]


@settings(max_examples=examples(600), deadline=None)
@given(st.integers(1, 12), situations())
def test_the_plan_is_what_a_walk_through_the_whole_queue_takes(
    count: int, situation: tuple[list[Bucket], dict[int, int | None], list[Bucket], Queue]
) -> None:
    buckets, capacity, running, queue = situation
    source = Source(queue)
    picks = select_jobs(count, buckets, capacity_of(buckets, capacity, running), source.of)
    assert ids(picks) == oracle(count, buckets, capacity, running, queue)
    assert source.asked <= len(picks) + len(buckets)


@settings(max_examples=examples(600), deadline=None)
@given(st.integers(1, 12), situations(), st.sets(st.integers(1, 30)), st.sets(st.integers(1, 4)))
def test_a_line_gives_what_the_buckets_give(
    count: int,
    situation: tuple[list[Bucket], dict[int, int | None], list[Bucket], Queue],
    barred: set[int],
    shared: set[int],
) -> None:
    """Also what is left of the rooms is the same, where stages run in some lanes (`shared`)."""
    buckets, capacity, running, queue = situation
    one = capacity_of(buckets, capacity, running)
    one.barred = barred
    one.sharing = StageSharing({lane: {(1, 0)} for lane in shared if capacity.get(lane) is not None})
    one.closed = {lane for lane in shared if lane % 2}
    other = one.copy()
    line = sorted((place, bucket.id, bucket) for bucket in buckets for place in queue[bucket.id])
    picks = select_from_line(count, ((bucket, place) for place, _, bucket in line), one)
    assert picks == select_jobs(count, buckets, other, Source(queue).of)
    assert (one.free, one.barred, one.sharing.stages) == (other.free, other.barred, other.sharing.stages)


def test_a_line_with_a_member_of_a_stage_has_to_be_planned_otherwise() -> None:
    bucket = Bucket(1, 1, "t", ())
    line: list[tuple[Bucket, Place]] = [(bucket, Place(0, n, 0, n, 7 if n == 2 else None, 0)) for n in (1, 2, 3)]
    assert ids(select_from_line(1, line, Capacity()) or []) == [1]
    assert select_from_line(2, line, Capacity()) is None


@settings(max_examples=examples(200), deadline=None)
@given(situations())
def test_room_is_capacity_less_what_runs(
    situation: tuple[list[Bucket], dict[int, int | None], list[Bucket], Queue],
) -> None:
    buckets, capacity, running, _ = situation
    rooms = capacity_of(buckets, capacity, running)
    assert rooms.free == {
        lane: limit - sum(lane in bucket.lanes for bucket in running)
        for lane, limit in capacity.items()
        if limit is not None
    }
    for bucket in buckets:
        full = [lane for lane in bucket.lanes if capacity[lane] is not None and rooms.free[lane] <= 0]
        assert rooms.has_room(bucket) == (not full)


def test_a_claim_of_one_looks_at_one_place_per_bucket() -> None:
    buckets = [Bucket(n, 1, "t", (1,)) for n in (1, 2)]
    source = Source({1: [Place(0, n, 0, n) for n in range(1, 9)], 2: [Place(0, n, 0, n) for n in range(11, 19)]})
    assert ids(select_jobs(1, buckets, Capacity({1: 5}), source.of)) == [1]
    assert source.asked == 2


def test_a_free_slot_takes_one_job_however_much_room_the_lanes_have() -> None:
    source = Source({1: [Place(0, n, 0, n) for n in range(1, 9)]})
    for slots in (0, 1, 2):
        picked = select_jobs(slots, [Bucket(1, 1, "t", (1,))], Capacity({1: 50}), source.of)
        assert len(picked) == slots


def test_the_order_follows_from_what_is_stored_alone() -> None:
    """A restart reads the same columns in any order, and gets the same queue."""
    stored = [(5, 30, 9, 1), (5, 10, 9, 2), (0, 1, 1, 3), (5, 10, 8, 4), (9, 99, 9, 5), (5, 10, 9, 6)]
    places = [Place(-priority, *rest) for priority, *rest in stored]
    assert [place.job_id for place in sorted(places)] == [5, 4, 2, 6, 1, 3]
    places.reverse()
    assert [place.job_id for place in sorted(places)] == [5, 4, 2, 6, 1, 3]


def test_a_full_bucket_is_not_even_looked_at() -> None:
    source = Source({1: [Place(0, 1, 0, 1)]})
    assert select_jobs(9, [Bucket(1, 1, "t", (1,))], Capacity({1: 0}), source.of) == []
    assert source.asked == 0


def test_all_lanes_or_none() -> None:
    """A job that has room in one lane but not in the other takes neither: the next one gets it."""
    both, one = Bucket(1, 1, "both", (1, 2)), Bucket(2, 1, "one", (1,))
    source = Source({1: [Place(0, 1, 0, 1)], 2: [Place(0, 2, 0, 2)]})
    assert ids(select_jobs(9, [both, one], Capacity({1: 1, 2: 0}), source.of)) == [2]


def test_a_lowered_limit_below_what_runs_lets_nothing_in() -> None:
    bucket = Bucket(1, 1, "t", (1,))
    rooms = rules.capacity_of([bucket], {1: 2}, {1: 5})
    assert rooms.free == {1: -3}
    assert select_jobs(9, [bucket], rooms, Source({1: [Place(0, 1, 0, 1)]}).of) == []


# --- aging --------------------------------------------------------------------------------------------------------

Waiting = tuple[Bucket, int, AgedPlace]  # a bucket, a plain priority, a place within it


def aged_oracle(count: int, waiting: list[Waiting], free: dict[int, int], barred: set[int], aging: Aging) -> list[int]:
    """The first eligible job of each priority competes with its age; ties go to the higher plain priority."""
    free, taken = dict(free), list[int]()
    while len(taken) < count:
        fits = [
            (priority, place)
            for bucket, priority, place in waiting
            if place.job_id not in taken
            and place.job_id not in barred
            and all(free.get(lane, 1) > 0 for lane in bucket.lanes)
        ]
        firsts = {p: min(place for q, place in fits if q == p) for p, _ in fits}
        if not firsts:
            break
        best = max(firsts, key=lambda p: (min(100, p + (aging.now - firsts[p].queued_at) // aging.interval), p))
        job_id = firsts[best].job_id
        taken.append(job_id)
        bucket = next(bucket for bucket, _, place in waiting if place.job_id == job_id)
        free = {lane: room - (lane in bucket.lanes) for lane, room in free.items()}
    return taken


@st.composite
def aged_queues(draw: st.DrawFn) -> tuple[list[Waiting], dict[int, int], set[int]]:
    buckets = [Bucket(n, 1, "t", tuple(draw(st.sets(st.integers(1, 3), max_size=2)))) for n in range(1, 4)]
    free = {lane: draw(st.integers(0, 3)) for lane in draw(st.sets(st.integers(1, 3)))}
    tie, since = st.integers(0, 2), st.integers(0, 90)
    priorities = st.sampled_from([0, 1, 2, 3, 98, 100])
    waiting = [
        (draw(st.sampled_from(buckets)), draw(priorities), AgedPlace(draw(tie), draw(tie), n, draw(since)))
        for n in range(1, draw(st.integers(0, 9)) + 1)
    ]
    return waiting, free, draw(st.sets(st.integers(1, 9), max_size=2))


def levels_of(waiting: list[Waiting]) -> Levels:
    found: dict[int, dict[Bucket, list[AgedPlace]]] = {}
    for bucket, priority, place in waiting:
        found.setdefault(priority, {}).setdefault(bucket, []).append(place)
    return {p: [(bucket, iter(sorted(places))) for bucket, places in by.items()] for p, by in found.items()}


@settings(max_examples=examples(600), deadline=None)
@given(st.integers(1, 9), aged_queues(), st.integers(1, 40))
def test_the_aged_plan_is_what_a_walk_through_the_whole_queue_takes(
    count: int, queue: tuple[list[Waiting], dict[int, int], set[int]], interval: int
) -> None:
    waiting, free, barred = queue
    aging = Aging(interval, 100)
    picks = select_aged(count, [], Capacity(dict(free), barred=barred), lambda _: levels_of(waiting), aging)
    assert ids(picks) == aged_oracle(count, waiting, free, barred, aging)


@pytest.mark.parametrize(
    ("priority", "waited", "effective"),
    [(0, 0, 0), (0, 9, 0), (0, 10, 1), (3, 35, 6), (99, 500, 100), (100, 0, 100), (0, 10**9, 100), (5, -80, 5)],
)
def test_what_a_job_competes_with(priority: int, waited: int, effective: int) -> None:
    """Whole intervals only, at most 100, and a clock that was set back makes nobody younger."""
    assert Aging(10, 1_000).effective(priority, 1_000 - waited) == effective


# --- reservations -------------------------------------------------------------------------------------------------


def line(*lanes: int, number: int = 1, target: int | None = None, granted: bool = False) -> Reserved:
    return Reserved(number, lanes, target, granted)


def test_a_reserved_lane_is_closed_to_the_queue_and_a_granted_one_counts_like_a_claim() -> None:
    rooms = Capacity({1: 3, 2: 3, 3: 3})
    rules.reserve(rooms, [line(1, granted=True), line(2, number=2)], {})
    assert rooms.free == {1: 2, 2: 3, 3: 3}
    assert [rooms.has_room(Bucket(1, 1, "t", (lane,))) for lane in (1, 2, 3)] == [False, False, True]
    assert not rooms.has_room(Bucket(1, 1, "t", (2, 3)))


@pytest.mark.parametrize(("streak", "jobs"), [(BURST - 1, []), (BURST, [11]), (BURST + 5, [11])])
def test_after_eight_direct_calls_one_job_goes_first(streak: int, jobs: list[int]) -> None:
    rooms = Capacity({1: 3})
    rules.reserve(rooms, [line(1)], {1: streak})
    source = Source({1: [Place(0, n, 0, n) for n in (11, 12, 13)]})
    assert ids(select_jobs(9, [Bucket(1, 1, "t", (1,))], rooms, source.of)) == jobs


@pytest.mark.parametrize(
    ("reserved", "streak", "shut"),
    [
        ([], 0, set()),
        ([line(target=7)], 0, {7}),
        ([line(target=7)], BURST, set()),
        ([line(target=7, granted=True)], BURST, {7}),
        ([line(1)], 0, set()),
    ],
)
def test_the_targets_that_are_shut_for_the_queue(reserved: list[Reserved], streak: int, shut: set[int]) -> None:
    assert rules.shut_targets(reserved, {7: streak}) == shut


@pytest.mark.parametrize(
    ("reserved", "free", "found"),
    [
        ([line(1), line(1, number=2)], {1: 2}, [1, 2]),
        ([line(1), line(1, number=2)], {1: 1}, [1]),
        ([line(1, 2), line(2, number=2), line(3, number=3)], {1: 0, 2: 1, 3: 1}, [3]),  # none past one that waits
        ([line(1, granted=True), line(1, number=2)], {1: 1}, [2]),
        ([line(), line(9, number=2)], {}, [1, 2]),  # no lane, and one without a limit
        ([line(target=7), line(target=7, number=2), line(target=8, number=3)], {}, [1, 3]),
        ([line(1, target=5), line(1, number=2), line(target=5, number=3)], {1: 1}, []),  # 5 is busy
        ([line(target=6, granted=True), line(target=6, number=2)], {}, []),
        ([line(4), line(4, number=2), line(1, number=3)], {1: 1, 4: 1}, [3]),  # on 4 a job goes first
    ],
)
def test_reservations_are_granted_in_order_and_all_lanes_at_once(
    reserved: list[Reserved], free: dict[int, int], found: list[int]
) -> None:
    assert grants(reserved, Capacity(dict(free)), {5}, {4}) == found


@settings(max_examples=examples(400), deadline=None)
@given(st.data())
def test_grants_never_exceed_a_lane_and_never_overtake(data: st.DataObject) -> None:
    some = st.sets(st.integers(1, 3), max_size=3)
    targets = st.sampled_from([None, 7, 8])
    reserved = [Reserved(n, tuple(data.draw(some)), data.draw(targets), data.draw(st.booleans())) for n in range(1, 7)]
    free = {lane: data.draw(st.integers(0, 3)) for lane in (1, 2)}
    found = grants(reserved, Capacity(dict(free)), set(), set())
    given_now = [one for one in reserved if one.id in found]
    for lane, room in free.items():
        assert sum(lane in one.lanes for one in given_now) <= room
    for one in given_now:
        before = [other for other in reserved if other.id < one.id and not other.granted and other.id not in found]
        assert not any(set(one.lanes) & set(other.lanes) for other in before)
        assert one.target_id is None or sum(o.target_id == one.target_id for o in reserved if o.granted) == 0


# --- targets ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paused", "holder", "resumed", "first", "chosen"),
    [
        (False, None, False, 3, 3),
        (False, None, False, None, None),
        (False, 9, False, 3, None),  # it runs, or a person has to decide
        (False, 9, True, 3, 9),  # it keeps the hold, whoever is first
        (True, None, False, 3, None),
        (True, 9, True, 3, None),
    ],
)
def test_the_one_job_of_a_target_that_may_be_claimed(
    paused: bool, holder: int | None, resumed: bool, first: int | None, chosen: int | None
) -> None:
    for opened in (None, 3, 9):
        assert head(rules.Queue(1, paused, holder, resumed, first, opened)) == chosen
