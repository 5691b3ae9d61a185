"""`/api/jobs`: creates, lists, edits and stops jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Protocol

from fastapi import Query, Response

from headway.api.http.query import Cursor, JobFilters, JobId, Limit, filters_of
from headway.api.http.routing import Here, RequestContext, Routes, answer, etag
from headway.api.schemas.common import Body, PageSchema
from headway.api.schemas.jobs import (
    BatchSchema,
    BulkBody,
    BulkSchema,
    ChainedJobSchema,
    EventSchema,
    ExplanationSchema,
    JobEditBody,
    JobSchema,
    MoveBody,
    NewBatchBody,
    NewJobBody,
    ResolveBody,
    ResumeBody,
    RetryBody,
    chain_json,
    event_json,
    explain_json,
    job_json,
)
from headway.engine.client import bulk
from headway.engine.client.authority import check_task
from headway.engine.client.client import Client
from headway.engine.client.limits import lives
from headway.engine.scheduler.fire import at
from headway.engine.tasks.task import make_job
from headway.errors import BadInput, NotFound
from headway.model.groups.group import NewGroup, NewMember, unique_names
from headway.model.jobs.actions import CLEARED
from headway.model.jobs.job import NewJob
from headway.model.values.times import instant
from headway.store.groups.views import group_view
from headway.store.jobs import views as job_views
from headway.store.paging import Page
from headway.store.queue import queue_views

routes = Routes("jobs")
_STEP_FIELDS = ("name", "stage", "continue_on_failure")


# --- creating -----------------------------------------------------------------------------------------------------


@routes.post("/api/jobs", answer=JobSchema, status=201, creates=True, also={200: "This job has the key already"})
def create(here: Here, body: NewJobBody) -> Response:
    """Create a job from a task or a template."""

    def work(client: Client) -> tuple[int, bool]:
        return client.enqueue(new_job(here, client, body.given()))

    def render(made: Sequence[Any]) -> Response:
        job_id, created = made
        return show_job(here, int(job_id), status=201 if created else 200)

    return here.make_once(work, render, body.model_dump())


class Traced(Protocol):
    """A caller whose trace continues in the jobs that it creates."""

    @property
    def trace(self) -> Mapping[str, Any]: ...


def new_job(here: Traced, client: Client, given: Mapping[str, Any], **fixed: Any) -> NewJob:
    """Builds a job from a body; the client refuses one that the visitor may not create."""
    options = {name: value for name, value in given.items() if name not in ("task", "template_id", "params")}
    options.update(fixed, **here.trace)
    params = given.get("params", {})
    if "template_id" in given:
        try:
            template = client.templates.get(given["template_id"])
        except NotFound as error:  # the template is a field of the body, so 422 and not 404
            raise BadInput(str(error), code="unknown_template", field="template_id") from None
        return client.templates.job(template, params, **options)  # the checked version, even if it has changed since
    check_task(client, given["task"])  # before the params are looked at
    return make_job(client, given["task"], params, options)


@routes.post("/api/jobs/batch", long=True, answer=BatchSchema, status=201, creates=True)
def batch(here: Here, body: NewBatchBody) -> Response:
    """Create many jobs, all or none.

    With a mode they form a group.
    """
    members = body.members()
    if body.mode is None:
        refuse_steps(members, body)

    def work(client: Client) -> Any:
        if body.mode is None:
            return [job_id for job_id, _ in client.enqueue_many(new_jobs(here, client, members))]
        return {"group_id": client.groups.create(group_of(here, client, body, members))}

    def render(made: Any) -> Response:
        with here.read() as tx:
            if isinstance(made, Mapping):
                group_id = int(made["group_id"])
                ids = [step.job_id for step in group_view(tx, here.tenant_id, group_id).steps]
            else:
                group_id, ids = None, list(map(int, made))
            items = [job_json(view) for view in job_views.views_of(tx, here.tenant_id, ids)]
        return answer({"group_id": group_id, "items": items}, 201)

    return here.make_once(work, render, body.model_dump())


def new_jobs(here: Traced, client: Client, members: Sequence[Mapping[str, Any]]) -> list[NewJob]:
    made = []
    for n, member in enumerate(members):
        with at(f"jobs[{n}]"):
            made.append(new_job(here, client, member))
    return made


def refuse_steps(members: Sequence[Mapping[str, Any]], body: NewBatchBody) -> None:
    """Refuses fields of a group in a batch of independent jobs."""
    for n, member in enumerate(members):
        for name in _STEP_FIELDS:
            if name in member:
                raise BadInput(f"jobs[{n}].{name} is for a group: give a mode too", field=f"jobs[{n}].{name}")
    for name in ("on_failure", "name"):
        if getattr(body, name) is not None:
            raise BadInput(f"{name} is for a group: give a mode too", field=name)


def group_of(here: Traced, client: Client, body: Any, members: Sequence[Mapping[str, Any]]) -> NewGroup:
    """Builds a group; the mode decides the stages, unless it is `staged`."""
    mode = body.mode or "sequential"
    jobs = new_jobs(here, client, [_without(member, "name", "stage") for member in members])
    names = unique_names([member.get("name") or job.task for member, job in zip(members, jobs, strict=True)])
    stages = [_stage(mode, n, member) for n, member in enumerate(members)]
    made = tuple(NewMember(*parts) for parts in zip(jobs, stages, names, strict=True))
    return NewGroup(name=body.name or "group", mode=mode, on_failure=body.on_failure or "stop", members=made)


def _without(member: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in member.items() if name not in names}


def _stage(mode: str, n: int, member: Mapping[str, Any]) -> int:
    if mode == "staged":
        return int(member.get("stage", 0))
    if "stage" in member:
        raise BadInput(f"jobs[{n}].stage is for the mode staged: leave it out", field=f"jobs[{n}].stage")
    return n if mode == "sequential" else 0


@routes.post("/api/jobs/bulk", long=True, answer=BulkSchema, creates=True)
def act_on_many(here: Here, body: BulkBody) -> Response:
    """Apply one action to every matching job.

    The request is refused unless the expected number of jobs matches.
    """

    def work(client: Client) -> tuple[Response, Response]:
        done = bulk.act(client, filters_of(body.filter), body.action, expected=body.expected_count)
        refused = [{"job_id": job_id, "code": error.code, "detail": str(error)} for job_id, error in done.refused]
        result = answer({"matched": done.matched, "changed": done.changed, "refused": refused})
        return result, result

    return here.do_once(work, body.model_dump())


# --- reading ------------------------------------------------------------------------------------------------------


@routes.get("/api/jobs", answer=PageSchema[JobSchema])
def ls(
    here: Here,
    asked: JobFilters,
    retried: Annotated[bool | None, Query(description="Only those that were retried, or were not")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List jobs, the newest first."""
    with here.read() as tx:
        page = job_views.list_jobs(tx, here.tenant_id, asked.filters, limit, cursor)
        found = page.items
        if retried is not None:  # this filter may make a page shorter than `limit`
            done = job_views.retried(tx, [view.job.id for view in found])
            found = [view for view in found if (view.job.id in done) is retried]
    return answer({"items": [job_json(view) for view in found], "next": page.next})


