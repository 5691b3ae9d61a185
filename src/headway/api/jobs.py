"""`/api/jobs`: making jobs, looking at them, changing and stopping them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from fastapi import Query, Response

from headway.api.asking import Cursor, JobFilters, JobId, Limit, filters_of
from headway.api.routes import Here, Routes, Visit, answer, etag
from headway.api.wire import answers, bodies
from headway.api.wire.jobs import event_json, explain_json, job_json
from headway.engine import bulk
from headway.engine.client import Client
from headway.engine.firing import at
from headway.engine.limits import lives
from headway.engine.task import make_job
from headway.errors import BadInput, NotFound
from headway.model.access import check_from_template, check_new_params, check_policy, check_task
from headway.model.job import NewJob
from headway.model.plan import NewGroup, NewMember, unique_names
from headway.model.values import instant
from headway.model.verbs import CLEARED
from headway.store import queue_reading, reading
from headway.store.plans_reading import group_view

routes = Routes("jobs")
_STEP_FIELDS = ("name", "stage", "continue_on_failure")


# --- making -------------------------------------------------------------------------------------------------------


@routes.post("/api/jobs", answer=answers.Job, status=201, creates=True, also={200: "Its key is taken by this job"})
def create(here: Here, body: bodies.NewJob) -> Response:
    """Make a job of a task or a template."""

    def work(client: Client) -> tuple[int, bool]:
        return client.enqueue(new_job(here, client, body.given()))

    def render(made: Sequence[Any]) -> Response:
        job_id, created = made
        return show_job(here, int(job_id), status=201 if created else 200)

    return here.make_once(work, render, body.model_dump())


def new_job(here: Visit, client: Client, given: Mapping[str, Any], **fixed: Any) -> NewJob:
    """A job as its fields say. Who may make it is asked first."""
    wishes = {name: value for name, value in given.items() if name not in ("task", "template_id", "params")}
    wishes.update(fixed, **here.trace)
    params = given.get("params", {})
    if "template_id" in given:
        try:
            template = client.templates.get(given["template_id"])
        except NotFound as error:  # a field of the body, not the address
            raise BadInput(str(error), code="unknown_template", field="template_id") from None
        check_from_template(here.visitor, template, params, wishes)
        return client.templates.job(template, params, **wishes)  # the one that was judged, whatever it says by now
    check_task(here.visitor, given["task"])
    return make_job(client, given["task"], params, wishes)


@routes.post("/api/jobs/batch", answer=answers.Batch, status=201, creates=True)
def batch(here: Here, body: bodies.NewBatch) -> Response:
    """Make many jobs, all or none; with a mode they are a group."""
    members = [one.given() for one in body.jobs]
    if body.mode is None:
        _refuse_steps(members, body)

    def work(client: Client) -> Any:
        if body.mode is None:
            return [job_id for job_id, _ in client.enqueue_many(_new_jobs(here, client, members))]
        return {"group_id": client.groups.create(group_of(here, client, body, members))}

    def render(made: Any) -> Response:
        with here.read() as tx:
            if isinstance(made, Mapping):
                group_id = int(made["group_id"])
                ids = [step.job_id for step in group_view(tx, here.tenant_id, group_id).steps]
            else:
                group_id, ids = None, list(map(int, made))
            items = [job_json(view) for view in reading.views_of(tx, here.tenant_id, ids)]
        return answer({"group_id": group_id, "items": items}, 201)

    return here.make_once(work, render, body.model_dump())


def _new_jobs(here: Visit, client: Client, members: Sequence[Mapping[str, Any]]) -> list[NewJob]:
    made = []
    for n, one in enumerate(members):
        with at(f"jobs[{n}]"):
            made.append(new_job(here, client, one))
    return made


def _refuse_steps(members: Sequence[Mapping[str, Any]], body: bodies.NewBatch) -> None:
    for n, one in enumerate(members):
        for name in _STEP_FIELDS:
            if name in one:
                raise BadInput(f"jobs[{n}].{name} is for a group: say its mode too", field=f"jobs[{n}].{name}")
    for name in ("on_failure", "name"):
        if getattr(body, name) is not None:
            raise BadInput(f"{name} is for a group: say its mode too", field=name)


def group_of(here: Visit, client: Client, body: Any, members: Sequence[Mapping[str, Any]]) -> NewGroup:
    """The members in their stages: given ones, or by the mode."""
    mode = body.mode or "sequential"
    check_policy(here.visitor, body.on_failure)
    jobs = _new_jobs(here, client, [_without(one, "name", "stage") for one in members])
    names = unique_names([one.get("name") or job.task for one, job in zip(members, jobs, strict=True)])
    stages = [_stage(mode, n, one) for n, one in enumerate(members)]
    made = tuple(NewMember(*one) for one in zip(jobs, stages, names, strict=True))
    return NewGroup(name=body.name or "group", mode=mode, on_failure=body.on_failure or "stop", members=made)


def _without(one: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in one.items() if name not in names}


def _stage(mode: str, n: int, one: Mapping[str, Any]) -> int:
    if mode == "staged":
        return int(one.get("stage", 0))
    if "stage" in one:
        raise BadInput(f"jobs[{n}].stage is for the mode staged", field=f"jobs[{n}].stage")
    return n if mode == "sequential" else 0


@routes.post("/api/jobs/bulk", answer=answers.Bulk, creates=True)
def act_on_many(here: Here, body: bodies.Bulk) -> Response:
    """Do the same to every job that fits, if they are as many as expected."""

    def work(client: Client) -> tuple[Response, Response]:
        done = bulk.act(client, filters_of(body.filter), body.action, expected=body.expected_count)
        refused = [{"job_id": job_id, "code": error.code, "detail": str(error)} for job_id, error in done.refused]
        told = answer({"matched": done.matched, "changed": done.changed, "refused": refused})
        return told, told

    return here.do_once(work, body.model_dump())


# --- looking ------------------------------------------------------------------------------------------------------


@routes.get("/api/jobs", answer=answers.Page[answers.Job])
def ls(
    here: Here,
    asked: JobFilters,
    retried: Annotated[bool | None, Query(description="Only those that were retried, or were not")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List jobs, the newest first."""
    with here.read() as tx:
        page = reading.list_jobs(tx, here.tenant_id, asked.filters, limit, cursor)
        found = page.items
        if retried is not None:  # a page may get shorter by it
            done = reading.retried(tx, [view.job.id for view in found])
            found = [view for view in found if (view.job.id in done) is retried]
    return answer({"items": [job_json(view) for view in found], "next": page.next})


