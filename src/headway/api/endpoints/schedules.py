"""`/api/schedules`: creates, edits, enables, runs and previews schedules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import Query, Response

from headway.api.endpoints.executions import show_execution
from headway.api.http.conditional import as_seen
from headway.api.http.query import Cursor, Id, Limit, Text
from headway.api.http.routing import Here, RequestContext, Routes, answer, etag
from headway.api.schemas.common import Body, PageSchema
from headway.api.schemas.groups import BackfilledSchema, ExecutionSchema, execution_json
from headway.api.schemas.schedules import (
    BackfillBody,
    DisableBody,
    RunBody,
    ScheduleEditBody,
    ScheduleSchema,
    TickSchema,
    TimesSchema,
    WholeScheduleBody,
    in_words,
    preview_json,
    schedule_json,
    tick_json,
)
from headway.engine.client.client import Client
from headway.errors import BadInput
from headway.model.schedules.definition import FIELDS, Definition
from headway.model.schedules.schedule import Schedule
from headway.model.values.times import instant_text
from headway.store import audit_views, templates
from headway.store.groups import views as group_views
from headway.store.paging import Page
from headway.store.schedules import schedules

routes = Routes("schedules")
Deleted = Annotated[bool, Query(description="List the deleted ones instead")]
Count = Annotated[int, Query(ge=1, le=1_000, description="Number of times to list")]


# --- creating and editing -----------------------------------------------------------------------------------------


@routes.post("/api/schedules", answer=ScheduleSchema, status=201, creates=True)
def create(here: Here, body: WholeScheduleBody) -> Response:
    """Create a schedule.

    It first fires at its first time after now.
    """

    def work(client: Client) -> Schedule:
        with _wire_names():
            requested = Definition.parse(body.definition())
            return client.schedules.create(body.name, requested.facts(), enabled=body.enabled is not False)

    return here.make_once(work, lambda made: _shown(here, made, 201), body.model_dump())


@routes.put("/api/schedules/{schedule_id}", answer=ScheduleSchema)
def replace(here: Here, schedule_id: Id, body: WholeScheduleBody) -> Response:
    """Replace the whole definition of a schedule.

    Existing jobs and executions do not change.
    """
    return _edit(here, schedule_id, {**dict.fromkeys(FIELDS), **body.definition(), "name": body.name}, body.enabled)


@routes.patch("/api/schedules/{schedule_id}", answer=ScheduleSchema)
def edit(here: Here, schedule_id: Id, body: ScheduleEditBody) -> Response:
    """Edit a schedule; null removes a field.

    Existing jobs and executions do not change.
    """
    name = {} if body.name is None else {"name": body.name}
    return _edit(here, schedule_id, {**body.definition(), **name}, body.enabled)


def _edit(here: RequestContext, schedule_id: int, changes: Mapping[str, Any], enabled: bool | None) -> Response:
    def look() -> Schedule:
        seen = here.client.schedules.get(schedule_id)
        if changes:  # enabling and disabling needs no right to define
            here.client.schedules.may_define(seen)
        return seen

    with _wire_names():
        edited = as_seen(
            here,
            look,
            lambda seen, version: here.client.schedules.edit(seen.id, changes, version, enabled=enabled),
        )
    return _shown(here, edited)


@routes.delete("/api/schedules/{schedule_id}", answer=ScheduleSchema)
def delete(here: Here, schedule_id: Id) -> Response:
    """Delete a schedule.

    Its executions and its tick ledger stay; its name is free again.
    """

    def look() -> Schedule:
        seen = here.client.schedules.get(schedule_id)
        here.client.schedules.may_define(seen)
        return seen

    gone = as_seen(here, look, lambda seen, version: here.client.schedules.delete(seen.id, if_version=version))
    return _shown(here, gone)


@contextmanager
def _wire_names() -> Iterator[None]:
    """Renames the field `template` of an error to `template_id`, its name in the API."""
    try:
        yield
    except BadInput as error:
        if error.field is None or error.field.rpartition(".")[2] != "template":
            raise
        raise BadInput(
            error.problem, hint=error.hint, code=error.code, field=f"{error.field}_id", **error.facts
        ) from error


# --- enabling and running -----------------------------------------------------------------------------------------


@routes.post("/api/schedules/{schedule_id}/enable", answer=ScheduleSchema)
def enable(here: Here, schedule_id: Id, body: Body | None = None) -> Response:
    """Enable a schedule; it fires from now on."""
    return _shown(here, here.client.schedules.enable(schedule_id))


@routes.post("/api/schedules/{schedule_id}/disable", answer=ScheduleSchema)
def disable(here: Here, schedule_id: Id, body: DisableBody | None = None) -> Response:
    """Disable a schedule.

    Executions in progress continue.
    """
    reason = None if body is None else body.reason
    return _shown(here, here.client.schedules.disable(schedule_id, reason=reason))


@routes.post("/api/schedules/{schedule_id}/seen", answer=ScheduleSchema)
def seen(here: Here, schedule_id: Id, body: Body | None = None) -> Response:
    """Mark the missed ticks of a schedule as seen.

    Until then the overview, the Health page and `doctor` report them.
    """
    return _shown(here, here.client.schedules.see(schedule_id))


@routes.post("/api/schedules/{schedule_id}/reset", answer=ScheduleSchema, status=201)
def reset(here: Here, schedule_id: Id, body: Body | None = None) -> Response:
    """Replace a schedule that is silent because a clock was ahead.

    A new schedule with the same definition starts now.
    """
    return _shown(here, here.client.schedules.reset(schedule_id), 201)


@routes.post("/api/schedules/{schedule_id}/run", answer=ExecutionSchema, status=201, creates=True, matches=True)
def run(here: Here, schedule_id: Id, body: RunBody | None = None) -> Response:
    """Run a schedule now, even if it is disabled.

    It answers 409 while an execution is active, unless forced.
    """
    request = body or RunBody()

    def work(client: Client) -> int:
        if (made := client.recall()) is not None:
            return int(made)
        with _wire_names():
            return as_seen(
                here,
                lambda: here.client.schedules.get(schedule_id),
                lambda seen, version: client.schedules.run(seen.id, request.force, request.params, if_version=version),
            )

    return here.make_once(work, lambda made: show_execution(here, int(made), 201), request.model_dump())


@routes.post(
    "/api/schedules/{schedule_id}/backfill",
    long=True,
    answer=BackfilledSchema,
    status=201,
    creates=True,
    also={200: "Nothing was created: a dry run, or every time in the range has fired"},
)
def backfill(here: Here, schedule_id: Id, body: BackfillBody) -> Response:
    """Create executions for past times that did not fire.

    They run one after another, the oldest first.
    """

    def work(client: Client) -> list[int]:
        with _wire_names():
            return client.schedules.backfill(schedule_id, body.since, body.until, body.dry_run)

    def render(made: list[int]) -> Response:
        if body.dry_run:
            return answer({"times": [instant_text(at) for at in made], "items": [], "next": None})
        with here.read() as tx:
            views = [group_views.group_view(tx, here.tenant_id, number, "execution") for number in made]
        items = [execution_json(view, steps=True) for view in views]
        times = [item["nominal_at"] for item in items]
        return answer({"times": times, "items": items, "next": None}, 201 if items else 200)

    return here.make_once(work, render, body.model_dump())


# --- reading ------------------------------------------------------------------------------------------------------


@routes.get("/api/schedules", answer=PageSchema[ScheduleSchema])
def ls(here: Here, name: Text = None, deleted: Deleted = False, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List schedules by name; `name` selects one. With `deleted` the deleted ones, the last made first."""
    with here.read() as tx:
        if deleted:
            page = schedules.deleted(tx, here.tenant_id, limit=limit, cursor=cursor)
        elif name is not None:
            page = Page([schedules.find(tx, here.tenant_id, name)])
        else:
            page = schedules.listed(tx, here.tenant_id, limit=limit, cursor=cursor)
        numbers = templates.numbers(tx, here.tenant_id, page.items)
        by = audit_views.deleted_by(tx, "schedule", [one.id for one in page.items] if deleted else ())
    items = [schedule_json(schedule, numbers, by.get(schedule.id)) for schedule in page.items]
    return answer({"items": items, "next": page.next})


