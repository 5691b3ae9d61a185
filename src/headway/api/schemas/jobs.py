"""The JSON of jobs, runs, events, log lines and explanations, and the bodies about jobs.

`queue_status` is for clients that know three states. QUEUED is any job that does not run and has not ended (WAITING,
SCHEDULED, QUEUED, PAUSED, ERROR). RUNNING has a live claim. CANCELLED is CANCELLED. For any other ended job it is null,
and `outcome` is the status of its run, or SKIPPED for a job that never ran.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator
from typing_extensions import TypedDict

from headway.api.schemas.common import (
    ActorSchema,
    AnyJson,
    Body,
    Budget,
    FailureName,
    FilterText,
    GivenDuration,
    GivenInstant,
    Id,
    Instant,
    Json,
    Name,
    Names,
    Outcome,
    Params,
    Priority,
    Reader,
    Schema,
    Status,
    Words,
    actor_json,
    strict,
    time_or_none,
)
from headway.model.event import Event
from headway.model.explain.blockers import Blocker, Explanation
from headway.model.explain.forecast import Estimate
from headway.model.jobs.job import Options, Run
from headway.model.jobs.states import State
from headway.model.values.times import instant_text
from headway.store.jobs.views import JobView, LogLine, WorkReport
from headway.store.paging import Page
from headway.store.workers import worker_name

# --- runs ---------------------------------------------------------------------------------------------------------

_run = Reader[Run]()


class RunSchema(Schema[Run]):
    run_id: int = _run(lambda run: run.job_id)  # a run has the id of its job
    job_id: int = _run(lambda run: run.job_id)
    task: str = _run(lambda run: run.task)
    status: Outcome | None = _run.literal(lambda run: run.status.name if run.status is not None else None)
    params_snapshot: dict[str, AnyJson] = _run(lambda run: json.loads(run.params))
    started_at: Instant | None = _run(lambda run: time_or_none(run.started_at))
    finished_at: Instant | None = _run(lambda run: time_or_none(run.finished_at))
    exit_code: int | None = _run(lambda run: run.exit_code)
    error: str | None = _run(lambda run: run.error)
    failure_kind: FailureName | None = _run.literal(lambda run: run.failure_kind.value if run.failure_kind else None)
    artifacts: list[AnyJson] = _run(lambda run: json.loads(run.artifacts) if run.artifacts else [])
    result: AnyJson = _run(lambda run: json.loads(run.result) if run.result else None)


# --- jobs ---------------------------------------------------------------------------------------------------------

_report, _job = Reader[WorkReport](), Reader[JobView]()
# The jobs of a task mostly share one text.
_options = lru_cache(maxsize=256)(Options.parse)


class ProgressSchema(Schema[WorkReport]):
    done: float = _report.literal(lambda report: report.done)
    total: float | None = _report(lambda report: report.total)
    label: str | None = _report(lambda report: report.label)
    at: Instant = _report(lambda report: instant_text(report.at))


def queue_status(state: State) -> str | None:
    if state is State.RUNNING or state is State.CANCELLED:
        return state.name
    return None if state.terminal else State.QUEUED.name


def outcome(view: JobView) -> str | None:
    if view.run is not None:
        return view.run.status.name if view.run.status is not None else None
    return State.SKIPPED.name if view.job.status is State.SKIPPED else None


def _is_in_execution(view: JobView) -> bool:
    """An execution is not shown as a group."""
    return view.group is not None and view.group.kind == "execution"


def _retries_remaining(view: JobView) -> int:
    if view.job.status.terminal:
        return 0
    return max(0, _options(view.job.options).retry.max_attempts - view.retries_used)


def _progress(report: WorkReport | None) -> Any:
    return None if report is None or report.done is None else ProgressSchema.of(report)


class JobSchema(Schema[JobView]):
    job_id: int = _job(lambda view: view.job.id)
    task: str = _job(lambda view: view.job.task)
    params: dict[str, AnyJson] = _job(lambda view: json.loads(view.job.params))
    status: Status = _job.literal(lambda view: view.job.status.name)
    queue_status: Literal["QUEUED", "RUNNING", "CANCELLED"] | None = _job.literal(
        lambda view: queue_status(view.job.status)
    )
    outcome: Outcome | None = _job.literal(lambda view: outcome(view))
    priority: int = _job(lambda view: view.job.priority)
    position: int = _job(lambda view: view.job.position)
    rank: int | None = _job(lambda view: view.rank)
    target: str | None = _job(lambda view: view.target)
    resources: list[str] = _job(lambda view: list(_options(view.job.options).resources))
    template_id: int | None = _job(lambda view: view.job.template_id)
    schedule_id: int | None = _job(lambda view: view.group.schedule_id if view.group is not None else None)
    execution_id: int | None = _job(lambda view: view.job.group_id if _is_in_execution(view) else None)
    group_id: int | None = _job(lambda view: None if _is_in_execution(view) else view.job.group_id)
    stage: int | None = _job(lambda view: view.job.stage)
    step: str | None = _job(lambda view: view.job.step)
    retry_of: int | None = _job(lambda view: view.job.retry_of)
    attempt: int = _job(lambda view: view.job.attempt)
    retries_remaining: int = _job(_retries_remaining)
    exhausted: bool = _job(lambda view: bool(view.job.exhausted))
    not_before: Instant | None = _job(lambda view: time_or_none(view.job.not_before))
    key: str | None = _job(lambda view: view.job.key)
    reason: str | None = _job(lambda view: view.job.reason)
    stop_requested: Literal["cancel", "interrupt"] | None = _job.literal(
        lambda view: view.job.stop.value if view.job.stop else None
    )
    created_at: Instant = _job(lambda view: instant_text(view.job.created_at))
    queued_at: Instant | None = _job(lambda view: time_or_none(view.job.queued_at))
    started_at: Instant | None = _job(lambda view: time_or_none(view.job.started_at))
    finished_at: Instant | None = _job(lambda view: time_or_none(view.job.finished_at))
    created_by: ActorSchema = _job(lambda view: actor_json(view.job.created_by))
    progress: ProgressSchema | None = _job(lambda view: _progress(view.report))
    meters: dict[str, float] = _job(lambda view: view.report.spent if view.report else {})
    budget: dict[str, float] = _job(lambda view: dict(_options(view.job.options).budget))
    expires_at: Instant | None = _job(lambda view: time_or_none(view.job.expires_at))
    failure_kind: FailureName | None = _job.literal(
        lambda view: view.job.failure_kind.value if view.job.failure_kind else None
    )
    lease_owner: str | None = _job(
        lambda view: worker_name(view.job.worker_id) if view.job.worker_id is not None else None
    )
    lease_expires_at: Instant | None = _job(lambda view: time_or_none(view.lease_until))
    version: int = _job(lambda view: view.job.version)
    run: RunSchema | None = _job(lambda view: RunSchema.of(view.run) if view.run is not None else None)


# --- why a job waits ----------------------------------------------------------------------------------------------

BlockerKind = Literal[
    "status",
    "not_before",
    "lane",
    "target_held",
    "target_busy",
    "resource",
    "reservation",
    "stage",
    "paused",
    "no_worker",
    "behind",
]
_blocker, _estimate, _explanation = Reader[Blocker](), Reader[Estimate](), Reader[Explanation]()


class BlockerSchema(Schema[Blocker]):
    kind: BlockerKind = _blocker.literal(lambda blocker: blocker.kind)
    detail: str = _blocker(lambda blocker: blocker.detail)
    by: AnyJson = _blocker(lambda blocker: blocker.by)
    since: Instant | None = _blocker(lambda blocker: time_or_none(blocker.since))
    until: Instant | None = _blocker(lambda blocker: time_or_none(blocker.until))


class ChainedJobSchema(JobSchema):
    # The job whose chain this is.
    asked: bool
    automatic: bool = _job(lambda view: bool(view.job.retry_auto))


class QueuedJobSchema(JobSchema):
    blockers: list[BlockerSchema]


class StartEstimateSchema(Schema[Estimate]):
    p50: Instant = _estimate(lambda estimate: instant_text(estimate.p50))
    p90: Instant = _estimate(lambda estimate: instant_text(estimate.p90))


class ExplanationSchema(Schema[Explanation]):
    job_id: int = _explanation(lambda explained: explained.job_id)
    status: Status = _explanation.literal(lambda explained: explained.status)
    rank: int | None = _explanation(lambda explained: explained.rank)
    blockers: list[BlockerSchema] = _explanation(lambda explained: list(map(BlockerSchema.of, explained.blockers)))
    start_estimate: StartEstimateSchema | None = _explanation(
        lambda explained: None if explained.start_estimate is None else StartEstimateSchema.of(explained.start_estimate)
    )


# --- events and logs ----------------------------------------------------------------------------------------------

_event, _line = Reader[Event](), Reader[LogLine]()


class EventSchema(Schema[Event]):
    event_id: int = _event(lambda event: event.id)
    kind: str = _event(lambda event: event.kind)
    thing: str = _event(lambda event: event.thing)
    thing_id: int = _event(lambda event: event.thing_id)
    version: int = _event(lambda event: event.version)
    # The state of the job after the event.
    status: Status | None = _event.literal(lambda event: State(event.status).name if event.status is not None else None)
    at: Instant = _event(lambda event: instant_text(event.at))
    actor: ActorSchema = _event(lambda event: actor_json(event.actor))
    fence: int | None = _event(lambda event: event.fence)
    data: AnyJson = _event(lambda event: json.loads(event.data) if event.data else None)


class LineSchema(Schema[LogLine]):
    at: Instant = _line(lambda line: instant_text(line.at))
    level: str = _line(lambda line: line.level)
    message: str = _line(lambda line: line.message)


# --- many jobs ----------------------------------------------------------------------------------------------------


@strict
class BatchSchema(TypedDict):
    group_id: int | None
    items: list[JobSchema]


@strict
class RefusedJobSchema(TypedDict):
    job_id: int
    code: str
    detail: str


@strict
class BulkSchema(TypedDict):
    matched: int
    changed: list[int]
    refused: list[RefusedJobSchema]


# --- bodies -------------------------------------------------------------------------------------------------------


class RetryPolicyBody(Body):
    max_attempts: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] | None = None
    base_delay: GivenDuration | None = None
    max_delay: GivenDuration | None = None
    jitter: Annotated[float, Field(ge=0, le=1)] | None = None


OnShutdown = Annotated[
    Literal["retry", "pause", "resume"],
    Field(description="What becomes of a running job when its worker is shut down and the grace is over"),
]
OnShutdownOfAll = Annotated[
    Literal["retry", "pause", "resume"],
    Field(description="The effect of a shutdown on running jobs that do not say it themselves"),
]


class JobOptionsBody(Body):
    params: Params | None = None
    priority: Priority | None = None
    target: Name | None = None
    resources: Names | None = None
    timeout: GivenDuration | None = None
    retry_policy: RetryPolicyBody | None = None
    budget: Budget | None = None
    on_lost: Literal["retry", "hold", "fail"] | None = None
    on_error: Literal["hold", "fail"] | None = None
    on_shutdown: OnShutdown | None = None


class NewJobBody(JobOptionsBody):
    """A new job, from a task or from a template."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"task": "story.generate", "params": {"topic": "fog"}, "priority": 5}]}
    )
    task: Name | None = None
    template_id: Id | None = None
    delay: GivenDuration | None = None
    not_before: GivenInstant | None = None
    key: Name | None = None
    hold: bool | None = None
    expires_at: GivenInstant | None = None
    webhook_url: Annotated[str, Field(max_length=2_000)] | None = None
    webhook_events: Words | None = None

    @model_validator(mode="after")
    def _one_of(self) -> NewJobBody:
        if (self.task is None) == (self.template_id is None):
            raise ValueError("give either task or template_id")
        return self


