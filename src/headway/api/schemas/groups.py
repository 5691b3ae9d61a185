"""The JSON of groups, executions and their steps, and the bodies about groups."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from headway.api.schemas.common import (
    ActorSchema,
    Body,
    Counts,
    Instant,
    Json,
    Mode,
    Name,
    Reader,
    Schema,
    Status,
    actor_json,
    strict,
    time_or_none,
)
from headway.api.schemas.jobs import MemberBody, OnShutdownOfAll, members_given
from headway.api.schemas.schedules import STORY
from headway.store.groups.views import GroupView, StepView

_step, _view = Reader[StepView](), Reader[GroupView]()


class StepSchema(Schema[StepView]):
    """A step with the state of its last job.

    `linked` steps succeeded in the retried execution or group.
    """

    step: str = _step(lambda step: step.step)
    stage: int = _step(lambda step: step.stage)
    task: str = _step(lambda step: step.task)
    job_id: int = _step(lambda step: step.job_id)
    status: Status = _step.literal(lambda step: step.status.name)
    attempt: int = _step(lambda step: step.attempt)
    started_at: Instant | None = _step(lambda step: time_or_none(step.started_at))
    finished_at: Instant | None = _step(lambda step: time_or_none(step.finished_at))
    reason: str | None = _step(lambda step: step.reason)
    error: str | None = _step(lambda step: step.error)
    continue_on_failure: bool = _step(lambda step: step.tolerated)
    linked: bool = _step(lambda step: step.linked)


class _MembersSchema(Schema[GroupView]):
    """`failed` lists the failed steps, at most the first few."""

    held_by: list[StepSchema] = _view(lambda view: list(map(StepSchema.of, view.held_by)))
    failed: list[StepSchema] = _view(lambda view: list(map(StepSchema.of, view.failed)))
    counts: Counts = _view(lambda view: view.counts)
    retry_of: int | None = _view(lambda view: view.group.retry_of)
    created_at: Instant = _view.literal(lambda view: time_or_none(view.group.created_at))
    started_at: Instant | None = _view(lambda view: time_or_none(view.started_at))
    finished_at: Instant | None = _view(lambda view: time_or_none(view.group.finished_at))
    created_by: ActorSchema = _view(lambda view: actor_json(view.group.created_by))
    cancelled_by: ActorSchema | None = _view(
        lambda view: actor_json(view.group.cancelled_by) if view.group.cancelled_by else None
    )


class GroupSchema(_MembersSchema):
    group_id: int = _view(lambda view: view.group.id)
    name: str = _view(lambda view: view.group.name)
    mode: Mode = _view.literal(lambda view: view.group.mode)
    on_failure: str = _view(lambda view: view.group.on_failure)
    status: Literal["RUNNING", "COMPLETED", "PARTIAL", "CANCELLED"] = _view.literal(lambda view: view.group.status)
    stage: int = _view(lambda view: view.group.stage)
    stages: int = _view(lambda view: view.group.stages)


class GroupWithStepsSchema(GroupSchema):
    steps: list[StepSchema]


class ExecutionSchema(_MembersSchema):
    """`after` is the execution that must end before this one starts."""

    execution_id: int = _view(lambda view: view.group.id)
    schedule_id: int | None = _view(lambda view: view.group.schedule_id)
    name: str = _view(lambda view: view.group.name)
    kind: Literal["tick", "manual", "backfill", "retry"] = _view.literal(lambda view: view.group.reason)
    nominal_at: Instant | None = _view(lambda view: time_or_none(view.group.nominal_at))
    on_failure: str = _view(lambda view: view.group.on_failure)
    status: Literal["IN_PROGRESS", "COMPLETED", "FAILED", "CANCELLED"] = _view.literal(lambda view: view.group.status)
    current_stage: int = _view(lambda view: view.group.stage)
    stages: int = _view(lambda view: view.group.stages)
    error: str | None = _view(lambda view: view.group.error)
    after: int | None = _view(
        lambda view: view.group.after_id if view.group.stage < 0 and view.group.finished_at is None else None
    )
    steps: list[StepSchema]


@strict
class BackfilledSchema(TypedDict):
    """The nominal times that had not fired, and their executions.

    A dry run creates none.
    """

    times: list[Instant]
    items: list[ExecutionSchema]
    next: None


def group_json(view: GroupView, *, steps: bool = False) -> Json:
    made: Json = GroupSchema.of(view, **_steps(view, steps))
    return made


def execution_json(view: GroupView, *, steps: bool = False) -> Json:
    made: Json = ExecutionSchema.of(view, **_steps(view, steps))
    return made


def _steps(view: GroupView, wanted: bool) -> Json:
    return {"steps": list(map(StepSchema.of, view.steps))} if wanted else {}


# --- bodies -------------------------------------------------------------------------------------------------------


class NewGroupBody(Body):
    """Jobs created together in one transaction."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "nightly", "mode": "sequential", "on_failure": "stop", "jobs": [STORY]}]
        }
    )
    jobs: Annotated[list[MemberBody], Field(min_length=1, max_length=1_000)]
    name: Name | None = None
    mode: Mode = "sequential"
    on_failure: Annotated[Name, Field(description="stop, continue or skip")] | None = None
    on_shutdown: OnShutdownOfAll | None = None

    def members(self) -> list[dict[str, Any]]:
        """Returns the given fields of each job, with the `on_shutdown` of all where it has none."""
        return members_given(self.jobs, self.on_shutdown)
