"""Types of the answers, for the OpenAPI document.

The modules beside this one build the values; the tests compare every answer with these types.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

T = TypeVar("T")
Strict = with_config(ConfigDict(extra="forbid"))
Status = Literal[
    "WAITING", "SCHEDULED", "QUEUED", "RUNNING", "PAUSED", "ERROR", "COMPLETED", "FAILED", "SKIPPED", "CANCELLED"
]
Outcome = Literal["COMPLETED", "FAILED", "SKIPPED"]
Kind = Literal["EXCEPTION", "EXIT_CODE", "TIMEOUT", "LOST", "INTERRUPTED", "BUDGET", "BAD_PARAMS", "UNKNOWN_TASK"]
Instant = str
AnyJson = Any


@Strict
class FieldProblem(TypedDict):
    field: str
    problem: str


class _Problem(TypedDict, total=False):
    state: str
    job_id: int
    failure_kind: Kind


@Strict
class Problem(_Problem):
    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[FieldProblem]


@Strict
class Page(TypedDict, Generic[T]):
    items: list[T]
    next: str | None


@Strict
class Actor(TypedDict):
    type: str
    id: str
    name: str


@Strict
class Progress(TypedDict):
    done: float
    total: float | None
    label: str | None
    at: Instant


@Strict
class Run(TypedDict):
    run_id: int
    job_id: int
    task: str
    status: Outcome | None
    params_snapshot: dict[str, AnyJson]
    started_at: Instant | None
    finished_at: Instant | None
    exit_code: int | None
    error: str | None
    failure_kind: Kind | None
    artifacts: list[AnyJson]
    result: AnyJson


class _Job(TypedDict):
    job_id: int
    task: str
    params: dict[str, AnyJson]
    status: Status
    queue_status: Literal["QUEUED", "RUNNING", "CANCELLED"] | None
    outcome: Outcome | None
    priority: int
    position: int
    rank: int | None
    target: str | None
    resources: list[str]
    template_id: int | None
    schedule_id: int | None
    execution_id: int | None
    group_id: int | None
    stage: int | None
    step: str | None
    retry_of: int | None
    attempt: int
    retries_remaining: int
    exhausted: bool
    not_before: Instant | None
    key: str | None
    reason: str | None
    stop_requested: Literal["cancel", "interrupt"] | None
    created_at: Instant
    queued_at: Instant | None
    started_at: Instant | None
    finished_at: Instant | None
    created_by: Actor
    progress: Progress | None
    meters: dict[str, float]
    budget: dict[str, float]
    expires_at: Instant | None
    failure_kind: Kind | None
    lease_owner: str | None
    lease_expires_at: Instant | None
    version: int
    run: Run | None


@Strict
class Job(_Job):
    pass


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


@Strict
class Blocker(TypedDict):
    kind: BlockerKind
    detail: str
    by: AnyJson
    since: Instant | None
    until: Instant | None


@Strict
class QueuedJob(_Job):
    blockers: list[Blocker]


@Strict
class StartEstimate(TypedDict):
    p50: Instant
    p90: Instant


@Strict
class Explanation(TypedDict):
    job_id: int
    status: Status
    rank: int | None
    blockers: list[Blocker]
    start_estimate: StartEstimate | None


@Strict
class Event(TypedDict):
    event_id: int
    kind: str
    thing: str
    thing_id: int
    version: int
    status: Status | None
    at: Instant
    actor: Actor
    fence: int | None
    data: AnyJson


@Strict
class Line(TypedDict):
    at: Instant
    level: str
    message: str


@Strict
class Batch(TypedDict):
    group_id: int | None
    items: list[Job]


@Strict
class RefusedJob(TypedDict):
    job_id: int
    code: str
    detail: str


@Strict
class Bulk(TypedDict):
    matched: int
    changed: list[int]
    refused: list[RefusedJob]


@Strict
class Alive(TypedDict):
    status: Literal["alive"]


@Strict
class Readiness(TypedDict):
    ready: bool
    reasons: list[str]
    warnings: list[str]
