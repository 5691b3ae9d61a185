"""The JSON of tasks, statistics, the overview, log pages, artifacts and applied files, and the body of apply."""

from __future__ import annotations

import inspect
import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from headway.api.schemas.common import AnyJson, Body, Instant, Json, Reader, Schema, given, strict, time_or_none
from headway.api.schemas.jobs import JobSchema, LineSchema, QueuedJobSchema
from headway.api.schemas.queue import QueuePauseSchema, TargetSchema, pause_json, waiting_json
from headway.api.schemas.schedules import MissedTicksSchema
from headway.api.schemas.workers import WorkerSchema, worker_json
from headway.engine.client.apply import Applying, ManifestChange
from headway.engine.monitoring.overview import Overview
from headway.engine.tasks.registry import TaskSpec
from headway.model.access.authority import ADMIN_TASKS
from headway.model.jobs.job import Options
from headway.model.values.times import instant_text
from headway.store.jobs.views import Artifact, Counts, LogLine, SeenTask
from headway.store.stats import Span, Spread, Stats
from headway.store.worker_views import OwnJobs

# --- tasks --------------------------------------------------------------------------------------------------------

_FORWARD = re.compile(r"ForwardRef\(('[^']*')[^()]*\)")


class KnownTask(NamedTuple):
    """A task with its priority and options; `here` is None if only other processes have it."""

    name: str
    seen: SeenTask | None
    here: TaskSpec | None
    priority: int
    text: str

    @property
    def options(self) -> Options:
        return Options.parse(self.text)


_parameter, _task = Reader[inspect.Parameter](), Reader[KnownTask]()


class ParamSchema(Schema[inspect.Parameter]):
    name: str = _parameter(lambda parameter: parameter.name)
    type: str | None = _parameter(lambda parameter: _type(parameter.annotation))
    required: bool = _parameter(lambda parameter: _is_required(parameter))
    default: AnyJson = _parameter(lambda parameter: None if _is_required(parameter) else _as_json(parameter.default))


class TaskSchema(Schema[KnownTask]):
    task: str = _task(lambda known: known.name)
    description: str | None = _task(lambda known: _first_line(known.here))
    priority: int = _task(lambda known: known.priority)
    timeout: float | None = _task(lambda known: known.options.timeout)
    retry_policy: AnyJson = _task(lambda known: json.loads(known.text).get("retry"))
    budget: dict[str, float] = _task(lambda known: dict(known.options.budget))
    resources: list[str] = _task(lambda known: list(known.options.resources))
    on_lost: str = _task(lambda known: known.options.on_lost)
    on_error: str = _task(lambda known: known.options.on_error)
    on_shutdown: str | None = _task(lambda known: known.options.on_shutdown)
    params: list[ParamSchema] | None = _task(
        lambda known: None if known.here is None else list(map(ParamSchema.of, known.here.signature.parameters))
    )
    open: bool | None = _task(lambda known: None if known.here is None else known.here.signature.open)
    direct: str | None = _task(lambda known: None if known.here is None else known.here.direct)
    admin_only: bool = _task(lambda known: known.name in ADMIN_TASKS)
    seen_at: Instant | None = _task(lambda known: time_or_none(None if known.seen is None else known.seen.seen_at))


def task_json(name: str, seen: SeenTask | None, here: TaskSpec | None, facts: tuple[int, str]) -> Json:
    """Returns a task. `params` is null if only other processes have the task."""
    made: Json = TaskSchema.of(KnownTask(name, seen, here, *facts))
    return made


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty


def _first_line(here: TaskSpec | None) -> str | None:
    text = inspect.getdoc(here.function) if here is not None else None
    return text.strip().split("\n")[0] if text else None


def _type(annotation: Any) -> str | None:
    """Returns an annotation as it is written in code, without `Annotated`."""
    if annotation is inspect.Parameter.empty:
        return None
    if isinstance(annotation, str):
        return annotation
    bare = _bare(annotation)
    return "None" if bare is None or bare is type(None) else _FORWARD.sub(r"\1", inspect.formatannotation(bare))


def _bare(annotation: Any) -> Any:
    """Removes `Annotated` at any depth.

    A forward reference is kept, because it may not resolve here.
    """
    if isinstance(annotation, list):  # the params of a Callable
        return [_bare(part) for part in annotation]
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _bare(parts[0])
    bare = tuple(_bare(part) for part in parts)
    if bare == parts:
        return annotation
    return reduce(operator.or_, bare) if origin is UnionType else origin[bare]


