"""What is read of a history: rows as plain tuples with names, because millions of them are made."""

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
    """The job that a job retries, and its end."""

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
    """One event in the order of all, with what the replays need of its job."""

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
    """A group or an execution, with the tenants of what it names and the end of the group that it waited for."""

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
    """One job of a group: numbers of its events, by which they can be put in order with those of others.

    `began` is the first that let it run or put it in line, `ended` its end.
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
    """All that is known of one group or execution."""

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


class Tick(NamedTuple):
    """A row of the ledger, with the execution that it names and the number of its event."""

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

    @property
    def name(self) -> str:
        return f"{self.outcome} at {self.nominal_at}"


class Execution(NamedTuple):
    """An execution among those of its schedule: numbers of its events. `waits`: it was made to follow another one."""

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
    """All that is known of one job number. Without a row only its events are left.

    `paid` counts the failures before it in its chain that used up an attempt, `together` says that it was made in the
    transaction that ended its parent, `automatic` and `manual` count its own retries.
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
    """The JSON object of an event, an actor or a job's options."""
    try:
        found = json.loads(data) if data else None
    except ValueError:
        found = None  # what it should have said is missed by the checks that need it
    return found if isinstance(found, dict) else {}


def names(data: str | None) -> tuple[str, ...]:
    """The JSON list of a worker's tasks."""
    return tuple(map(str, _listed(data)))


def numbers(data: str | None) -> tuple[int, ...]:
    """The JSON list of a bucket's or a reservation's lanes."""
    return tuple(number for number in _listed(data) if isinstance(number, int))


def _listed(data: str | None) -> list[Any]:
    try:
        found = json.loads(data) if data else None
    except ValueError:
        found = None
    return found if isinstance(found, list) else []


@lru_cache(maxsize=4096)
def worker_of(actor: str) -> str | None:
    """The name of the worker that acted, if one did."""
    who = facts(actor)
    return str(who.get("id")) if who.get("type") == "worker" else None
