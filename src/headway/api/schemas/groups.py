"""Groups, executions, schedules, ticks and templates as JSON of the API."""

from __future__ import annotations

import json
from collections.abc import Mapping

from headway.api.schemas.jobs import Json, actor_json, time_or_none
from headway.engine.client.schedules import Preview
from headway.model.schedules import cron
from headway.model.schedules.definition import Definition, Schedule, Tick
from headway.model.templates import FIELDS, Template
from headway.model.values.json import duration_text, instant_text
from headway.store.groups.views import GroupView, StepView
from headway.text.cron import sentence


def step_json(step: StepView) -> Json:
    """Returns a step with the state of its last job."""
    return {
        "step": step.step,
        "stage": step.stage,
        "task": step.task,
        "job_id": step.job_id,
        "status": step.status.name,
        "attempt": step.attempt,
        "started_at": time_or_none(step.started_at),
        "finished_at": time_or_none(step.finished_at),
        "reason": step.reason,
        "error": step.error,
        "continue_on_failure": step.tolerated,
        "linked": step.linked,
    }


def group_json(view: GroupView, *, steps: bool = False) -> Json:
    """**Group** of the API."""
    group = view.group
    return {
        "group_id": group.id,
        "name": group.name,
        "mode": group.mode,
        "on_failure": group.on_failure,
        "status": group.status,
        "stage": group.stage,
        "stages": group.stages,
        **_common(view, steps=steps),
    }


def execution_json(view: GroupView, *, steps: bool = False) -> Json:
    """**Execution** of the API."""
    group = view.group
    return {
        "execution_id": group.id,
        "schedule_id": group.schedule_id,
        "name": group.name,
        "kind": group.reason,
        "nominal_at": time_or_none(group.nominal_at),
        "on_failure": group.on_failure,
        "status": group.status,
        "current_stage": group.stage,
        "stages": group.stages,
        "error": group.error,
        "after": group.after_id if group.stage < 0 and group.finished_at is None else None,
        **_common(view, steps=steps),
    }


def _common(view: GroupView, *, steps: bool) -> Json:
    group = view.group
    return {
        "held_by": [step_json(step) for step in view.held_by],
        "failed": [step_json(step) for step in view.failed],
        "counts": view.counts,
        "retry_of": group.retry_of,
        "created_at": time_or_none(group.created_at),
        "started_at": time_or_none(view.started_at),
        "finished_at": time_or_none(group.finished_at),
        "created_by": actor_json(group.created_by),
        "cancelled_by": actor_json(group.cancelled_by) if group.cancelled_by else None,
        **({"steps": [step_json(step) for step in view.steps]} if steps else {}),
    }


def in_words(definition: Definition) -> str:
    """Describes in words when a schedule fires."""
    if definition.cron is not None:
        return sentence(cron.parse(definition.cron), definition.timezone)
    if definition.interval is not None:
        return f"every {duration_text(definition.interval)}"
    if len(definition.times) == 1:
        return f"once, at {instant_text(definition.times[0])}"
    return f"at {len(definition.times)} given times"


def schedule_json(schedule: Schedule, templates: Mapping[str, int] | None = None) -> Json:
    """**Schedule** of the API. `templates` maps the template names in it to ids."""
    # A definition that only a newer version can read is shown as stored, so that a list does not fail.
    facts: Json = schedule.parsed.facts() if schedule.readable else json.loads(schedule.definition)
    numbers = {**(templates or {}), **schedule.bound}
    steps = facts.get("steps")
    return {
        "schedule_id": schedule.id,
        "name": schedule.name,
        "enabled": bool(schedule.enabled),
        **{name: facts.get(name) for name in ("cron", "interval", "times", "timezone")},
        "params": facts.get("params", {}),
        "template": facts.get("template"),
        "template_id": _number(facts.get("template"), numbers),
        "steps": None if steps is None else [_step_wish(step, numbers) for step in steps],
        **{
            name: facts.get(name)
            for name in ("on_failure", "overlap", "catch_up", "window", "cap", "jitter", "start", "end", "note")
        },
        "origin": schedule.origin,
        "last_run_at": time_or_none(schedule.last_run_at),
        "next_run_at": time_or_none(schedule.next_at),
        "sentence": in_words(schedule.parsed) if schedule.readable else "at times that this version cannot read",
        "created_at": time_or_none(schedule.created_at),
        "created_by": actor_json(schedule.created_by),
        "version": schedule.version,
    }


def _number(template: object, numbers: Mapping[str, int]) -> object:
    return numbers.get(template) if isinstance(template, str) else template


def _step_wish(step: Json, numbers: Mapping[str, int]) -> Json:
    if "template" not in step:
        return step
    return {**step, "template_id": _number(step["template"], numbers)}


def tick_json(tick: Tick) -> Json:
    """**Tick** of the API."""
    return {
        "schedule_id": tick.schedule_id,
        "nominal_at": instant_text(tick.nominal_at),
        "until": instant_text(tick.until),
        "count": tick.count,
        "outcome": tick.outcome,
        "reason": tick.reason,
        "execution_id": tick.execution_id,
        "decided_at": instant_text(tick.decided_at),
    }


def preview_json(preview: Preview) -> Json:
    return {"at": instant_text(preview.at), "local": preview.local, "note": preview.note}


def template_json(template: Template) -> Json:
    """**Template** of the API."""
    fields = template.fields
    return {
        "template_id": template.id,
        "name": template.name,
        "task": template.task,
        "params": template.params,
        **{name: fields.get(name) for name in FIELDS if name not in ("params", "open_params")},
        "open_params": list(template.open_params),
        "archived_at": time_or_none(template.archived_at),
        "created_at": time_or_none(template.created_at),
        "created_by": actor_json(template.created_by),
        "version": template.version,
    }
