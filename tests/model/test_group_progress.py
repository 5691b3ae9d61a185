"""What people are told about a group: how time was spent, what is to come, how it stands, why a verb does not apply."""

from __future__ import annotations

from typing import Any

import pytest

from headway.model.groups.group import PREDECESSOR_FAILED, Group, Member
from headway.model.groups.progress import (
    JobEvent,
    Phase,
    Planned,
    Spent,
    StageStanding,
    UnfinishedStep,
    foresee,
    no_cancel,
    no_retry,
    phases,
    standing,
    stops_after,
    waits_for,
)
from headway.model.jobs.states import State as S


def group(**facts: Any) -> Group:
    known = {"id": 7, "tenant_id": 1, "kind": "execution", "name": "nightly", "mode": "staged", "on_failure": "stop"}
    rest = dict.fromkeys(("after_id", "cancelled_by", "error", "schedule_id", "reason", "nominal_at", "retry_of"))
    more = {"status": "IN_PROGRESS", "stage": 1, "stages": 3, "created_at": 0, "finished_at": None}
    return Group(**{**known, **rest, **more, "created_by": "{}", "version": 1, **facts})


def member(state: S, *, stage: int = 1, step: str = "print", **facts: Any) -> Member:
    return Member(5, step, stage, state, ran=state in (S.RUNNING, S.FAILED, S.COMPLETED), **facts)


# --- how time was spent ---


def test_the_life_of_a_job_that_was_interrupted_and_resumed() -> None:
    life = [
        JobEvent(0, S.WAITING, "job.created"),
        JobEvent(10, S.QUEUED, "job.released"),
        JobEvent(12, S.QUEUED, "job.moved"),
        JobEvent(20, S.RUNNING, "job.claimed"),
        JobEvent(25, S.RUNNING, "job.stop_requested"),
        JobEvent(30, S.PAUSED, "job.paused"),
        JobEvent(50, S.QUEUED, "job.resumed"),
        JobEvent(60, S.RUNNING, "job.claimed"),
        JobEvent(90, S.COMPLETED, "job.completed"),
    ]
    assert phases(life) == (
        Phase(Spent.WAITING, 10, 20),
        Phase(Spent.RUNNING, 20, 30),
        Phase(Spent.HELD, 30, 50),
        Phase(Spent.WAITING, 50, 60),
        Phase(Spent.RUNNING, 60, 90),
    )


def test_what_goes_on_has_no_end_and_a_retry_waits_for_its_time() -> None:
    assert phases([JobEvent(0, S.SCHEDULED, "job.created"), JobEvent(9, S.QUEUED, "job.promoted")]) == (
        Phase(Spent.DELAYED, 0, 9),
        Phase(Spent.WAITING, 9, None),
    )
    held = [JobEvent(0, S.QUEUED, "job.created"), JobEvent(5, S.WAITING, "job.held")]
    assert phases(held) == (Phase(Spent.WAITING, 0, 5), Phase(Spent.HELD, 5, None))
    assert phases([]) == phases([JobEvent(0, S.WAITING, "job.created")]) == ()


def test_a_clock_that_was_set_back_makes_no_bar_that_ends_before_it_begins() -> None:
    life = [JobEvent(100, S.QUEUED, "job.created"), JobEvent(40, S.RUNNING, "job.claimed"), JobEvent(70, S.FAILED, "x")]
    assert phases(life) == (Phase(Spent.WAITING, 100, 100), Phase(Spent.RUNNING, 100, 100))


# --- what is to come ---


def test_each_stage_comes_after_the_slowest_of_the_one_before() -> None:
    steps = [
        UnfinishedStep("c", 2, S.WAITING, left=7),
        UnfinishedStep("a", 1, S.RUNNING, left=30),
        UnfinishedStep("b", 1, S.QUEUED, left=10, start=150),
    ]
    assert foresee(steps, 100) == {"a": Planned(100, 130), "b": Planned(150, 160), "c": Planned(160, 167)}


def test_work_that_takes_longer_than_usual_may_end_any_moment() -> None:
    steps = [UnfinishedStep("a", 0, S.RUNNING, left=-50), UnfinishedStep("b", 1, S.WAITING, left=5)]
    assert foresee(steps, 100) == {"a": Planned(100, 100), "b": Planned(100, 105)}


