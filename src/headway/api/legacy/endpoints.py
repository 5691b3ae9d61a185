"""Deprecated endpoints of the systems that Headway replaces, in their own format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import Body, Path, Query, Response

from headway.api.endpoints import jobs
from headway.api.http.path_names import Name
from headway.api.http.problems import problem
from headway.api.http.routing import Here, RequestContext, Routes, answer
from headway.api.legacy import schemas as wire
from headway.api.legacy.announcement import link
from headway.api.schemas.jobs import NewJobBody
from headway.engine.client.authority import check_task
from headway.engine.client.client import Client
from headway.engine.tasks.task import make_job
from headway.errors import BadInput, NotFound
from headway.model.access.permissions import Role
from headway.model.groups.group import NewGroup, NewMember, unique_names
from headway.model.jobs.filter import JobFilter
from headway.model.jobs.job import NewJob
from headway.store import worker_views
from headway.store.db import Tx
from headway.store.jobs import chain_views
from headway.store.jobs import views as job_views
from headway.store.jobs.views import JobView

routes = Routes("legacy")
# Ids of the old systems were texts, never integers; any other text is the id of an old job, which is not found.
OldId = Annotated[str, Path(max_length=100)]
Params = Annotated[dict[str, Any] | None, Body()]
MOST = 200
Limit = Annotated[int, Query(ge=1, le=1_000, description="How many at most")]
Offset = Annotated[int, Query(ge=0, le=100_000, description="How many of the newest are left out")]


def _deprecated(value: object, successor: str, status: int = 200) -> Response:
    return answer(value, status, **link(successor))


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 1 << 63):
        raise NotFound(f"there is no job {text!r}")
    return int(text)


# --- /jobs --------------------------------------------------------------------------------------------------------


def _types(here: RequestContext) -> dict[str, str]:
    terms = here.service.terms
    return {"story": terms.legacy_story, "research": terms.legacy_research}


def _type_of(here: RequestContext, task: str) -> str | None:
    return next((kind for kind, known in _types(here).items() if known == task), None)


def _new(here: RequestContext, client: Client, kind: str, params: Mapping[str, Any]) -> NewJob:
    task = _types(here)[kind]
    check_task(client, task)
    return make_job(client, task, params, here.trace)


def _trigger(kind: str) -> None:
    def trigger(here: Here, params: Params = None) -> Response:
        def work(client: Client) -> Any:
            return client.enqueue(_new(here, client, kind, params or {}))

        def render(made: Any) -> Response:
            return _deprecated(wire.triggered_json(int(made[0]), kind), here.address("/api/jobs"), 202)

        return here.make_once(work, render, params)

    trigger.__name__, trigger.__doc__ = f"trigger_{kind}", f"Create a {kind} job; the body is its params."
    _declare("POST", f"/jobs/{kind}/trigger", trigger, answer=wire.Triggered, status=202, creates=True)


def _declare(method: str, path: str, endpoint: Callable[..., Any], **facts: Any) -> None:
    """Declares a route with and without a trailing slash.

    A redirect would lose the body.
    """
    role = Role.VIEWER if method == "GET" else Role.OPERATOR
    routes.add(method, path, role, deprecated=True, **facts)(endpoint)
    routes.add(method, f"{path}/", role, deprecated=True, hidden=True, **facts)(endpoint)


_trigger("story")
_trigger("research")


def trigger_batch(here: Here, body: wire.NewOldBatch) -> Response:
    """Create jobs that run one after another, even if one of them fails."""

    def work(client: Client) -> Any:
        made = [_new(here, client, _known(here, job.type, n), job.params or {}) for n, job in enumerate(body.jobs)]
        names = unique_names([job.type for job in body.jobs])
        members = tuple(NewMember(job, n, name) for n, (job, name) in enumerate(zip(made, names, strict=True)))
        return client.groups.create(NewGroup("batch", "sequential", "continue", members))

    return here.make_once(work, lambda made: _batch(here, int(made), 202), body.model_dump())


def _known(here: RequestContext, kind: str, n: int) -> str:
    if kind not in _types(here):
        raise BadInput(f"jobs[{n}].type must be one of {', '.join(_types(here))}", field=f"jobs[{n}].type")
    return kind


def _batch(here: RequestContext, number: int, status: int = 200) -> Response:
    with here.read() as tx:
        members = chain_views.first_members(tx, here.tenant_id, number)
        first = job_views.views_of(tx, here.tenant_id, members)
        last = chain_views.last_views(tx, here.tenant_id, members)
    if any(_type_of(here, view.job.task) is None for view in first):
        raise NotFound(f"there is no batch {str(number)!r}")
    batch = wire.batch_json(number, members, [wire.status_of(view) for view in last])
    return _deprecated(batch, here.address(f"/api/job-groups/{number}"), status)


_declare("POST", "/jobs/batch/trigger", trigger_batch, answer=wire.OldBatch, status=202, creates=True, long=True)


def show_batch(here: Here, batch_id: OldId) -> Response:
    """Show a batch."""
    return _batch(here, _number(batch_id))


_declare("GET", "/jobs/batch/{batch_id}", show_batch, answer=wire.OldBatch)


def _shown(here: RequestContext, tx: Tx, job_id: int) -> dict[str, Any]:
    kind = _type_of(here, job_views.view(tx, here.tenant_id, job_id).job.task)
    if kind is None:
        raise NotFound(f"there is no job {str(job_id)!r}")
    (last,) = chain_views.last_views(tx, here.tenant_id, [job_id])
    return _json(here, tx, job_id, kind, last)


def _json(here: RequestContext, tx: Tx, job_id: int, kind: str, last: JobView) -> dict[str, Any]:
    owner = worker_views.owner(tx, last.job.id) if last.job.worker_id is not None else None
    log = here.address(f"/api/jobs/{last.job.id}/logs")
    return wire.old_job_json(job_id, kind, last, pid=owner.pid if owner else None, log_path=log)


def list_jobs(
    here: Here,
    status: wire.OldStatus | None = None,
    type: Literal["story", "research"] | None = None,
    limit: Limit = MOST,
    offset: Offset = 0,
) -> Response:
    """List the newest story and research jobs; a job includes its retries."""
    with here.read() as tx:
        found = islice(_listed(here, tx, status, type), offset, offset + limit)
        shown = [_json(here, tx, *item) for item in found]
    return _deprecated({"jobs": shown, "total": len(shown)}, here.address("/api/jobs"))


def _listed(here: RequestContext, tx: Tx, status: str | None, wanted: str | None) -> Iterator[tuple[int, str, JobView]]:
    """Yields first jobs with their types and the last jobs of their chains, newest first."""
    types = _types(here)
    tasks = (types[wanted], types[wanted]) if wanted else (types["story"], types["research"])
    for page in chain_views.first_jobs(tx, here.tenant_id, *tasks):
        for job_id, last in zip(page, chain_views.last_views(tx, here.tenant_id, page), strict=True):
            if status in (None, wire.status_of(last)):
                yield job_id, wanted or _type_of(here, last.job.task) or "", last


_declare("GET", "/jobs", list_jobs, answer=wire.OldJobs)


def show_job(here: Here, job_id: OldId) -> Response:
    """Show a story or research job."""
    number = _number(job_id)
    with here.read() as tx:
        return _deprecated(_shown(here, tx, number), here.address(f"/api/jobs/{number}"))


_declare("GET", "/jobs/{job_id}", show_job, answer=wire.OldJob)


def cancel_job(here: Here, job_id: OldId) -> Response:
    """Cancel a story or research job and its retries."""
    number = _number(job_id)
    with here.read() as tx:
        _shown(here, tx, number)
        (last,) = chain_views.last_views(tx, here.tenant_id, [number])
    here.client.cancel(last.job.id)
    with here.read() as tx:
        return _deprecated(_shown(here, tx, number), here.address(f"/api/jobs/{number}"))


_declare("POST", "/jobs/{job_id}/cancel", cancel_job, answer=wire.OldJob)


# --- /targets -----------------------------------------------------------------------------------------------------

NAMED = "/targets/{name:path}/jobs"


def _target_job(here: RequestContext, name: str, job_id: int, status: int = 200) -> Response:
    with here.read() as tx:
        view = job_views.view(tx, here.tenant_id, job_id)
    if view.target != name:
        raise NotFound(f"there is no job {job_id} on the target {name!r}")
    return _deprecated(wire.target_job_json(view), here.address(f"/api/targets/{quote(name, safe='')}/jobs"), status)


def create_on_target(here: Here, name: Name, body: NewJobBody) -> Response:
    """Create a job on a target."""

    def work(client: Client) -> Any:
        return client.enqueue(jobs.new_job(here, client, {**body.given(), "target": name}))

    return here.make_once(work, lambda made: _target_job(here, name, int(made[0]), 201), body.model_dump())


def list_on_target(
    here: Here,
    name: Name,
    status: wire.OldTargetStatus | None = None,
    limit: Limit = MOST,
    offset: Offset = 0,
) -> Response:
    """List the newest jobs on a target."""
    wanted = JobFilter(wire.states_of(status), target=name)
    with here.read() as tx:
        found = list(islice(chain_views.every_job(tx, here.tenant_id, wanted), offset, offset + limit))
        views = job_views.views(tx, here.tenant_id, found)
    listed = {"jobs": [wire.target_job_json(view) for view in views]}
    return _deprecated(listed, here.address(f"/api/targets/{quote(name, safe='')}/jobs"))


def show_on_target(here: Here, name: Name, job_id: OldId) -> Response:
    """Show a job on a target."""
    return _target_job(here, name, _number(job_id))


def _on_target(verb: str, old: str, summary: str) -> None:
    def act(here: Here, name: Name, job_id: OldId) -> Response:
        number = _number(job_id)
        _target_job(here, name, number)
        getattr(here.client, verb)(number)
        return _target_job(here, name, number)

    act.__name__, act.__doc__ = f"{old}_on_target", summary
    _declare("POST", f"{NAMED}/{{job_id}}/{old}", act, answer=wire.TargetJob)


_on_target("resume", "resume", "Resume a PAUSED or ERROR job.")
_on_target("interrupt", "cancel", "Interrupt a job; it becomes PAUSED, as `cancel` did in the old system.")
_on_target("interrupt", "interrupt", "Interrupt a job; it becomes PAUSED.")
_on_target("resolve", "resolve", "Complete a PAUSED or ERROR job.")
_on_target("release", "clear", "End a PAUSED or ERROR job as FAILED.")
_declare("GET", f"{NAMED}/{{job_id}}", show_on_target, answer=wire.TargetJob)
_declare("POST", NAMED, create_on_target, answer=wire.TargetJob, status=201, creates=True)
_declare("GET", NAMED, list_on_target, answer=wire.TargetJobs)


# --- removed paths ------------------------------------------------------------------------------------------------


def _gone(noun: str, method: str) -> None:
    def gone(here: Here, rest: str) -> Response:
        return problem(
            410,
            "gone",
            f"this path of the old system was removed: see {here.address(f'/api/{noun}')}",
            headers=link(here.address(f"/api/{noun}")),
        )

    gone.__name__, gone.__doc__ = f"gone_{noun}_{method.lower()}", "This path was removed."
    routes.add(method, f"/{noun}/{{rest:path}}", Role.VIEWER, deprecated=True, hidden=True, status=410)(gone)


for _noun in ("jobs", "targets"):
    for _method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        _gone(_noun, _method)
