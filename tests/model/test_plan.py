"""Stages, judged by their members: when the rest goes on, and how a group ends."""

from __future__ import annotations

from itertools import product

import pytest

from headway.errors import BadInput
from headway.model.groups.group import (
    PREDECESSOR_FAILED,
    Group,
    Member,
    Verdict,
    conclude,
    failure_policy,
    filled,
    judge,
    references,
    retried,
    unique_names,
)
from headway.model.jobs.states import State

S = State
TERMINAL = [state for state in State if state.terminal]


def group(kind: str = "group", cancelled_by: str | None = None) -> Group:
    status = "RUNNING" if kind == "group" else "IN_PROGRESS"
    facts = (None, cancelled_by, None, None, None, None, None, 0, None, "{}", 1)
    return Group(1, 1, kind, "g", "staged", "stop", status, 0, 1, *facts)


def member(state: State, *, stage: int = 0, tolerated: bool = False, step: str = "a", by_plan: bool = False) -> Member:
    return Member(1, step, stage, state, tolerated, PREDECESSOR_FAILED if by_plan else None, "boom\nmore")


def test_only_strict_failures_count() -> None:
    """Each pair of ends: the stage goes on unless one that may not fail failed or was cancelled by a person."""
    for states in product(TERMINAL, repeat=2):
        for tolerated in product((False, True), repeat=2):
            stage = [member(state, tolerated=may) for state, may in zip(states, tolerated, strict=True)]
            failed = any(
                state in (S.FAILED, S.CANCELLED) and not may for state, may in zip(states, tolerated, strict=True)
            )
            assert judge("stop", stage) is (Verdict.CANCEL if failed else Verdict.GO_ON)
            assert judge("skip", stage) is (Verdict.SKIP if failed else Verdict.GO_ON)
            assert judge("continue", stage) is Verdict.GO_ON


@pytest.mark.parametrize(
    ("members", "as_group", "as_execution"),
    [
        ([member(S.COMPLETED)], "COMPLETED", "COMPLETED"),
        ([member(S.COMPLETED), member(S.SKIPPED)], "COMPLETED", "COMPLETED"),
        ([member(S.COMPLETED), member(S.FAILED)], "PARTIAL", "FAILED"),
        ([member(S.COMPLETED), member(S.FAILED, tolerated=True)], "PARTIAL", "COMPLETED"),
        ([member(S.FAILED), member(S.CANCELLED, by_plan=True)], "PARTIAL", "FAILED"),
        ([member(S.FAILED), member(S.SKIPPED, by_plan=True)], "PARTIAL", "FAILED"),
        ([member(S.CANCELLED)], "PARTIAL", "FAILED"),
    ],
)
def test_a_group_is_concluded_by_its_members(members: list[Member], as_group: str, as_execution: str) -> None:
    assert conclude(group(), members).status == as_group
    assert conclude(group("execution"), members).status == as_execution
    assert conclude(group(cancelled_by="{}"), members).status == "CANCELLED"
    assert conclude(group("execution", "{}"), members).status == "CANCELLED"


def test_the_error_of_an_execution_names_the_step() -> None:
    ends = [member(S.FAILED, tolerated=True, step="fine"), member(S.FAILED, step="AD - Export")]
    assert conclude(group("execution"), ends).error == "step AD - Export: boom"


def test_a_retry_begins_with_the_stage_that_failed() -> None:
    ends = [
        member(S.FAILED, stage=0, tolerated=True, step="early"),
        member(S.COMPLETED, stage=1, step="good"),
        member(S.FAILED, stage=1, step="bad"),
        member(S.CANCELLED, stage=2, by_plan=True, step="rest"),
    ]
    assert [one.step for one in retried(ends)] == ["bad", "rest"]
    assert [one.step for one in retried(ends[:2])] == ["early"]
    assert retried(ends[1:2]) == []


def test_results_are_found_and_filled_in_wherever_they_stand() -> None:
    params = {"a": {"$result": "x"}, "b": [1, {"c": {"$result": "y"}}], "$result": 1, "d": {"$result": "x", "e": 2}}
    assert references(params) == {"x", "y"}
    assert filled(params, {"x": [7]}) == {"a": [7], "b": [1, {"c": None}], "$result": 1, "d": {"$result": "x", "e": 2}}


def test_a_result_cannot_ask_for_a_secret() -> None:
    stolen = {"rows": [{"$secret": "TOKEN"}], "more": {"$secret": "A", "b": 1}}
    safe = {"x": {"rows": ['{"$secret": "TOKEN"}'], "more": {"$secret": "A", "b": 1}}, "own": {"$secret": "TOKEN"}}
    assert filled({"x": {"$result": "s"}, "own": {"$secret": "TOKEN"}}, {"s": stolen}) == safe


def test_names_are_made_unique() -> None:
    assert unique_names(["a", "b", "a", "a 2", "a"]) == ["a", "b", "a 2", "a 2 2", "a 3"]


class NoJudge:
    pass


@pytest.mark.parametrize("name", ["stopp", "no.such.module", f"{__name__}.Missing", f"{__name__}.NoJudge"])
def test_a_policy_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(BadInput) as refused:
        failure_policy(name)
    assert refused.value.field == "on_failure"


def test_a_policy_that_only_others_can_import_stops() -> None:
    assert judge("elsewhere.Policy", [member(S.FAILED)]) is Verdict.CANCEL
