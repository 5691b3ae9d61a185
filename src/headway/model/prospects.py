"""What may become of a job: which verbs apply to it and what each would do, and why the others do not apply. Pure.

Nothing is decided here a second time: each verb is tried on the job as it is, and its own refusal is what is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headway.errors import WrongState
from headway.model import verbs
from headway.model.job import SYSTEM, Job, Options
from headway.model.states import State, Stop, Verb
from headway.model.waiting import Explanation

S = State
# In the order in which they are offered.
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
    """A job, and what else decides what becomes of it.

    `chain`: every job of its retry chain, oldest first; `runs`: how their runs were closed. `used`: the automatic
    retries that were paid for. `key_holder`: the unfinished job that has its key. `stage_open`: as far as its group
    goes it may run. `explained`: why it does not run now.
    """

    job: Job
    now: int
    chain: tuple[Job, ...] = ()
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
    """A verb, and what it would do; or why it does not apply."""

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


# --- whether a verb applies ---------------------------------------------------------------------------------------


def _resume(case: Case) -> None:
    # Over its budget a job goes on with a larger one, so that alone does not close the door.
    verbs.resume(case.job, now=case.now, spent={}, budget=None, stage_open=case.stage_open)


def needs_budget(case: Case) -> str | None:
    """Which meter is used up, so that a resume has to bring a larger budget."""
    return verbs.over_budget(case.options, case.spent) if case.job.status in (S.PAUSED, S.ERROR) else None


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
        raise verbs.refuse(closing, Verb.RETRY)
    if case.key_holder is not None and case.key_holder != closing.id:
        raise WrongState(f"its key {closing.key!r} is taken by job {case.key_holder}", status=closing.status.name)


def last_retry(case: Case) -> Job | None:
    """The last automatic retry of a job; in a group the last job of its step, whoever made it."""
    job = case.job
    if job.group_id is not None:
        step = [one for one in case.chain if one.group_id == job.group_id and one.step == job.step]
        return max((one for one in step if one.id > job.id), key=lambda one: one.id, default=None)
    last: Job | None = None
    for one in case.chain:
        if one.retry_auto and one.retry_of == (last or job).id:
            last = one
    return last


_TRIALS: Mapping[Verb, Callable[[Case], object]] = {
    Verb.RESUME: _resume,
    Verb.RETRY: _retry,
    Verb.RESOLVE: lambda case: verbs.resolve(case.job, result="null", by="", now=case.now),
    Verb.RELEASE: lambda case: verbs.release(case.job, by="", now=case.now),
    Verb.EDIT: lambda case: verbs.edit(case.job, now=case.now),
    Verb.MOVE: lambda case: verbs.move(case.job, priority=case.job.priority, position=case.job.position),
    Verb.INTERRUPT: lambda case: verbs.interrupt(case.job, actor=SYSTEM),
    Verb.CANCEL: lambda case: verbs.cancel(case.job, actor=SYSTEM, now=case.now),
}


def closed_fields(job: Job, now: int) -> dict[str, str]:
    """What of a job that waits cannot be changed any more, and why."""
    trials: Mapping[str, Callable[[], object]] = {
        "params": lambda: verbs.edit(job, params=job.params, now=now),
        "priority": lambda: verbs.edit(job, priority=job.priority, now=now),
        "not_before": lambda: verbs.edit(job, not_before=now + 1, now=now),
        "expires_at": lambda: verbs.edit(job, expires_at=now, now=now),
    }
    found = {name: _refusal(trials[name]) for name in FIELDS}
    return {name: why for name, why in found.items() if why is not None}


# --- what it would do ---------------------------------------------------------------------------------------------


def _effect(verb: Verb, case: Case) -> str:
    job = case.job
    free = f" and {case.target} is free" if case.target is not None else ""
    match verb:
        case Verb.RESUME if job.status is S.WAITING:
            return (
                "It is no longer on hold." if case.stage_open else "It is no longer on hold, and waits for its stage."
            )
        case Verb.RESUME:
            return "It goes back to its old place in the queue and goes on from its last checkpoint."
        case Verb.RESOLVE:
            return f"You supply the result: it ends COMPLETED{free}."
        case Verb.RETRY:
            return _retry_effect(case)
        case Verb.RELEASE:
            return f"You give it up: it ends FAILED without a retry{free}."
        case Verb.EDIT:
            return "Its priority and what is still open can be changed."
        case Verb.MOVE:
            return "It gets another place in the queue."
        case Verb.INTERRUPT if job.status is S.RUNNING:
            return "It is asked to stop and ends PAUSED; somebody can resume it."
        case Verb.INTERRUPT:
            return "It is put on hold until somebody resumes it."
        case Verb.CANCEL if job.status is S.RUNNING:
            again = " It was asked to already." if job.stop is Stop.CANCEL else ""
            return f"It is asked to stop and ends CANCELLED, without a retry.{again}"
    return f"It ends CANCELLED{free}, without a retry."


def _retry_effect(case: Case) -> str:
    last = last_retry(case)
    if last is not None and not last.status.terminal:
        return f"Job {last.id}, which tries again anyway, is brought forward."
    if case.job.status in (S.PAUSED, S.ERROR):
        return "It ends FAILED, and a new job takes its place."
    return "A new job tries the same again, with a new count of retries."


def done(verb: Verb, job: Job) -> str:
    """What a verb did, told by the job as it is since."""
    match verb, job.status:
        case ((Verb.CANCEL | Verb.INTERRUPT), S.RUNNING):
            end = S.CANCELLED if job.stop is Stop.CANCEL else S.PAUSED
            return f"Job {job.id} was asked to stop: it will be {end.name} as soon as it does."
        case Verb.CANCEL, _:
            return f"Job {job.id} was cancelled."
        case Verb.INTERRUPT, _:
            return f"Job {job.id} is on hold until somebody resumes it."
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
