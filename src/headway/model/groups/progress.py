"""Progress of a group or execution: phases of its jobs, status of each stage, forecast, refusals of verbs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

from headway.model.groups.group import Group, Member, Verdict, judge
from headway.model.jobs.states import State

S = State


# --- phases of a job ----------------------------------------------------------------------------------------------


class Spent(StrEnum):
    """The kind of a phase: before its time, in the queue, running, or until a person decides."""

    DELAYED = "delayed"
    WAITING = "waiting"
    RUNNING = "running"
    HELD = "held"


class JobEvent(NamedTuple):
    """An event of a job: its time, the state it led to, its kind."""

    at: int
    status: State
    kind: str


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of a job. `until` is None while it lasts."""

    spent: Spent
    since: int
    until: int | None


_SPENT = {
    S.SCHEDULED: Spent.DELAYED,
    S.QUEUED: Spent.WAITING,
    S.RUNNING: Spent.RUNNING,
    S.PAUSED: Spent.HELD,
    S.ERROR: Spent.HELD,
}


def phases(changes: Sequence[JobEvent]) -> tuple[Phase, ...]:
    """Returns the phases of one job from its ordered events; the wait for a stage is not a phase."""
    found: list[Phase] = []
    latest = 0
    for change in changes:
        latest = max(latest, change.at)  # a clock may step back
        spent = Spent.HELD if change.kind == "job.held" else _SPENT.get(change.status)
        last = found[-1] if found and found[-1].until is None else None
        if last is not None and last.spent is spent:
            continue
        if last is not None:
            found[-1] = Phase(last.spent, last.since, latest)
        if spent is not None:
            found.append(Phase(spent, latest, None))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One job of a member's chain."""

    job_id: int
    step: str
    state: State
    phases: tuple[Phase, ...]


# --- forecast -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UnfinishedStep:
    """A step that has not ended.

    `left` is the usual remaining time, `start` the forecast of the queue; both are None if unknown. `stuck` means that
    a person must decide first.
    """

    step: str
    stage: int
    state: State
    left: int | None = None
    start: int | None = None
    stuck: bool = False


@dataclass(frozen=True, slots=True)
class Planned:
    start: int
    end: int


def foresee(steps: Iterable[UnfinishedStep], now: int, *, begun: bool = True) -> dict[str, Planned]:
    """Forecasts when the unfinished steps run, from their usual durations.

    A stage starts at the end of the stage before. The forecast ends at the first stage with an unknown step. `begun`
    False means that the group waits for another group.
    """
    found: dict[str, Planned] = {}
    ready = now if begun else None
    for _, stage in groupby(sorted(steps, key=lambda step: step.stage), key=lambda step: step.stage):
        members = {unfinished.step: _planned(unfinished, ready, now) for unfinished in stage}
        known = {step: planned for step, planned in members.items() if planned is not None}
        found |= known
        if len(known) < len(members):
            break
        ready = max(planned.end for planned in known.values())
    return found


def _planned(step: UnfinishedStep, ready: int | None, now: int) -> Planned | None:
    if step.stuck or step.left is None:
        return None
    match step.state:
        case S.RUNNING:
            start: int | None = now
        case S.WAITING:
            start = ready
        case _:
            start = step.start
    return None if start is None else Planned(start, start + max(0, step.left))


def stops_after(group: Group, members: Sequence[Member]) -> int | None:
    """Returns the stage after which nothing runs, because of a cancel or a failure; None if all may run."""
    if group.cancelled_by is not None:
        return group.stage
    failed = [member for member in members if member.stage == group.stage and member.failed]
    return group.stage if judge(group.on_failure, failed) is not Verdict.GO_ON else None


# --- status -------------------------------------------------------------------------------------------------------


class StageStanding(StrEnum):
    """The status of a stage."""

    DONE = "done"
    FAILED = "failed"
    NOT_RUN = "not run"
    HELD = "held"
    RUNNING = "running"
    WAITING = "waiting"
    TO_COME = "to come"


def standing(members: Collection[Member], *, held: bool, is_open: bool) -> StageStanding:
    """Returns the status of one stage. `held` means that one of its steps waits for a person."""
    states = {member.state for member in members}
    if held:
        return StageStanding.HELD
    if S.RUNNING in states:
        return StageStanding.RUNNING
    if not all(state.terminal for state in states):
        return StageStanding.WAITING if is_open else StageStanding.TO_COME
    if any(member.failed and not member.tolerated for member in members):
        return StageStanding.FAILED
    return StageStanding.NOT_RUN if all(member.ended_by_plan for member in members) else StageStanding.DONE


@dataclass(frozen=True, slots=True)
class Waits:
    """The reason why a group is not finished. `person` means that a person must decide."""

    text: str
    person: bool = False


def waits_for(group: Group, members: Collection[Member], held: Sequence[Member]) -> Waits | None:
    if group.finished_at is not None:
        return None
    states = [member.state for member in members if not member.state.terminal]
    if group.cancelled_by is not None:
        return Waits(f"It is being cancelled: {_steps(len(states))} still {_has(len(states))} to stop.")
    if group.stage < 0:
        return Waits(f"It starts when {group.kind} {group.after_id} has ended.")
    where = f"stage {group.stage + 1} of {group.stages}" if group.stages > 1 else "its only stage"
    if held:
        names = ", ".join(member.step for member in held[:3]) + (f" and {len(held) - 3} more" if len(held) > 3 else "")
        return Waits(f"It waits for a person in {where}: {names}.", person=True)
    running, waiting = states.count(S.RUNNING), sum(state in (S.QUEUED, S.SCHEDULED) for state in states)
    facts = [f"{_steps(running)} running"] if running else []
    facts += [f"{_steps(waiting)} in the queue"] if waiting else []
    return Waits(f"It is in {where}: {', '.join(facts) or 'nothing runs yet'}.")


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _has(count: int) -> str:
    return "has" if count == 1 else "have"


def no_cancel(group: Group) -> str | None:
    """Returns why a group cannot be cancelled now; None if it can."""
    if group.finished_at is not None:
        return f"it has already ended: {group.status}"
    return "it is being cancelled already" if group.cancelled_by is not None else None


def no_retry(group: Group, again: Collection[Member], rivals: Mapping[int, str]) -> str | None:
    """Returns why a group cannot be retried now; None if it can.

    `rivals` are unfinished groups that must not run beside a retry, each with a description.
    """
    if group.finished_at is None:
        return "it can be retried when it has ended"
    if not again:
        return "nothing in it failed"
    return next((f"{group.kind} {number} {what}" for number, what in rivals.items()), None)
