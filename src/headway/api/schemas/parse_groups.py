"""Reads groups, executions, schedules, ticks and templates from the API's JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.api.schemas.jobs import Json
from headway.api.schemas.parse_jobs import actor_text, at, blank_group, json_text, moment
from headway.engine.client.schedules import Preview
from headway.model.groups.group import Group
from headway.model.jobs.states import State
from headway.model.schedules.definition import FIELDS, Schedule, Tick
from headway.model.templates import FIELDS as TEMPLATE_FIELDS
from headway.model.templates import Template
from headway.store.groups.views import GroupView, StepView


def group_of(found: Json) -> GroupView:
    """Reads a group or an execution, with its steps if the answer has them."""
    held = {step["job_id"] for step in found["held_by"]}
    listed = [*found["held_by"], *found["failed"]]
    steps = tuple(_step(step, held) for step in found.get("steps", ()))
    brief = tuple(_step(step, held) for step in listed)
    return GroupView(_group(found), found["counts"], moment(found["started_at"]), steps or brief, steps)


def _group(found: Json) -> Group:
    execution = "execution_id" in found
    about: dict[str, Any] = {"name": found["name"], "on_failure": found["on_failure"], "status": found["status"]}
    about |= {"stages": found["stages"], "retry_of": found["retry_of"]}
    about |= {"created_at": at(found["created_at"]), "finished_at": moment(found["finished_at"])}
    about |= {"created_by": actor_text(found["created_by"])}
    about |= {"cancelled_by": actor_text(found["cancelled_by"]) if found["cancelled_by"] is not None else None}
    if not execution:
        return blank_group(found["group_id"], "group", mode=found["mode"], stage=found["stage"], **about)
    about |= {"stage": found["current_stage"], "schedule_id": found["schedule_id"], "reason": found["kind"]}
    about |= {"nominal_at": moment(found["nominal_at"]), "error": found["error"], "after_id": found["after"]}
    return blank_group(found["execution_id"], "execution", **about)


def _step(found: Json, held: set[int]) -> StepView:
    status = State[found["status"]]
    return StepView(
        found["step"],
        found["stage"],
        found["task"],
        found["job_id"],
        status,
        status is State.WAITING and found["job_id"] in held,
        found["attempt"],
        moment(found["started_at"]),
        moment(found["finished_at"]),
        found["reason"],
        found["error"],
        found["continue_on_failure"],
        found["linked"],
    )


# --- schedules ----------------------------------------------------------------------------------------------------


def schedule_of(found: Json) -> Schedule:
    facts = {name: found[name] for name in FIELDS if found[name] is not None and found[name] != {}}
    if "steps" in facts:
        facts["steps"] = [{name: step[name] for name in step if name != "template_id"} for step in facts["steps"]]
    return Schedule(
        id=found["schedule_id"],
        tenant_id=0,
        name=found["name"],
        definition=json_text(facts),
        enabled=int(found["enabled"]),
        origin=found["origin"],
        decided_until=0,
        next_at=moment(found["next_run_at"]),
        last_run_at=moment(found["last_run_at"]),
        created_at=at(found["created_at"]),
        created_by=actor_text(found["created_by"]),
        deleted_at=None,
        version=found["version"],
    )


def template_numbers(found: Json) -> dict[str, int]:
    """Returns the ids of the templates that a schedule names."""
    named = [found, *(found["steps"] or ())]
    return {
        part["template"]: part["template_id"]
        for part in named
        if isinstance(part.get("template"), str) and part["template_id"] is not None
    }


def definition_json(facts: Mapping[str, Any]) -> Json:
    """Returns a definition as a request body.

    A template given by id becomes `template_id`.
    """
    made = {name: value for name, value in facts.items() if name != "steps"}
    if facts.get("steps") is not None:
        made["steps"] = [_by_number(step) for step in facts["steps"]]
    return _by_number(made)


def _by_number(fields: Mapping[str, Any]) -> Json:
    numbered = isinstance(fields.get("template"), int)
    return {"template_id" if numbered and name == "template" else name: value for name, value in fields.items()}


def tick_of(found: Json) -> Tick:
    return Tick(
        0,
        0,
        found["schedule_id"],
        at(found["nominal_at"]),
        at(found["until"]),
        found["count"],
        found["outcome"],
        found["reason"],
        found["execution_id"],
        at(found["decided_at"]),
    )


def preview_of(found: Json) -> Preview:
    return Preview(at(found["at"]), found["local"], found["note"])


def template_of(found: Json) -> Template:
    fields = {name: found[name] for name in TEMPLATE_FIELDS if found[name] is not None}
    return Template(
        id=found["template_id"],
        tenant_id=0,
        name=found["name"],
        task=found["task"],
        definition=json_text(fields),
        created_at=at(found["created_at"]),
        created_by=actor_text(found["created_by"]),
        archived_at=moment(found["archived_at"]),
        version=found["version"],
    )
