"""`/api/schedules`: when to run what. Making, changing, switching, running and looking ahead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import Query, Response

from headway.api.asking import Cursor, Id, Limit, Text
from headway.api.editing import as_seen
from headway.api.executions import show_execution
from headway.api.routes import Here, Routes, Visit, answer, etag
from headway.api.wire import answers, answers_plans, bodies, bodies_plans
from headway.api.wire.plans import execution_json, in_words, preview_json, schedule_json, tick_json
from headway.engine.client import Client
from headway.errors import BadInput, NotFound
from headway.model.access import Role, check_new_params, check_policy, check_tasks, tasks_of
from headway.model.schedule import FIELDS, Definition, Schedule
from headway.model.values import instant_text
from headway.store import plans_reading, schedules, templates
from headway.store.pages import Page

routes = Routes("schedules")
Count = Annotated[int, Query(ge=1, le=1_000, description="How many times")]


# --- making and changing ------------------------------------------------------------------------------------------


@routes.post("/api/schedules", answer=answers_plans.Schedule, status=201, creates=True)
def create(here: Here, body: bodies_plans.WholeSchedule) -> Response:
    """Make a schedule. Its first time is the first one after now."""

    def work(client: Client) -> Schedule:
        with _wire_names():
            wished = Definition.parse(body.definition())
            may_define(here, wished)
            return client.schedules.create(body.name, wished.facts(), enabled=body.enabled is not False)

    return here.make_once(work, lambda made: _shown(here, made, 201), body.model_dump())


@routes.put("/api/schedules/{schedule_id}", answer=answers_plans.Schedule)
def replace(here: Here, schedule_id: Id, body: bodies_plans.WholeSchedule) -> Response:
    """Say anew all that a schedule says. Jobs and executions that exist keep what they got."""
    return _edit(here, schedule_id, {**dict.fromkeys(FIELDS), **body.definition(), "name": body.name}, body.enabled)


@routes.patch("/api/schedules/{schedule_id}", answer=answers_plans.Schedule)
def edit(here: Here, schedule_id: Id, body: bodies_plans.ScheduleEdit) -> Response:
    """Change a schedule; null takes a field away. Jobs and executions that exist keep what they got."""
    name = {} if body.name is None else {"name": body.name}
    return _edit(here, schedule_id, {**body.definition(), **name}, body.enabled)


def _edit(here: Visit, schedule_id: int, changes: Mapping[str, Any], enabled: bool | None) -> Response:
    def look() -> Schedule:
        seen = here.client.schedules.get(schedule_id)
        if changes:  # switching it on and off is everybody's
            may_define(here, seen.parsed)
            may_define(here, seen.parsed.changed({name: changes[name] for name in changes if name != "name"}))
        return seen

    with _wire_names():
        edited = as_seen(
            here,
            look,
            lambda seen, version: here.client.schedules.edit(seen.id, changes, version, enabled=enabled),
        )
    return _shown(here, edited)


@routes.delete("/api/schedules/{schedule_id}", answer=answers_plans.Schedule)
def delete(here: Here, schedule_id: Id) -> Response:
    """Delete a schedule. Its executions and its ledger stay; its name is free again."""

    def look() -> Schedule:
        seen = here.client.schedules.get(schedule_id)
        may_define(here, seen.parsed)
        return seen

    gone = as_seen(here, look, lambda seen, version: here.client.schedules.delete(seen.id, if_version=version))
    return _shown(here, gone)


def may_define(here: Visit, definition: Definition) -> None:
    """Refused unless this visitor may make, change and delete a schedule that says this."""
    if here.visitor.role.may(Role.ADMIN):
        return
    check_policy(here.visitor, definition.on_failure)
    check_tasks(here.visitor, tasks_run(here, definition))


def tasks_run(here: Visit, definition: Definition) -> list[str]:
    """All tasks of a schedule, also through templates."""
    return tasks_of(definition, lambda which: _task_of(here, which))


def _task_of(here: Visit, template: int | str) -> str:
    """What there is not runs nothing; whoever makes a schedule of it is told later."""
    try:
        return here.client.templates.get(template).task
    except NotFound:
        return ""


@contextmanager
def _wire_names() -> Iterator[None]:
    """A definition says `template` for what is `template_id` here."""
    try:
        yield
    except BadInput as error:
        if error.field is None or error.field.rpartition(".")[2] != "template":
            raise
        raise BadInput(str(error), code=error.code, field=f"{error.field}_id", **error.facts) from error


# --- switching and running ----------------------------------------------------------------------------------------


@routes.post("/api/schedules/{schedule_id}/enable", answer=answers_plans.Schedule)
def enable(here: Here, schedule_id: Id, body: bodies.Body | None = None) -> Response:
    """Let a schedule fire, from now on."""
    return _shown(here, here.client.schedules.enable(schedule_id))


@routes.post("/api/schedules/{schedule_id}/disable", answer=answers_plans.Schedule)
def disable(here: Here, schedule_id: Id, body: bodies_plans.Disable | None = None) -> Response:
    """Let a schedule fire no more. Executions that exist go on."""
    reason = None if body is None else body.reason
    return _shown(here, here.client.schedules.disable(schedule_id, reason=reason))


@routes.post("/api/schedules/{schedule_id}/run", answer=answers_plans.Execution, status=201, creates=True, matches=True)
def run(here: Here, schedule_id: Id, body: bodies_plans.Run | None = None) -> Response:
    """Make an execution now, also of a disabled schedule; 409 while one has not ended, unless forced."""
    wish = body or bodies_plans.Run()

    def look() -> Schedule:
        seen = here.client.schedules.get(schedule_id)
        if wish.params:
            check_new_params(here.visitor, tasks_run(here, seen.parsed))
        return seen

    def work(client: Client) -> int:
        if (made := client.recall()) is not None:
            return int(made)
        with _wire_names():
            return as_seen(
                here,
                look,
                lambda seen, version: client.schedules.run(seen.id, wish.force, wish.params, if_version=version),
            )

    return here.make_once(work, lambda made: show_execution(here, int(made), 201), wish.model_dump())


@routes.post(
    "/api/schedules/{schedule_id}/backfill",
    answer=answers_plans.Backfilled,
    status=201,
    creates=True,
    also={200: "Nothing was made: a dry run, or every time there fired"},
)
def backfill(here: Here, schedule_id: Id, body: bodies_plans.Backfill) -> Response:
    """Make executions for past times that did not fire, oldest first, one after another."""

    def work(client: Client) -> list[int]:
        with _wire_names():
            return client.schedules.backfill(schedule_id, body.since, body.until, body.dry_run)

    def render(made: list[int]) -> Response:
        if body.dry_run:
            return answer({"times": [instant_text(at) for at in made], "items": [], "next": None})
        with here.read() as tx:
            views = [plans_reading.group_view(tx, here.tenant_id, number, "execution") for number in made]
        items = [execution_json(view, steps=True) for view in views]
        times = [item["nominal_at"] for item in items]
        return answer({"times": times, "items": items, "next": None}, 201 if items else 200)

    return here.make_once(work, render, body.model_dump())


# --- looking ------------------------------------------------------------------------------------------------------


@routes.get("/api/schedules", answer=answers.Page[answers_plans.Schedule])
def ls(here: Here, name: Text = None, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List schedules by name; with a name, that one."""
    with here.read() as tx:
        if name is not None:
            page = Page([schedules.find(tx, here.tenant_id, name)])
        else:
            page = schedules.listed(tx, here.tenant_id, limit=limit, cursor=cursor)
        numbers = templates.numbers(tx, here.tenant_id, page.items)
    return answer({"items": [schedule_json(one, numbers) for one in page.items], "next": page.next})