class MemberBody(NewJobBody):
    """A job of a batch. `name`, `stage` and `continue_on_failure` need a mode."""

    name: Name | None = None
    stage: Annotated[int, Field(strict=True, ge=0, le=10_000)] | None = None
    continue_on_failure: bool | None = None


class NewBatchBody(Body):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"jobs": [{"task": "story.generate", "params": {"topic": "fog"}}], "mode": "parallel"}]
        }
    )
    jobs: Annotated[list[MemberBody], Field(min_length=1, max_length=1_000)]
    mode: Literal["sequential", "parallel", "staged"] | None = None
    on_failure: Name | None = None
    on_shutdown: OnShutdownOfAll | None = None
    name: Name | None = None

    def members(self) -> list[dict[str, Any]]:
        """Returns the given fields of each job, with the `on_shutdown` of all where it has none."""
        return members_given(self.jobs, self.on_shutdown)


def members_given(jobs: Sequence[MemberBody], on_shutdown: str | None) -> list[dict[str, Any]]:
    usual = {} if on_shutdown is None else {"on_shutdown": on_shutdown}
    return [{**usual, **job.given()} for job in jobs]


class JobEditBody(Body):
    params: Params | None = None
    priority: Priority | None = None
    not_before: GivenInstant | None = None
    expires_at: GivenInstant | None = None


