"""The verbs on one job: each takes the stored job and returns its change, or raises WrongState."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace

from headway.errors import WrongState
from headway.model.jobs.job import Actor, JobRecord, Options
from headway.model.jobs.states import MOVES, State, StopRequest, Verb

S = State


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The final values of a run."""

    status: State
    error: str | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A job as it will be stored, its event, and the other writes of the same transaction."""

    job: JobRecord
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


def refuse(job: JobRecord, verb: Verb, hint: str | None = None) -> WrongState:
    why = hint or _HINTS.get(verb, "not in this state")
    text = f"job {job.id} is {job.status.name}: cannot {verb.value} it; {why}"
    return WrongState(text, status=job.status.name, why=why)


def _allowed(job: JobRecord, verb: Verb) -> None:
    if job.status not in MOVES[verb]:
        raise refuse(job, verb)


def _queued(job: JobRecord, now: int) -> JobRecord:
    """Returns the job as QUEUED, or as SCHEDULED if its time has not come."""
    if job.not_before is not None and job.not_before > now and job.fence == 0:
        return replace(job, status=S.SCHEDULED, gate=0, hold=0, reason=None)
    return replace(job, status=S.QUEUED, gate=int(job.target_id is None), hold=0, queued_at=now, reason=None)


def _ended(job: JobRecord, state: State, now: int, reason: str | None) -> JobRecord:
    return replace(job, status=state, gate=0, hold=0, finished_at=now, reason=reason)


def _stopping_error(job: JobRecord) -> str:
    """Returns the error for the run of a held job: its failure kind and its reason."""
    kind = f"{job.failure_kind.value}: " if job.failure_kind else ""
    return kind + (job.reason or job.status.name.lower())


def cancel(job: JobRecord, *, actor: Actor, now: int) -> Change:
    _allowed(job, Verb.CANCEL)
    if job.status is S.RUNNING:
        return _stop(job, StopRequest.CANCEL, actor)
    reason = f"cancelled by {actor.shown}"
    run = RunEnd(S.FAILED, f"{reason}: {_stopping_error(job)}") if job.fence > 0 else None
    return Change(_ended(job, S.CANCELLED, now, reason), "job.cancelled", {"reason": reason}, run)


def interrupt(job: JobRecord, *, actor: Actor) -> Change:
    _allowed(job, Verb.INTERRUPT)
    if job.status is S.RUNNING:
        return _stop(job, StopRequest.INTERRUPT, actor)
    if job.fence > 0:
        raise refuse(job, Verb.INTERRUPT, "it waits to be resumed: cancel it, or interrupt it when it runs")
    return Change(replace(job, status=S.WAITING, gate=0, hold=1, reason="hold"), "job.held", {"reason": "hold"})


def _stop(job: JobRecord, stop: StopRequest, actor: Actor) -> Change:
    if job.stop is StopRequest.CANCEL and stop is StopRequest.INTERRUPT:
        raise refuse(job, Verb.INTERRUPT, "it is being cancelled")
    return Change(replace(job, stop=stop, stop_by=actor.text()), "job.stop_requested", {"stop": stop.value})


def resume(
    job: JobRecord,
    *,
    now: int,
    spent: Mapping[str, float],
    budget: Mapping[str, float] | None,
    stage_open: bool = True,
) -> Change:
    """Resumes a held job, or ends the hold of a waiting one.

    With `stage_open` False the hold ends, but the job stays WAITING for its stage.
    """
    _allowed(job, Verb.RESUME)
    if job.status is S.WAITING and not job.hold:
        raise refuse(job, Verb.RESUME, "its stage is not open yet")
    options = Options.parse(job.options)
    if budget is not None:
        options = replace(options, budget=tuple(sorted(budget.items())))
        job = replace(job, options=options.text())
    if job.status is not S.WAITING and (over := over_budget(options, spent)):
        raise WrongState(
            f"job {job.id} is over its budget ({over})", hint="resume it with a larger one", status=job.status.name
        )
    if not stage_open:
        return Change(replace(job, hold=0, reason=None), "job.unheld")
    return Change(_queued(replace(job, failure_kind=None, exhausted=0), now), "job.resumed")


def resolve(job: JobRecord, *, result: str, by: str, now: int) -> Change:
    _allowed(job, Verb.RESOLVE)
    ended = replace(_ended(job, S.COMPLETED, now, f"resolved by {by}"), failure_kind=None)
    return Change(ended, "job.resolved", {"by": by}, RunEnd(S.COMPLETED), result)


def release(job: JobRecord, *, by: str, now: int) -> Change:
    _allowed(job, Verb.RELEASE)
    ended = replace(_ended(job, S.FAILED, now, f"released by {by}"), exhausted=1)
    return Change(
        ended, "job.failed", {"reason": f"released by {by}", "exhausted": True}, RunEnd(S.FAILED, _stopping_error(job))
    )


def close_for_retry(job: JobRecord, *, by: str, now: int) -> Change:
    """Ends a held job as FAILED because a person retries it; the new job takes its place."""
    if job.status not in (S.PAUSED, S.ERROR):
        raise refuse(job, Verb.RETRY)
    reason = f"retried by {by}"
    return Change(
        _ended(job, S.FAILED, now, reason), "job.failed", {"reason": reason}, RunEnd(S.FAILED, _stopping_error(job))
    )


def bring_forward(
    job: JobRecord,
    *,
    now: int,
    params: str | None,
    priority: int | None,
    position: int | None,
    options: str | None,
    unfilled: str | None = None,
) -> Change:
    """Queues a waiting automatic retry now, instead of creating another retry."""
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


def _frozen(job: JobRecord) -> WrongState:
    return WrongState("Cannot modify params after dispatch", status=job.status.name, code="params_frozen")


class Cleared(enum.Enum):
    """Sentinel that removes a value. None means leave it unchanged."""

    CLEARED = "cleared"


CLEARED = Cleared.CLEARED


def edit(
    job: JobRecord,
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
    """Edits a waiting job. Params may change until the first claim, priority and position later too.

    `unfilled` are the params with their references to results; None if they have no references.
    """
    if params is not None and (job.fence > 0 or job.status >= S.RUNNING):
        raise _frozen(job)
    _allowed(job, Verb.EDIT)
    if job.group_id is not None and expires_at is not None:
        raise refuse(job, Verb.EDIT, "it is a step of a group, and steps do not expire")
    if job.fence > 0 and not_before is not None:
        raise refuse(job, Verb.EDIT, "it has run already: it can only be moved")
    start = None if isinstance(not_before, Cleared) else not_before
    if job.status is S.QUEUED and start is not None and start > now:
        raise refuse(job, Verb.EDIT, "it is already queued: interrupt it to put it on hold")
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
        changed = replace(changed, not_before=None)  # it stays queued and keeps `queued_at`
    elif not_before is not None:
        changed = replace(changed, not_before=start, queued_at=None)
        changed = changed if job.status is S.WAITING else _queued(changed, now)
    return Change(changed, "job.edited", _difference(job, changed))


def _difference(old: JobRecord, new: JobRecord) -> dict[str, object]:
    names = ("priority", "position", "not_before", "expires_at")
    found: dict[str, object] = {name: getattr(new, name) for name in names if getattr(new, name) != getattr(old, name)}
    return found | ({"params": "changed"} if new.params != old.params else {})


def move(job: JobRecord, *, priority: int, position: int) -> Change:
    _allowed(job, Verb.MOVE)
    moved = replace(job, priority=priority, position=position)
    return Change(moved, "job.moved", {"priority": priority, "position": position})


def over_budget(options: Options, spent: Mapping[str, float]) -> str | None:
    """Describes the first meter beyond its cap; None if none is."""
    for meter, cap in options.budget:
        if spent.get(meter, 0.0) > cap:
            return f"budget for {meter} used up: {spent[meter]:g} of {cap:g}"
    return None