@routes.get("/api/schedules/{schedule_id}", answer=answers_plans.Schedule)
def show(here: Here, schedule_id: Id) -> Response:
    """Show a schedule: what it says, when it fires next, when it ran last."""
    with here.read() as tx:
        found = schedules.find(tx, here.tenant_id, schedule_id)
    return _shown(here, found)


def _shown(here: Visit, schedule: Schedule, status: int = 200) -> Response:
    with here.read() as tx:
        numbers = templates.numbers(tx, here.tenant_id, [schedule])
    headers = {"ETag": etag(schedule.version)}
    if status == 201:
        headers["Location"] = here.address(f"/api/schedules/{schedule.id}")
    return answer(schedule_json(schedule, numbers), status, **headers)


@routes.get("/api/schedules/{schedule_id}/next", answer=answers_plans.Times)
def preview(here: Here, schedule_id: Id, count: Count = 5) -> Response:
    """The next times of a schedule, in UTC and on its own clocks, with what clock changes do to them."""
    with here.read() as tx:
        schedule = schedules.find(tx, here.tenant_id, schedule_id)
    found = here.client.schedules.preview(schedule_id, count)
    about = {"schedule_id": schedule_id, "timezone": schedule.parsed.timezone, "sentence": in_words(schedule.parsed)}
    return answer({**about, "items": [preview_json(one) for one in found], "next": None})


@routes.get("/api/schedules/{schedule_id}/ticks", answer=answers.Page[answers_plans.Tick])
def ticks(here: Here, schedule_id: Id, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """What became of the times of a schedule, the latest first: fired, skipped, missed, and why."""
    with here.read() as tx:
        schedule = schedules.find(tx, here.tenant_id, schedule_id)
        page = schedules.ledger(tx, schedule.id, limit=limit, cursor=cursor)
    return answer({"items": [tick_json(tick) for tick in page.items], "next": page.next})
