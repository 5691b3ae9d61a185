"""Types of the answers about tasks, workers, logs, files, access and webhooks."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from headway.api.schemas.answers import Actor, AnyJson, Instant, Job, Line, QueuedJob, Strict
from headway.api.schemas.answers_queue import QueuePause, Target


@Strict
class Param(TypedDict):
    name: str
    type: str | None
    required: bool
    default: AnyJson


@Strict
class Task(TypedDict):
    task: str
    description: str | None
    priority: int
    timeout: float | None
    retry_policy: AnyJson
    budget: dict[str, float]
    resources: list[str]
    on_lost: str
    on_error: str
    on_shutdown: str | None
    params: list[Param] | None
    open: bool | None
    direct: str | None
    admin_only: bool
    seen_at: Instant | None


@Strict
class RunningJob(TypedDict):
    job_id: int | None
    task: str | None
    slot: int
    since: Instant


@Strict
class Worker(TypedDict):
    worker_id: str
    host: str
    pid: int
    started_at: Instant
    beat_at: Instant
    slots: int
    running: list[RunningJob]
    tasks: list[str]
    state: Literal["live", "paused", "draining", "stuck", "gone"]
    note: str | None


@Strict
class OldestWait(TypedDict):
    job_id: int
    queued_at: Instant


@Strict
class Span(TypedDict):
    since: Instant
    completed: int
    failed: int
    other: int


@Strict
class Spread(TypedDict):
    count: int
    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None


@Strict
class Stats(TypedDict):
    at: Instant
    counts: dict[str, int]
    counts_at_least: bool
    finished_since: Instant
    oldest_wait: OldestWait | None
    throughput: list[Span]
    complete_since: Instant
    waits: Spread
    durations: Spread


@Strict
class Log(TypedDict):
    items: list[Line]
    next: str | None
    position: int


@Strict
class Artifact(TypedDict):
    name: str
    size: int
    sha256: str
    at: Instant


# --- access -------------------------------------------------------------------------------------------------------


class _Token(TypedDict):
    token_id: int
    name: str
    role: Literal["viewer", "operator", "admin"]
    tenant: str | None
    hint: str
    state: Literal["live", "expired", "revoked"]
    created_at: Instant
    created_by: Actor
    expires_at: Instant | None
    revoked_at: Instant | None
    version: int


@Strict
class Token(_Token):
    pass


@Strict
class NewToken(_Token):
    token: str | None


@Strict
class Tenant(TypedDict):
    tenant_id: int
    name: str
    active: bool
    paused_at: Instant | None
    paused_until: Instant | None
    max_queued: int | None
    max_running: int | None
    max_schedules: int | None
    allow: list[str]
    created_at: Instant
    version: int


# --- webhooks -----------------------------------------------------------------------------------------------------


class _Webhook(TypedDict):
    webhook_id: int
    url: str
    events: list[str]
    description: str | None
    max_tries: int
    enabled: bool
    state: Literal["closed", "open", "disabled", "deleted"]
    reason: str | None
    failures: int
    opened_at: Instant | None
    probe_at: Instant | None
    old_secret_until: Instant | None
    created_at: Instant
    created_by: Actor
    version: int


@Strict
class Webhook(_Webhook):
    pass


@Strict
class NewWebhook(_Webhook):
    secret: str | None


@Strict
class Secret(TypedDict):
    secret: str


class _Delivery(TypedDict):
    delivery_id: int
    event_id: int | None
    event: str
    endpoint_id: int | None
    job_id: int | None
    url: str | None
    message_id: str | None
    status: str
    tries: int
    max_tries: int
    next_try_at: Instant | None
    last_status_code: int | None
    last_error: str | None
    replay_of: int | None
    created_at: Instant
    delivered_at: Instant | None
    finished_at: Instant | None


@Strict
class Delivery(_Delivery):
    pass


@Strict
class Try(TypedDict):
    number: int
    at: Instant
    seconds: float
    status_code: int | None
    error: str | None
    address: str | None
    request: AnyJson
    response: AnyJson


@Strict
class DeliveryWithTries(_Delivery):
    """`body` is the request body; null until it is rendered."""

    body: str | None
    attempts: list[Try]


@Strict
class Overview(TypedDict):
    at: Instant
    counts: dict[str, int]
    counts_at_least: bool
    finished_since: Instant
    oldest_wait: OldestWait | None
    queue: QueuePause
    blocked_targets: list[Target]
    workers: list[Worker]
    running: list[Job]
    waiting: list[QueuedJob]


@Strict
class AppliedChange(TypedDict):
    """`+` created, `~` changed, `=` unchanged."""

    change: Literal["+", "~", "="]
    thing: Literal["template", "schedule", "target", "webhook"]
    name: str
    differences: list[str]


class _Applied(TypedDict):
    items: list[AppliedChange]
    applied: bool
    left: list[str]
    next: None


@Strict
class Applied(_Applied, total=False):
    secrets: dict[str, str]
