"""Why a job does not run now, in the order in which things have to go away."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import pytest

from headway.model.explain.blockers import NAMED, Blocker, Explanation, blockers, sentence
from headway.model.explain.forecast import Estimate
from headway.model.explain.snapshot import (
    LaneLoad,
    Pause,
    QueuedJob,
    QueueSnapshot,
    Runner,
    TargetLoad,
    WorkerSlots,
)
from headway.model.jobs.job import JobRecord
from headway.model.jobs.states import State
from headway.model.queue.capacity import Bucket
from headway.model.queue.select import Pick
from headway.model.queue.target import TargetHolder
from tests.support.queued import BUCKETS, bucket, queued, reservation

SECOND = 1_000_000
GLOBAL, GPU, DESK = 1, 2, 8
_UNSET = {field.name: None for field in dataclasses.fields(JobRecord)}
_ZERO = dict.fromkeys(("gate", "priority", "fence", "retry_auto", "exhausted", "hold", "ran", "carries"), 0)
_TEXTS = {"task": "t", "params": "{}", "options": "{}", "created_by": "{}"}
_GIVEN: dict[str, Any] = {"id": 7, "tenant_id": 1, "bucket_id": 1, "position": 1, "created_at": 1, "queued_at": 5}
JOB = JobRecord(**_UNSET | _ZERO | _TEXTS | _GIVEN | {"status": State.QUEUED, "version": 1, "attempt": 1})
ON_DESK = replace(JOB, target_id=DESK)
LANES = {GLOBAL: LaneLoad("global", 1, free=1), GPU: LaneLoad("gpu", 2, resource=True, free=2)}
HAND = WorkerSlots(frozenset({"t"}), 1, 1)
OPEN = QueueSnapshot(
    now=10, tenant_id=1, lanes=LANES, all_slots=(HAND,), line=(queued(7, "t", (GLOBAL,)),), buckets=BUCKETS
)


def explain(scene: QueueSnapshot, job: JobRecord = JOB, lanes: tuple[int, ...] = (GLOBAL,)) -> list[Blocker]:
    on_target = job.target_id is not None
    return blockers(replace(job, bucket_id=bucket(job.task, lanes, on_target=on_target).id), scene)


def kinds(scene: QueueSnapshot, job: JobRecord = JOB, lanes: tuple[int, ...] = (GLOBAL,)) -> list[str]:
    return [one.kind for one in explain(scene, job, lanes)]


def with_lane(lane: int, **load: Any) -> QueueSnapshot:
    return replace(OPEN, lanes={**LANES, lane: replace(LANES[lane], **load)})


def on_desk(**facts: Any) -> QueueSnapshot:
    target = TargetLoad("desk-1", **{"first": 7, **facts})
    return replace(OPEN, targets={DESK: target}, line=(queued(7, "t", (), DESK),))


def test_a_job_of_the_next_claims_has_no_blocker() -> None:
    scene = replace(OPEN, picks=(Pick(7, bucket("t", (GLOBAL,))),))
    assert kinds(scene) == kinds(replace(scene, all_slots=(), pause=Pause(1))) == []
    assert kinds(OPEN, replace(JOB, status=State.RUNNING)) == []


def test_a_job_left_by_the_next_claims_has_a_blocker() -> None:
    assert kinds(OPEN) == ["behind"]


def test_everything_at_once_in_order() -> None:
    lanes = {
        GLOBAL: LaneLoad("global", 2, (Runner(4, 3), Runner(6)), free=0),
        GPU: LaneLoad("gpu", 1, (Runner(5, 2),), resource=True, free=0, closed=True),
    }
    scene = QueueSnapshot(
        10,
        1,
        Pause(2, 99, "the disk"),
        Pause(1),
        lanes,
        {DESK: TargetLoad("desk-1", Pause(3, note="by hand"), TargetHolder(2, State.ERROR, 8, "it broke\nin two"), 6)},
        (reservation(5, (GPU,), created_at=4, expires_at=44),),
        line=(queued(6, "t", (), DESK), queued(7, "t", (GPU, GLOBAL), DESK)),
        buckets=BUCKETS,
    )
    hint = "headway jobs resume 2, or resolve, retry, release or cancel it"
    assert explain(scene, ON_DESK, (GPU, GLOBAL)) == [
        Blocker("paused", "all queues are paused; resume it with headway queue resume --all", since=1),
        Blocker("paused", "the queue is paused: the disk; resume it with headway queue resume", since=2, until=99),
        Blocker(
            "paused", "the target desk-1 is paused: by hand; resume it with headway targets resume desk-1", since=3
        ),
        Blocker("target_held", f"job 2 holds desk-1: it is ERROR (it broke); {hint}", "job 2", 8),
        Blocker("lane", "the global lane is full: 2 of 2 run", "job 3, a job of another tenant", 6),
        Blocker("resource", "the resource gpu is full: 1 of 1 run", "job 2", 5),
        Blocker("reservation", "gpu is reserved: the reservation goes first", "ann, reservation 5", 4, 44),
        Blocker("no_worker", "no worker is alive: headway work"),
        Blocker("behind", "behind a better placed job", "job 6"),
    ]
    jobs = [one.job_ids for one in explain(scene, ON_DESK, (GPU, GLOBAL))]
    assert jobs == [(), (), (), (2,), (3,), (2,), (), (), (6,)]


# --- a job that is not queued -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "kind", "words"),
    [
        (replace(JOB, status=State.SCHEDULED, not_before=20), "not_before", "waits for its time"),
        (replace(JOB, status=State.WAITING, hold=1), "status", "headway jobs resume 7"),
        (replace(JOB, status=State.WAITING), "stage", "not open yet"),
        (replace(JOB, status=State.PAUSED, reason="interrupted by ann"), "status", "is PAUSED (interrupted by ann)"),
        (replace(JOB, status=State.ERROR), "status", "is ERROR: resume, resolve"),
        (replace(JOB, status=State.FAILED, finished_at=9), "status", "has ended: FAILED"),
        (replace(JOB, expires_at=10), "status", "expired"),
        (replace(JOB, status=State.WAITING, hold=1, expires_at=9), "status", "expired"),
    ],
)
def test_a_job_that_is_not_queued_has_one_reason(job: JobRecord, kind: str, words: str) -> None:
    (found,) = explain(replace(OPEN, all_slots=()), job)
    assert found.kind == kind
    assert words in found.detail


def test_since_when_a_person_has_to_decide() -> None:
    (found,) = explain(replace(OPEN, held={7: 4}), replace(JOB, status=State.ERROR))
    assert found.since == 4


def test_what_is_due_counts_as_queued_and_what_has_run_does_not_expire() -> None:
    assert kinds(with_lane(GLOBAL, free=0, running=(Runner(1, 2),)), replace(JOB, not_before=9)) == ["lane"]
    due = replace(JOB, status=State.SCHEDULED, not_before=10)
    assert kinds(replace(OPEN, all_slots=()), due) == ["no_worker"]
    assert kinds(replace(OPEN, all_slots=()), replace(JOB, expires_at=9, fence=1)) == ["no_worker"]


# --- lanes --------------------------------------------------------------------------------------------------------


def test_lanes() -> None:
    full = with_lane(GLOBAL, running=(Runner(1, 3),), free=0)
    assert kinds(full) == ["lane"]
    assert kinds(full, lanes=(GPU,)) == ["behind"]
    assert kinds(with_lane(GLOBAL, capacity=None, free=None, running=(Runner(1, 3),))) == ["behind"]
    (shut,) = explain(with_lane(GLOBAL, capacity=0, free=0))
    assert shut.detail == "the global lane is full: 0 of 0 run"
    (strangers,) = explain(with_lane(GLOBAL, running=(Runner(1), Runner(2)), free=-1))
    assert strangers.by == "2 jobs of other tenants"


def test_reservations() -> None:
    taken = reservation(4, (GLOBAL, GPU), tenant_id=2, granted_at=3, granted=True)
    scene = replace(with_lane(GLOBAL, free=0, closed=True), reservations=(taken,))
    assert explain(scene) == [Blocker("reservation", "global is taken by a direct call or a hold", "another tenant", 3)]
    both = replace(scene, lanes={**scene.lanes, GPU: replace(LANES[GPU], closed=True)})
    assert explain(both, lanes=(GPU, GLOBAL))[0].detail == "global and gpu are taken by a direct call or a hold"
    # Direct calls had it so often that a job goes first: the lane is not closed.
    assert kinds(replace(OPEN, reservations=(taken,))) == ["behind"]
    many = replace(scene, reservations=(taken,) * (NAMED + 3))
    assert [one.detail for one in explain(many)][-1] == "and 3 more direct calls and holds"
    assert len(explain(many)) == NAMED + 1


def test_a_reserved_target() -> None:
    waiting = reservation(4, (), DESK, created_at=3)
    scene = replace(on_desk(shut=True), reservations=(waiting,))
    found = [Blocker("reservation", "desk-1 is reserved: the reservation goes first", "ann, reservation 4", 3)]
    assert explain(scene, ON_DESK, ()) == found
    assert kinds(replace(on_desk(), reservations=(waiting,)), ON_DESK, ()) == ["behind"]


# --- targets ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (State.RUNNING, "target_busy", "job 3 runs on desk-1"),
        (State.PAUSED, "target_held", "job 3 holds desk-1: it is PAUSED (why); headway jobs resume 3"),
        (State.QUEUED, "target_held", "job 3 was resumed on desk-1 and goes first"),
    ],
)
def test_the_holder_of_a_target(status: State, kind: str, words: str) -> None:
    (found,) = explain(on_desk(holder=TargetHolder(3, status, 9, "why")), ON_DESK, ())
    assert (found.kind, found.by, found.since) == (kind, "job 3", 9)
    assert words in found.detail


def test_the_holder_itself_waits_for_other_things_only() -> None:
    held = on_desk(holder=TargetHolder(7, State.QUEUED, 9))
    assert kinds(replace(held, all_slots=()), replace(ON_DESK, fence=1), ()) == ["no_worker"]


def test_the_first_of_a_target_may_be_far_ahead() -> None:
    (found,) = explain(replace(on_desk(first=3), line=()), ON_DESK, ())
    assert found == Blocker("behind", "behind the first job on desk-1", "job 3")


# --- workers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("all_slots", "detail"),
    [
        ((WorkerSlots(frozenset({"other"}), 3, 3),), "no living worker knows the task t"),
        (
            (WorkerSlots(frozenset({"t"})), WorkerSlots(frozenset({"other"}), 3, 3)),
            "every slot of the workers that know it is taken",
        ),
        ((), "no worker is alive"),
    ],
)
def test_workers(all_slots: tuple[WorkerSlots, ...], detail: str) -> None:
    (found,) = explain(replace(OPEN, all_slots=all_slots))
    assert found.kind == "no_worker"
    assert detail in found.detail


# --- behind -------------------------------------------------------------------------------------------------------


def behind(*ahead: QueuedJob, scene: QueueSnapshot = OPEN, lanes: tuple[int, ...] = (GLOBAL,)) -> Blocker | None:
    found = explain(replace(scene, line=(*ahead, queued(7, "t", lanes), queued(99, "t", lanes))), lanes=lanes)
    return next((one for one in found if one.kind == "behind" and one.by), None)


def test_behind_those_that_take_what_it_needs() -> None:
    assert behind(queued(2, "t", (GLOBAL,))) == Blocker("behind", "behind a better placed job", "job 2")
    assert behind(queued(2, "t", (GLOBAL,)), queued(3, "t", (GLOBAL, GPU))) == Blocker(
        "behind", "behind 2 better placed jobs", "job 3"
    )
    assert behind(queued(2, "t", (GPU,))) is None
    unlimited = with_lane(GLOBAL, capacity=None, free=None)
    assert behind(queued(2, "t", (GLOBAL,)), scene=unlimited) is None


def test_not_behind_one_that_waits_for_something_else() -> None:
    full = with_lane(GPU, free=0, running=(Runner(1, 5),))
    assert behind(queued(2, "t", (GLOBAL, GPU)), scene=full) is None
    assert behind(queued(2, "t", (GLOBAL, GPU)), scene=full, lanes=(GLOBAL, GPU)) is not None
    assert behind(queued(2, "t", (GLOBAL,), DESK, open=False)) is None
    assert behind(queued(2, "nobody knows", (GLOBAL,))) is None


def test_behind_those_that_take_the_slots() -> None:
    taken = replace(OPEN, all_slots=(replace(HAND, left=0),))
    assert behind(queued(2, "t"), scene=taken, lanes=()) is not None
    other = WorkerSlots(frozenset({"u"}), 1, 0)
    assert behind(queued(2, "u"), scene=replace(taken, all_slots=(*taken.all_slots, other)), lanes=()) is None
    assert behind(queued(2, "u"), scene=replace(OPEN, all_slots=()), lanes=()) is not None


def test_too_far_back_to_be_ranked() -> None:
    line = (queued(2, "t", (GLOBAL,)), queued(3, "t", (GPU,)))
    (found,) = explain(replace(OPEN, line=(*line, queued(4, "t", (GLOBAL,)))))
    assert found.detail == "behind at least 2 better placed jobs"


def test_behind_one_that_only_the_claim_finds_better() -> None:
    picks = (Pick(12, bucket("t", (GLOBAL,))), Pick(13, bucket("t", (GPU,))))
    (found,) = explain(replace(OPEN, picks=picks))
    assert (found.by, found.job_ids) == ("job 12", (12,))
    (found,) = explain(replace(OPEN, picks=(Pick(12, Bucket(99, 2, "t", (GLOBAL,))),)))
    assert found == Blocker("behind", "behind a better placed job of another tenant")


# --- words --------------------------------------------------------------------------------------------------------


def test_sentences() -> None:
    now = 1_000 * SECOND
    assert sentence(Blocker("lane", "is full"), now) == "is full"
    full = Blocker("lane", "is full", "job 3", now - 180 * SECOND, now + 7_200 * SECOND)
    assert sentence(full, now) == "is full (job 3, for 3 min, 2 h to go)"
    assert (
        sentence(Blocker("target_busy", "job 3 runs on desk-1", "job 3", now), now) == "job 3 runs on desk-1 (for 0 s)"
    )


def test_an_explanation_as_text() -> None:
    found = (Blocker("paused", "the queue is paused"), Blocker("behind", "behind a better placed job", "job 3"))
    explained = Explanation(7, "QUEUED", 2, found, Estimate(180 * SECOND, 720 * SECOND), 0)
    assert str(explained).splitlines() == [
        "job 7 is QUEUED, rank 2: starts in about 3 min (at most 12 min)",
        "  paused: the queue is paused",
        "  behind: behind a better placed job (job 3)",
    ]
    assert str(replace(explained, rank=None, blockers=(), start_estimate=None)) == "job 7 is QUEUED"
