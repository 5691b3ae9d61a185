"""The JSON of schedules, ticks, previews and templates, and the bodies about them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import ConfigDict, Field, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema
from typing_extensions import TypedDict

from headway.api.schemas.common import (
    ActorSchema,
    AnyJson,
    Body,
    Duration,
    GivenDuration,
    GivenInstant,
    Id,
    Instant,
    Json,
    Name,
    Names,
    Note,
    Params,
    Reader,
    Schema,
    Switch,
    actor_json,
    actor_or_none,
    given,
    strict,
    time_or_none,
)
from headway.api.schemas.jobs import JobOptionsBody, OnShutdownOfAll, RetryPolicyBody
from headway.engine.client.schedules import Preview
from headway.model.schedules import cron
from headway.model.schedules.definition import Definition
from headway.model.schedules.schedule import Schedule, Tick
from headway.model.templates import Template
from headway.model.values.state_names import step_kind
from headway.model.values.times import duration_text, instant_text
from headway.store.schedules.schedules import Missed
from headway.text.cron import sentence

# --- templates ----------------------------------------------------------------------------------------------------

_template = Reader[Template]()


class TemplateSchema(Schema[Template]):
    template_id: int = _template(lambda template: template.id)
    name: str = _template(lambda template: template.name)
    task: str = _template(lambda template: template.task)
    params: dict[str, AnyJson] = _template(lambda template: template.params)
    priority: int | None = _template(lambda template: template.fields.get("priority"))
    target: str | None = _template(lambda template: template.fields.get("target"))
    resources: list[str] | None = _template(lambda template: template.fields.get("resources"))
    timeout: Duration | None = _template(lambda template: template.fields.get("timeout"))
    retry_policy: dict[str, AnyJson] | None = _template(lambda template: template.fields.get("retry_policy"))
    budget: dict[str, float] | None = _template(lambda template: template.fields.get("budget"))
    on_lost: str | None = _template(lambda template: template.fields.get("on_lost"))
    on_error: str | None = _template(lambda template: template.fields.get("on_error"))
    on_shutdown: str | None = _template(lambda template: template.fields.get("on_shutdown"))
    description: str | None = _template(lambda template: template.fields.get("description"))
    open_params: list[str] = _template(lambda template: list(template.open_params))
    archived_at: Instant | None = _template(lambda template: time_or_none(template.archived_at))
    deleted_at: Instant | None = _template(lambda template: time_or_none(template.archived_at))
    deleted_by: ActorSchema | None = given()
    created_at: Instant = _template(lambda template: instant_text(template.created_at))
    created_by: ActorSchema = _template(lambda template: actor_json(template.created_by))
    version: int = _template(lambda template: template.version)


# --- schedules ----------------------------------------------------------------------------------------------------


class _StepFields(TypedDict, total=False):
    task: str
    template_id: int | None
    template: str | int
    params: dict[str, AnyJson]
    target: str
    resources: list[str]
    timeout: Duration
    retry_policy: dict[str, AnyJson]
    continue_on_failure: bool
    priority: int
    budget: dict[str, float]
    on_lost: str
    on_error: str
    on_shutdown: str


@strict
class StepWishSchema(_StepFields):
    """A step of a schedule.

    `template` is the template's id or name, as the definition gives it.
    """

    index: int
    name: str


class ShownSchedule(NamedTuple):
    """A schedule with the facts of its definition, and the ids of the templates that it names."""

    stored: Schedule
    facts: Json
    numbers: Mapping[str, int]

    def number(self, template: object) -> Any:
        return self.numbers.get(template) if isinstance(template, str) else template

    @property
    def steps(self) -> Any:
        steps = self.facts.get("steps")
        return None if steps is None else [self._step(step) for step in steps]

    def _step(self, step: Json) -> Json:
        return step if "template" not in step else {**step, "template_id": self.number(step["template"])}

    @property
    def sentence(self) -> str:
        return in_words(self.stored.parsed) if self.stored.readable else "at times that this version cannot read"


_shown = Reader[ShownSchedule]()


class ScheduleSchema(Schema[ShownSchedule]):
    schedule_id: int = _shown(lambda schedule: schedule.stored.id)
    name: str = _shown(lambda schedule: schedule.stored.name)
    enabled: bool = _shown(lambda schedule: bool(schedule.stored.enabled))
    cron: str | None = _shown(lambda schedule: schedule.facts.get("cron"))
    interval: float | None = _shown(lambda schedule: schedule.facts.get("interval"))
    times: list[Instant] | None = _shown(lambda schedule: schedule.facts.get("times"))
    timezone: str = _shown.literal(lambda schedule: schedule.facts.get("timezone"))
    params: dict[str, AnyJson] = _shown(lambda schedule: schedule.facts.get("params", {}))
    template: str | int | None = _shown(lambda schedule: schedule.facts.get("template"))
    template_id: int | None = _shown(lambda schedule: schedule.number(schedule.facts.get("template")))
    steps: list[StepWishSchema] | None = _shown(lambda schedule: schedule.steps)
    on_failure: str = _shown.literal(lambda schedule: schedule.facts.get("on_failure"))
    on_shutdown: Literal["retry", "pause", "resume"] | None = _shown.literal(
        lambda schedule: schedule.facts.get("on_shutdown")
    )
    overlap: Literal["skip", "queue", "allow", "cancel_running"] = _shown.literal(
        lambda schedule: schedule.facts.get("overlap")
    )
    catch_up: Literal["last", "none", "all"] = _shown.literal(lambda schedule: schedule.facts.get("catch_up"))
    window: float = _shown.literal(lambda schedule: schedule.facts.get("window"))
    cap: int = _shown.literal(lambda schedule: schedule.facts.get("cap"))
    jitter: float = _shown.literal(lambda schedule: schedule.facts.get("jitter"))
    start: Instant | None = _shown(lambda schedule: schedule.facts.get("start"))
    end: Instant | None = _shown(lambda schedule: schedule.facts.get("end"))
    note: str | None = _shown(lambda schedule: schedule.facts.get("note"))
    origin: Literal["code", "file", "api"] = _shown.literal(lambda schedule: schedule.stored.origin)
    last_run_at: Instant | None = _shown(lambda schedule: time_or_none(schedule.stored.last_run_at))
    missed_seen_at: Instant | None = _shown(lambda schedule: time_or_none(schedule.stored.missed_seen_at))
    next_run_at: Instant | None = _shown(lambda schedule: time_or_none(schedule.stored.next_at))
    sentence: str = _shown(lambda schedule: schedule.sentence)
    created_at: Instant = _shown(lambda schedule: instant_text(schedule.stored.created_at))
    created_by: ActorSchema = _shown(lambda schedule: actor_json(schedule.stored.created_by))
    deleted_at: Instant | None = _shown(lambda schedule: time_or_none(schedule.stored.deleted_at))
    deleted_by: ActorSchema | None = given()
    version: int = _shown(lambda schedule: schedule.stored.version)


def in_words(definition: Definition) -> str:
    """Describes in words when a schedule fires."""
    if definition.cron is not None:
        return sentence(cron.parse(definition.cron), definition.timezone)
    if definition.interval is not None:
        return f"every {duration_text(definition.interval)}"
    if len(definition.times) == 1:
        return f"once, at {instant_text(definition.times[0])}"
    return f"at {len(definition.times)} given times"


def schedule_json(
    schedule: Schedule, templates: Mapping[str, int] | None = None, deleted_by: str | None = None
) -> Json:
    """Returns a schedule. `templates` maps the template names in it to ids."""
    # A definition that only a newer version can read is shown as stored, so that a list does not fail.
    facts: Json = schedule.parsed.facts() if schedule.readable else json.loads(schedule.definition)
    shown = ShownSchedule(schedule, facts, {**(templates or {}), **schedule.bound})
    made: Json = ScheduleSchema.of(shown, deleted_by=actor_or_none(deleted_by))
    return made


# --- ticks --------------------------------------------------------------------------------------------------------

_tick, _preview, _missed = Reader[Tick](), Reader[Preview](), Reader[Missed]()


class TickSchema(Schema[Tick]):
    schedule_id: int = _tick(lambda tick: tick.schedule_id)
    nominal_at: Instant = _tick(lambda tick: instant_text(tick.nominal_at))
    until: Instant = _tick(lambda tick: instant_text(tick.until))
    count: int = _tick(lambda tick: tick.count)
    outcome: Literal["FIRED", "SKIPPED", "MISSED", "COALESCED"] = _tick.literal(lambda tick: tick.outcome)
    reason: str | None = _tick(lambda tick: tick.reason)
    execution_id: int | None = _tick(lambda tick: tick.execution_id)
    decided_at: Instant = _tick(lambda tick: instant_text(tick.decided_at))


class MissedTicksSchema(Schema[Missed]):
    """The missed ticks of a schedule that no person has marked as seen."""

    schedule_id: int = _missed(lambda missed: missed.schedule.id)
    name: str = _missed(lambda missed: missed.schedule.name)
    count: int = _missed(lambda missed: missed.times)
    first: Instant = _missed(lambda missed: instant_text(missed.first_at))
    last: Instant = _missed(lambda missed: instant_text(missed.last_at))


class PreviewSchema(Schema[Preview]):
    """A future time of a schedule. `note` is the effect of a clock change."""

    at: Instant = _preview(lambda preview: instant_text(preview.at))
    local: str = _preview(lambda preview: preview.local)
    note: str | None = _preview(lambda preview: preview.note)


@strict
class TimesSchema(TypedDict):
    schedule_id: int
    timezone: str
    sentence: str
    items: list[PreviewSchema]
    next: None


TemplateName = Annotated[Name, Field(description="The template that has this name when the schedule fires")]
_TEMPLATE = ("template_id", "template")
STORY: dict[str, Any] = {"task": "story.generate", "params": {"topic": "fog"}}

# --- bodies about templates ---------------------------------------------------------------------------------------


class NewTemplateBody(JobOptionsBody):
    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "fog story", **STORY, "priority": 5}]})
    name: Name
    task: Name
    description: Note | None = None
    open_params: Names | None = None

    def fields(self) -> dict[str, Any]:
        return {name: _plain(value) for name, value in _given(self).items() if value is not None}


class TemplateEditBody(JobOptionsBody):
    """Fields that are left out do not change; null removes a field."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"priority": 7, "timeout": None}]})
    name: Name | SkipJsonSchema[None] = None
    task: Name | SkipJsonSchema[None] = None
    description: Note | None = None
    open_params: Names | None = None

    @field_validator("name", "task", mode="before")
    @classmethod
    def _stays(cls, value: object) -> object:
        return _not_null(value)

    def changes(self) -> dict[str, Any]:
        return {name: _plain(value) for name, value in _given(self).items()}