class RetryBody(Body):
    params: Params | None = None
    priority: Priority | None = None
    budget: Budget | None = None
    again: bool = Field(True, description="Retry even if the job has been retried before")


class ResumeBody(Body):
    budget: Budget | None = None


class ResolveBody(Body):
    result: Any = None


class MoveBody(Body):
    """Exactly one of these fields."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"to": "top"}, {"before": 17}]})
    to: Literal["top", "bottom", "front"] | None = None
    before: Id | None = None
    after: Id | None = None
    rank: Annotated[int, Field(strict=True, ge=1, le=(1 << 31) - 1)] | None = None


class JobFilterBody(Body):
    status: Words | None = None
    task: FilterText | None = None
    target: FilterText | None = None
    group_id: Id | None = None
    schedule_id: Id | None = None
    key: FilterText | None = None
    failure_kind: FilterText | None = None
    created_by: FilterText | None = None
    exhausted: bool | None = None
    since: GivenInstant | None = None
    until: GivenInstant | None = None
    q: FilterText | None = None


class BulkBody(Body):
    """One action for every matching job.

    The request is refused unless `expected_count` jobs match.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"filter": {"status": ["QUEUED"], "task": "story.write"}, "action": "cancel", "expected_count": 3}
            ]
        }
    )
    filter: JobFilterBody
    action: Literal["cancel", "interrupt", "resume", "release", "retry"]
    expected_count: Annotated[int, Field(strict=True, ge=0, le=20_000)]


# --- functions ----------------------------------------------------------------------------------------------------

job_json: Callable[[JobView], Json] = JobSchema.of

run_json: Callable[[Run], Json] = RunSchema.of
event_json: Callable[[Event], Json] = EventSchema.of
line_json: Callable[[LogLine], Json] = LineSchema.of
blocker_json: Callable[[Blocker], Json] = BlockerSchema.of
explain_json: Callable[[Explanation], Json] = ExplanationSchema.of


def chain_json(page: Page[JobView], job_id: int) -> Json:
    """Returns the JSON of a page of the chain of this job."""
    items = [ChainedJobSchema.of(view, asked=view.job.id == job_id) for view in page.items]
    return {"items": items, "next": page.next}
