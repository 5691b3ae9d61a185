"""Reads groups, executions, schedules, ticks and templates from the API's JSON."""

from __future__ import annotations

from typing import Any

from headway.api.schemas.jobs import Json
from headway.api.schemas.parse_jobs import actor_text, at, blank_group, moment
from headway.model.groups.group import Group
from headway.model.jobs.states import State
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
