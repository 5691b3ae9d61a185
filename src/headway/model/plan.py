"""Work in stages: how members are judged, when the next stage opens, and how a group ends. Pure.

An execution is a group of its own kind; both are advanced by the same rules and differ in the words for their end.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import Any, Protocol

from headway.errors import BadInput
from headway.model.job import NewJob
from headway.model.states import State
from headway.model.values import check_name, closest

log = logging.getLogger("headway")
MODES = ("sequential", "parallel", "staged")
OPEN = {"group": "RUNNING", "execution": "IN_PROGRESS"}
MOST_MEMBERS = 10_000
PREDECESSOR_FAILED = "predecessor failed"
RESULT = "$result"
SECRET = "$secret"


@dataclass(frozen=True, slots=True)
class NewMember:
    """A job to be made as a member: its stage, and its name in the group."""

    job: NewJob
    stage: int
    step: str


@dataclass(frozen=True, slots=True)
class NewGroup:
    """Jobs that are to be created together. With `after_id` it begins when that group has concluded."""

    name: str
    mode: str
    on_failure: str
    members: tuple[NewMember, ...]
    kind: str = "group"
    schedule_id: int | None = None
    reason: str | None = None
    nominal_at: int | None = None
    retry_of: int | None = None
    after_id: int | None = None
    stages: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A group or an execution as it is stored. `stage` is the open one, -1 before it has begun."""

    id: int
    tenant_id: int
    kind: str
    name: str
    mode: str
    on_failure: str
    status: str
    stage: int
    stages: int
    after_id: int | None
    cancelled_by: str | None
    error: str | None
    schedule_id: int | None
    reason: str | None
    nominal_at: int | None
    retry_of: int | None
    created_at: int
    finished_at: int | None
    created_by: str
    version: int


@dataclass(frozen=True, slots=True)
class Member:
    """A member as the last job of its chain stands."""

    job_id: int
    step: str
    stage: int
    state: State
    tolerated: bool = False
    reason: str | None = None
    error: str | None = None
    ran: bool = False

    @property
    def ended_by_plan(self) -> bool:
        """It never had its turn, because of another one's failure."""
        never = not self.ran and self.state in (State.CANCELLED, State.SKIPPED)
        return never and self.reason == PREDECESSOR_FAILED

    @property
    def succeeded(self) -> bool:
        return self.state is State.COMPLETED or (self.state is State.SKIPPED and not self.ended_by_plan)

    @property
    def failed(self) -> bool:
        """It had its turn and did not succeed. Who was cancelled by a person failed."""
        return self.state.terminal and not self.succeeded and not self.ended_by_plan


# --- what a failure means for the stages to come ------------------------------------------------------------------


class Verdict(StrEnum):
    """What becomes of the later stages."""

    GO_ON = "go on"
    CANCEL = "cancel"
    SKIP = "skip"


class FailurePolicy(Protocol):
    """Asked when a stage has ended with members that may not fail and did."""

    def judge(self, failed: Sequence[Member]) -> Verdict: ...


class Stop:
    def judge(self, failed: Sequence[Member]) -> Verdict:
        return Verdict.CANCEL


class Continue:
    def judge(self, failed: Sequence[Member]) -> Verdict:
        return Verdict.GO_ON


class SkipRest:
    def judge(self, failed: Sequence[Member]) -> Verdict:
        return Verdict.SKIP


POLICIES: Mapping[str, type[FailurePolicy]] = {"stop": Stop, "continue": Continue, "skip": SkipRest}


def failure_policy(name: str) -> FailurePolicy:
    """A built-in policy, or a user's own by its dotted name."""
    if name in POLICIES:
        return POLICIES[name]()
    module, _, attribute = name.replace(":", ".").rpartition(".")
    if not module:
        near = closest(name, POLICIES)
        hint = f": did you mean {near}?" if near else ", or the dotted name of a policy of your own"
        raise BadInput(f"on_failure must be stop, continue or skip, not {name!r}{hint}", field="on_failure")
    try:
        made = getattr(import_module(module), attribute)
        policy: FailurePolicy = made() if isinstance(made, type) else made
    except Exception as error:
        raise BadInput(f"on_failure: {name} cannot be imported: {error}", field="on_failure") from error
    if not callable(getattr(policy, "judge", None)):
        raise BadInput(f"on_failure: {name} has no method judge(failed)", field="on_failure")
    return policy


def judge(on_failure: str, stage: Iterable[Member]) -> Verdict:
    """What a stage that has ended means for the later ones."""
    failed = [member for member in stage if member.failed and not member.tolerated]
    if not failed:
        return Verdict.GO_ON
    try:
        verdict: object = failure_policy(on_failure).judge(failed)
    except Exception as error:  # noqa: BLE001 - a user's code must not wedge the group
        log.warning("on_failure %s cannot judge, so the group stops: %s", on_failure, error)
        return Verdict.CANCEL
    return verdict if isinstance(verdict, Verdict) else Verdict.CANCEL


# --- the end ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Conclusion:
    status: str
    error: str | None = None


