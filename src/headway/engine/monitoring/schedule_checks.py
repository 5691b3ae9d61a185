"""Checks of schedules, ticks and webhooks."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from headway.clock import micros
from headway.engine.client.client import KNOWN_FOR
from headway.engine.monitoring.check import LISTED, READ, Expected, Scope
from headway.errors import BadInput
from headway.model.access.secrets import check_connection, check_secrets
from headway.model.checks import OVERDUE, Answer, Finding, broken, look, ok
from headway.model.explain.forecast import span
from headway.model.schedules.definition import Definition, RequestedStep, steps_of, steps_that_pause
from headway.model.schedules.schedule import Schedule
from headway.model.templates import Template
from headway.model.webhooks.webhook import Endpoint
from headway.store import stats
from headway.store.db import Row
from headway.store.schedules import schedules
from headway.store.schedules.schedules import Missed
from headway.store.webhooks import endpoints
from headway.text import findings
from headway.text.findings import some

# --- schedules ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SchedulesSeen:
    """The enabled schedules, and the known tasks: those of recent workers and of this process.

    `held` are steps for which an execution waits, as (schedule, execution, job, step, state, reason). `templates` are
    those that the schedules use, and `tenants` the names of their tenants.
    """

    now: int
    schedules: Sequence[Schedule]
    tasks: Collection[str]
    held: Sequence[Row] = ()
    templates: Mapping[int, Template] = field(default_factory=dict)
    tenants: Mapping[int, str] = field(default_factory=dict)
    expected: Expected = field(default_factory=Expected)


def read_schedules(scope: Scope) -> SchedulesSeen:
    tasks = {name for name, *_ in scope.tx.run("known_tasks", within=micros(KNOWN_FOR))} | set(scope.expected.tasks)
    rows = scope.tx.run("enabled_schedules", tenant_id=scope.tenant_id, limit=READ)
    found = [Schedule(*row[:-1]) for row in rows]
    used = {which for schedule in found if schedule.readable for which in _templates(schedule) if which is not None}
    numbered = [Template(*row) for row in scope.tx.run("templates_numbered", ids=json.dumps(sorted(used)))]
    return SchedulesSeen(
        scope.now,
        found,
        tasks,
        scope.tx.run("held_executions", tenant_id=scope.tenant_id, limit=READ),
        {template.id: template for template in numbered},
        {row[1]: row[-1] for row in rows},
        scope.expected,
    )


def _templates(schedule: Schedule) -> list[int | None]:
    """Returns the number of the template of each step; None for one of a task, or of a name that is not bound."""
    return [_bound(schedule, step) for step in steps_of(schedule.parsed)]


def _bound(schedule: Schedule, step: RequestedStep) -> int | None:
    return schedule.bound.get(step.template) if isinstance(step.template, str) else step.template


def judge_schedules(seen: SchedulesSeen) -> Answer:
    """Judges whether every enabled schedule can be parsed, can run, and was not decided by a wrong clock.

    An execution that waits for a person is reported too, because most schedules skip their ticks meanwhile.
    """
    if not seen.schedules:
        return ok("no schedule is enabled")
    ahead = [findings.schedule_ahead(schedule) for schedule in seen.schedules if schedule.ahead(seen.now)]
    reasons = [(schedule, _unusable(schedule, seen)) for schedule in seen.schedules]
    unusable = [findings.schedule_unusable(schedule, why) for schedule, why in reasons if why is not None]
    by_id = {schedule.id: schedule for schedule in seen.schedules if schedule.readable}
    waits = [findings.execution_waits(by_id[row[0]], *row[1:]) for row in seen.held if row[0] in by_id]
    found = [*ahead, *unusable, *waits]
    if ahead:
        text = f"silent, because a clock that was ahead decided their times: {some([one.sentence for one in ahead])}"
        return broken(text, findings.RESET.line, found)
    if unusable:
        text = f"cannot run: {some([finding.sentence for finding in unusable])}"
        return look(text, findings.UNUSABLE.line, found)
    if waits:
        return look(some([finding.sentence for finding in waits]), waits[0].remedy.line, found)
    pausing = [schedule.name for schedule in seen.schedules if steps_that_pause(schedule.parsed)]
    # Only told: whether it matters depends on how often and how processes are stopped.
    pausing_text = f"; steps of {some(pausing)} are PAUSED when their worker is shut down" if pausing else ""
    return ok(f"{len(seen.schedules)} enabled, all of them can be read{pausing_text}")


def _unusable(schedule: Schedule, seen: SchedulesSeen) -> str | None:
    """Returns why a schedule cannot run: its definition, its templates, its tasks, or names in its params."""
    try:
        definition = schedule.parsed
    except BadInput as error:
        return str(error)
    missing = sorted({step.task for step in definition.steps if step.task is not None} - set(seen.tasks))
    if missing:
        return f"no recent worker has {some(missing)}"
    problems = (_step_problem(schedule, definition, step, seen) for step in steps_of(definition))
    return next((problem for problem in problems if problem is not None), None)


def _step_problem(schedule: Schedule, definition: Definition, step: RequestedStep, seen: SchedulesSeen) -> str | None:
    task, params = step.task, {**definition.params, **step.params}
    if task is None:
        template = seen.templates.get(_bound(schedule, step) or 0)
        if template is None:
            return f"there is no template {step.template}"
        if template.archived_at is not None:
            return f"template {template.name} is archived"
        task, params = template.task, {**template.params, **params}
    expected, text = seen.expected, json.dumps(params)
    try:
        if expected.strict or expected.secrets:
            tenant = seen.tenants[schedule.tenant_id]
            check_secrets(expected.secrets, [text], tenant=tenant, task=task, unknown=True)
        if expected.strict or expected.connections:
            check_connection(expected.connections, text, task=task)
    except BadInput as error:
        return f"step {step.name}: {error}"
    return None


# --- ticks --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TicksSeen:
    """The lag of the most overdue tick, and the overdue schedules of the tenant with their lags, in microseconds."""

    lag: int
    schedules: Sequence[tuple[Schedule, int]] = ()


def read_ticks(scope: Scope) -> TicksSeen:
    if scope.tenant_id is None:
        return TicksSeen(micros(stats.tick_lag(scope.tx)))
    now, found = scope.now, schedules.upcoming(scope.tx, scope.tenant_id, LISTED)
    lags = [(schedule, now - schedule.next_at) for schedule in found if schedule.next_at is not None]
    late = [(schedule, lag) for schedule, lag in lags if lag > micros(OVERDUE)]
    return TicksSeen(max((lag for _, lag in late), default=0), late)


def judge_ticks(seen: TicksSeen) -> Answer:
    if seen.lag <= micros(OVERDUE):
        return ok("no tick is late")
    found = findings.ticks_late(seen.lag)
    each = [findings.schedule_late(schedule, lag) for schedule, lag in seen.schedules]
    return broken(found.sentence, found.remedy.line, [found, *each])


# --- missed ticks -------------------------------------------------------------------------------------------------


def read_missed(scope: Scope) -> list[Missed]:
    return schedules.missed(scope.tx, scope.tenant_id, limit=READ if scope.tenant_id is None else LISTED)


def judge_missed(seen: Sequence[Missed]) -> Answer:
    """Judges missed ticks that no person has marked as seen. Nothing is broken now, so they are at most a look."""
    if not seen:
        return ok("no tick was missed, or all that were missed have been seen")
    found = [findings.ticks_missed(missed.schedule, missed.times) for missed in seen]
    remedy = findings.missed_remedy(seen[0].schedule.name, several=len(seen) > 1)
    return look(some([finding.sentence for finding in found]), remedy.line, found)


# --- webhooks -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WebhooksSeen:
    """Failing webhooks, and the time since the oldest delivery was due, in microseconds."""

    now: int
    failing: Sequence[Endpoint]
    overdue: int = 0


def read_webhooks(scope: Scope) -> WebhooksSeen:
    """Reads the failing webhooks of a tenant; of all tenants those whose circuit breaker is open."""
    if scope.tenant_id is not None:
        return WebhooksSeen(scope.now, endpoints.failing(scope.tx, scope.tenant_id, LISTED))
    opened = [Endpoint(*row) for row in scope.tx.run("opened_endpoints", limit=READ)]
    ((due, now),) = scope.tx.run("oldest_due_delivery", most=stats.COUNTED)
    return WebhooksSeen(now, opened, 0 if due is None else now - due)


def judge_webhooks(seen: WebhooksSeen) -> Answer:
    found: list[Finding] = [findings.webhook_fails(endpoint, seen.now) for endpoint in seen.failing]
    if found:
        names = some([f"webhook {endpoint.id}" for endpoint in seen.failing])
        return look(f"{names} fails: {found[0].sentence}", found[0].remedy.line, found)
    if seen.overdue > micros(OVERDUE):
        return broken(f"a delivery has been due for {span(seen.overdue)}", findings.SCHEDULER.line)
    return ok("no delivery is overdue")
