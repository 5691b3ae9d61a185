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
