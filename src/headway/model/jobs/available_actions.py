"""Lists which verbs apply to a job, what each would do, and why the others do not apply. Pure.

This module decides nothing itself: it tries each verb on the job and shows that verb's own refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headway.errors import WrongState
from headway.model.explain.blockers import Explanation
from headway.model.jobs import actions
from headway.model.jobs.job import SYSTEM, JobRecord, Options
from headway.model.jobs.states import State, StopRequest, Verb

S = State
# In the order in which the dashboard shows them.
VERBS = (
    Verb.RESUME,
    Verb.RESOLVE,
    Verb.RETRY,
    Verb.RELEASE,
    Verb.EDIT,
    Verb.MOVE,
    Verb.INTERRUPT,
    Verb.CANCEL,
)
FIELDS = ("params", "priority", "not_before", "expires_at")


@dataclass(frozen=True, slots=True)
class Case:
    """A job, and everything else that decides which verbs apply.

    `chain` has every job of its retry chain, oldest first, `runs` the final status of their runs. `used` is the number
    of automatic retries that used up an attempt. `key_holder` is the unfinished job with the same key. `stage_open`
    means that its group allows it to run. `explained` says why it does not run now.
    """

    job: JobRecord
    now: int
    chain: tuple[JobRecord, ...] = ()
    runs: Mapping[int, State | None] = field(default_factory=dict)
    spent: Mapping[str, float] = field(default_factory=dict)
    used: int = 0
    key_holder: int | None = None
    stage_open: bool = True
    target: str | None = None
    worker: str | None = None
    lease_until: int | None = None
    explained: Explanation | None = None

    @property
    def options(self) -> Options:
        return Options.parse(self.job.options)


@dataclass(frozen=True, slots=True)
class Prospect:
    """A verb with its effect, or with the reason why it does not apply."""

    verb: Verb
    effect: str = ""
    why_not: str | None = None

    @property
    def applies(self) -> bool:
        return self.why_not is None


def prospects(case: Case) -> list[Prospect]:
    return [_prospect(case, verb) for verb in VERBS]


def _prospect(case: Case, verb: Verb) -> Prospect:
    why = _refusal(lambda: _TRIALS[verb](case))
    return Prospect(verb, _effect(verb, case)) if why is None else Prospect(verb, why_not=why)


def _refusal(trial: Callable[[], object]) -> str | None:
    try:
        trial()
    except WrongState as error:
        return str(error.facts.get("why", error))
    return None


# --- trials -------------------------------------------------------------------------------------------------------


def _resume(case: Case) -> None:
    # A job over its budget can be resumed with a larger one, so the budget is no refusal here.
    actions.resume(case.job, now=case.now, spent={}, budget=None, stage_open=case.stage_open)


def needs_budget(case: Case) -> str | None:
    """Describes the used-up meter if a resume needs a larger budget; None if it does not."""
    return actions.over_budget(case.options, case.spent) if case.job.status in (S.PAUSED, S.ERROR) else None


def _retry(case: Case) -> None:
    last = last_retry(case)
    if last is not None and not last.status.terminal:
        if last.status.claimable_later:
            return
        text = f"it is being retried already: job {last.id} is {last.status.name}"
        raise WrongState(text, status=last.status.name)
    closing = last if last is not None and case.job.group_id is not None else case.job
    if closing.status not in (S.PAUSED, S.ERROR) and not (
        closing.status.terminal and case.runs.get(closing.id) is S.FAILED
    ):
        raise actions.refuse(closing, Verb.RETRY)
    if case.key_holder is not None and case.key_holder != closing.id:
        raise WrongState(f"its key {closing.key!r} is taken by job {case.key_holder}", status=closing.status.name)


def last_retry(case: Case) -> JobRecord | None:
    """Returns the last automatic retry of a job; in a group, the last job of its step."""
    job = case.job
    if job.group_id is not None:
        step = [member for member in case.chain if member.group_id == job.group_id and member.step == job.step]
        return max((member for member in step if member.id > job.id), key=lambda member: member.id, default=None)
    last: JobRecord | None = None
    for retry in case.chain:
        if retry.retry_auto and retry.retry_of == (last or job).id:
            last = retry
    return last


_TRIALS: Mapping[Verb, Callable[[Case], object]] = {
    Verb.RESUME: _resume,
    Verb.RETRY: _retry,
    Verb.RESOLVE: lambda case: actions.resolve(case.job, result="null", by="", now=case.now),
    Verb.RELEASE: lambda case: actions.release(case.job, by="", now=case.now),
    Verb.EDIT: lambda case: actions.edit(case.job, now=case.now),
    Verb.MOVE: lambda case: actions.move(case.job, priority=case.job.priority, position=case.job.position),
    Verb.INTERRUPT: lambda case: actions.interrupt(case.job, actor=SYSTEM),
    Verb.CANCEL: lambda case: actions.cancel(case.job, actor=SYSTEM, now=case.now),
}


def closed_fields(job: JobRecord, now: int) -> dict[str, str]:
    """Returns the fields of a waiting job that can no longer change, each with the reason."""
    trials: Mapping[str, Callable[[], object]] = {
        "params": lambda: actions.edit(job, params=job.params, now=now),
        "priority": lambda: actions.edit(job, priority=job.priority, now=now),
        "not_before": lambda: actions.edit(job, not_before=now + 1, now=now),
        "expires_at": lambda: actions.edit(job, expires_at=now, now=now),
    }
    found = {name: _refusal(trials[name]) for name in FIELDS}
    return {name: why for name, why in found.items() if why is not None}


# --- effects ------------------------------------------------------------------------------------------------------


def _effect(verb: Verb, case: Case) -> str:
    job = case.job
    free = f" and {case.target} is free" if case.target is not None else ""
    match verb:
        case Verb.RESUME if job.status is S.WAITING:
            return (
                "It is no longer on hold." if case.stage_open else "It is no longer on hold, and waits for its stage."
            )
        case Verb.RESUME:
            return "It returns to its old place in the queue and continues from its last checkpoint."
        case Verb.RESOLVE:
            return f"You supply the result: it ends COMPLETED{free}."
        case Verb.RETRY:
            return _retry_effect(case)
        case Verb.RELEASE:
            return f"You give it up: it ends FAILED without a retry{free}."
        case Verb.EDIT:
            return "You change its priority and the fields that are still open."
        case Verb.MOVE:
            return "It gets another place in the queue."
        case Verb.INTERRUPT if job.status is S.RUNNING:
            return "It is asked to stop and becomes PAUSED; a resume continues it."
        case Verb.INTERRUPT:
            return "It is put on hold until a person resumes it."
        case Verb.CANCEL if job.status is S.RUNNING:
            again = " A stop is already requested." if job.stop is StopRequest.CANCEL else ""
            return f"It is asked to stop and ends CANCELLED, without a retry.{again}"
    return f"It ends CANCELLED{free}, without a retry."


def _retry_effect(case: Case) -> str:
    last = last_retry(case)
    if last is not None and not last.status.terminal:
        return f"Job {last.id}, its automatic retry, is queued now."
    if case.job.status in (S.PAUSED, S.ERROR):
        return "It ends FAILED, and a new job takes its place."
    return "A new job runs the same work, with a new count of retries."


def done(verb: Verb, job: JobRecord) -> str:
    """Describes what a verb did, from the job's new state."""
    match verb, job.status:
        case ((Verb.CANCEL | Verb.INTERRUPT), S.RUNNING):
            end = S.CANCELLED if job.stop is StopRequest.CANCEL else S.PAUSED
            return f"Job {job.id} was asked to stop: it will be {end.name} as soon as it does."
        case Verb.CANCEL, _:
            return f"Job {job.id} was cancelled."
        case Verb.INTERRUPT, _:
            return f"Job {job.id} is on hold until a person resumes it."
        case Verb.RESUME, S.WAITING:
            return f"Job {job.id} is no longer on hold and waits for its stage."
        case Verb.RESUME, S.SCHEDULED:
            return f"Job {job.id} is no longer on hold and waits for its time."
        case Verb.RESUME, _:
            return f"Job {job.id} was resumed and is in the queue."
        case Verb.RESOLVE, _:
            return f"Job {job.id} was resolved: it is COMPLETED."
        case Verb.RELEASE, _:
            return f"Job {job.id} was released: it is FAILED."
    return f"Job {job.id} was changed."
