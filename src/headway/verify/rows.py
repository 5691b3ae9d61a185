"""The rows of a history, as named tuples because there are millions of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple


class Event(NamedTuple):
    job_id: int
    version: int
    kind: str
    status: int | None
    at: int
    actor: str
    fence: int | None
    data: str | None
    tenant_id: int

    @property
    def where(self) -> str:
        return f"version {self.version}, {self.kind}"


class JobRow(NamedTuple):
    id: int
    tenant_id: int
    bucket_id: int
    status: int
    gate: int
    priority: int
    position: int
    fence: int
    version: int
    retry_auto: int
    exhausted: int
    retry_of: int | None
    target_id: int | None
    started_at: int | None
    stop: str | None
    key: str | None
    task: str
    group_id: int | None
    run_tenant: int | None
    run_task: str | None
    run_started: int | None
    run_status: int | None
    run_has_params: int

    @property
    def has_run(self) -> bool:
        return self.run_tenant is not None


class Parent(NamedTuple):
    """The job that a job retries, and how it ended."""

    child_id: int
    id: int | None
    tenant_id: int
    status: int
    failure_kind: str | None
    priority: int
    position: int
    task: str
    key: str | None
    target_id: int | None
    options: str
    same_params: int
    ended_at: int | None
    end_data: str | None


class Moment(NamedTuple):
    """One event of the whole history, with columns of its job."""

    id: int
    thing: str
    thing_id: int
    version: int
    kind: str
    status: int | None
    at: int
    actor: str
    data: str | None
    bucket_id: int | None
    target_id: int | None
    group_id: int | None
    stage: int | None
    priority: int
    position: int
    created_at: int
    expires_at: int | None


class GroupRow(NamedTuple):
    """A group or an execution, with the tenants of the things it names.

    `after_ended` is the end of the group that it waited for.
    """

    id: int
    tenant_id: int
    kind: str
    on_failure: str
    status: str
    stage: int
    after_id: int | None
    cancelled: int
    error: str | None
    finished_at: int | None
    version: int
    schedule_id: int | None
    retry_of: int | None
    schedule_tenant: int | None
    retried_tenant: int | None
    after_tenant: int | None
    after_ended: int | None


class GroupEvent(NamedTuple):
    group_id: int
    id: int
    thing: str
    version: int
    kind: str
    at: int
    data: str | None
    tenant_id: int

    @property
    def what(self) -> str:
        return self.kind.rpartition(".")[2]

    @property
    def where(self) -> str:
        return f"version {self.version}, {self.kind}"


class Member(NamedTuple):
    """One job of a group, with the ids of its events.

    The ids order them among the events of other jobs. `began` is the first event that queued or claimed it, `ended` its
    end.
    """

    group_id: int
    job_id: int
    tenant_id: int
    stage: int
    step: str | None
    status: int
    hold: int
    reason: str | None
    options: str
    retry_of: int | None
    created: int | None
    created_at: int | None
    began: int | None
    claimed: int | None
    ended: int | None
    released: int
    released_at: int | None


@dataclass(slots=True)
class GroupHistory:
    """The row, events and members of one group or execution."""

    row: GroupRow
    events: list[GroupEvent]
    members: list[Member]


class ScheduleRow(NamedTuple):
    id: int
    tenant_id: int
    definition: str
    enabled: int
    decided_until: int
    next_at: int | None
    created_at: int
    deleted_at: int | None
    version: int


class ScheduleEvent(NamedTuple):
    schedule_id: int
    version: int
    kind: str
    at: int
    data: str | None
    tenant_id: int

    @property
    def where(self) -> str:
        return f"version {self.version}, {self.kind}"


USUAL_TOLERANCE = 60_000_000


class Tick(NamedTuple):
    """A row of the tick ledger, with its execution and the id of its event."""

    schedule_id: int
    nominal_at: int
    id: int
    tenant_id: int
    until: int
    times: int
    outcome: str
    reason: str | None
    execution_id: int | None
    decided_at: int
    found: int | None
    its_schedule: int | None
    its_reason: str | None
    its_nominal: int | None
    event_id: int | None
    tolerance: int | None

    @property
    def most_late(self) -> int:
        """How late it could be decided and still be on time, unless its schedule fires again so soon."""
        return USUAL_TOLERANCE if self.tolerance is None else self.tolerance

    @property
    def name(self) -> str:
        return f"{self.outcome} at {self.nominal_at}"


class Execution(NamedTuple):
    """An execution with the ids of its events.

    `waits`: it was created to follow another execution.
    """

    schedule_id: int
    id: int
    reason: str
    nominal_at: int | None
    created_at: int
    finished_at: int | None
    created: int | None
    waits: int
    begun: int | None
    ended: int | None


@dataclass(slots=True)
class JobHistory:
    """The row and events of one job id. Without a row, only its events are left.

    `paid` counts the failures before it in its chain that used up an attempt. `together` is True if it was created in
    the transaction that ended its parent. `automatic` and `manual` count its own retries.
    """

    id: int
    row: JobRow | None
    events: list[Event]
    parent: Parent | None = None
    paid: int = 0
    together: bool = False
    automatic: int = 0
    manual: int = 0


class Bucket(NamedTuple):
    tenant_id: int
    task: str
    lanes: tuple[int, ...]
    on_target: bool


class Worker(NamedTuple):
    slots: int
    tasks: frozenset[str]


def facts(data: str | None) -> dict[str, Any]:
    """Returns the JSON object of an event, an actor or a job's options.

    Returns {} if it cannot be read.
    """
    try:
        value = json.loads(data) if data else None
    except ValueError:
        value = None  # the checks that need its fields report that they are missing
    return value if isinstance(value, dict) else {}


def names(data: str | None) -> tuple[str, ...]:
    """Returns the JSON list of a worker's tasks."""
    return tuple(map(str, _listed(data)))


def numbers(data: str | None) -> tuple[int, ...]:
    """Returns the JSON list of a bucket's or a reservation's lanes."""
    return tuple(number for number in _listed(data) if isinstance(number, int))


def _listed(data: str | None) -> list[Any]:
    try:
        value = json.loads(data) if data else None
    except ValueError:
        value = None
    return value if isinstance(value, list) else []


@lru_cache(maxsize=4096)
def worker_of(actor: str) -> str | None:
    """Returns the name of the worker that acted; None if the actor is not a worker."""
    fields = facts(actor)
    return str(fields.get("id")) if fields.get("type") == "worker" else None
