"""Workers: their state, jobs and tasks, and those that left within the last hour."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import Response

from headway.dashboard.page import PageRequest, Pages
from headway.engine.client.limits import lives
from headway.store import worker_views
from headway.store.worker_views import OwnJobs, WorkerView
from headway.store.workers import worker_name
from headway.text.workers import WorkerStatus, standing

pages = Pages("workers")


@dataclass(frozen=True, slots=True)
class Named:
    """A job that runs. One that is not of the tenant acted for has no page here."""

    id: int
    task: str
    own: bool


@dataclass(frozen=True, slots=True)
class Shown:
    """A worker, how it stands, and its running jobs with since when.

    None for one that is not the visitor's to see. `tenants` are those that it serves, as far as the visitor may know
    them; None means all.
    """

    worker: WorkerView
    name: str
    standing: WorkerStatus
    running: list[tuple[Named | None, int]]
    tenants: list[str] | None


@pages.get("/workers")
def show(page: PageRequest) -> Response:
    with page.look() as tx:
        own = worker_views.running_of(tx, page.tenant_id)
        found = [_shown(worker, own, everything=page.visitor.system) for worker in worker_views.workers(tx)]
    alive = [one for one in found if one.standing.alive]
    gone = [one for one in reversed(found) if not one.standing.alive]
    slots = sum(one.worker.slots for one in alive)
    busy = sum(len(one.running) for one in alive)
    return page.render("workers.html", alive=alive, gone=gone, slots=slots, busy=busy)


def _shown(worker: WorkerView, own: OwnJobs, *, everything: bool) -> Shown:
    left = worker.gone_at is not None
    how = standing(worker.shown_state, left=left, has_lease=worker.has_lease, process=lives(worker), note=worker.note)
    running = [
        (Named(job_id, task, job_id in own.jobs) if everything or job_id in own.jobs else None, since)
        for _, job_id, task, since in worker.running
    ]
    names = None
    if worker.tenants is not None:
        names = sorted(name for number, name in worker.tenants.items() if everything or number == own.tenant_id)
    return Shown(worker, worker_name(worker.id), how, running, names)
