"""The overview of one tenant, in one snapshot, for `status`, `top` and the UI."""

from __future__ import annotations

from dataclasses import dataclass

from headway.clock import micros
from headway.engine.client.limits import lives
from headway.model.explain.snapshot import Pause
from headway.model.jobs.filter import JobFilter
from headway.model.jobs.states import State
from headway.model.queue.target import TargetView
from headway.store import worker_views
from headway.store.db import Tx
from headway.store.jobs import views as job_views
from headway.store.jobs.views import Counts, JobView
from headway.store.paging import BUDGET
from headway.store.queue import lanes, queue_views, targets
from headway.store.queue.queue_views import WaitingJob
from headway.store.schedules import schedules
from headway.store.schedules.schedules import Missed
from headway.store.worker_views import WorkerView

DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Overview:
    """State of one tenant.

    Finished jobs are counted for a day; each worker is paired with True if alive.
    """

    now: int
    counts: Counts
    pause: Pause | None
    everybody: Pause | None
    blocked: list[TargetView]
    workers: list[tuple[WorkerView, bool]]
    running: list[JobView]
    waiting: list[WaitingJob]
    missed: list[Missed]


def overview(
    tx: Tx, tenant_id: int, now: int, *, listed: int = 10, foresee: bool = False, most_blocked: int = BUDGET
) -> Overview:
    """Reads the overview.

    `foresee` adds the estimated start of waiting jobs. `most_blocked` limits the listed blocked targets.
    """
    return Overview(
        now,
        job_views.counts(tx, tenant_id, since=now - micros(DAY)),
        *lanes.pauses(tx, tenant_id),
        targets.blocked(tx, tenant_id, most_blocked),
        [(worker, lives(worker)) for worker in worker_views.workers(tx, within=0.0)],
        job_views.list_jobs(tx, tenant_id, JobFilter(frozenset({State.RUNNING})), listed).items,
        queue_views.queue(tx, tenant_id, listed, lives=lives, foresee=foresee),
        schedules.missed(tx, tenant_id),
    )
