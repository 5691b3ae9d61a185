"""Claims that wait for each other: which of them has to give way, and when none has to."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.explain.deadlock import LaneKey, Limit, Wait, WaitKey, knot

ONE, TWO = Limit(1), Limit(2)
X, Y, Z = ("lane", 1), ("lane", 2), ("lane", 3)


def wait(
    job_id: int,
    holds: Iterable[LaneKey],
    awaited_id: int,
    needs: Iterable[LaneKey] | None,
    stage: tuple[int, int] | None = None,
) -> Wait:
    return Wait((job_id, 1), 1, frozenset(holds), awaited_id, None if needs is None else frozenset(needs), stage)


def gives_way(waits: list[Wait], limits: dict[LaneKey, Limit]) -> list[int]:
    return [one.key[0] for one in waits if knot(one.key, waits, limits)]


# --- knots --------------------------------------------------------------------------------------------------------


def test_a_circle_over_several_jobs_ends_with_the_job_that_was_made_last() -> None:
    waits = [wait(1, [X], 2, None), wait(2, [Y], 3, [X])]
    assert gives_way(waits, {X: ONE, Y: ONE}) == [2]
    assert [one.key[0] for one in knot((2, 1), waits, {X: ONE})] == [1, 2]


def test_a_lane_that_is_full_of_jobs_which_wait_for_jobs_behind_it() -> None:
    waits = [wait(1, [X], 3, [X]), wait(2, [X], 4, [X])]
    assert gives_way(waits, {X: TWO}) == [2]


def test_two_lanes_taken_crosswise() -> None:
    waits = [wait(1, [X], 3, [X, Y]), wait(2, [Y], 4, [X, Y])]
    assert gives_way(waits, {X: ONE, Y: ONE}) == [2]


def test_a_job_that_waits_for_its_own_end() -> None:
    assert gives_way([wait(1, [X], 1, None)], {}) == [1]


def test_a_target_and_the_limit_of_a_tenant_are_lanes_too() -> None:
    for lane in (("target", 7), ("tenant", 1)):
        assert gives_way([wait(1, [X, lane], 2, None), wait(2, [Y], 3, [Z, lane])], {lane: ONE}) == [2]


def test_a_direct_call_gives_way_before_a_job() -> None:
    call = Wait((0, 9), 1, frozenset([X]), 2, None)
    waits = [call, wait(2, [Y], 3, [X])]
    assert knot(call.key, waits, {X: ONE})
    assert not knot((2, 1), waits, {X: ONE})


def test_the_jobs_of_a_stage_take_one_place_of_the_policys_lane() -> None:
    stage = (5, 0)
    waits = [wait(1, [X], 3, [X], stage), wait(2, [X], 4, [X], stage)]
    assert gives_way(waits, {X: Limit(2, staged=True)}) == []
    assert gives_way(waits, {X: Limit(1, staged=True)}) == [2]
    assert gives_way(waits, {X: TWO}) == [2]


def test_of_two_knots_each_has_one_that_gives_way() -> None:
    waits = [wait(1, [X], 2, [X]), wait(3, [Y], 4, [Y])]
    assert gives_way(waits, {X: ONE, Y: ONE}) == [1, 3]


# --- no knot ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [{X: Limit(3)}, {}], ids=["raised", "none"])
def test_a_limit_that_was_raised_or_taken_away_lets_them_go_on(limits: dict[LaneKey, Limit]) -> None:
    assert gives_way([wait(1, [X], 3, [X]), wait(2, [X], 4, [X])], limits) == []


def test_a_place_whose_claim_does_not_wait_may_become_free() -> None:
    assert gives_way([wait(1, [X], 3, [X])], {X: TWO}) == []


def test_a_job_that_runs_and_waits_for_nothing_may_end() -> None:
    assert gives_way([wait(1, [X], 2, None), wait(3, [X], 4, [X])], {X: TWO}) == []


def test_a_chain_that_ends_in_a_job_with_room_is_no_circle() -> None:
    assert gives_way([wait(1, [X], 2, None), wait(2, [Y], 3, [Z])], {X: ONE, Y: ONE, Z: ONE}) == []


def test_a_claim_outside_the_circle_waits_until_the_circle_is_undone() -> None:
    """It was made last, and its end would help no other claim."""
    waits = [wait(1, [X], 2, None), wait(2, [Y], 3, [X]), wait(8, [Z], 1, None)]
    assert gives_way(waits, {X: ONE, Y: ONE, Z: ONE}) == [2]


def test_a_claim_that_another_knot_sets_free_does_not_give_way() -> None:
    """Job 9 fills a lane with job 2. Job 2 goes on as soon as job 4 has given way."""
    waits = [wait(9, [X], 10, [X]), wait(2, [X], 3, [Y]), wait(4, [Y], 5, [Y])]
    assert gives_way(waits, {X: TWO, Y: ONE}) == [4]


# --- any waits ----------------------------------------------------------------------------------------------------

LANES = [X, Y, Z]
SOME = st.frozensets(st.sampled_from(LANES), max_size=2)
CLAIMS = st.lists(st.tuples(SOME, SOME, st.none() | st.integers(0, 5)), max_size=5)
LIMITS = st.fixed_dictionaries({lane: st.builds(Limit, st.integers(1, 3)) for lane in LANES})


def some(claims: list[tuple[frozenset[LaneKey], frozenset[LaneKey], int | None]]) -> list[Wait]:
    """Claims of jobs 1, 2, …: each waits for one of them that runs, or for a job of its own that is queued."""
    fresh = count(100)
    return [
        wait(n, holds, next(fresh), needs) if awaited is None else wait(n, holds, awaited, None)
        for n, (holds, needs, awaited) in enumerate(claims, 1)
    ]


def plays_out(waits: list[Wait], limits: dict[LaneKey, Limit]) -> set[WaitKey]:
    """The claims that are left when, in any order, each ends that can. Counted place by place."""
    left = list(waits)
    while True:
        running = {one.key[0] for one in left}
        taken = {lane: sum(lane in one.holds for one in left) for lane in LANES}
        free = {lane for lane in LANES if taken[lane] < limits[lane].most}
        goes = [one for one in left if (one.needs <= free if one.needs is not None else one.awaited_id not in running)]
        if not goes:
            return {one.key for one in left}
        left = [one for one in left if one not in goes]


@given(CLAIMS, LIMITS)
def test_a_claim_gives_way_if_and_only_if_some_claims_never_end(
    claims: list[tuple[frozenset[LaneKey], frozenset[LaneKey], int | None]], limits: dict[LaneKey, Limit]
) -> None:
    waits = some(claims)
    stuck = plays_out(waits, limits)
    found = {one.key for one in waits if knot(one.key, waits, limits)}
    assert found <= stuck
    assert bool(found) == bool(stuck)


@given(CLAIMS, LIMITS)
def test_when_those_that_give_way_have_ended_all_others_end_in_turn(
    claims: list[tuple[frozenset[LaneKey], frozenset[LaneKey], int | None]], limits: dict[LaneKey, Limit]
) -> None:
    left = some(claims)
    while stuck := plays_out(left, limits):
        victims = {one.key for one in left if knot(one.key, left, limits)}
        assert victims & stuck
        left = [one for one in left if one.key not in victims]
