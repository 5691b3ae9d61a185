"""Types of the answers about groups, templates, schedules and executions."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from headway.api.schemas.answers import Actor, AnyJson, Instant, Status, Strict

Counts = dict[str, int]
Duration = float | str
Mode = Literal["sequential", "parallel", "staged"]


@Strict
class Step(TypedDict):
    """A step with the state of its last job.

    `linked` steps succeeded in the retried execution or group.
    """

    step: str
    stage: int
    task: str
    job_id: int
    status: Status
    attempt: int
    started_at: Instant | None
    finished_at: Instant | None
    reason: str | None
    error: str | None
    continue_on_failure: bool
    linked: bool


class _Common(TypedDict):
    """`failed` lists the failed steps, at most the first few."""

    held_by: list[Step]
    failed: list[Step]
    counts: Counts
    retry_of: int | None
    created_at: Instant
    started_at: Instant | None
    finished_at: Instant | None
    created_by: Actor
    cancelled_by: Actor | None


class _Group(_Common):
    group_id: int
    name: str
    mode: Mode
    on_failure: str
    status: Literal["RUNNING", "COMPLETED", "PARTIAL", "CANCELLED"]
    stage: int
    stages: int


@Strict
class Group(_Group):
    pass


@Strict
class GroupWithSteps(_Group):
    steps: list[Step]


@Strict
class Execution(_Common):
    """`after` is the execution that must end before this one starts."""

    execution_id: int
    schedule_id: int | None
    name: str
    kind: Literal["tick", "manual", "backfill", "retry"]
    nominal_at: Instant | None
    on_failure: str
    status: Literal["IN_PROGRESS", "COMPLETED", "FAILED", "CANCELLED"]
    current_stage: int
    stages: int
    error: str | None
    after: int | None
    steps: list[Step]


@Strict
class Template(TypedDict):
    template_id: int
    name: str
    task: str
    params: dict[str, AnyJson]
    priority: int | None
    target: str | None
    resources: list[str] | None
    timeout: Duration | None
    retry_policy: dict[str, AnyJson] | None
    budget: dict[str, float] | None
    on_lost: str | None
    on_error: str | None
    description: str | None
    open_params: list[str]
    archived_at: Instant | None
    created_at: Instant
    created_by: Actor
    version: int


class _StepWish(TypedDict, total=False):
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


@Strict
class StepWish(_StepWish):
    """A step of a schedule.

    `template` is the template's id or name, as the definition gives it.
    """

    index: int
    name: str


@Strict
class Schedule(TypedDict):
    schedule_id: int
    name: str
    enabled: bool
    cron: str | None
    interval: float | None
    times: list[Instant] | None
    timezone: str
    params: dict[str, AnyJson]
    template: str | int | None
    template_id: int | None
    steps: list[StepWish] | None
    on_failure: str
    overlap: Literal["skip", "queue", "allow", "cancel_running"]
    catch_up: Literal["last", "none", "all"]
    window: float
    cap: int
    jitter: float
    start: Instant | None
    end: Instant | None
    note: str | None
    origin: Literal["code", "file", "api"]
    last_run_at: Instant | None
    next_run_at: Instant | None
    sentence: str
    created_at: Instant
    created_by: Actor
    version: int


@Strict
class Tick(TypedDict):
    schedule_id: int
    nominal_at: Instant
    until: Instant
    count: int
    outcome: Literal["FIRED", "SKIPPED", "MISSED", "COALESCED"]
    reason: str | None
    execution_id: int | None
    decided_at: Instant


@Strict
class Preview(TypedDict):
    """A future time of a schedule. `note` is the effect of a clock change."""

    at: Instant
    local: str
    note: str | None


@Strict
class Times(TypedDict):
    schedule_id: int
    timezone: str
    sentence: str
    items: list[Preview]
    next: None


@Strict
class Backfilled(TypedDict):
    """The nominal times that had not fired, and their executions.

    A dry run creates none.
    """

    times: list[Instant]
    items: list[Execution]
    next: None
