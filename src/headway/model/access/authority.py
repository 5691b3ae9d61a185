"""The authority over data that becomes code: one rule, asked wherever work is placed or its data change. Pure.

A caller that decides a value which flows into params of an admin kind must be allowed to give those params directly.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headway.errors import Refused
from headway.model.access.permissions import Role
from headway.model.groups.group import RESULT, references
from headway.model.templates import Template
from headway.model.values.refuse import refuse

# These tasks execute any code in their params, with the permissions of the worker's user.
ADMIN_TASKS = frozenset({"command", "powershell", "sql"})
# A failure policy with a dotted name is a module that Headway imports.
POLICY = "policy"
KINDS = ("command", "powershell", "sql", POLICY)
# Built-in tasks get params only; a task of an app also reads the results of every earlier step (`ctx.results`).
BUILT_IN = ADMIN_TASKS | {"http"}
# Options that set when a job runs and which webhook is called, but neither what it executes nor its lanes.
HARMLESS = frozenset(
    ("priority", "delay", "not_before", "expires_at", "key", "hold", "webhook_url", "webhook_events", "traceparent")
)


@dataclass(frozen=True, slots=True)
class Authority:
    """A caller, or the author of a definition: its role, and the admin kinds that are open to it."""

    who: str
    role: Role
    kinds: frozenset[str]
    tenant: str = ""

    def may(self, kind: str) -> bool:
        return kind not in KINDS or (self.role.may(Role.ADMIN) and kind in self.kinds)


# A process with the address of the database decides everything: it could write the rows itself.
OWNER = Authority("the owner of the database", Role.ADMIN, frozenset(KINDS))


def check_kinds(given: object, *, field: str = "allow") -> tuple[str, ...]:
    """Returns the admin kinds in their order; refuses unknown ones."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        refuse(field, f"must be a list of {', '.join(KINDS)}")
    wanted = list(given)
    for kind in wanted:
        if kind not in KINDS:
            refuse(field, f"must name {', '.join(KINDS[:-1])} or {KINDS[-1]}, not {kind!r}")
    return tuple(kind for kind in KINDS if kind in wanted)


# --- work and its params ------------------------------------------------------------------------------------------


def check_task(authority: Authority, task: str) -> None:
    """Refuses work of a task whose params this authority may not decide."""
    if task in ADMIN_TASKS and not authority.may(task):
        text = f"{task} executes any code in its params: only an admin may create or edit jobs of it"
        raise _refused(authority, task, text + "; use an admin's template instead")


def check_tasks(authority: Authority, tasks: Iterable[str]) -> None:
    for task in tasks:
        check_task(authority, task)


def check_new_params(authority: Authority, tasks: Iterable[str]) -> None:
    """Refuses new params for existing work: an edit, a retry with edited params, a manual run with params."""
    for task in tasks:
        if task in ADMIN_TASKS and not authority.may(task):
            text = f"{task} executes any code in its params: only an admin may change them"
            raise _refused(authority, task, text, field="params")


def check_from_template(
    authority: Authority,
    template: Template,
    params: Collection[str] = (),
    options: Mapping[str, object] | None = None,
) -> None:
    """Refuses options and params that an operator may not set on an admin's template.

    An operator may run a template of an admin kind with its open params and harmless options.
    """
    if template.task not in ADMIN_TASKS or authority.may(template.task):
        return
    for name in params:
        if name not in template.open_params:
            listed = ", ".join(template.open_params) or "none"
            text = f"template {template.name!r} of {template.task} has these open params: {listed}"
            text = f"{text}; only an admin may set {name!r}"
            raise _refused(authority, template.task, text, field=f"params.{name}")
    for name, value in (options or {}).items():
        if value is not None and name not in HARMLESS:
            text = f"with template {template.name!r} of {template.task} only an admin may set {name}"
            raise _refused(authority, template.task, text, field=name)


def is_of(template: Template, task: str, params: str) -> bool:
    """Returns True if a job has what a template decides now: its task, and every param that it does not leave open."""
    if template.task != task:
        return False
    given, decided = json.loads(params), template.params
    names = {*given, *decided} - set(template.open_params)
    return all(name in given and name in decided and given[name] == decided[name] for name in names)


