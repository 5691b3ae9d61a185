"""Groups: how members are judged, when the next stage opens, and how a group ends.

An execution is a kind of group. The same rules advance both; only the final statuses differ.
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
from headway.model.jobs.job import NewJob
from headway.model.jobs.states import State
from headway.model.values.names import check_name
from headway.model.values.suggestions import closest

log = logging.getLogger("headway")
MODES = ("sequential", "parallel", "staged")
OPEN = {"group": "RUNNING", "execution": "IN_PROGRESS"}
MOST_MEMBERS = 10_000
PREDECESSOR_FAILED = "predecessor failed"
RESULT = "$result"
SECRET = "$secret"


@dataclass(frozen=True, slots=True)
class NewMember:
    """A job to be created as a member of a group: its stage, and its step name."""

    job: NewJob
    stage: int
    step: str


@dataclass(frozen=True, slots=True)
class NewGroup:
    """A group to be created with all its jobs. With `after_id` it starts when that group has ended."""

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
    """A group or an execution as it is stored. `stage` is the open stage, -1 before the start."""

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
    """A member of a group, with the state of the last job of its retry chain."""

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
        """Returns True if the failure policy ended this member before it ran."""
        never = not self.ran and self.state in (State.CANCELLED, State.SKIPPED)
        return never and self.reason == PREDECESSOR_FAILED

    @property
    def succeeded(self) -> bool:
        return self.state is State.COMPLETED or (self.state is State.SKIPPED and not self.ended_by_plan)

    @property
    def failed(self) -> bool:
        """Returns True if the member ended without success; one that a person cancelled has failed."""
        return self.state.terminal and not self.succeeded and not self.ended_by_plan


# --- failure policies ---------------------------------------------------------------------------------------------


class Verdict(StrEnum):
    """The decision about the later stages."""

    GO_ON = "go on"
    CANCEL = "cancel"
    SKIP = "skip"


class FailurePolicy(Protocol):
    """Decides about the later stages when a stage has ended with failed members that are not tolerated."""

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
    """Returns a built-in policy, or imports a custom one by its dotted name."""
    if name in POLICIES:
        return POLICIES[name]()
    module, _, attribute = name.replace(":", ".").rpartition(".")
    if not module:
        near = closest(name, POLICIES)
        hint = f": did you mean {near}?" if near else ", or the dotted name of your own policy"
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
    """Returns the policy's verdict about the stages after this ended stage."""
    failed = [member for member in stage if member.failed and not member.tolerated]
    if not failed:
        return Verdict.GO_ON
    try:
        verdict: object = failure_policy(on_failure).judge(failed)
    except Exception as error:  # noqa: BLE001 - an error in a custom policy must not block the group
        log.warning("the failure policy %s failed, so the later stages are cancelled: %s", on_failure, error)
        return Verdict.CANCEL
    return verdict if isinstance(verdict, Verdict) else Verdict.CANCEL


# --- the end ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Conclusion:
    status: str
    error: str | None = None


def conclude(group: Group, members: Sequence[Member]) -> Conclusion:
    """Returns the final status of a group whose members have all ended."""
    if group.cancelled_by is not None:
        return Conclusion("CANCELLED")
    if group.kind == "execution":
        strict = [member for member in members if member.failed and not member.tolerated]
        return Conclusion("FAILED", _error(strict[0])) if strict else Conclusion("COMPLETED")
    return Conclusion("COMPLETED" if all(member.succeeded for member in members) else "PARTIAL")


def _error(member: Member) -> str:
    why = (member.error or member.reason or member.state.name.lower()).splitlines()[0]
    return f"step {member.step}: {why}"[:500]


# --- creation -----------------------------------------------------------------------------------------------------


def check_mode(mode: str) -> str:
    if mode not in MODES:
        near = closest(mode, MODES)
        hint = f": did you mean {near}?" if near else ""
        raise BadInput(f"mode must be sequential, parallel or staged, not {mode!r}{hint}", field="mode")
    return mode


