"""Shows schedules: `schedules ls`, `show`, `next`, `preview`, `ticks`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.command import Invocation, command, family
from headway.cli.commands import schedule_actions, schedules_import
from headway.cli.commands.jobs import Cursor, Limit
from headway.cli.commands.schedule_actions import Name, Zone
from headway.cli.job_selection import number_or_name

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headway.cli.backend.base import Backend
    from headway.cli.output import Json

schedules = family("List, create, enable, disable, run and backfill schedules.")
Deleted = Annotated[bool, typer.Option("--deleted", help="List the deleted ones instead.")]
Count = Annotated[int, typer.Option("--count", "-n", metavar="N", help="Number of times to show.")]


@command(schedules, "ls")
def ls(call: Invocation, limit: Limit = 20, cursor: Cursor = None, deleted: Deleted = False) -> None:
    """List schedules by name, with their state, next time and last time."""
    from headway.cli.tables.schedules import schedule_table

    empty = (
        "no schedules yet",
        "create one: headway schedules create nightly --cron '30 2 * * *' --task TASK",
        "or several, from a file: headway apply FILE; from a crontab: headway schedules import FILE",
    )
    with call.backend() as backend:
        page, now = backend.schedules.page(limit, cursor, deleted=deleted), backend.now()
    call.out.page(page, lambda found: schedule_table(found, now), empty=empty)


@command(schedules, "show")
def show(call: Invocation, name: Name) -> None:
    """Show a schedule with its steps, last executions and history."""
    with call.backend() as backend:
        schedule = backend.schedules.shown(number_or_name(name))
        call.out.answer(schedule, lambda: _page(schedule, backend.now()), notes=_remedies(backend, schedule))


def _page(schedule: Json, now: int) -> Iterator[RenderableType]:
    from headway.cli.tables.events import event_table
    from headway.cli.tables.groups import execution_table
    from headway.cli.tables.schedules import schedule_page, steps_table

    yield schedule_page(schedule, now)
    if schedule["steps"]:
        yield from ("", steps_table(schedule["steps"]))
    if schedule["executions"]:
        zones = {schedule["schedule_id"]: schedule["timezone"]}
        yield from ("", execution_table(schedule["executions"], zones, now))
    yield from ("", event_table([_brief(event) for event in schedule["events"]], now))


def _brief(event: Json) -> Json:
    """Removes the definition from an event, which does not fit into a line."""
    return {**event, "data": {name: event["data"][name] for name in ("reason", "origin") if name in event["data"]}}


def _remedies(backend: Backend, schedule: Json, *, ticked: bool = True) -> Iterator[str]:
    """Yields why a schedule does not fire; with `ticked` also why its last tick was skipped."""
    from headway.cli.tables.schedules import schedule_remedies

    number = schedule["schedule_id"]
    ticks = backend.schedules.ticks(number, 1, None)["items"] if ticked else []
    yield from schedule_remedies(schedule, backend.schedules.decided_ahead(number), ticks[0] if ticks else None)


@command(schedules, "next")
def next_(call: Invocation, name: Name, count: Count = 5) -> None:
    """Show the next times of a schedule, in UTC and in its own time zone."""
    with call.backend() as backend:
        times = backend.schedules.next_times(number_or_name(name), count)
        _show_times(call, times, notes=_why_silent(backend, times["schedule_id"]))


def _why_silent(backend: Backend, number: int) -> Iterator[str]:
    yield from _remedies(backend, backend.schedules.get(number), ticked=False)


@command(schedules, "preview")
def preview(
    call: Invocation,
    cron: Annotated[str, typer.Argument(metavar="CRON", help="Five fields in quotes: '30 2 * * mon-fri'.")],
    timezone: Zone = "UTC",
    count: Count = 5,
    after: Annotated[str | None, typer.Option(metavar="WHEN", help="First time to consider (default: now).")] = None,
) -> None:
    """Explain a cron expression: a sentence, and its next times. Needs no database."""
    from headway.api.schemas.schedules import in_words, preview_json
    from headway.cli import arguments
    from headway.clock import SystemClock
    from headway.engine.client.schedules import upcoming
    from headway.errors import BadInput
    from headway.model.schedules.definition import Definition

    if not 1 <= count <= 1_000:
        raise BadInput(f"--count must be from 1 to 1000, not {count}", field="count")
    begin = arguments.moment(after, field="after")
    made = Definition.parse({"cron": cron, "timezone": timezone, "steps": [{"task": "preview"}]})
    now = SystemClock().now() if begin is None else begin - 1
    items = [preview_json(time) for time in upcoming(made, 0, now, count)]
    about = {"cron": made.cron, "timezone": made.timezone, "sentence": in_words(made)}
    _show_times(call, {**about, "items": items, "next": None})


def _show_times(call: Invocation, times: Json, *, notes: Iterable[str] = ()) -> None:
    from headway.cli.tables.schedules import preview_table

    def shown() -> Iterator[RenderableType]:
        yield times["sentence"]
        if times["items"]:
            yield preview_table(times["items"], times["timezone"] if times["timezone"] != "UTC" else "LOCAL")

    call.out.answer(times, shown, notes=notes)


@command(schedules, "ticks")
def ticks(call: Invocation, name: Name, limit: Limit = 20, cursor: Cursor = None) -> None:
    """List the ticks of a schedule, the latest first: fired, skipped, missed or coalesced, and why."""
    from headway.cli.tables.schedules import tick_table

    empty = ["no tick is decided yet: a process with the role scheduler decides them (`headway up`)"]
    with call.backend() as backend:
        schedule = backend.schedules.get(number_or_name(name))
        page = backend.schedules.ticks(schedule["schedule_id"], limit, cursor)
    call.out.page(page, lambda found: tick_table(found, schedule["timezone"]), empty=empty)


schedule_actions.register(schedules)
schedules_import.register(schedules)
