"""`/api/targets`: the things only one job at a time may touch, pausing them, and the jobs on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Query, Response

from headway.api import jobs
from headway.api.asking import Cursor, JobFilters, JobId, Limit
from headway.api.naming import Name
from headway.api.routes import Here, Routes, Visit, answer
from headway.api.wire import answers, answers_lanes, bodies, bodies_lanes
from headway.api.wire.jobs import job_json
from headway.api.wire.lanes import target_json
from headway.engine.client import Client
from headway.errors import BadInput, NotFound
from headway.model import words
from headway.model.targets import TargetView, check_paused
from headway.store import reading, targets

routes = Routes("targets")

NAMED = "/api/targets/{name:path}"


# --- jobs on a target ---------------------------------------------------------------------------------------------
# These come before the targets themselves: a name takes whatever is left of an address.


@routes.post(f"{NAMED}/jobs", answer=answers.Job, status=201, creates=True, also={200: "Its key is taken by this job"})
def create(here: Here, name: Name, body: bodies.NewJob) -> Response:
    """Make a job on a target, which comes into being with its first one."""
    given = body.given()
    _check_same(given.pop("target", None), name)

    def work(client: Client) -> tuple[int, bool]:
        return client.enqueue(jobs.new_job(here, client, given, target=name))

    def render(made: Sequence[Any]) -> Response:
        job_id, created = made
        return jobs.show_job(here, int(job_id), status=201 if created else 200)

    return here.make_once(work, render, body.model_dump())


@routes.get(f"{NAMED}/jobs", answer=answers.Page[answers.Job])
def ls_jobs(here: Here, name: Name, asked: JobFilters, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List the jobs on a target, the newest first."""
    _check_same(asked.filters.target, name)
    with here.read() as tx:
        page = reading.list_jobs(tx, here.tenant_id, replace(asked.filters, target=name), limit, cursor)
    return answer({"items": [job_json(view) for view in page.items], "next": page.next})


def _check_same(given: str | None, name: str) -> None:
    if given not in (None, name):
        raise BadInput(f"target: the address says {name!r} already: leave it out", field="target")


def _check_on(here: Visit, name: str, job_id: int) -> None:
    """A job keeps its target for life."""
    with here.read() as tx:
        view = reading.view(tx, here.tenant_id, job_id)
    if view.target != name:
        raise NotFound(f"there is no job {job_id} on the target {name!r}")


@routes.post(f"{NAMED}/jobs/{{job_id}}/retry", answer=answers.Job, status=201, creates=True)
def retry(here: Here, name: Name, job_id: JobId, body: bodies.Retry | None = None) -> Response:
    """Run a failed job again, as a new job in its place."""
    _check_on(here, name, job_id)
    return jobs.retry(here, job_id, body)  # type: ignore[no-any-return]


@routes.post(f"{NAMED}/jobs/{{job_id}}/resume", answer=answers.Job)
def resume_job(here: Here, name: Name, job_id: JobId, body: bodies.Resume | None = None) -> Response:
    """Let a PAUSED or ERROR job go on: it keeps the target."""
    _check_on(here, name, job_id)
    return jobs.resume(here, job_id, body)  # type: ignore[no-any-return]


@routes.post(f"{NAMED}/jobs/{{job_id}}/resolve", answer=answers.Job)
def resolve(here: Here, name: Name, job_id: JobId, body: bodies.Resolve | None = None) -> Response:
    """End a PAUSED or ERROR job with a result of yours: COMPLETED, and the target is open."""
    _check_on(here, name, job_id)
    return jobs.resolve(here, job_id, body)  # type: ignore[no-any-return]


def _plain(verb: str, summary: str) -> None:
    def act(here: Here, name: Name, job_id: JobId, body: bodies.Body | None = None) -> Response:
        _check_on(here, name, job_id)
        getattr(here.client, verb)(job_id)
        return jobs.show_job(here, job_id)

    act.__name__, act.__doc__ = verb, summary
    declare: Callable[[Any], Any] = routes.post(f"{NAMED}/jobs/{{job_id}}/{verb}", answer=answers.Job)
    declare(act)


_plain("interrupt", "Pause the job that runs on a target; put a waiting one on hold.")
_plain("cancel", "End a job on a target: a waiting or held one at once, a running one as soon as it stops.")
_plain("release", "Give the job up that holds a target: FAILED, and the target is open.")


# --- targets ------------------------------------------------------------------------------------------------------


@routes.get("/api/targets", answer=answers.Page[answers_lanes.Target])
def ls(
    here: Here,
    state: Annotated[list[str] | None, Query(description="free, busy, held, paused; also with commas")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List targets by name: how each stands, who has it, since when, why, and how many jobs wait."""
    with here.look() as tx:
        page = targets.listed(tx, here.tenant_id, states=words.target_states(state or ()), limit=limit, cursor=cursor)
    return answer({"items": [target_json(one) for one in page.items], "next": page.next})


@routes.post(f"{NAMED}/pause", answer=answers_lanes.Target)
def pause(here: Here, name: Name, body: bodies_lanes.PauseTarget | None = None) -> Response:
    """Start no more jobs on a target. What runs there goes on."""
    here.client.pause_target(name, note=body.note if body is not None else None)
    return answer(target_json(_shown(here, name)))


@routes.post(f"{NAMED}/resume", answer=answers_lanes.Target)
def resume(here: Here, name: Name, body: bodies.Body | None = None) -> Response:
    """Start jobs on a paused target again."""
    check_paused(_shown(here, name))
    here.client.resume_target(name)
    return answer(target_json(_shown(here, name)))


@routes.post(f"{NAMED}/release", answer=answers.Job)
def release_holder(here: Here, name: Name, body: bodies.Body | None = None) -> Response:
    """Give up the PAUSED or ERROR job that holds a target: it ends FAILED, and the next one may start."""
    return jobs.show_job(here, here.client.release_target(name).id)


@routes.get(NAMED, answer=answers_lanes.Target)
def show(here: Here, name: Name) -> Response:
    """Show how a target stands."""
    return answer(target_json(_shown(here, name)))


def _shown(here: Visit, name: str) -> TargetView:
    with here.look() as tx:
        return targets.shown(tx, here.tenant_id, name)
