"""What each verb makes of a job: the new row, its event, the end of its run; and nothing illegal ever comes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import WrongState
from headway.model.jobs import actions
from headway.model.jobs.actions import Change, RunEnd
from headway.model.jobs.finish import FinishInputs, decide
from headway.model.jobs.job import Actor, JobRecord, Options
from headway.model.jobs.outcome import Failed, FailureKind
from headway.model.jobs.states import State, StopRequest
from tests.support.job_rows import ADA, NOW, a_job
from tests.support.properties import examples

S = State

# From domain, §2; what an unclaimed job may do beyond this is held back by its fence.
LEGAL = {
    S.WAITING: {S.SCHEDULED, S.QUEUED, S.SKIPPED, S.CANCELLED},
    S.SCHEDULED: {S.QUEUED, S.WAITING, S.SKIPPED, S.CANCELLED},
    S.QUEUED: {S.RUNNING, S.WAITING, S.SKIPPED, S.CANCELLED},
    S.RUNNING: {S.COMPLETED, S.FAILED, S.SKIPPED, S.PAUSED, S.ERROR, S.CANCELLED},
    S.PAUSED: {S.QUEUED, S.COMPLETED, S.FAILED, S.CANCELLED},
    S.ERROR: {S.QUEUED, S.COMPLETED, S.FAILED, S.CANCELLED},
}


def sound(job: JobRecord) -> bool:
    """The checks of the schema."""
    running = job.status is S.RUNNING
    return (
        (job.gate == 0 or job.status is S.QUEUED)
        and running == (job.worker_id is not None)
        and running == (job.slot is not None)
        and (job.stop is None or running)
        and job.status.terminal == (job.finished_at is not None)
        and (job.status is not S.SCHEDULED or job.not_before is not None)
        and (job.status is not S.QUEUED or job.queued_at is not None)
        and 0 <= job.priority <= 100
    )


ALL: dict[str, Callable[[JobRecord], Change]] = {
    "cancel": lambda job: actions.cancel(job, actor=ADA, now=NOW),
    "interrupt": lambda job: actions.interrupt(job, actor=ADA),
    "resume": lambda job: actions.resume(job, now=NOW, spent={}, budget=None),
    "resolve": lambda job: actions.resolve(job, result="1", by="ada", now=NOW),
    "release": lambda job: actions.release(job, by="ada", now=NOW),
    "close_for_retry": lambda job: actions.close_for_retry(job, by="ada", now=NOW),
    "edit": lambda job: actions.edit(job, priority=9, position=1, now=NOW),
    "edit_params": lambda job: actions.edit(job, params="{}", now=NOW),
    "edit_start": lambda job: actions.edit(job, not_before=NOW + 99, now=NOW),
    "start_now": lambda job: actions.edit(job, not_before=NOW, now=NOW),
    "move": lambda job: actions.move(job, priority=9, position=1),
}
jobs = st.builds(
    lambda status, claimed, hold, target, begin, stop: a_job(
        status,
        fence=1 if claimed or S.RUNNING <= status <= S.ERROR else 0,
        hold=int(hold and status is S.WAITING),
        target_id=target,
        gate=int(status is S.QUEUED and target is None),
        not_before=begin if begin is not None or status is not S.SCHEDULED else NOW + 5,
        stop=stop if status is S.RUNNING else None,
        stop_by=ADA.text() if stop and status is S.RUNNING else None,
    ),
    st.sampled_from(State),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, 3]),
    st.sampled_from([None, NOW - 5, NOW + 5]),
    st.sampled_from([None, StopRequest.CANCEL, StopRequest.INTERRUPT]),
)


def attempt(verb: Callable[[JobRecord], Change], job: JobRecord) -> Change | WrongState:
    try:
        return verb(job)
    except WrongState as refusal:
        return refusal


@settings(max_examples=examples(500), deadline=None)
@given(jobs, st.sampled_from(sorted(ALL)))
def test_a_verb_refuses_or_leaves_a_sound_row_on_a_legal_path(job: JobRecord, verb: str) -> None:
    assert sound(job)
    change = attempt(ALL[verb], job)
    if isinstance(change, WrongState):
        assert change.facts["status"] == job.status.name
        return
    after = change.job
    assert sound(after)
    assert after.status is job.status or after.status in LEGAL.get(job.status, set())
    assert (after.id, after.version, after.fence, after.created_at) == (job.id, job.version, job.fence, job.created_at)
    assert not (job.fence and after.params != job.params)
    assert not (job.fence and after.status in (S.WAITING, S.SCHEDULED) and after.status is not job.status)
    # A run is closed exactly when a claimed job ends, and a result comes only with a success.
    assert (change.run is not None) == (after.status.terminal and not job.status.terminal and job.fence > 0)
    assert change.result is None or after.status is S.COMPLETED


@settings(max_examples=examples(300), deadline=None)
@given(
    st.sampled_from([None, StopRequest.CANCEL, StopRequest.INTERRUPT]),
    st.booleans(),
    st.sampled_from([None, "pause", "resume"]),
    st.sampled_from(FailureKind),
    st.booleans(),
)
def test_a_finish_leaves_a_sound_row_without_owner_and_request(
    stop: StopRequest | None, target: bool, shutdown: str | None, kind: FailureKind, final: bool
) -> None:
    job = a_job(S.RUNNING, stop=stop, target_id=3 if target else None, claimed_at=NOW - 500, ran=100)
    standing = FinishInputs(job, Options(on_shutdown=shutdown), NOW)
    change = decide(standing, Failed(kind, "e", final=final), lambda: 0.5)
    assert sound(change.job)
    assert change.job.status in LEGAL[S.RUNNING]
    assert change.job.ran == 600
    assert (change.job.stop, change.job.stop_by, change.job.worker_id) == (None, None, None)
    assert (change.run is None) == (change.job.status in (S.PAUSED, S.ERROR))
    assert change.job.carries == int(change.run is None)


# --- stopping ---


def test_cancelling_a_job_that_never_ran_makes_no_run() -> None:
    change = ALL["cancel"](a_job(S.QUEUED))
    assert (change.job.status, change.job.gate, change.job.finished_at, change.run) == (S.CANCELLED, 0, NOW, None)
    assert change.job.reason == "cancelled by ada"


def test_cancelling_a_held_job_closes_its_run_with_what_stopped_it() -> None:
    job = a_job(S.ERROR, failure_kind=FailureKind.LOST, reason="Scheduler crash recovery: gone")
    change = ALL["cancel"](job)
    error = "cancelled by ada: LOST: Scheduler crash recovery: gone"
    assert change.run == RunEnd(S.FAILED, error)


def test_cancelling_a_running_job_only_asks() -> None:
    change = ALL["cancel"](a_job(S.RUNNING))
    assert (change.job.status, change.job.stop, change.kind) == (S.RUNNING, StopRequest.CANCEL, "job.stop_requested")
    assert Actor.parse(change.job.stop_by or "") == ADA


def test_a_cancel_overrules_an_interrupt_and_not_the_other_way_round() -> None:
    asked = ALL["interrupt"](a_job(S.RUNNING)).job
    cancelled = ALL["cancel"](asked).job
    assert cancelled.stop is StopRequest.CANCEL
    with pytest.raises(WrongState, match="being cancelled"):
        ALL["interrupt"](cancelled)


def test_interrupting_what_has_not_run_holds_it_and_resuming_lets_it_go() -> None:
    for status in (S.QUEUED, S.SCHEDULED, S.WAITING):
        held = ALL["interrupt"](a_job(status)).job
        assert (held.status, held.hold, held.gate, held.reason) == (S.WAITING, 1, 0, "hold")
        freed = ALL["resume"](held).job
        assert freed.status is (S.SCHEDULED if status is S.SCHEDULED else S.QUEUED)
        assert (freed.hold, freed.reason) == (0, None)


def test_a_job_that_waits_to_be_resumed_cannot_be_held_again() -> None:
    with pytest.raises(WrongState, match="waits to be resumed"):
        ALL["interrupt"](a_job(S.QUEUED, fence=1))


# --- going on ---


def test_a_job_of_a_stage_that_is_not_open_cannot_be_resumed() -> None:
    with pytest.raises(WrongState, match="stage is not open"):
        ALL["resume"](a_job(S.WAITING, hold=0))


def test_resume_forgets_what_stopped_it_and_keeps_place_run_and_fence() -> None:
    job = a_job(S.PAUSED, failure_kind=FailureKind.INTERRUPTED, reason="shutdown", position=17, not_before=NOW + 5)
    change = ALL["resume"](job)
    after = change.job
    assert (after.status, after.gate, after.queued_at, after.position) == (S.QUEUED, 1, NOW, 17)
    assert (after.failure_kind, after.reason, after.fence, change.run) == (None, None, 1, None)


def test_over_its_budget_a_job_is_only_resumed_with_a_larger_one() -> None:
    job = a_job(S.PAUSED, options=Options(budget=(("tokens", 10.0),)).text())
    with pytest.raises(WrongState, match="tokens used up: 12 of 10") as refusal:
        actions.resume(job, now=NOW, spent={"tokens": 12.0}, budget=None)
    assert refusal.value.facts["status"] == "PAUSED"
    with pytest.raises(WrongState, match="12 of 11"):
        actions.resume(job, now=NOW, spent={"tokens": 12.0}, budget={"tokens": 11.0})
    change = actions.resume(job, now=NOW, spent={"tokens": 12.0}, budget={"tokens": 20.0})
    assert Options.parse(change.job.options).budget == (("tokens", 20.0),)
    assert actions.resume(job, now=NOW, spent={"tokens": 10.0}, budget=None).job.status is S.QUEUED


@pytest.mark.parametrize("status", [S.PAUSED, S.ERROR])
def test_how_a_person_lets_go(status: State) -> None:
    job = a_job(status, failure_kind=FailureKind.LOST, reason="gone")
    resolved, released, retried = ALL["resolve"](job), ALL["release"](job), ALL["close_for_retry"](job)
    assert (resolved.job.status, resolved.run, resolved.result) == (S.COMPLETED, RunEnd(S.COMPLETED), "1")
    assert (resolved.job.failure_kind, resolved.job.reason) == (None, "resolved by ada")
    assert (released.job.status, released.run, released.job.exhausted) == (S.FAILED, RunEnd(S.FAILED, "LOST: gone"), 1)
    assert (retried.job.status, retried.run, retried.job.exhausted) == (S.FAILED, RunEnd(S.FAILED, "LOST: gone"), 0)


# --- changing ---


@pytest.mark.parametrize("status", State)
@pytest.mark.parametrize("fence", [0, 1])
def test_params_may_change_until_the_first_claim_and_never_after_it(status: State, fence: int) -> None:
    job = a_job(status, fence=fence)
    if status <= S.QUEUED and fence == 0:
        assert ALL["edit_params"](job).job.params == "{}"
    else:
        with pytest.raises(WrongState) as refusal:
            ALL["edit_params"](job)
        assert str(refusal.value) == "Cannot modify params after dispatch"


def test_an_edit_says_what_changed_and_not_to_what_params() -> None:
    job = a_job(S.QUEUED)
    change = actions.edit(job, params='{"secret":1}', priority=5, expires_at=NOW + 9, now=NOW)
    assert change.data == {"priority": 5, "expires_at": NOW + 9, "params": "changed"}
    assert actions.edit(job, params=job.params, now=NOW).data == {}


def test_another_start_moves_a_job_between_waiting_for_its_time_and_the_queue() -> None:
    scheduled = a_job(S.SCHEDULED)
    later, now = ALL["edit_start"](scheduled).job, ALL["start_now"](scheduled).job
    assert (later.status, later.not_before) == (S.SCHEDULED, NOW + 99)
    assert (now.status, now.gate, now.queued_at) == (S.QUEUED, 1, NOW)
    held = ALL["start_now"](a_job(S.WAITING)).job
    assert (held.status, held.hold) == (S.WAITING, 1)
    with pytest.raises(WrongState, match="already queued"):
        ALL["edit_start"](a_job(S.QUEUED))


def test_a_retry_brought_forward_takes_what_is_given_and_keeps_the_rest() -> None:
    waiting = a_job(S.SCHEDULED, position=17)
    kept = actions.bring_forward(waiting, now=NOW, params=None, priority=None, position=None, options=None).job
    assert kept == replace(waiting, status=S.QUEUED, gate=1, queued_at=NOW, not_before=None)
    other = actions.bring_forward(waiting, now=NOW, params="{}", priority=4, position=99, options=None).job
    assert (other.params, other.priority, other.position) == ("{}", 4, 99)
    with pytest.raises(WrongState, match="after dispatch"):
        actions.bring_forward(
            a_job(S.QUEUED, fence=1), now=NOW, params="{}", priority=None, position=None, options=None
        )


def test_on_a_target_nothing_opens_its_own_gate() -> None:
    """Who is first on a target is decided by looking at all its jobs, never by the job that comes back to it."""
    assert ALL["resume"](a_job(S.PAUSED, target_id=3)).job.gate == 0
    assert ALL["start_now"](a_job(S.SCHEDULED, target_id=3)).job.gate == 0


def test_the_event_of_a_long_error_carries_its_first_line_only() -> None:
    standing = FinishInputs(a_job(S.RUNNING), Options(), NOW)
    change = decide(standing, Failed(FailureKind.EXCEPTION, "x" * 900 + "\nmore"), lambda: 0.0)
    assert change.data is not None
    assert change.data["error"] == "x" * 500
    assert change.run is not None
    assert (change.run.error or "").endswith("more")