def _as_json(value: Any) -> Any:
    """Returns a default as JSON, or its repr if JSON cannot represent it."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        return repr(value)


# --- statistics and the overview ----------------------------------------------------------------------------------

_spread, _span, _stats, _overview = Reader[Spread](), Reader[Span](), Reader[Stats](), Reader[Overview]()
_wait = Reader[tuple[int, int]]()


class OldestWaitSchema(Schema[tuple[int, int]]):
    job_id: int = _wait(lambda wait: wait[0])
    queued_at: Instant = _wait(lambda wait: instant_text(wait[1]))


class SpanSchema(Schema[Span]):
    since: Instant = _span(lambda span: instant_text(span.since))
    completed: int = _span(lambda span: span.completed)
    failed: int = _span(lambda span: span.failed)
    other: int = _span(lambda span: span.other)


class SpreadSchema(Schema[Spread]):
    count: int = _spread(lambda spread: spread.count)
    mean: float | None = _spread(lambda spread: spread.mean)
    p50: float | None = _spread(lambda spread: spread.p50)
    p90: float | None = _spread(lambda spread: spread.p90)
    p99: float | None = _spread(lambda spread: spread.p99)


def _oldest_wait(counts: Counts) -> Any:
    return OldestWaitSchema.of(counts.longest_wait) if counts.longest_wait else None


class StatsSchema(Schema[Stats]):
    at: Instant = _stats(lambda seen: instant_text(seen.now))
    counts: dict[str, int] = _stats(lambda seen: seen.counts.by_status)
    counts_at_least: bool = _stats(lambda seen: seen.counts.at_least)
    finished_since: Instant = _stats(lambda seen: instant_text(seen.counts.since))
    oldest_wait: OldestWaitSchema | None = _stats(lambda seen: _oldest_wait(seen.counts))
    # The last hour in spans of five minutes; those before `complete_since` are counted in part.
    throughput: list[SpanSchema] = _stats(lambda seen: list(map(SpanSchema.of, seen.spans)))
    complete_since: Instant = _stats(lambda seen: instant_text(seen.complete_since))
    waits: SpreadSchema = _stats(lambda seen: SpreadSchema.of(seen.waits))
    durations: SpreadSchema = _stats(lambda seen: SpreadSchema.of(seen.durations))


class OverviewSchema(Schema[Overview]):
    at: Instant = _overview(lambda seen: instant_text(seen.now))
    counts: dict[str, int] = _overview(lambda seen: seen.counts.by_status)
    counts_at_least: bool = _overview(lambda seen: seen.counts.at_least)
    finished_since: Instant = _overview(lambda seen: instant_text(seen.counts.since))
    oldest_wait: OldestWaitSchema | None = _overview(lambda seen: _oldest_wait(seen.counts))
    queue: QueuePauseSchema = _overview.literal(lambda seen: pause_json(seen.pause, seen.everybody))
    blocked_targets: list[TargetSchema] = _overview(lambda seen: list(map(TargetSchema.of, seen.blocked)))
    missed_ticks: list[MissedTicksSchema] = _overview(lambda seen: list(map(MissedTicksSchema.of, seen.missed)))
    workers: list[WorkerSchema] = given()
    running: list[JobSchema] = _overview(lambda seen: list(map(JobSchema.of, seen.running)))
    waiting: list[QueuedJobSchema] = _overview.literal(lambda seen: list(map(waiting_json, seen.waiting)))


def overview_json(seen: Overview, own: OwnJobs | None = None) -> Json:
    """Returns the overview.

    `own` has the jobs and the tenant that workers may name; None means all.
    """
    workers = [worker_json(worker, alive=alive, own=own) for worker, alive in seen.workers]
    made: Json = OverviewSchema.of(seen, workers=workers)
    return made


# --- logs and artifacts -------------------------------------------------------------------------------------------

_artifact = Reader[Artifact]()


@strict
class LogSchema(TypedDict):
    items: list[LineSchema]
    next: str | None
    position: int


class ArtifactSchema(Schema[Artifact]):
    name: str = _artifact(lambda artifact: artifact.name)
    size: int = _artifact(lambda artifact: artifact.size)
    sha256: str = _artifact(lambda artifact: artifact.sha256)
    at: Instant = _artifact(lambda artifact: instant_text(artifact.at))


def log_json(lines: Sequence[LogLine], *, more: bool, after: int) -> Json:
    """Returns a page of a log.

    `next` is null on the last page; `position` is where to continue later.
    """
    position = lines[-1].chunk if lines else after
    return {"items": list(map(LineSchema.of, lines)), "next": str(position) if more else None, "position": position}


# --- health -------------------------------------------------------------------------------------------------------


@strict
class AliveSchema(TypedDict):
    status: Literal["alive"]


@strict
class ReadinessSchema(TypedDict):
    ready: bool
    reasons: list[str]
    warnings: list[str]


# --- applied files ------------------------------------------------------------------------------------------------

_manifest = Reader[ManifestChange]()


class AppliedChangeSchema(Schema[ManifestChange]):
    """`+` created, `~` changed, `=` unchanged."""

    change: Literal["+", "~", "="] = _manifest.literal(lambda change: change.sign)
    thing: Literal["template", "schedule", "target", "webhook"] = _manifest.literal(lambda change: change.thing)
    name: str = _manifest(lambda change: change.name)
    differences: list[str] = _manifest(lambda change: list(change.words))


class _Applied(TypedDict):
    items: list[AppliedChangeSchema]
    applied: bool
    left: list[str]
    next: None


@strict
class AppliedSchema(_Applied, total=False):
    secrets: dict[str, str]


def applied_json(planned: Applying, secrets: Mapping[str, str], *, applied: bool) -> Json:
    """Returns the changes of a file.

    `secrets` are those of the created webhooks, shown once.
    """
    items = list(map(AppliedChangeSchema.of, planned.changes))
    more = {"secrets": dict(secrets)} if secrets else {}
    return {"items": items, "applied": applied, "left": list(planned.left), "next": None, **more}


# The body has no more.
MOST_APPLIED = 256 * 1024


class ApplyBody(Body):
    """A TOML file, and its name in error messages."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": "[[targets]]\nname = 'desk-1'\n", "dry_run": True}]}
    )
    text: Annotated[str, Field(max_length=MOST_APPLIED)]
    file: Annotated[str, Field(min_length=1, max_length=300)] = "file"
    dry_run: bool = False


# --- functions ----------------------------------------------------------------------------------------------------

stats_json: Callable[[Stats], Json] = StatsSchema.of
artifact_json: Callable[[Artifact], Json] = ArtifactSchema.of