def conclude(group: Group, members: Sequence[Member]) -> Conclusion:
    """How a group ends whose members have all ended."""
    if group.cancelled_by is not None:
        return Conclusion("CANCELLED")
    if group.kind == "execution":
        strict = [member for member in members if member.failed and not member.tolerated]
        return Conclusion("FAILED", _error(strict[0])) if strict else Conclusion("COMPLETED")
    return Conclusion("COMPLETED" if all(member.succeeded for member in members) else "PARTIAL")


def _error(member: Member) -> str:
    why = (member.error or member.reason or member.state.name.lower()).splitlines()[0]
    return f"step {member.step}: {why}"[:500]


# --- making one ---------------------------------------------------------------------------------------------------


def check_mode(mode: str) -> str:
    if mode not in MODES:
        near = closest(mode, MODES)
        hint = f": did you mean {near}?" if near else ""
        raise BadInput(f"mode must be sequential, parallel or staged, not {mode!r}{hint}", field="mode")
    return mode


def check_members(members: Sequence[NewMember], known: Mapping[str, int] | None = None) -> None:
    """What no group can hold, and references to results that will not be there. `known` are steps of the groups that
    this one retries."""
    if not members:
        raise BadInput("a group needs at least one step", field="steps")
    if len(members) > MOST_MEMBERS:
        raise BadInput(f"a group has at most {MOST_MEMBERS} steps, not {len(members)}", field="steps")
    stages = {member.step: member.stage for member in members}
    if len(stages) != len(members):
        raise BadInput("two steps of a group have the same name: give one of them another", field="steps")
    for n, member in enumerate(members):
        _check_member(n, member)
        if RESULT in member.job.params:
            wanted = references(json.loads(member.job.params))
            check_references(f"steps[{n}].params", wanted, member.stage, {**(known or {}), **stages})


def _check_member(n: int, member: NewMember) -> None:
    job = member.job
    check_name(member.step, field=f"steps[{n}].name")
    if member.stage < 0:
        raise BadInput(f"steps[{n}]: a stage is a whole number from 0, not {member.stage}", field=f"steps[{n}].index")
    for name in ("key", "expires_at"):
        if getattr(job, name) is not None:
            raise BadInput(f"steps[{n}]: {name} is for single jobs, not for steps", field=f"steps[{n}].{name}")
    if job.delay is not None and member.stage > 0:
        raise BadInput(
            f"steps[{n}]: delay is for the first stage: give not_before, or let the step before it wait",
            field=f"steps[{n}].delay",
        )


def references(value: Any) -> set[str]:
    """The steps whose results are to be filled in."""
    if isinstance(value, dict):
        if value.keys() == {RESULT}:
            if not isinstance(value[RESULT], str):
                raise BadInput(f"{RESULT} must be the name of an earlier step, not {value[RESULT]!r}", field="params")
            return {value[RESULT]}
        return set().union(*(references(one) for one in value.values())) if value else set()
    if isinstance(value, list):
        return set().union(*(references(one) for one in value)) if value else set()
    return set()


def filled(value: Any, results: Mapping[str, Any]) -> Any:
    """The params with the results in place of `{"$result": "step"}`; null where a step left none."""
    if isinstance(value, dict):
        if value.keys() == {RESULT} and isinstance(value[RESULT], str):
            return _harmless(results.get(value[RESULT]))
        return {name: filled(one, results) for name, one in value.items()}
    if isinstance(value, list):
        return [filled(one, results) for one in value]
    return value


def filled_size(value: Any, sizes: Mapping[str, int]) -> int:
    """How many characters the results alone would take: each time one is named, it is there once more."""
    if isinstance(value, dict):
        if value.keys() == {RESULT} and isinstance(value[RESULT], str):
            return sizes.get(value[RESULT], 0)
        return sum(filled_size(one, sizes) for one in value.values())
    return sum(filled_size(one, sizes) for one in value) if isinstance(value, list) else 0


def _harmless(value: Any) -> Any:
    """A result may come from anywhere: what looks like something to be filled in becomes text."""
    if isinstance(value, dict):
        if value.keys() in ({SECRET}, {RESULT}):
            return json.dumps(value)
        return {name: _harmless(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_harmless(one) for one in value]
    return value


def check_references(field: str, wanted: Iterable[str], stage: int, stages: Mapping[str, int]) -> None:
    """A step can use the results of earlier stages only."""
    for step in sorted(wanted):
        if step not in stages:
            near = closest(step, stages)
            hint = f": did you mean {near}?" if near else ""
            raise BadInput(f"{field}: no step is named {step!r}{hint}", field=field)
        if stages[step] >= stage:
            raise BadInput(f"{field}: step {step!r} does not come before it: its result is not there", field=field)


def unique_names(names: Sequence[str]) -> list[str]:
    """Each name once: the second `a` becomes `a 2`."""
    taken: set[str] = set()
    tried: dict[str, int] = {}
    found: list[str] = []
    for name in names:
        one, n = name, tried.get(name, 2)
        while one in taken:
            one, n = f"{name} {n}", n + 1
        tried[name] = n
        taken.add(one)
        found.append(one)
    return found


def retried(members: Sequence[Member]) -> list[Member]:
    """The members that a retry of a group runs again: from the first stage that failed, what did not succeed."""
    strict = [m.stage for m in members if m.failed and not m.tolerated]
    first = min(strict or [m.stage for m in members if not m.succeeded], default=0)
    return [m for m in members if m.stage >= first and not m.succeeded]