def check_policy(authority: Authority, on_failure: str | None) -> None:
    """Refuses a custom failure policy, because its module is imported."""
    if on_failure is not None and is_custom(on_failure) and not authority.may(POLICY):
        text = f"on_failure {on_failure!r} is code that Headway imports: only an admin may name it"
        raise _refused(authority, POLICY, f"{text}; use stop, continue or skip", field="on_failure")


def check_unread(authority: Authority, author: Authority, name: str) -> None:
    """Refuses to change a schedule that this version cannot read, if its author may give more than the caller.

    Its definition may hold whatever its author may give.
    """
    for kind in KINDS:
        if author.may(kind) and not authority.may(kind):
            text = f"schedule {name!r} is of a newer version and may run {kind}: only an admin may change it"
            raise _refused(authority, kind, text, field="schedule")


def is_custom(on_failure: str) -> bool:
    return "." in on_failure or ":" in on_failure


def _refused(authority: Authority, kind: str, text: str, *, field: str | None = None) -> Refused:
    facts = {} if kind == POLICY else {"task": kind}
    if not authority.role.may(Role.ADMIN):
        return Refused(text, code="admin_only", field=field, **facts)
    name = authority.tenant
    closed = f"the tenant {name} is not open for {kind}, which runs as the user of the worker: an admin of the system"
    return Refused(
        f"{closed} gives it, or opens the tenant with `headway tenants set {name} --allow {kind}`",
        code="kind_closed",
        field=field,
        **facts,
    )


# --- data that flow from step to step -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepParams:
    """A step of a group as its data flow: `params` are JSON with their references to results."""

    step: str
    stage: int
    task: str
    params: str
    open_params: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Influence:
    """A param of an admin kind that a result decides."""

    step: str
    task: str
    param: str


def influenced(source: str, steps: Sequence[StepParams]) -> list[Influence]:
    """Returns the params of admin kinds that the result of a step decides, directly or through other steps.

    A param that the template of its step leaves open is not counted: every caller of the template may set it.
    """
    decided = {source}
    stages = {step.step: step.stage for step in steps}
    first = stages.get(source, 0)
    found: list[Influence] = []
    for step in sorted(steps, key=lambda step: step.stage):
        named = _params_with(step, decided)
        reads = step.task not in BUILT_IN and step.stage > first
        if step.task in ADMIN_TASKS:
            found += [Influence(step.step, step.task, name) for name in named if name not in step.open_params]
        if named or reads:
            decided.add(step.step)
    return found


def _params_with(step: StepParams, wanted: Collection[str]) -> list[str]:
    """Returns the names of the params that refer to the result of a wanted step."""
    if RESULT not in step.params:
        return []
    return [name for name, value in json.loads(step.params).items() if not references(value).isdisjoint(wanted)]


def check_influence(authority: Authority, source: str, steps: Sequence[StepParams]) -> None:
    """Refuses to decide the result of a step, or its params, that flows into params this authority may not decide."""
    for influence in influenced(source, steps):
        if not authority.may(influence.task):
            text = (
                f"the result of step {source!r} flows into params.{influence.param} of step {influence.step!r}, and"
                f" {influence.task} executes any code in its params: {authority.who} may not decide them"
            )
            raise _refused(authority, influence.task, text, field="result")


def check_references(authority: Authority, steps: Iterable[StepParams]) -> None:
    """Refuses steps of admin kinds whose closed params take results of steps that this authority puts together."""
    for step in steps:
        if step.task not in ADMIN_TASKS or RESULT not in step.params or authority.may(step.task):
            continue
        for name, value in json.loads(step.params).items():
            if references(value) and name not in step.open_params:
                text = f"params.{name} of step {step.step!r} takes a result, and {step.task} executes any code"
                text = f"{text} in its params: only an admin may decide which step gives it"
                raise _refused(authority, step.task, text, field=f"params.{name}")


def matters(tasks: Iterable[str], on_failure: str = "stop") -> bool:
    """Returns True if work has an admin kind, so that its author's authority must be known."""
    return is_custom(on_failure) or not ADMIN_TASKS.isdisjoint(tasks)
