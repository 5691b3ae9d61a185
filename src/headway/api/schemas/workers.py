"""The JSON of workers."""

from __future__ import annotations

from typing import Literal

from headway.api.schemas.common import Instant, Json, Reader, Schema
from headway.model.values.times import instant_text
from headway.store.worker_views import OwnJobs, WorkerView
from headway.store.workers import worker_name

_Running = tuple[int, int, str, int]  # slot, job id, task, since
_running, _worker = Reader[_Running](), Reader[WorkerView]()


class RunningJobSchema(Schema[_Running]):
    job_id: int | None = _running(lambda running: running[1])
    task: str | None = _running(lambda running: running[2])
    slot: int = _running(lambda running: running[0])
    since: Instant = _running(lambda running: instant_text(running[3]))


class WorkerSchema(Schema[WorkerView]):
    worker_id: str = _worker(lambda worker: worker_name(worker.id))
    host: str = _worker(lambda worker: worker.host)
    pid: int = _worker(lambda worker: worker.pid)
    started_at: Instant = _worker(lambda worker: instant_text(worker.started_at))
    beat_at: Instant = _worker(lambda worker: instant_text(worker.beat_at))
    slots: int = _worker(lambda worker: worker.slots)
    running: list[RunningJobSchema] = _worker(lambda worker: list(map(RunningJobSchema.of, worker.running)))
    tasks: list[str] = _worker(lambda worker: list(worker.tasks))
    # The tenants that it serves; null means all.
    tenants: list[str] | None = _worker(
        lambda worker: None if worker.tenants is None else sorted(worker.tenants.values())
    )
    state: Literal["live", "paused", "draining", "stuck", "gone"] = _worker.literal(lambda worker: worker.shown_state)
    note: str | None = _worker(lambda worker: worker.note)


def worker_json(worker: WorkerView, *, alive: bool, own: OwnJobs | None = None) -> Json:
    """Returns a worker; jobs that are not in `own` have no id and no task, and other tenants no name.

    None means all.
    """
    made: Json = WorkerSchema.of(worker)
    if not alive:
        made["state"] = "gone"
    if own is not None:
        if worker.tenants is not None:
            made["tenants"] = [name for number, name in worker.tenants.items() if number == own.tenant_id]
        for job in made["running"]:
            if job["job_id"] not in own.jobs:
                job.update(job_id=None, task=None)
    return made
