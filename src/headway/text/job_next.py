"""Sentences about what happens next to a job, for each state. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from headway.model.explain.durations import is_overdue
from headway.model.explain.forecast import span
from headway.model.explain.snapshot import lapsed
from headway.model.jobs.available_actions import Case, last_retry, needs_budget
from headway.model.jobs.job import JobRecord
from headway.model.jobs.states import State, StopRequest

S = State
_WAYS_OUT = "resume, resolve, retry, release or cancel it"


def becomes(case: Case) -> list[str]:
    match case.job.status:
        case S.WAITING:
            return list(_waiting(case))
        case S.SCHEDULED:
            return list(_scheduled(case))
        case S.QUEUED:
            return list(_queued(case))
        case S.RUNNING:
            return list(_running(case))
        case S.PAUSED | S.ERROR:
            return list(_held(case))
        case S.COMPLETED:
            return ["It is done. Nothing more happens."]
        case S.FAILED:
            return list(_failed(case))
        case S.SKIPPED:
            return ["There was nothing to do for it. Nothing more happens."] if case.job.fence else [_never(case.job)]
    return list(_cancelled(case))


# --- before it runs -----------------------------------------------------------------------------------------------


def _waiting(case: Case) -> Iterator[str]:
    if case.job.hold:
        yield "It is on hold: nothing happens until a person resumes it."
        if not case.stage_open:
            yield "Its stage is not open yet either."
    else:
        yield "It waits for its stage, and enters the queue when the stages before it have ended."
    yield from _expiry(case)


def _scheduled(case: Case) -> Iterator[str]:
    due = case.job.not_before
    if due is not None and due > case.now:
        yield f"It enters the queue in {span(due - case.now)}."
    else:
        yield "Its time has come: it enters the queue with the next claim."
    yield from _expiry(case)


def _queued(case: Case) -> Iterator[str]:
    if lapsed(case.job, case.now):
        yield "It has expired: the next claim skips it."
        return
    explained = case.explained
    rank = explained.rank if explained is not None else None
    place = f"It is at rank {rank} of the queue" if rank is not None else "It is in the queue"
    if explained is None or (explained.blockers and explained.start_estimate is None):
        yield f"{place}. Its start cannot be estimated."
    elif is_overdue(explained.start_estimate, explained.blockers, case.now):
        yield f"{place} and should have begun: what is in its way takes longer than usual."
    elif explained.start_estimate is not None:
        yield f"{place} and {explained.start_estimate.shown(case.now)}."
    else:
        yield f"{place}, nothing is in its way, and the next free worker takes it."
    if case.job.fence:
        yield "It was resumed: it continues from its last checkpoint."
    yield from _expiry(case)


def _expiry(case: Case) -> Iterator[str]:
    ends = case.job.expires_at
    if ends is not None and ends > case.now and case.job.fence == 0:
        yield f"If it has not started in {span(ends - case.now)}, it is skipped."


# --- while it runs ------------------------------------------------------------------------------------------------


def _running(case: Case) -> Iterator[str]:
    job = case.job
    if job.stop is not None:
        end = "CANCELLED" if job.stop is StopRequest.CANCEL else "PAUSED"
        yield f"It was asked to stop and will be {end} as soon as it does; if it completes first, it is COMPLETED."
    if case.lease_until is not None and case.lease_until < case.now:
        late = span(case.now - case.lease_until)
        yield f"Its worker is {late} beyond its lease: if it is gone, the next recovery ends this run as LOST."
    if (left := _time_left(case)) is not None:
        yield f"If it still runs in {span(left)}, it is stopped and fails (TIMEOUT)."
    if job.stop is None:
        yield _on_failure(case)


def _time_left(case: Case) -> int | None:
    timeout, since = case.options.timeout, case.job.claimed_at
    if timeout is None or since is None:
        return None
    return max(0, round(timeout * 1e6) - case.job.ran - (case.now - since))


def _on_failure(case: Case) -> str:
    options = case.options
    left = max(0, options.retry.max_attempts - case.used)
    if left:
        times = "once more" if left == 1 else f"up to {left} times"
        wait = span(round(options.retry.delay(case.used, lambda: 0.0) * 1e6))
        return f"If it fails, it is tried again {times}, the first time after {wait}."
    if case.target is not None and options.on_error != "fail":
        return f"If it fails, it is not tried again: it becomes ERROR and holds {case.target} until a person decides."
    return "If it fails, it is not tried again and stays FAILED."


# --- when a person has to decide ----------------------------------------------------------------------------------


def _held(case: Case) -> Iterator[str]:
    if case.target is not None:
        yield f"It holds {case.target}: nothing else starts there until a person decides to {_WAYS_OUT}."
    else:
        yield f"Nothing happens until a person decides to {_WAYS_OUT}."
    if (over := needs_budget(case)) is not None:
        yield f"A resume needs a larger budget ({over})."
    if case.job.group_id is not None:
        yield "Its stage, and all that comes after it, waits too."


# --- when it has ended --------------------------------------------------------------------------------------------


def _failed(case: Case) -> Iterator[str]:
    most = case.options.retry.max_attempts
    if (again := _next_try(case)) is not None:
        yield _tries(again, case)
    elif case.job.exhausted and 0 < most <= case.used:
        tries = "The one automatic retry is" if most == 1 else f"All {most} automatic retries are"
        yield f"{tries} used up. Nothing happens until a person retries it."
    else:
        yield "It is not tried again by itself. Nothing happens until a person retries it."


def _cancelled(case: Case) -> Iterator[str]:
    if (again := _next_try(case)) is not None:
        yield _tries(again, case)
    elif case.runs.get(case.job.id) is S.FAILED:
        yield "Nothing more happens, unless a person retries it."
    else:
        yield "It never ran. Nothing more happens."


def _never(job: JobRecord) -> str:
    why = "it had not started in time" if job.reason == "expired" else job.reason or "it was left out"
    return f"It never ran: {why}. Nothing more happens."


def _next_try(case: Case) -> JobRecord | None:
    """Returns the last automatic retry, otherwise the newest manual one; None if there is no retry."""
    made = [job for job in case.chain if job.retry_of == case.job.id]
    return last_retry(case) or max(made, key=lambda job: job.id, default=None)


def _tries(again: JobRecord, case: Case) -> str:
    match again.status:
        case S.SCHEDULED if again.not_before is not None and again.not_before > case.now:
            return f"Job {again.id} tries again in {span(again.not_before - case.now)} (attempt {again.attempt})."
        case S.WAITING | S.SCHEDULED | S.QUEUED:
            return f"Job {again.id} tries again: it is {again.status.name} (attempt {again.attempt})."
        case S.RUNNING:
            return f"Job {again.id} is trying again right now (attempt {again.attempt})."
        case S.PAUSED | S.ERROR:
            return f"Job {again.id} tried again and is {again.status.name}: a person has to decide."
    return f"Job {again.id} tried again: it ended {again.status.name}."
