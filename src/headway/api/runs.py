"""`/api/job-runs`: the records of what was executed. A run has its job's number."""

from __future__ import annotations

from fastapi import Response

from headway.api import jobs
from headway.api.asking import Cursor, Id, JobFilters, Limit
from headway.api.routes import Here, Routes, Visit, answer
from headway.api.wire import answers, bodies
from headway.api.wire.jobs import run_json
from headway.errors import NotFound
from headway.model.job import Run
from headway.store import reading
from headway.store.jobs import run_of

routes = Routes("runs")


@routes.get("/api/job-runs", answer=answers.Page[answers.Run])
def ls(here: Here, asked: JobFilters, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List runs, those of the newest jobs first; since and until mean their start, RUNNING those that are open."""
    with here.read() as tx:
        page = reading.list_runs(tx, here.tenant_id, asked.filters, limit, cursor)
    return answer({"items": [run_json(run) for run in page.items], "next": page.next})


@routes.get("/api/job-runs/{run_id}", answer=answers.Run)
def show(here: Here, run_id: Id) -> Response:
    """Show a run: its params, times, result or error."""
    return answer(run_json(_found(here, run_id)))


def _found(here: Visit, run_id: int) -> Run:
    with here.read() as tx:
        run = run_of(tx, run_id)
    if run is None or run.tenant_id != here.tenant_id:
        raise NotFound(f"there is no run {run_id}")
    return run


@routes.post("/api/job-runs/{run_id}/retry", answer=answers.Job, status=201, creates=True)
def retry(here: Here, run_id: Id, body: bodies.Retry | None = None) -> Response:
    """Run it again, as a new job: with its params, or with others."""
    _found(here, run_id)
    again: Response = jobs.retry(here, run_id, body)
    return again
