"""The processes that run jobs: whether they live, what they run, what they can run, and those that left lately."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from starlette.responses import Response

from headway.dashboard.pages import Page, Pages
from headway.engine.limits import lives
from headway.model.workers import Standing, standing
from headway.store import workers_reading
from headway.store.workers import worker_name
from headway.store.workers_reading import WorkerView

pages = Pages("workers")


@dataclass(frozen=True, slots=True)
class Named:
    """A job that runs. One that is not of the tenant acted for has no page here."""

    id: int
    task: str
    own: bool


@dataclass(frozen=True, slots=True)
class Shown:
    """A worker, how it stands, and its running jobs with since when; None for one that is not the visitor's to see."""

    worker: WorkerView
    name: str
    standing: Standing
    running: list[tuple[Named | None, int]]


@pages.get("/workers")
def show(page: Page) -> Response:
    with page.look() as tx:
        own = workers_reading.running_of(tx, page.tenant_id)
        found = [_shown(worker, own, everything=page.visitor.system) for worker in workers_reading.workers(tx)]
    alive = [one for one in found if one.standing.alive]
    gone = [one for one in reversed(found) if not one.standing.alive]
    slots = sum(one.worker.slots for one in alive)
    busy = sum(len(one.running) for one in alive)
    return page.render("workers.html", alive=alive, gone=gone, slots=slots, busy=busy)


def _shown(worker: WorkerView, own: Collection[int], *, everything: bool) -> Shown:
    how = standing(worker.state, left=worker.gone_at is not None, has_lease=worker.has_lease, process=lives(worker))
    running = [
        (Named(job_id, task, job_id in own) if everything or job_id in own else None, since)
        for _, job_id, task, since in worker.running
    ]
    return Shown(worker, worker_name(worker.id), how, running)