@routes.get("/api/schedules/{schedule_id}", answer=ScheduleSchema)
def show(here: Here, schedule_id: Id) -> Response:
    """Show a schedule: its definition, next time and last execution. A deleted one too."""
    with here.read() as tx:
        found = schedules.find_kept(tx, here.tenant_id, schedule_id)
    return _shown(here, found)


def _shown(here: RequestContext, schedule: Schedule, status: int = 200) -> Response:
    with here.read() as tx:
        numbers = templates.numbers(tx, here.tenant_id, [schedule])
        by = audit_views.deleted_by(tx, "schedule", [schedule.id] if schedule.deleted_at is not None else ())
    headers = {"ETag": etag(schedule.version)}
    if status == 201:
        headers["Location"] = here.address(f"/api/schedules/{schedule.id}")
    return answer(schedule_json(schedule, numbers, by.get(schedule.id)), status, **headers)


@routes.get("/api/schedules/{schedule_id}/next", answer=TimesSchema)
def preview(here: Here, schedule_id: Id, count: Count = 5) -> Response:
    """List the next times of a schedule, in UTC and in local time."""
    with here.read() as tx:
        schedule = schedules.find(tx, here.tenant_id, schedule_id)
    found = here.client.schedules.preview(schedule_id, count)
    about = {"schedule_id": schedule_id, "timezone": schedule.parsed.timezone, "sentence": in_words(schedule.parsed)}
    return answer({**about, "items": [preview_json(time) for time in found], "next": None})


@routes.get("/api/schedules/{schedule_id}/ticks", answer=PageSchema[TickSchema])
def ticks(here: Here, schedule_id: Id, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List the ticks of a schedule and their outcomes, the latest first. Those of a deleted one stay."""
    with here.read() as tx:
        schedule = schedules.find_kept(tx, here.tenant_id, schedule_id)
        page = schedules.ledger(tx, schedule.id, limit=limit, cursor=cursor)
    return answer({"items": [tick_json(tick) for tick in page.items], "next": page.next})
