"""What people and workers do to one job: each verb takes the job as it is and returns it as it will be, or refuses."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace

from headway.errors import WrongState
from headway.model.job import Actor, Job, Options
from headway.model.states import MOVES, State, Stop, Transition, Verb

S = State


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run is closed."""

    status: State
    error: str | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A job as it will be stored, its event, and what else belongs to the same transaction."""

    job: Job
    kind: str
    data: Mapping[str, object] | None = None
    run: RunEnd | None = None
    result: str | None = None
    retry: float | None = None
    then_resume: bool = False


_HINTS = {
    Verb.RESUME: "only a PAUSED or ERROR job, or one on hold, can be resumed",
    Verb.RESOLVE: "only a PAUSED or ERROR job can be resolved",
    Verb.RELEASE: "only a PAUSED or ERROR job can be released",
    Verb.RETRY: "only a job whose run FAILED, or a PAUSED or ERROR job, can be retried",
    Verb.CANCEL: "it has already ended",
    Verb.INTERRUPT: "only a running or waiting job can be interrupted",
    Verb.EDIT: "only a job that waits can be changed",
    Verb.MOVE: "only a job that waits has a place in the queue",
}


def refuse(job: Job, verb: Verb, hint: str | None = None) -> WrongState:
    why = hint or _HINTS.get(verb, "not in this state")
    text = f"job {job.id} is {job.status.name}: cannot {verb.value} it; {why}"
    return WrongState(text, status=job.status.name, why=why)


def _allowed(job: Job, verb: Verb) -> None:
    if job.status not in MOVES[verb]:
        raise refuse(job, verb)


def _queued(job: Job, now: int) -> Job:
    """The job released into the queue, or to wait for its time."""
    if job.not_before is not None and job.not_before > now and job.fence == 0:
        return replace(job, status=S.SCHEDULED, gate=0, hold=0, reason=None)
    return replace(job, status=S.QUEUED, gate=int(job.target_id is None), hold=0, queued_at=now, reason=None)


def _ended(job: Job, state: State, now: int, reason: str | None) -> Job:
    return replace(job, status=state, gate=0, hold=0, finished_at=now, reason=reason)


def _stopping_error(job: Job) -> str:
    """What stopped a held job, in words, for the run that is closed because of it."""
    kind = f"{job.failure_kind.value}: " if job.failure_kind else ""
    return kind + (job.reason or job.status.name.lower())


def cancel(job: Job, *, actor: Actor, now: int) -> Change:
    _allowed(job, Verb.CANCEL)
    if job.status is S.RUNNING:
        return _stop(job, Stop.CANCEL, actor)
    reason = f"cancelled by {actor.shown}"
    run = RunEnd(S.FAILED, f"{reason}: {_stopping_error(job)}") if job.fence > 0 else None
    return Change(_ended(job, S.CANCELLED, now, reason), "job.cancelled", {"reason": reason}, run)


def interrupt(job: Job, *, actor: Actor) -> Change:
    _allowed(job, Verb.INTERRUPT)
    if job.status is S.RUNNING:
        return _stop(job, Stop.INTERRUPT, actor)
    if job.fence > 0:
        raise refuse(job, Verb.INTERRUPT, "it waits to be resumed: cancel it, or interrupt it when it runs")
    return Change(replace(job, status=S.WAITING, gate=0, hold=1, reason="hold"), "job.held", {"reason": "hold"})


def _stop(job: Job, stop: Stop, actor: Actor) -> Change:
    if job.stop is Stop.CANCEL and stop is Stop.INTERRUPT:
        raise refuse(job, Verb.INTERRUPT, "it is being cancelled")
    return Change(replace(job, stop=stop, stop_by=actor.text()), "job.stop_requested", {"stop": stop.value})


def resume(
    job: Job,
    *,
    now: int,
    spent: Mapping[str, float],
    budget: Mapping[str, float] | None,
    stage_open: bool = True,
) -> Change:
    """`stage_open`: a member whose stage is not open yet is let go, but waits for its stage."""
    _allowed(job, Verb.RESUME)
    if job.status is S.WAITING and not job.hold:
        raise refuse(job, Verb.RESUME, "its stage is not open yet")
    options = Options.parse(job.options)
    if budget is not None:
        options = replace(options, budget=tuple(sorted(budget.items())))
        job = replace(job, options=options.text())
    if job.status is not S.WAITING and (over := over_budget(options, spent)):
        raise WrongState(
            f"job {job.id} is over its budget ({over}): resume it with a larger one", status=job.status.name
        )
    if not stage_open:
        return Change(replace(job, hold=0, reason=None), "job.unheld")
    return Change(_queued(replace(job, failure_kind=None, exhausted=0), now), "job.resumed")


def resolve(job: Job, *, result: str, by: str, now: int) -> Change:
    _allowed(job, Verb.RESOLVE)
    ended = replace(_ended(job, S.COMPLETED, now, f"resolved by {by}"), failure_kind=None)
    return Change(ended, "job.resolved", {"by": by}, RunEnd(S.COMPLETED), result)


def release(job: Job, *, by: str, now: int) -> Change:
    _allowed(job, Verb.RELEASE)
    ended = replace(_ended(job, S.FAILED, now, f"released by {by}"), exhausted=1)
    return Change(
        ended, "job.failed", {"reason": f"released by {by}", "exhausted": True}, RunEnd(S.FAILED, _stopping_error(job))
    )


def close_for_retry(job: Job, *, by: str, now: int) -> Change:
    """A held job that a person retries ends FAILED; the new job takes its place."""
    if job.status not in (S.PAUSED, S.ERROR):
        raise refuse(job, Verb.RETRY)
    reason = f"retried by {by}"
    return Change(
        _ended(job, S.FAILED, now, reason), "job.failed", {"reason": reason}, RunEnd(S.FAILED, _stopping_error(job))
    )


def bring_forward(
    job: Job,
    *,
    now: int,
    params: str | None,
    priority: int | None,
    position: int | None,
    options: str | None,
    unfilled: str | None = None,
) -> Change:
    """An automatic retry that waits is started now instead of making another one."""
    if params is not None and job.fence > 0:
        raise _frozen(job)
    changed = replace(
        job,
        params=params or job.params,
        unfilled=job.unfilled if params is None else unfilled,
        options=options or job.options,
        priority=job.priority if priority is None else priority,
        position=job.position if position is None else position,
        not_before=None,
    )
    return Change(_queued(changed, now), "job.promoted", {"reason": "retried now", **_difference(job, changed)})


def _frozen(job: Job) -> WrongState:
    return WrongState("Cannot modify params after dispatch", status=job.status.name, code="params_frozen")


class Cleared(enum.Enum):
    """Instead of a time: there shall be none. None is silence."""

    CLEARED = "cleared"


CLEARED = Cleared.CLEARED


def edit(
    job: Job,
    *,
    params: str | None = None,
    unfilled: str | None = None,
    priority: int | None = None,
    position: int | None = None,
    options: str | None = None,
    expires_at: int | Cleared | None = None,
    not_before: int | Cleared | None = None,
    now: int,
) -> Change:
    """Params may change until the first claim; priority and place whenever the job waits. `unfilled` are the params
    with the names of the results in them, if there are any."""
    if params is not None and (job.fence > 0 or job.status >= S.RUNNING):
        raise _frozen(job)
    _allowed(job, Verb.EDIT)
    if job.group_id is not None and expires_at is not None:
        raise refuse(job, Verb.EDIT, "it is a step of a group, and steps do not expire")
    if job.fence > 0 and not_before is not None:
        raise refuse(job, Verb.EDIT, "it has run already: it can only be moved")
    start = None if isinstance(not_before, Cleared) else not_before
    if job.status is S.QUEUED and start is not None and start > now:
        raise refuse(job, Verb.EDIT, "its time has come already: interrupt it to hold it back")
    changed = replace(
        job,
        params=job.params if params is None else params,
        unfilled=job.unfilled if params is None else unfilled,
        priority=job.priority if priority is None else priority,
        position=job.position if position is None else position,
        options=job.options if options is None else options,
        expires_at=job.expires_at if expires_at is None else None if isinstance(expires_at, Cleared) else expires_at,
    )
    if start is None and not_before is not None and job.status is S.QUEUED:
        changed = replace(changed, not_before=None)  # it waits as before, and as long
    elif not_before is not None:
        changed = replace(changed, not_before=start, queued_at=None)
        changed = changed if job.status is S.WAITING else _queued(changed, now)
    return Change(changed, "job.edited", _difference(job, changed))


def _difference(old: Job, new: Job) -> dict[str, object]:
    names = ("priority", "position", "not_before", "expires_at")
    found: dict[str, object] = {name: getattr(new, name) for name in names if getattr(new, name) != getattr(old, name)}
    return found | ({"params": "changed"} if new.params != old.params else {})


def move(job: Job, *, priority: int, position: int) -> Change:
    _allowed(job, Verb.MOVE)
    moved = replace(job, priority=priority, position=position)
    return Change(moved, "job.moved", {"priority": priority, "position": position})


_KINDS = {
    S.COMPLETED: "job.completed",
    S.FAILED: "job.failed",
    S.SKIPPED: "job.skipped",
    S.CANCELLED: "job.cancelled",
    S.PAUSED: "job.paused",
    S.ERROR: "job.error",
}


def finish(job: Job, end: Transition, now: int) -> Change:
    """The job as a transition out of RUNNING leaves it."""
    ended = replace(
        job,
        status=end.state,
        finished_at=now if end.state.terminal else None,
        ran=job.ran + max(0, now - (job.claimed_at or now)),
        worker_id=None,
        slot=None,
        stop=None,
        stop_by=None,
        failure_kind=end.failure,
        reason=end.reason,
        exhausted=int(end.exhausted),
        carries=job.carries if end.state.terminal else 1,
    )
    run = RunEnd(end.run, end.error, end.exit_code) if end.run is not None else None
    return Change(ended, _KINDS[end.state], _end_data(end), run, end.result, end.retry, end.resume)


def _end_data(end: Transition) -> dict[str, object] | None:
    facts: dict[str, object | None] = {
        "failure_kind": end.failure.value if end.failure else None,
        "reason": end.reason,
        "error": end.error.splitlines()[0][:500] if end.error else None,
        "exit_code": end.exit_code,
        "retry_in": end.retry,
        "exhausted": end.exhausted or None,
    }
    return {name: value for name, value in facts.items() if value is not None} or None


def over_budget(options: Options, spent: Mapping[str, float]) -> str | None:
    """Which meter is beyond its cap, in words."""
    for meter, cap in options.budget:
        if spent.get(meter, 0.0) > cap:
            return f"budget for {meter} used up: {spent[meter]:g} of {cap:g}"
    return None