# --- bodies about schedules ---------------------------------------------------------------------------------------


class StepBody(JobOptionsBody):
    """A task or a template. Steps with the same index run in parallel."""

    index: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] | None = None
    name: Name | None = None
    task: Name | None = None
    template_id: Id | None = None
    template: TemplateName | None = None
    continue_on_failure: Switch | None = None

    @model_validator(mode="before")
    @classmethod
    def _old_kind(cls, given: Any) -> Any:
        for field in ("type", "kind"):
            named = given.get(field) if isinstance(given, dict) else None
            if (here := step_kind(named)) is not None:
                raise ValueError(f"a step has no {field}: what an older system calls {named} is {here}")
        return given

    @model_validator(mode="after")
    def _one_of(self) -> StepBody:
        if sum(source is not None for source in (self.task, self.template_id, self.template)) != 1:
            raise ValueError("give exactly one of task, template_id and template")
        return self


class _DefinitionBody(Body):
    cron: Annotated[str, Field(max_length=300, examples=["30 2 * * mon-fri"])] | None = None
    interval: GivenDuration | None = None
    times: Annotated[list[GivenInstant], Field(max_length=1_000)] | None = None
    timezone: Annotated[Name, Field(examples=["Europe/Berlin"])] | None = None
    params: Params | None = None
    template_id: Id | None = None
    template: TemplateName | None = None
    steps: Annotated[list[StepBody], Field(max_length=200)] | None = None
    on_failure: Annotated[Name, Field(description="stop, continue or skip")] | None = None
    on_shutdown: OnShutdownOfAll | None = None
    overlap: Literal["skip", "queue", "allow", "cancel_running"] | None = None
    catch_up: Literal["last", "none", "all"] | None = None
    window: GivenDuration | None = None
    cap: Annotated[int, Field(strict=True, ge=1, le=100)] | None = None
    jitter: GivenDuration | None = None
    start: GivenInstant | None = None
    end: GivenInstant | None = None
    note: Note | None = None

    @model_validator(mode="after")
    def _one_template(self) -> _DefinitionBody:
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


