"""Views of live and recently lost workers with their running jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from headway.clock import micros
from headway.model.explain.snapshot import WorkerSlots
from headway.store.db import Tx

RECENTLY = 3_600.0


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker with its running jobs as (slot, job id, task, since)."""

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
        return WorkerSlots(frozenset(self.tasks), free, free)


Lives = Callable[[WorkerView], bool]


def workers(tx: Tx, *, within: float = RECENTLY) -> list[WorkerView]:
    """Returns live workers, and those given up within this time, with their jobs."""
    running: dict[int, list[tuple[int, int, str, int]]] = {}
    for job_id, _, _, worker_id, slot, task, claimed_at, *_ in tx.run("running_jobs"):
        running.setdefault(worker_id, []).append((slot, job_id, task, claimed_at))
    return [
        WorkerView(*(*row[:6], tuple(json.loads(row[6])), *row[7:], tuple(sorted(running.get(row[0], ())))))
        for row in tx.run("shown_workers", within=micros(within))
    ]


def running_of(tx: Tx, tenant_id: int) -> set[int]:
    """Returns the ids of a tenant's running jobs."""
    return {job_id for job_id, owner_id, *_ in tx.run("running_jobs") if owner_id == tenant_id}


def owner(tx: Tx, job_id: int) -> WorkerView | None:
    """Returns the worker that runs a job; None if it is not known."""
    return next((worker for worker in workers(tx) if any(job_id == held for _, held, *_ in worker.running)), None)
