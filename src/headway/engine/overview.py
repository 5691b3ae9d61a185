"""How things stand for one tenant, in one snapshot: what `status`, `top` and the first page show."""

from __future__ import annotations

from dataclasses import dataclass

from headway.clock import micros
from headway.engine.limits import lives
from headway.model.scene import Pause
from headway.model.states import State
from headway.model.targets import TargetView
from headway.store import lanes, queue_reading, reading, targets, workers_reading
from headway.store.db import Tx
from headway.store.pages import BUDGET, Filters
from headway.store.queue_reading import Waiting
from headway.store.reading import Counts, JobView
from headway.store.workers_reading import WorkerView

DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Overview:
    """Finished jobs are counted for a day. Each worker with whether it lives."""

    now: int
    counts: Counts
    pause: Pause | None
    everybody: Pause | None
    blocked: list[TargetView]
    workers: list[tuple[WorkerView, bool]]
    running: list[JobView]
    waiting: list[Waiting]


def overview(
    tx: Tx, tenant_id: int, now: int, *, listed: int = 10, foresee: bool = False, most_blocked: int = BUDGET
) -> Overview:
    """`foresee`: with when those that wait may start. `most_blocked`: so many targets that wait for a person."""
    return Overview(
        now,
        reading.counts(tx, tenant_id, since=now - micros(DAY)),
        *lanes.pauses(tx, tenant_id),
        targets.blocked(tx, tenant_id, most_blocked),
        [(worker, lives(worker)) for worker in workers_reading.workers(tx, within=0.0)],
        reading.list_jobs(tx, tenant_id, Filters(frozenset({State.RUNNING})), listed).items,
        queue_reading.queue(tx, tenant_id, listed, lives=lives, foresee=foresee),
    )