def check_members(members: Sequence[NewMember], known: Mapping[str, int] | None = None) -> None:
    """Refuses members that a group cannot have, and references to results that will not exist.

    `known` has the steps, with their stages, of the groups that this one retries.
    """
    if not members:
        raise BadInput("a group needs at least one step", field="steps")
    if len(members) > MOST_MEMBERS:
        raise BadInput(f"a group has at most {MOST_MEMBERS} steps, not {len(members)}", field="steps")
    stages = {member.step: member.stage for member in members}
    if len(stages) != len(members):
        raise BadInput("two steps of a group have the same name", hint="rename one of them", field="steps")
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
            f"steps[{n}]: delay is allowed only in the first stage",
            hint="use not_before, or wait in the step before it",
            field=f"steps[{n}].delay",
        )


def references(value: Any) -> set[str]:
    """Returns the steps whose results the params refer to."""
    if isinstance(value, dict):
        if value.keys() == {RESULT}:
            if not isinstance(value[RESULT], str):
                raise BadInput(f"{RESULT} must be the name of an earlier step, not {value[RESULT]!r}", field="params")
            return {value[RESULT]}
        return set().union(*(references(item) for item in value.values())) if value else set()
    if isinstance(value, list):
        return set().union(*(references(item) for item in value)) if value else set()
    return set()


def filled(value: Any, results: Mapping[str, Any]) -> Any:
    """Replaces each `{"$result": "step"}` in the params by the step's result, or null if it has none."""
    if isinstance(value, dict):
        if value.keys() == {RESULT} and isinstance(value[RESULT], str):
            return _harmless(results.get(value[RESULT]))
        return {name: filled(item, results) for name, item in value.items()}
    if isinstance(value, list):
        return [filled(item, results) for item in value]
    return value


def filled_size(value: Any, sizes: Mapping[str, int]) -> int:
    """Returns how many characters the inserted results take; a result counts once per reference."""
    if isinstance(value, dict):
        if value.keys() == {RESULT} and isinstance(value[RESULT], str):
            return sizes.get(value[RESULT], 0)
        return sum(filled_size(item, sizes) for item in value.values())
    return sum(filled_size(item, sizes) for item in value) if isinstance(value, list) else 0


def _harmless(value: Any) -> Any:
    """Turns references inside a result into text, because a result may come from an untrusted source."""
    if isinstance(value, dict):
        if value.keys() in ({SECRET}, {RESULT}):
            return json.dumps(value)
        return {name: _harmless(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_harmless(item) for item in value]
    return value


def check_references(field: str, wanted: Iterable[str], stage: int, stages: Mapping[str, int]) -> None:
    """Refuses references to unknown steps, and to steps that are not in an earlier stage."""
    for step in sorted(wanted):
        if step not in stages:
            near = closest(step, stages)
            hint = f": did you mean {near}?" if near else ""
            raise BadInput(f"{field}: no step is named {step!r}{hint}", field=field)
        if stages[step] >= stage:
            raise BadInput(f"{field}: step {step!r} is not in an earlier stage: its result does not exist", field=field)


def unique_names(names: Sequence[str]) -> list[str]:
    """Returns the names made unique: the second `a` becomes `a 2`."""
    taken: set[str] = set()
    tried: dict[str, int] = {}
    found: list[str] = []
    for name in names:
        candidate, n = name, tried.get(name, 2)
        while candidate in taken:
            candidate, n = f"{name} {n}", n + 1
        tried[name] = n
        taken.add(candidate)
        found.append(candidate)
    return found


def retried(members: Sequence[Member]) -> list[Member]:
    """Returns the members that a retry of the group runs: those without success, from the first failed stage."""
    strict = [m.stage for m in members if m.failed and not m.tolerated]
    first = min(strict or [m.stage for m in members if not m.succeeded], default=0)
    return [m for m in members if m.stage >= first and not m.succeeded]
