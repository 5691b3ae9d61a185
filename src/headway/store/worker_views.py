"""Views of live and recently lost workers with their running jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from headway.clock import micros
from headway.model.explain.snapshot import WorkerSlots
from headway.store.db import Tx
from headway.store.workers import served_tenants

RECENTLY = 3_600.0


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker with its running jobs as (slot, job id, task, since).

    `tenants` are the ids and names of the tenants that it serves; None stands for all.
    """

    id: int
    host: str
    boot: str
    pid: int
    process_start: int
    slots: int
    tasks: tuple[str, ...]
    state: str
    started_at: int
    beat_at: int
    lease_until: int
    gone_at: int | None
    now: int
    note: str | None = None
    running: tuple[tuple[int, int, str, int], ...] = ()
    tenants: Mapping[int, str] | None = None

    def claims(self, task: str, tenant_id: int) -> bool:
        """Returns True if the worker knows the task and serves the tenant."""
        return task in self.tasks and (self.tenants is None or tenant_id in self.tenants)

    @property
    def shown_state(self) -> str:
        """Returns the state to show: a live worker with a note is paused."""
        return "paused" if self.state == "live" and self.note is not None else self.state

    @property
    def has_lease(self) -> bool:
        return self.gone_at is None and self.lease_until >= self.now

    @property
    def worker_slots(self) -> WorkerSlots:
        free = max(0, self.slots - len(self.running))
        served = None if self.tenants is None else frozenset(self.tenants)
        return WorkerSlots(frozenset(self.tasks), free, free, tenants=served)


Lives = Callable[[WorkerView], bool]


def workers(tx: Tx, *, within: float = RECENTLY) -> list[WorkerView]:
    """Returns live workers, and those given up within this time, with their jobs."""
    running: dict[int, list[tuple[int, int, str, int]]] = {}
    for job_id, _, _, worker_id, slot, task, claimed_at, *_ in tx.run("running_jobs"):
        running.setdefault(worker_id, []).append((slot, job_id, task, claimed_at))
    found = tx.run("shown_workers", within=micros(within))
    bound = {number for row in found for number in served_tenants(row[-1]) or ()}
    names: dict[int, str] = dict(tx.run("tenant_names", ids=json.dumps(sorted(bound)))) if bound else {}
    seen: list[WorkerView] = []
    for row in found:
        served = served_tenants(row[-1])
        tenants = None if served is None else {number: names.get(number, "") for number in served}
        jobs = tuple(sorted(running.get(row[0], ())))
        seen.append(WorkerView(*(*row[:6], tuple(json.loads(row[6])), *row[7:-1], jobs, tenants)))
    return seen


class OwnJobs(NamedTuple):
    """A tenant and the ids of its running jobs: a visitor of the tenant sees no other names on workers."""

    tenant_id: int
    jobs: set[int]


def running_of(tx: Tx, tenant_id: int) -> OwnJobs:
    return OwnJobs(tenant_id, {job_id for job_id, owner_id, *_ in tx.run("running_jobs") if owner_id == tenant_id})


def owner(tx: Tx, job_id: int) -> WorkerView | None:
    """Returns the worker that runs a job; None if it is not known."""
    return next((worker for worker in workers(tx) if any(job_id == held for _, held, *_ in worker.running)), None)
