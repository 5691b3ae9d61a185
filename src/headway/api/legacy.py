"""The addresses of the systems that Headway replaces, in their own words, until their clients have moved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Body, Path, Response

from headway.api import jobs
from headway.api.naming import Name
from headway.api.problems import problem
from headway.api.routes import Here, Routes, Visit, answer
from headway.api.wire import bodies
from headway.api.wire import legacy as wire
from headway.engine.client import Client
from headway.engine.task import make_job
from headway.errors import BadInput, NotFound
from headway.model.access import Role, check_task
from headway.model.job import NewJob
from headway.model.plan import NewGroup, NewMember, unique_names
from headway.store import reading, workers_reading
from headway.store.db import Tx
from headway.store.pages import Filters
from headway.store.plans_reading import group_view

routes = Routes("legacy")
SINCE, UNTIL = datetime(2026, 11, 1, tzinfo=UTC), datetime(2027, 12, 31, tzinfo=UTC)
# Old numbers were texts, never numbers like ours: what is no number is an old job, and nobody has it any more.
OldId = Annotated[str, Path(max_length=100)]
Params = Annotated[dict[str, Any] | None, Body()]
MOST = 200


def _told(value: object, successor: str, status: int = 200) -> Response:
    return answer(value, status, **_signs(successor))


def _signs(successor: str) -> dict[str, str]:
    return {
        "Deprecation": f"@{int(SINCE.timestamp())}",
        "Sunset": format_datetime(UNTIL, usegmt=True),
        "Link": f'<{successor}>; rel="successor-version"',
    }


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 1 << 63):
        raise NotFound(f"there is no job {text!r}")
    return int(text)


# --- /jobs --------------------------------------------------------------------------------------------------------


def _types(here: Visit) -> dict[str, str]:
    terms = here.service.terms
    return {"story": terms.legacy_story, "research": terms.legacy_research}


def _type_of(here: Visit, task: str) -> str | None:
    return next((kind for kind, its in _types(here).items() if its == task), None)


def _new(here: Visit, client: Client, kind: str, params: Mapping[str, Any]) -> NewJob:
    task = _types(here)[kind]
    check_task(here.visitor, task)
    return make_job(client, task, params, here.trace)


def _trigger(kind: str) -> None:
    def trigger(here: Here, params: Params = None) -> Response:
        def work(client: Client) -> Any:
            return client.enqueue(_new(here, client, kind, params or {}))

        def render(made: Any) -> Response:
            return _told(wire.triggered_json(int(made[0]), kind), here.address("/api/jobs"), 202)

        return here.make_once(work, render, params)

    trigger.__name__, trigger.__doc__ = f"trigger_{kind}", f"Make a {kind} job; the body is its params."
    _declare("POST", f"/jobs/{kind}/trigger", trigger, answer=wire.Triggered, status=202, creates=True)


def _declare(method: str, path: str, endpoint: Callable[..., Any], **facts: Any) -> None:
    """With and without a slash at the end: a redirect would lose the body of an old client."""
    role = Role.VIEWER if method == "GET" else Role.OPERATOR
    routes.add(method, path, role, deprecated=True, **facts)(endpoint)
    routes.add(method, f"{path}/", role, deprecated=True, hidden=True, **facts)(endpoint)


_trigger("story")
_trigger("research")


def trigger_batch(here: Here, body: wire.NewOldBatch) -> Response:
    """Make several jobs that run one after the other, whatever becomes of each."""

    def work(client: Client) -> Any:
        made = [_new(here, client, _known(here, one.type, n), one.params or {}) for n, one in enumerate(body.jobs)]
        names = unique_names([one.type for one in body.jobs])
        members = tuple(NewMember(job, n, name) for n, (job, name) in enumerate(zip(made, names, strict=True)))
        return client.groups.create(NewGroup("batch", "sequential", "continue", members))

    return here.make_once(work, lambda made: _batch(here, int(made), 202), body.model_dump())


def _known(here: Visit, kind: str, n: int) -> str:
    if kind not in _types(here):
        raise BadInput(f"jobs[{n}].type must be one of {', '.join(_types(here))}", field=f"jobs[{n}].type")
    return kind


def _batch(here: Visit, number: int, status: int = 200) -> Response:
    with here.read() as tx:
        steps = group_view(tx, here.tenant_id, number, "group").steps
        views = reading.views_of(tx, here.tenant_id, [step.job_id for step in steps])
    statuses = [wire.status_of(view) for view in views]
    told = wire.batch_json(number, [step.job_id for step in steps], statuses)
    return _told(told, here.address(f"/api/job-groups/{number}"), status)


_declare("POST", "/jobs/batch/trigger", trigger_batch, answer=wire.OldBatch, status=202, creates=True)


def show_batch(here: Here, batch_id: OldId) -> Response:
    """Show a batch."""
    return _batch(here, _number(batch_id))


_declare("GET", "/jobs/batch/{batch_id}", show_batch, answer=wire.OldBatch)


def _shown(here: Visit, tx: Tx, job_id: int) -> dict[str, Any]:
    asked = reading.view(tx, here.tenant_id, job_id)
    kind = _type_of(here, asked.job.task)
    if kind is None:
        raise NotFound(f"there is no job {str(job_id)!r}")
    last = reading.last_of_chain(tx, here.tenant_id, job_id)
    view = reading.views(tx, here.tenant_id, [last])[0]
    owner = workers_reading.owner(tx, last.id) if last.worker_id is not None else None
    log = here.address(f"/api/jobs/{last.id}/logs")
    return wire.old_job_json(job_id, kind, view, pid=owner.pid if owner else None, log_path=log)


def list_jobs(here: Here) -> Response:
    """List the newest story and research jobs; retries are shown with what they retry."""
    found: list[int] = []
    with here.read() as tx:
        for task in sorted(set(_types(here).values())):
            page = reading.list_jobs(tx, here.tenant_id, Filters(task=task), MOST)
            found += [view.job.id for view in page.items if view.job.retry_of is None]
        shown = [_shown(here, tx, job_id) for job_id in sorted(found, reverse=True)[:MOST]]
    return _told({"jobs": shown, "total": len(shown)}, here.address("/api/jobs"))


_declare("GET", "/jobs", list_jobs, answer=wire.OldJobs)


def show_job(here: Here, job_id: OldId) -> Response:
    """Show a story or research job."""
    number = _number(job_id)
    with here.read() as tx:
        return _told(_shown(here, tx, number), here.address(f"/api/jobs/{number}"))


_declare("GET", "/jobs/{job_id}", show_job, answer=wire.OldJob)


def cancel_job(here: Here, job_id: OldId) -> Response:
    """End a story or research job, with its retries."""
    number = _number(job_id)
    with here.read() as tx:
        _shown(here, tx, number)
        last = reading.last_of_chain(tx, here.tenant_id, number).id
    here.client.cancel(last)
    with here.read() as tx:
        return _told(_shown(here, tx, number), here.address(f"/api/jobs/{number}"))


_declare("POST", "/jobs/{job_id}/cancel", cancel_job, answer=wire.OldJob)


# --- /targets -----------------------------------------------------------------------------------------------------

NAMED = "/targets/{name:path}/jobs"


def _target_job(here: Visit, name: str, job_id: int, status: int = 200) -> Response:
    with here.read() as tx:
        view = reading.view(tx, here.tenant_id, job_id)
    if view.target != name:
        raise NotFound(f"there is no job {job_id} on the target {name!r}")
    return _told(wire.target_job_json(view), here.address(f"/api/targets/{quote(name, safe='')}/jobs"), status)


def create_on_target(here: Here, name: Name, body: bodies.NewJob) -> Response:
    """Make a job on a target."""

    def work(client: Client) -> Any:
        return client.enqueue(jobs.new_job(here, client, {**body.given(), "target": name}))

    return here.make_once(work, lambda made: _target_job(here, name, int(made[0]), 201), body.model_dump())


def list_on_target(here: Here, name: Name) -> Response:
    """List the newest jobs on a target."""
    with here.read() as tx:
        page = reading.list_jobs(tx, here.tenant_id, Filters(target=name), MOST)
    told = {"jobs": [wire.target_job_json(view) for view in page.items]}
    return _told(told, here.address(f"/api/targets/{quote(name, safe='')}/jobs"))


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


_on_target("resume", "resume", "Let a PAUSED or ERROR job go on.")
_on_target("interrupt", "cancel", "Stop a job: it is PAUSED, as `cancel` meant here.")
_on_target("interrupt", "interrupt", "Stop a job: it is PAUSED.")
_on_target("resolve", "resolve", "End a PAUSED or ERROR job as a success.")
_on_target("release", "clear", "Give a PAUSED or ERROR job up.")
_declare("GET", f"{NAMED}/{{job_id}}", show_on_target, answer=wire.TargetJob)
_declare("POST", NAMED, create_on_target, answer=wire.TargetJob, status=201, creates=True)
_declare("GET", NAMED, list_on_target, answer=wire.TargetJobs)


# --- what is gone -------------------------------------------------------------------------------------------------


def _gone(noun: str, method: str) -> None:
    def gone(here: Here, rest: str) -> Response:
        return problem(
            410,
            "gone",
            f"this address of the old system is gone: see {here.address(f'/api/{noun}')}",
            headers=_signs(here.address(f"/api/{noun}")),
        )

    gone.__name__, gone.__doc__ = f"gone_{noun}_{method.lower()}", "Nothing is here any more."
    routes.add(method, f"/{noun}/{{rest:path}}", Role.VIEWER, deprecated=True, hidden=True, status=410)(gone)


for _noun in ("jobs", "targets"):
    for _method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        _gone(_noun, _method)
