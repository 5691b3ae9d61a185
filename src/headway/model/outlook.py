"""What people are told about a group or execution: how its jobs spent their time, how each stage stands, what it waits
for, when the rest may run, and why a verb does not apply. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

from headway.model.plan import Group, Member, Verdict, judge
from headway.model.states import State

S = State


# --- how a job spent its time -------------------------------------------------------------------------------------


class Spent(StrEnum):
    """How a job spends a while: until a time, in the queue, at work, or until a person decides."""

    DELAYED = "delayed"
    WAITING = "waiting"
    RUNNING = "running"
    HELD = "held"


class Change(NamedTuple):
    """An event of a job: when, what it led to, what it is called."""

    at: int
    status: State
    kind: str


@dataclass(frozen=True, slots=True)
class Phase:
    """`until` is None while it goes on."""

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


def phases(changes: Sequence[Change]) -> tuple[Phase, ...]:
    """The life of one job, from its events in their order. While its stage is not open it spends no time."""
    found: list[Phase] = []
    latest = 0
    for change in changes:
        latest = max(latest, change.at)  # clocks are stepped
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


# --- what is to come ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ahead:
    """A step that has not ended. `left`: how much longer such work usually takes, if that is known. `start`: when the
    queue lets it start, if that can be foreseen. `stuck`: a person has to decide first."""

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


def foresee(steps: Iterable[Ahead], now: int, *, begun: bool = True) -> dict[str, Planned]:
    """When the steps that have not ended run, if work takes as long as it usually does: each stage after the one before
    it, and nothing beyond a step of which nobody can tell. `begun`: it does not wait for another group."""
    found: dict[str, Planned] = {}
    ready = now if begun else None
    for _, stage in groupby(sorted(steps, key=lambda one: one.stage), key=lambda one: one.stage):
        members = {one.step: _planned(one, ready, now) for one in stage}
        known = {step: planned for step, planned in members.items() if planned is not None}
        found |= known
        if len(known) < len(members):
            break
        ready = max(planned.end for planned in known.values())
    return found


def _planned(one: Ahead, ready: int | None, now: int) -> Planned | None:
    if one.stuck or one.left is None:
        return None
    match one.state:
        case S.RUNNING:
            start: int | None = now
        case S.WAITING:
            start = ready
        case _:
            start = one.start
    return None if start is None else Planned(start, start + max(0, one.left))


def stops_after(group: Group, members: Sequence[Member]) -> int | None:
    """The stage after which nothing more runs, because of what failed in it already."""
    if group.cancelled_by is not None:
        return group.stage
    failed = [one for one in members if one.stage == group.stage and one.failed]
    return group.stage if judge(group.on_failure, failed) is not Verdict.GO_ON else None


# --- how it stands ------------------------------------------------------------------------------------------------


class Standing(StrEnum):
    """How a stage stands."""

    DONE = "done"
    FAILED = "failed"
    NOT_RUN = "not run"
    HELD = "held"
    RUNNING = "running"
    WAITING = "waiting"
    TO_COME = "to come"


def standing(members: Collection[Member], *, held: bool, is_open: bool) -> Standing:
    """One stage. `held`: one of its steps waits for a person. `is_open`: its turn has come."""
    states = {one.state for one in members}
    if held:
        return Standing.HELD
    if S.RUNNING in states:
        return Standing.RUNNING
    if not all(state.terminal for state in states):
        return Standing.WAITING if is_open else Standing.TO_COME
    if any(one.failed and not one.tolerated for one in members):
        return Standing.FAILED
    return Standing.NOT_RUN if all(one.ended_by_plan for one in members) else Standing.DONE


@dataclass(frozen=True, slots=True)
class Waits:
    """What an unfinished group waits for, in words. `person`: for somebody's decision."""

    text: str
    person: bool = False


def waits_for(group: Group, members: Collection[Member], held: Sequence[Member]) -> Waits | None:
    if group.finished_at is not None:
        return None
    states = [one.state for one in members if not one.state.terminal]
    if group.cancelled_by is not None:
        return Waits(f"It is being cancelled: {_steps(len(states))} still {_has(len(states))} to stop.")
    if group.stage < 0:
        return Waits(f"It begins when {group.kind} {group.after_id} has ended.")
    where = f"stage {group.stage + 1} of {group.stages}" if group.stages > 1 else "its only stage"
    if held:
        names = ", ".join(one.step for one in held[:3]) + (f" and {len(held) - 3} more" if len(held) > 3 else "")
        return Waits(f"It waits for a person in {where}: {names}.", person=True)
    running, waiting = states.count(S.RUNNING), sum(state in (S.QUEUED, S.SCHEDULED) for state in states)
    facts = [f"{_steps(running)} at work"] if running else []
    facts += [f"{_steps(waiting)} in the queue"] if waiting else []
    return Waits(f"It is in {where}: {', '.join(facts) or 'nothing runs yet'}.")


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _has(count: int) -> str:
    return "has" if count == 1 else "have"


def no_cancel(group: Group) -> str | None:
    """Why a group cannot be cancelled now."""
    if group.finished_at is not None:
        return f"it has already ended: {group.status}"
    return "it is being cancelled already" if group.cancelled_by is not None else None


def no_retry(group: Group, again: Collection[Member], rivals: Mapping[int, str]) -> str | None:
    """Why a group cannot be retried now. `rivals`: unfinished ones that must not run beside a retry, and what they
    are."""
    if group.finished_at is None:
        return "it can be retried when it has ended"
    if not again:
        return "nothing in it failed"
    return next((f"{group.kind} {number} {what}" for number, what in rivals.items()), None)