class WholeScheduleBody(_DefinitionBody):
    """The whole definition; a field that is left out gets its default.

    A new schedule is enabled unless `enabled` is false; a replaced one keeps its state.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [_NIGHTLY]})
    name: Name
    enabled: Switch | None = None


class ScheduleEditBody(_DefinitionBody):
    """Fields that are left out do not change; null removes a field."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"cron": "0 3 * * *", "note": None}]})
    name: Name | SkipJsonSchema[None] = None
    enabled: Switch | SkipJsonSchema[None] = None

    @field_validator("name", "enabled", mode="before")
    @classmethod
    def _stays(cls, value: object) -> object:
        return _not_null(value)


class DisableBody(Body):
    reason: Note | None = None


class RunBody(Body):
    """`params` override the schedule's.

    `force` allows a run while an execution is active.
    """

    force: Switch = False
    params: Params | None = None


class BackfillBody(Body):
    """A range of instants, both ends included."""

    since: GivenInstant
    until: GivenInstant
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
    if isinstance(value, StepBody | RetryPolicyBody):
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


# --- functions ----------------------------------------------------------------------------------------------------


def template_json(template: Template, deleted_by: str | None = None) -> Json:
    made: Json = TemplateSchema.of(template, deleted_by=actor_or_none(deleted_by))
    return made


tick_json: Callable[[Tick], Json] = TickSchema.of
preview_json: Callable[[Preview], Json] = PreviewSchema.of
