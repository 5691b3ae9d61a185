"""Tasks, workers, the overview and statistics; and the log of a job in pages."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from headway.api.endpoints.tasks import known_tasks
from headway.api.http.query import LARGEST, JobId, Limit
from headway.api.http.routing import Here, Routes, answer
from headway.api.schemas.common import PageSchema
from headway.api.schemas.system import (
    LogSchema,
    OverviewSchema,
    StatsSchema,
    TaskSchema,
    log_json,
    overview_json,
    stats_json,
)
from headway.api.schemas.workers import WorkerSchema, worker_json
from headway.engine.client.limits import lives
from headway.engine.monitoring.overview import overview as look
from headway.errors import BadInput
from headway.store import stats as store_stats
from headway.store import worker_views
from headway.store.jobs import views as job_views

routes = Routes("system")


@routes.get("/api/tasks", answer=PageSchema[TaskSchema])
def tasks(here: Here) -> Response:
    """List the tasks of this process and of all workers of the last 30 days."""
    return answer({"items": known_tasks(here), "next": None})


@routes.get("/api/workers", answer=PageSchema[WorkerSchema])
def workers(here: Here) -> Response:
    """List workers and their running jobs; workers that left are listed for an hour."""
    with here.look() as tx:
        own = None if here.visitor.system else worker_views.running_of(tx, here.tenant_id)
        found = [worker_json(worker, alive=lives(worker), own=own) for worker in worker_views.workers(tx)]
    return answer({"items": found, "next": None})


@routes.get("/api/overview", answer=OverviewSchema)
def overview(here: Here, listed: Annotated[int, Query(ge=1, le=200)] = 10) -> Response:
    """Show an overview: a day's counts, workers, running, waiting and held jobs."""
    with here.look() as tx:
        seen = look(tx, here.tenant_id, here.service.database.clock.now(), listed=listed)
        own = None if here.visitor.system else worker_views.running_of(tx, here.tenant_id)
    return answer(overview_json(seen, own))


@routes.get("/api/stats", answer=StatsSchema)
def stats(here: Here) -> Response:
    """Show statistics: jobs by state, throughput, waiting times and durations."""
    with here.look() as tx:
        return answer(stats_json(store_stats.stats(tx, here.tenant_id)))


@routes.get("/api/jobs/{job_id}/logs", answer=LogSchema)
def logs(
    here: Here,
    job_id: JobId,
    after: Annotated[int, Query(ge=0, le=LARGEST, description="`next` or `position` of a page before")] = 0,
    limit: Limit = 50,
    tail: Annotated[int | None, Query(ge=1, le=1_000, description="Only this many of the last lines")] = None,
) -> Response:
    """Get the log of a job, oldest first.

    Lines that were written together stay together; `limit` counts such chunks.
    """
    if tail is not None and after:
        raise BadInput("give after or tail, not both", field="tail")
    here.client.get(job_id)
    with here.read() as tx:
        if tail is not None:
            return answer(log_json(job_views.last_lines(tx, job_id, tail), more=False, after=0))
        lines = job_views.log_lines(tx, job_id, after=after, limit=limit)
    return answer(log_json(lines, more=len({line.chunk for line in lines}) == limit, after=after))
