"""The installation as it is: tasks, workers, figures; and the log of a job in pages."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from headway.api.asking import LARGEST, JobId, Limit
from headway.api.known_tasks import known_tasks
from headway.api.routes import Here, Routes, answer
from headway.api.wire import answers, answers_system
from headway.api.wire.system import log_json, overview_json, shown_worker_json, stats_json
from headway.engine.limits import lives
from headway.engine.overview import overview as look
from headway.errors import BadInput
from headway.store import figures, reading, workers_reading

routes = Routes("system")


@routes.get("/api/tasks", answer=answers.Page[answers_system.Task])
def tasks(here: Here) -> Response:
    """List the tasks there are: those of this process, and those a worker had within the last 30 days."""
    return answer({"items": known_tasks(here), "next": None})


@routes.get("/api/workers", answer=answers.Page[answers_system.Worker])
def workers(here: Here) -> Response:
    """List workers, those that left within the last hour too, with what they run."""
    with here.look() as tx:
        own = None if here.visitor.system else workers_reading.running_of(tx, here.tenant_id)
        found = [shown_worker_json(worker, alive=lives(worker), own=own) for worker in workers_reading.workers(tx)]
    return answer({"items": found, "next": None})


@routes.get("/api/overview", answer=answers_system.Overview)
def overview(here: Here, listed: Annotated[int, Query(ge=1, le=200)] = 10) -> Response:
    """Say how things stand, in one look: counts of a day, workers, what runs, what waits, what is held up."""
    with here.look() as tx:
        seen = look(tx, here.tenant_id, here.service.database.clock.now(), listed=listed)
        own = None if here.visitor.system else workers_reading.running_of(tx, here.tenant_id)
    return answer(overview_json(seen, own))


@routes.get("/api/stats", answer=answers_system.Stats)
def stats(here: Here) -> Response:
    """Say how things stand: jobs by state, what ended within the last hour, how long jobs wait and run."""
    with here.look() as tx:
        return answer(stats_json(figures.stats(tx, here.tenant_id)))


@routes.get("/api/jobs/{job_id}/logs", answer=answers_system.Log)
def logs(
    here: Here,
    job_id: JobId,
    after: Annotated[int, Query(ge=0, le=LARGEST, description="`next` or `position` of a page before")] = 0,
    limit: Limit = 50,
    tail: Annotated[int | None, Query(ge=1, le=1_000, description="Only so many lines of the end")] = None,
) -> Response:
    """The log of a job, oldest first. What was written together comes together: `limit` counts such pieces."""
    if tail is not None and after:
        raise BadInput("say after or tail, not both", field="tail")
    here.client.get(job_id)
    with here.read() as tx:
        if tail is not None:
            return answer(log_json(reading.last_lines(tx, job_id, tail), more=False, after=0))
        lines = reading.log_lines(tx, job_id, after=after, limit=limit)
    return answer(log_json(lines, more=len({line.chunk for line in lines}) == limit, after=after))
