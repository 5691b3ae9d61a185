"""Why a job does not run now, in the order in which things have to go away."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import pytest

from headway.model.job import Job
from headway.model.states import State
from headway.model.waiting import Blocker, LaneLoad, Pause, Scene, blockers

_UNSET = {field.name: None for field in dataclasses.fields(Job)}
_ZERO = dict.fromkeys(("gate", "priority", "fence", "retry_auto", "exhausted", "hold", "ran", "carries"), 0)
_TEXTS = {"task": "t", "params": "{}", "options": "{}", "created_by": "{}"}
_GIVEN: dict[str, Any] = {"id": 7, "tenant_id": 1, "bucket_id": 1, "position": 1, "created_at": 1, "queued_at": 5}
JOB = Job(**_UNSET | _ZERO | _TEXTS | _GIVEN | {"status": State.QUEUED, "version": 1, "attempt": 1})
OPEN = Scene(now=10, lanes={1: LaneLoad("global", 1)}, free={"t": 1}, workers=1)


def kinds(job: Job, scene: Scene, *, rank: int | None = 1, ahead: int | None = None) -> list[str]:
    return [one.kind for one in blockers(job, (1,), scene, rank=rank, ahead=ahead)]


def test_nothing_is_in_the_way_of_the_next_one() -> None:
    assert kinds(JOB, OPEN) == []
    assert kinds(replace(JOB, status=State.RUNNING), OPEN) == []


def test_everything_at_once_in_order() -> None:
    lanes = {1: LaneLoad("global", 2, (3, 0))}
    scene = Scene(10, Pause(2, 99, "the disk"), lanes, {}, 0)
    found = blockers(JOB, (1,), scene, rank=4, ahead=6)
    assert found == [
        Blocker("paused", "the queue is paused: the disk", since=2, until=99),
        Blocker("lane", "the global lane is full: 2 of 2 run", "job 3"),
        Blocker("no_worker", "no worker is alive: headway work"),
        Blocker("behind", "behind rank 3", "job 6"),
    ]


@pytest.mark.parametrize(
    ("scene", "detail"),
    [
        (replace(OPEN, free={}), "no living worker knows the task t"),
        (replace(OPEN, free={"t": 0}), "every slot of the workers that know it is taken"),
        (replace(OPEN, free={}, workers=0), "no worker is alive"),
    ],
)
def test_workers(scene: Scene, detail: str) -> None:
    (found,) = blockers(JOB, (1,), scene, rank=1)
    assert found.kind == "no_worker"
    assert detail in found.detail


def test_an_unlimited_lane_is_never_full() -> None:
    assert kinds(JOB, replace(OPEN, lanes={1: LaneLoad("global", None, (1, 2, 3))})) == []
    assert kinds(JOB, replace(OPEN, lanes={1: LaneLoad("global", 0)})) == ["lane"]


def test_too_far_back_to_be_ranked() -> None:
    assert kinds(JOB, OPEN, rank=None) == ["behind"]


@pytest.mark.parametrize(
    ("job", "kind", "words"),
    [
        (replace(JOB, status=State.SCHEDULED, not_before=20), "not_before", "waits for its time"),
        (replace(JOB, status=State.WAITING, hold=1), "status", "headway jobs resume 7"),
        (replace(JOB, status=State.WAITING), "stage", "not open yet"),
        (replace(JOB, status=State.PAUSED, reason="interrupted by ann"), "status", "is PAUSED (interrupted by ann)"),
        (replace(JOB, status=State.ERROR), "status", "is ERROR: resume, resolve"),
        (replace(JOB, status=State.FAILED, finished_at=9), "status", "has ended: FAILED"),
    ],
)
def test_a_job_that_is_not_queued_has_one_reason(job: Job, kind: str, words: str) -> None:
    (found,) = blockers(job, (1,), OPEN, rank=None)
    assert found.kind == kind
    assert words in found.detail
