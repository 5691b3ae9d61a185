"""`/api/targets`: lists and pauses targets, and acts on the jobs on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Query, Response

from headway.api.endpoints import jobs
from headway.api.http.path_names import Name
from headway.api.http.query import Cursor, JobFilters, JobId, Limit
from headway.api.http.routing import Here, RequestContext, Routes, answer
from headway.api.schemas.common import Body, PageSchema, Words
from headway.api.schemas.jobs import JobSchema, NewJobBody, ResolveBody, ResumeBody, RetryBody, job_json
from headway.api.schemas.queue import PauseTargetBody, TargetSchema, target_json
from headway.engine.client.client import Client
from headway.errors import BadInput, NotFound
from headway.model.queue.target import TargetView, check_paused
from headway.model.values import state_names
from headway.store.jobs import views as job_views
from headway.store.queue import targets

routes = Routes("targets")

NAMED = "/api/targets/{name:path}"


# --- jobs on a target ---------------------------------------------------------------------------------------------
# These routes come before the targets themselves, because `{name:path}` matches the rest of any path.


@routes.post(f"{NAMED}/jobs", answer=JobSchema, status=201, creates=True, also={200: "This job has the key already"})
def create(here: Here, name: Name, body: NewJobBody) -> Response:
    """Create a job on a target; the first job creates the target."""
    given = body.given()
    _check_same(given.pop("target", None), name)

    def work(client: Client) -> tuple[int, bool]:
        return client.enqueue(jobs.new_job(here, client, given, target=name))

    def render(made: Sequence[Any]) -> Response:
        job_id, created = made
        return jobs.show_job(here, int(job_id), status=201 if created else 200)

    return here.make_once(work, render, body.model_dump())


@routes.get(f"{NAMED}/jobs", answer=PageSchema[JobSchema])
def ls_jobs(here: Here, name: Name, asked: JobFilters, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List the jobs on a target, the newest first."""
    _check_same(asked.filters.target, name)
    with here.read() as tx:
        page = job_views.list_jobs(tx, here.tenant_id, replace(asked.filters, target=name), limit, cursor)
    return answer({"items": [job_json(view) for view in page.items], "next": page.next})


def _check_same(given: str | None, name: str) -> None:
    if given not in (None, name):
        raise BadInput(f"target: the path names {name!r} already: leave it out", field="target")


def _check_on(here: RequestContext, name: str, job_id: int) -> None:
    """Refuses a job that is not on this target; a job never changes its target."""
    with here.read() as tx:
        view = job_views.view(tx, here.tenant_id, job_id)
    if view.target != name:
        raise NotFound(f"there is no job {job_id} on the target {name!r}")


@routes.post(f"{NAMED}/jobs/{{job_id}}/retry", answer=JobSchema, status=201, creates=True)
def retry(here: Here, name: Name, job_id: JobId, body: RetryBody | None = None) -> Response:
    """Retry a failed job as a new job in its place."""
    _check_on(here, name, job_id)
    return jobs.retry(here, job_id, body)  # type: ignore[no-any-return]


@routes.post(f"{NAMED}/jobs/{{job_id}}/resume", answer=JobSchema)
def resume_job(here: Here, name: Name, job_id: JobId, body: ResumeBody | None = None) -> Response:
    """Resume a PAUSED or ERROR job, which keeps the target."""
    _check_on(here, name, job_id)
    return jobs.resume(here, job_id, body)  # type: ignore[no-any-return]


@routes.post(f"{NAMED}/jobs/{{job_id}}/resolve", answer=JobSchema)
def resolve(here: Here, name: Name, job_id: JobId, body: ResolveBody | None = None) -> Response:
    """Complete a PAUSED or ERROR job with the given result, which frees the target."""
    _check_on(here, name, job_id)
    return jobs.resolve(here, job_id, body)  # type: ignore[no-any-return]


def _plain(verb: str, summary: str) -> None:
    def act(here: Here, name: Name, job_id: JobId, body: Body | None = None) -> Response:
        _check_on(here, name, job_id)
        getattr(here.client, verb)(job_id)
        return jobs.show_job(here, job_id)

    act.__name__, act.__doc__ = verb, summary
    declare: Callable[[Any], Any] = routes.post(f"{NAMED}/jobs/{{job_id}}/{verb}", answer=JobSchema)
    declare(act)


_plain("interrupt", "Pause the running job on a target; put a waiting one on hold.")
_plain("cancel", "Cancel a job on a target; a running one ends as soon as it stops, another at once.")
_plain("release", "End the job that holds a target as FAILED, which frees the target.")


# --- targets ------------------------------------------------------------------------------------------------------


@routes.get("/api/targets", answer=PageSchema[TargetSchema])
def ls(
    here: Here,
    state: Annotated[Words | None, Query(description="free, busy, held, paused; also with commas")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List targets by name: state, holder, since when, why, and how many jobs wait."""
    with here.look() as tx:
        page = targets.listed(
            tx, here.tenant_id, states=state_names.target_states(state or ()), limit=limit, cursor=cursor
        )
    return answer({"items": [target_json(view) for view in page.items], "next": page.next})


@routes.post(f"{NAMED}/pause", answer=TargetSchema)
def pause(here: Here, name: Name, body: PauseTargetBody | None = None) -> Response:
    """Pause a target; the running job continues."""
    here.client.pause_target(name, note=body.note if body is not None else None)
    return answer(target_json(_shown(here, name)))


@routes.post(f"{NAMED}/resume", answer=TargetSchema)
def resume(here: Here, name: Name, body: Body | None = None) -> Response:
    """Resume a paused target."""
    check_paused(_shown(here, name))
    here.client.resume_target(name)
    return answer(target_json(_shown(here, name)))


@routes.post(f"{NAMED}/release", answer=JobSchema)
def release_holder(here: Here, name: Name, body: Body | None = None) -> Response:
    """End the PAUSED or ERROR job that holds a target as FAILED.

    The next job may start.
    """
    return jobs.show_job(here, here.client.release_target(name).id)


@routes.get(NAMED, answer=TargetSchema)
def show(here: Here, name: Name) -> Response:
    """Show a target."""
    return answer(target_json(_shown(here, name)))


def _shown(here: RequestContext, name: str) -> TargetView:
    with here.look() as tx:
        return targets.shown(tx, here.tenant_id, name)
