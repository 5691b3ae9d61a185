"""Ends RUNNING jobs: `decide()` maps the outcome of a claim to the change of its job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

from headway.model.jobs.actions import Change, RunEnd
from headway.model.jobs.job import Actor, JobRecord, Options
from headway.model.jobs.outcome import (
    NEVER_BEGAN,
    Completed,
    Failed,
    FailureKind,
    Interrupted,
    Lost,
    NeverBegan,
    Outcome,
    Skipped,
    StoppedByRequest,
)
from headway.model.jobs.retry import retries
from headway.model.jobs.states import State, StopRequest

S = State
_KINDS = {
    S.COMPLETED: "job.completed",
    S.FAILED: "job.failed",
    S.SKIPPED: "job.skipped",
    S.CANCELLED: "job.cancelled",
    S.PAUSED: "job.paused",
    S.ERROR: "job.error",
}


# The reason of a job that a person interrupted begins with this; the person's name follows.
INTERRUPTED_BY = "interrupted by"


@dataclass(frozen=True, slots=True)
class FinishInputs:
    """The facts that the finishing transaction reads and `decide()` needs.

    `too_long` is the error of a job that exceeded its timeout and ignored the stop request.
    """

    job: JobRecord
    options: Options
    now: int
    retries_used: int = 0
    over_budget: str | None = None
    too_long: str | None = None
    group_cancelled: bool = False

    @property
    def on_target(self) -> bool:
        return self.job.target_id is not None

    @property
    def stop_by(self) -> str:
        return Actor.parse(self.job.stop_by).shown if self.job.stop_by else "user"


def end_claim(
    job: JobRecord,
    state: State,
    now: int,
    *,
    failure: FailureKind | None = None,
    reason: str | None = None,
    error: str | None = None,
    exit_code: int | None = None,
    result: str | None = None,
    retry: float | None = None,
    exhausted: bool = False,
    resume: bool = False,
) -> Change:
    """Returns the change of a RUNNING job to `state`. A terminal state also ends its run.

    `retry` is the delay of the automatic retry in seconds (None means no retry). `resume` sends a PAUSED job straight
    back to QUEUED.
    """
    ended = replace(
        job,
        status=state,
        finished_at=now if state.terminal else None,
        ran=job.ran + max(0, now - (job.claimed_at or now)),
        worker_id=None,
        slot=None,
        stop=None,
        stop_by=None,
        failure_kind=failure,
        reason=reason,
        exhausted=int(exhausted),
        carries=job.carries if state.terminal else 1,
    )
    facts: dict[str, object | None] = {
        "failure_kind": failure.value if failure else None,
        "reason": reason,
        "error": error.splitlines()[0][:500] if error else None,
        "exit_code": exit_code,
        "retry_in": retry,
        "exhausted": exhausted or None,
    }
    data = {name: value for name, value in facts.items() if value is not None} or None
    run_status = S.FAILED if state is S.CANCELLED else state
    run = RunEnd(run_status, error, exit_code) if state.terminal else None
    return Change(ended, _KINDS[state], data, run, result, retry, resume)


def decide(standing: FinishInputs, outcome: Outcome, rng: Callable[[], float]) -> Change:
    """Decides the change of a RUNNING job. No other code decides it."""
    match outcome:
        case Completed():
            return end_claim(
                standing.job, S.COMPLETED, standing.now, result=outcome.result, exit_code=outcome.exit_code
            )
        case Skipped():
            return end_claim(standing.job, S.SKIPPED, standing.now, reason=outcome.reason)
        case Failed():
            return _stopped(standing, outcome) or _failed(standing, outcome, rng)
        case StoppedByRequest():
            stopped = Failed(FailureKind.INTERRUPTED, "", outcome.exit_code)
            return _stopped(standing, stopped) or _shut_down(standing, Interrupted(), rng)
        case Interrupted():
            stopped = Failed(FailureKind.INTERRUPTED, outcome.error)
            return _stopped(standing, stopped) or _shut_down(standing, outcome, rng)
        case NeverBegan():
            never = Failed(FailureKind.INTERRUPTED, outcome.error)
            return _stopped(standing, never) or _never_began(standing, never)
        case Lost():
            lost = Failed(FailureKind.LOST, f"Scheduler crash recovery: {outcome.why}")
            return _stopped(standing, lost) or _lost(standing, lost, outcome, rng)
        case _:
            assert_never(outcome)


def _stopped(standing: FinishInputs, failure: Failed) -> Change | None:
    """Returns the change that a pending stop request causes; None without a request."""
    stop = standing.job.stop
    if stop is None:
        return None
    detail = f": {failure.error}" if failure.error else ""
    if stop is StopRequest.CANCEL:
        reason = f"cancelled by {standing.stop_by}"
        return _end_failed(standing, S.CANCELLED, failure, reason=reason, error=reason + detail)
    if standing.over_budget is not None and failure.kind is not FailureKind.BUDGET:
        failure = Failed(FailureKind.BUDGET, standing.over_budget)
    if failure.kind is FailureKind.BUDGET:
        return _last(standing, failure)
    return _pause(standing, failure.kind, f"{INTERRUPTED_BY} {standing.stop_by}{detail}")


def _failed(standing: FinishInputs, failure: Failed, rng: Callable[[], float]) -> Change:
    used, policy = standing.retries_used, standing.options.retry
    if standing.group_cancelled or not retries(policy, failure.kind, used=used, final=failure.final):
        return _last(standing, failure)
    delay = failure.retry_after
    if delay is None:
        delay = 0.0 if failure.kind is FailureKind.INTERRUPTED else policy.delay(used, rng)
    return _end_failed(standing, S.FAILED, failure, retry=delay)


def _last(standing: FinishInputs, failure: Failed) -> Change:
    """Returns the change of a failure without a retry: ERROR on a target, FAILED elsewhere."""
    if standing.on_target and standing.options.on_error != "fail":
        return _end_failed(standing, S.ERROR, failure, reason=failure.error)
    return _end_failed(standing, S.FAILED, failure, exhausted=True)


def _shut_down(standing: FinishInputs, interrupted: Interrupted, rng: Callable[[], float]) -> Change:
    on_shutdown = standing.options.on_shutdown
    pauses = standing.on_target or standing.options.retry.max_attempts == 0 or on_shutdown == "pause"
    if pauses or on_shutdown == "resume":
        return _pause(standing, FailureKind.INTERRUPTED, interrupted.reason, resume=on_shutdown == "resume")
    return _failed(standing, Failed(FailureKind.INTERRUPTED, interrupted.error), rng)


def _never_began(standing: FinishInputs, failure: Failed) -> Change:
    """Retries at once, whatever the policy says, because no user code ran. A cancelled group makes no retry."""
    retry = None if standing.group_cancelled else 0.0
    return _end_failed(standing, S.FAILED, failure, reason=NEVER_BEGAN, retry=retry, exhausted=retry is None)


def _lost(standing: FinishInputs, failure: Failed, lost: Lost, rng: Callable[[], float]) -> Change:
    if standing.too_long is not None and not lost.remains:  # the worker exited to end a job past its timeout
        return _failed(standing, Failed(FailureKind.TIMEOUT, standing.too_long), rng)
    if lost.remains or standing.options.on_lost == "hold":
        return _end_failed(standing, S.ERROR, failure, reason=failure.error)
    if standing.options.on_lost == "fail":
        return _last(standing, failure)
    return _failed(standing, failure, rng)


def _pause(standing: FinishInputs, kind: FailureKind, reason: str, *, resume: bool = False) -> Change:
    return end_claim(standing.job, S.PAUSED, standing.now, failure=kind, reason=reason, resume=resume)


def _end_failed(
    standing: FinishInputs,
    state: State,
    failure: Failed,
    *,
    reason: str | None = None,
    error: str | None = None,
    retry: float | None = None,
    exhausted: bool = False,
) -> Change:
    return end_claim(
        standing.job,
        state,
        standing.now,
        failure=failure.kind,
        reason=reason,
        error=failure.error if error is None else error,
        exit_code=failure.exit_code,
        retry=retry,
        exhausted=exhausted,
    )