@pytest.mark.parametrize(
    "unknown",
    [
        UnfinishedStep("a", 1, S.RUNNING),
        UnfinishedStep("a", 1, S.QUEUED, left=5),
        UnfinishedStep("a", 1, S.ERROR, left=5, start=100, stuck=True),
        UnfinishedStep("a", 1, S.WAITING, left=5, stuck=True),
    ],
)
def test_nothing_is_said_of_what_comes_after_something_unknown(unknown: UnfinishedStep) -> None:
    steps = [unknown, UnfinishedStep("b", 1, S.QUEUED, left=5, start=110), UnfinishedStep("c", 2, S.WAITING, left=5)]
    assert foresee(steps, 100) == {"b": Planned(110, 115)}


def test_nothing_is_said_of_what_waits_for_another_group() -> None:
    assert foresee([UnfinishedStep("a", 0, S.WAITING, left=5)], 100, begun=False) == {}
    assert foresee([UnfinishedStep("a", 0, S.WAITING, left=5)], 100) == {"a": Planned(100, 105)}


def test_nothing_comes_after_a_stage_that_failed() -> None:
    assert stops_after(group(), [member(S.FAILED), member(S.RUNNING, step="mail")]) == 1
    assert stops_after(group(), [member(S.FAILED, tolerated=True)]) is None
    assert stops_after(group(on_failure="continue"), [member(S.FAILED)]) is None
    assert stops_after(group(), [member(S.FAILED, stage=0)]) is None
    assert stops_after(group(cancelled_by="{}"), []) == 1


# --- how it stands ---


@pytest.mark.parametrize(
    ("states", "wanted"),
    [
        ([S.COMPLETED, S.SKIPPED], StageStanding.DONE),
        ([S.COMPLETED, S.FAILED], StageStanding.FAILED),
        ([S.FAILED, S.RUNNING], StageStanding.RUNNING),
        ([S.COMPLETED, S.QUEUED], StageStanding.WAITING),
        ([S.SCHEDULED], StageStanding.WAITING),
    ],
)
def test_how_an_open_stage_stands(states: list[S], wanted: StageStanding) -> None:
    assert standing([member(state) for state in states], held=False, is_open=True) is wanted


def test_how_other_stages_stand() -> None:
    assert standing([member(S.WAITING)], held=False, is_open=False) is StageStanding.TO_COME
    assert standing([member(S.ERROR), member(S.RUNNING)], held=True, is_open=True) is StageStanding.HELD
    assert standing([member(S.FAILED, tolerated=True)], held=False, is_open=True) is StageStanding.DONE
    never = Member(5, "mail", 2, S.CANCELLED, reason=PREDECESSOR_FAILED)
    assert standing([never], held=False, is_open=False) is StageStanding.NOT_RUN


def test_what_it_waits_for() -> None:
    def text(members: list[Member], held: int = 0, **facts: Any) -> str:
        said = waits_for(group(**facts), members, members[:held])
        return said.text if said is not None else "nothing"

    working = [member(S.RUNNING), member(S.QUEUED), member(S.SCHEDULED), member(S.COMPLETED)]
    assert text(working) == "It is in stage 2 of 3: 1 step running, 2 steps in the queue."
    assert text([member(S.ERROR)], held=1) == "It waits for a person in stage 2 of 3: print."
    assert text([member(S.ERROR)] * 5, held=5).endswith("print, print, print and 2 more.")
    assert text([], stage=-1, after_id=4) == "It starts when execution 4 has ended."
    assert text([member(S.RUNNING)], cancelled_by="{}") == "It is being cancelled: 1 step still has to stop."
    assert text([], finished_at=9) == "nothing"


def test_why_a_verb_does_not_apply() -> None:
    ended, failed = group(finished_at=9, status="FAILED"), [member(S.FAILED)]
    assert no_cancel(group()) is None
    assert no_cancel(ended) == "it has already ended: FAILED"
    assert no_cancel(group(cancelled_by="{}")) == "it is being cancelled already"
    assert no_retry(group(), failed, {}) == "it can be retried when it has ended"
    assert no_retry(ended, [], {}) == "nothing in it failed"
    assert no_retry(ended, failed, {9: "retries it already"}) == "execution 9 retries it already"
    assert no_retry(ended, failed, {}) is None