@routes.get("/api/jobs/{job_id}", answer=JobSchema)
def show(here: Here, job_id: JobId) -> Response:
    """Show a job with its run."""
    return show_job(here, job_id)


def show_job(here: RequestContext, job_id: int, status: int = 200) -> Response:
    with here.read() as tx:
        view = job_views.view(tx, here.tenant_id, job_id)
    headers = {"ETag": etag(view.job.version)}
    if status == 201:
        headers["Location"] = here.address(f"/api/jobs/{job_id}")
    return answer(job_json(view), status, **headers)


@routes.get("/api/jobs/{job_id}/explain", answer=ExplanationSchema)
def explain(here: Here, job_id: JobId) -> Response:
    """Explain why a job does not run now, and when it may start."""
    here.client.get(job_id)
    with here.look() as tx:
        return answer(explain_json(queue_views.explain(tx, here.tenant_id, job_id, lives=lives)))


@routes.get("/api/jobs/{job_id}/events", answer=PageSchema[EventSchema])
def events(
    here: Here, job_id: JobId, after: Annotated[int, Query(ge=0, le=(1 << 31) - 1)] = 0, limit: Limit = 200
) -> Response:
    """List the events of a job, oldest first.

    `after` and `next` are versions.
    """
    here.client.get(job_id)
    with here.read() as tx:
        found = job_views.events(tx, job_id, after=after, limit=limit)
    more = str(found[-1].version) if len(found) == limit else None
    return answer({"items": [event_json(here.shown(event)) for event in found], "next": more})


