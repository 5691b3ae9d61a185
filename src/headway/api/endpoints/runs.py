"""`/api/job-runs`: the records of executed jobs. A run has the id of its job."""

from __future__ import annotations

from fastapi import Response

from headway.api.endpoints import jobs
from headway.api.http.query import Cursor, Id, JobFilters, Limit
from headway.api.http.routing import Here, RequestContext, Routes, answer
from headway.api.schemas.common import PageSchema
from headway.api.schemas.jobs import JobSchema, RetryBody, RunSchema, run_json
from headway.errors import NotFound
from headway.model.jobs.job import Run
from headway.store.jobs import views as job_views
from headway.store.jobs.changes import run_of

routes = Routes("runs")


@routes.get("/api/job-runs", answer=PageSchema[RunSchema])
def ls(here: Here, asked: JobFilters, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List runs, those of the newest jobs first.

    `since` and `until` refer to the start of the run; RUNNING means open runs.
    """
    with here.read() as tx:
        page = job_views.list_runs(tx, here.tenant_id, asked.filters, limit, cursor)
    return answer({"items": [run_json(run) for run in page.items], "next": page.next})


@routes.get("/api/job-runs/{run_id}", answer=RunSchema)
def show(here: Here, run_id: Id) -> Response:
    """Show a run: its params, times, result or error."""
    return answer(run_json(_found(here, run_id)))


def _found(here: RequestContext, run_id: int) -> Run:
    with here.read() as tx:
        run = run_of(tx, run_id)
    if run is None or run.tenant_id != here.tenant_id:
        raise NotFound(f"there is no run {run_id}")
    return run


@routes.post("/api/job-runs/{run_id}/retry", answer=JobSchema, status=201, creates=True)
def retry(here: Here, run_id: Id, body: RetryBody | None = None) -> Response:
    """Retry a run as a new job, with its params or with others."""
    _found(here, run_id)
    retried: Response = jobs.retry(here, run_id, body)
    return retried
