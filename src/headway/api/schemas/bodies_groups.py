"""Types of the request bodies about groups, templates, schedules and executions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from headway.api.schemas.bodies import Body, Duration, Id, Instant, Member, Name, Note, Params, RetryPolicy, Wishes

Mode = Literal["sequential", "parallel", "staged"]
Switch = Annotated[bool, Field(strict=True)]
TemplateName = Annotated[Name, Field(description="The template that has this name when the schedule fires")]
_TEMPLATE = ("template_id", "template")
STORY: dict[str, Any] = {"task": "story.generate", "params": {"topic": "fog"}}


class NewGroup(Body):
    """Jobs created together in one transaction."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "nightly", "mode": "sequential", "on_failure": "stop", "jobs": [STORY]}]
        }
    )
    jobs: Annotated[list[Member], Field(min_length=1, max_length=1_000)]
    name: Name | None = None
    mode: Mode = "sequential"
    on_failure: Annotated[Name, Field(description="stop, continue or skip")] | None = None


# --- templates ----------------------------------------------------------------------------------------------------


class NewTemplate(Wishes):
    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "fog story", **STORY, "priority": 5}]})
    name: Name
    task: Name
    description: Note | None = None
    open_params: list[Name] | None = None

    def fields(self) -> dict[str, Any]:
        return {name: _plain(value) for name, value in _given(self).items() if value is not None}


class TemplateEdit(Wishes):
    """Fields that are left out do not change; null removes a field."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"priority": 7, "timeout": None}]})
    name: Name | SkipJsonSchema[None] = None
    task: Name | SkipJsonSchema[None] = None
    description: Note | None = None
    open_params: list[Name] | None = None

    @field_validator("name", "task", mode="before")
    @classmethod
    def _stays(cls, value: object) -> object:
        return _not_null(value)

    def changes(self) -> dict[str, Any]:
        return {name: _plain(value) for name, value in _given(self).items()}


# --- schedules ----------------------------------------------------------------------------------------------------


class Step(Wishes):
    """A task or a template. Steps with the same index run in parallel."""

    index: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] | None = None
    name: Name | None = None
    task: Name | None = None
    template_id: Id | None = None
    template: TemplateName | None = None
    continue_on_failure: Switch | None = None
    on_shutdown: Name | None = None

    @model_validator(mode="after")
    def _one_of(self) -> Step:
        if sum(source is not None for source in (self.task, self.template_id, self.template)) != 1:
            raise ValueError("give exactly one of task, template_id and template")
        return self


class _Definition(Body):
    cron: Annotated[str, Field(max_length=300, examples=["30 2 * * mon-fri"])] | None = None
    interval: Duration | None = None
    times: Annotated[list[Instant], Field(max_length=1_000)] | None = None
    timezone: Annotated[Name, Field(examples=["Europe/Berlin"])] | None = None
    params: Params | None = None
    template_id: Id | None = None
    template: TemplateName | None = None
    steps: Annotated[list[Step], Field(max_length=200)] | None = None
    on_failure: Annotated[Name, Field(description="stop, continue or skip")] | None = None
    overlap: Literal["skip", "queue", "allow", "cancel_running"] | None = None
    catch_up: Literal["last", "none", "all"] | None = None
    window: Duration | None = None
    cap: Annotated[int, Field(strict=True, ge=1, le=100)] | None = None
    jitter: Duration | None = None
    start: Instant | None = None
    end: Instant | None = None
    note: Note | None = None

    @model_validator(mode="after")
    def _one_template(self) -> _Definition:
        if self.template is not None and self.template_id is not None:
            raise ValueError("give template_id or template, not both")
        return self

    def definition(self) -> dict[str, Any]:
        """Returns the given fields under their names in a definition.

        null removes a field.
        """
        return _renamed({name: value for name, value in _given(self).items() if name not in ("name", "enabled")})


_NIGHTLY: dict[str, Any] = {
    "name": "nightly",
    "cron": "30 2 * * mon-fri",
    "timezone": "Europe/Berlin",
    "steps": [STORY],
}


class WholeSchedule(_Definition):
    """The whole definition; a field that is left out gets its default.

    A new schedule is enabled unless `enabled` is false; a replaced one keeps its state.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [_NIGHTLY]})
    name: Name
    enabled: Switch | None = None


class ScheduleEdit(_Definition):
    """Fields that are left out do not change; null removes a field."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"cron": "0 3 * * *", "note": None}]})
    name: Name | SkipJsonSchema[None] = None
    enabled: Switch | SkipJsonSchema[None] = None

    @field_validator("name", "enabled", mode="before")
    @classmethod
    def _stays(cls, value: object) -> object:
        return _not_null(value)


class Disable(Body):
    reason: Note | None = None


class Run(Body):
    """`params` override the schedule's.

    `force` allows a run while an execution is active.
    """

    force: Switch = False
    params: Params | None = None


class Backfill(Body):
    """A range of instants, both ends included."""

    since: Instant
    until: Instant
    dry_run: Switch = False


# --- reading the bodies -------------------------------------------------------------------------------------------


def _not_null(value: object) -> object:
    if value is None:
        raise ValueError("must not be null: leave it out to keep it")
    return value


def _given(body: Body) -> dict[str, Any]:
    """Returns the given fields, null included, without converting nested models."""
    return {name: getattr(body, name) for name in type(body).model_fields if name in body.model_fields_set}


def _plain(value: object) -> object:
    if isinstance(value, Step | RetryPolicy):
        return _renamed({name: field for name, field in _given(value).items() if field is not None})
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _renamed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Renames `template_id` to `template`.

    A stored definition has one field for ids and names.
    """
    known = {name: _plain(value) for name, value in fields.items() if name not in _TEMPLATE}
    given = [fields[name] for name in _TEMPLATE if name in fields]
    return known | ({"template": next((template for template in given if template is not None), None)} if given else {})
