"""Workers as they are shown: those that live or did until lately, and what each of them runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from headway.clock import micros
from headway.model.scene import Hand
from headway.store.db import Tx

RECENTLY = 3_600.0


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker with what it runs: (slot, job id, task, since) each."""

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
    running: tuple[tuple[int, int, str, int], ...] = ()

    @property
    def has_lease(self) -> bool:
        return self.gone_at is None and self.lease_until >= self.now

    @property
    def hand(self) -> Hand:
        free = max(0, self.slots - len(self.running))
        return Hand(frozenset(self.tasks), free, free)


Lives = Callable[[WorkerView], bool]


def workers(tx: Tx, *, within: float = RECENTLY) -> list[WorkerView]:
    """Those that were not given up, or only recently, with what they run."""
    running: dict[int, list[tuple[int, int, str, int]]] = {}
    for job_id, _, _, worker_id, slot, task, claimed_at, *_ in tx.run("running_jobs"):
        running.setdefault(worker_id, []).append((slot, job_id, task, claimed_at))
    return [
        WorkerView(*(*row[:6], tuple(json.loads(row[6])), *row[7:], tuple(sorted(running.get(row[0], ())))))
        for row in tx.run("shown_workers", within=micros(within))
    ]


def running_of(tx: Tx, tenant_id: int) -> set[int]:
    """The running jobs of one tenant."""
    return {job_id for job_id, owner_id, *_ in tx.run("running_jobs") if owner_id == tenant_id}


def owner(tx: Tx, job_id: int) -> WorkerView | None:
    """The worker that runs a job, as far as it is known."""
    return next((one for one in workers(tx) if any(job_id == number for _, number, *_ in one.running)), None)