@routes.get("/api/jobs/{job_id}", answer=answers.Job)
def show(here: Here, job_id: JobId) -> Response:
    """Show a job with its run."""
    return show_job(here, job_id)


def show_job(here: Visit, job_id: int, status: int = 200) -> Response:
    with here.read() as tx:
        view = reading.view(tx, here.tenant_id, job_id)
    headers = {"ETag": etag(view.job.version)}
    if status == 201:
        headers["Location"] = here.address(f"/api/jobs/{job_id}")
    return answer(job_json(view), status, **headers)


@routes.get("/api/jobs/{job_id}/explain", answer=answers.Explanation)
def explain(here: Here, job_id: JobId) -> Response:
    """Say why a job does not run now, and when it may start."""
    here.client.get(job_id)
    with here.look() as tx:
        return answer(explain_json(queue_reading.explain(tx, here.tenant_id, job_id, lives=lives)))


@routes.get("/api/jobs/{job_id}/events", answer=answers.Page[answers.Event])
def events(
    here: Here, job_id: JobId, after: Annotated[int, Query(ge=0, le=(1 << 31) - 1)] = 0, limit: Limit = 200
) -> Response:
    """The history of a job, oldest first; `after` is a version, and so is `next`."""
    here.client.get(job_id)
    with here.read() as tx:
        found = reading.events(tx, job_id, after=after, limit=limit)
    more = str(found[-1].version) if len(found) == limit else None
    return answer({"items": [event_json(event) for event in found], "next": more})


@routes.get("/api/jobs/{job_id}/chain", answer=answers.Page[answers.Job])
def chain(here: Here, job_id: JobId) -> Response:
    """The automatic retries after a job, oldest first: the last one speaks for it."""
    with here.read() as tx:
        found = reading.chain_after(tx, here.tenant_id, job_id)
    return answer({"items": [job_json(view) for view in found], "next": None})


# --- changing and stopping ----------------------------------------------------------------------------------------


@routes.patch("/api/jobs/{job_id}", answer=answers.Job)
def edit(here: Here, job_id: JobId, body: bodies.JobEdit) -> Response:
    """Change a job that has not begun; null takes a time away. With its ETag as If-Match: only what you saw."""
    given = body.given()
    for name in ("not_before", "expires_at"):
        if name in given:
            given[name] = instant(given[name], field=name)
        elif name in body.model_fields_set:
            given[name] = CLEARED
    if "params" in given:
        check_new_params(here.visitor, [here.client.get(job_id).task])
    here.client.edit(job_id, if_version=here.if_version, **given)
    return show_job(here, job_id)


@routes.post("/api/jobs/{job_id}/move", answer=answers.Job, matches=True)
def move(here: Here, job_id: JobId, body: bodies.Move) -> Response:
    """Give a job another place in the queue."""
    here.client.move(job_id, if_version=here.if_version, **body.given())
    return show_job(here, job_id)


@routes.post("/api/jobs/{job_id}/retry", answer=answers.Job, status=201, creates=True)
def retry(here: Here, job_id: JobId, body: bodies.Retry | None = None) -> Response:
    """Run a failed job again, as a new job; an automatic retry that waits is brought forward."""
    given = body.given() if body is not None else {}

    def work(client: Client) -> int:
        if (made := client.recall()) is not None:
            return int(made)
        if "params" in given:
            check_new_params(here.visitor, [client.get(job_id).task])
        return client.retry(job_id, **given).id

    return here.make_once(work, lambda made: show_job(here, int(made), 201), given)


@routes.post("/api/jobs/{job_id}/resume", answer=answers.Job)
def resume(here: Here, job_id: JobId, body: bodies.Resume | None = None) -> Response:
    """Let a PAUSED or ERROR job, or one on hold, go on."""
    here.client.resume(job_id, body.budget if body is not None else None)
    return show_job(here, job_id)


@routes.post("/api/jobs/{job_id}/resolve", answer=answers.Job)
def resolve(here: Here, job_id: JobId, body: bodies.Resolve | None = None) -> Response:
    """End a PAUSED or ERROR job with a result of yours: COMPLETED."""
    here.client.resolve(job_id, body.result if body is not None else None)
    return show_job(here, job_id)


def _plain(verb: str, summary: str) -> None:
    def act(here: Here, job_id: JobId, body: bodies.Body | None = None) -> Response:
        getattr(here.client, verb)(job_id)
        return show_job(here, job_id)

    act.__name__, act.__doc__ = verb, summary
    declare: Callable[[Any], Any] = routes.post(f"/api/jobs/{{job_id}}/{verb}", answer=answers.Job)
    declare(act)


_plain("cancel", "End a job: a waiting one at once, a running one as soon as it stops.")
_plain("interrupt", "Pause a running job; put a waiting one on hold.")
_plain("release", "Give a PAUSED or ERROR job up: FAILED, without a retry.")