@routes.get("/api/jobs/{job_id}/chain", answer=PageSchema[ChainedJobSchema])
def chain(
    here: Here,
    job_id: JobId,
    after: Annotated[bool, Query(description="Only the automatic retries after this job")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List the retry chain that a job belongs to, first job first, automatic and manual retries.

    With `after` only the automatic retries after the job; the last one decides its outcome.
    """
    with here.read() as tx:
        if after:
            page = Page(job_views.chain_after(tx, here.tenant_id, job_id))
        else:
            page = job_views.chain_page(tx, here.tenant_id, job_id, limit, cursor)
    return answer(chain_json(page, job_id))


# --- changing and stopping ----------------------------------------------------------------------------------------


@routes.patch("/api/jobs/{job_id}", answer=JobSchema)
def edit(here: Here, job_id: JobId, body: JobEditBody) -> Response:
    """Edit a job that has not started.

    null removes a time. If-Match with the job's ETag refuses the edit if the job has changed since it was read.
    """
    given = body.given()
    for name in ("not_before", "expires_at"):
        if name in given:
            given[name] = instant(given[name], field=name)
        elif name in body.model_fields_set:
            given[name] = CLEARED
    here.client.edit(job_id, if_version=here.if_version, **given)
    return show_job(here, job_id)


@routes.post("/api/jobs/{job_id}/move", answer=JobSchema, matches=True)
def move(here: Here, job_id: JobId, body: MoveBody) -> Response:
    """Move a job to another place in the queue."""
    here.client.move(job_id, if_version=here.if_version, **body.given())
    return show_job(here, job_id)


@routes.post("/api/jobs/{job_id}/retry", answer=JobSchema, status=201, creates=True)
def retry(here: Here, job_id: JobId, body: RetryBody | None = None) -> Response:
    """Retry a failed job as a new job.

    An automatic retry that is waiting is brought forward instead.
    """
    given = body.given() if body is not None else {}

    def work(client: Client) -> int:
        if (made := client.recall()) is not None:
            return int(made)
        return client.retry(job_id, **given).id

    return here.make_once(work, lambda made: show_job(here, int(made), 201), given)


@routes.post("/api/jobs/{job_id}/resume", answer=JobSchema)
def resume(here: Here, job_id: JobId, body: ResumeBody | None = None) -> Response:
    """Resume a PAUSED or ERROR job, or a job on hold."""
    here.client.resume(job_id, body.budget if body is not None else None)
    return show_job(here, job_id)


@routes.post("/api/jobs/{job_id}/resolve", answer=JobSchema)
def resolve(here: Here, job_id: JobId, body: ResolveBody | None = None) -> Response:
    """Complete a PAUSED or ERROR job with the given result."""
    here.client.resolve(job_id, body.result if body is not None else None)
    return show_job(here, job_id)


def _plain(verb: str, summary: str) -> None:
    def act(here: Here, job_id: JobId, body: Body | None = None) -> Response:
        getattr(here.client, verb)(job_id)
        return show_job(here, job_id)

    act.__name__, act.__doc__ = verb, summary
    declare: Callable[[Any], Any] = routes.post(f"/api/jobs/{{job_id}}/{verb}", answer=JobSchema)
    declare(act)


_plain("cancel", "Cancel a job; a waiting one ends at once, a running one as soon as it stops.")
_plain("interrupt", "Pause a running job; put a waiting one on hold.")
_plain("release", "End a PAUSED or ERROR job as FAILED, without a retry.")
