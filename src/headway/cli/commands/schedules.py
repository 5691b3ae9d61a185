"""Shows schedules: `schedules ls`, `show`, `next`, `preview`, `ticks`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headway.cli.command import Invocation, command, family
from headway.cli.commands import schedule_actions, schedules_import
from headway.cli.commands.jobs import Cursor, Limit, more
from headway.cli.commands.schedule_actions import Name, Zone
from headway.cli.job_selection import number_or_name

schedules = family("List, create, enable, disable, run and backfill schedules.")
Count = Annotated[int, typer.Option("--count", "-n", metavar="N", help="Number of times to show.")]


@command(schedules, "ls")
def ls(call: Invocation, limit: Limit = 20, cursor: Cursor = None) -> None:
    """List schedules by name, with their state, next time and last time."""
    from headway.api.schemas.groups import schedule_json
    from headway.cli.tables.groups import schedule_table

    with call.desk() as desk:
        page, numbers = desk.list_schedules(limit, cursor)
        now = desk.now()
    if call.out.as_json:
        call.out.data({"items": [schedule_json(schedule, numbers) for schedule in page.items], "next": page.next})
    elif not page.items:
        call.out.say("no schedules yet")
        call.out.say("create one: headway schedules create nightly --cron '30 2 * * *' --task TASK")
        call.out.say("or several, from a file: headway apply FILE; from a crontab: headway schedules import FILE")
    else:
        call.out.show(schedule_table(page.items, now))
        more(call, page.next)


@command(schedules, "show")
def show(call: Invocation, name: Name) -> None:
    """Show a schedule with its steps, last executions and history."""
    from headway.api.schemas.groups import execution_json, schedule_json
    from headway.api.schemas.jobs import event_json
    from headway.cli.tables.groups import execution_table, schedule_page, schedule_remedies, wish_table
    from headway.cli.tables.jobs import event_table

    with call.desk() as desk:
        schedule, numbers, recent, last, events = desk.shown_schedule(number_or_name(name))
        now = desk.now()
    if call.out.as_json:
        executions = [execution_json(view) for view in recent]
        more_fields = {"executions": executions, "events": [event_json(event) for event in events]}
        call.out.data({**schedule_json(schedule, numbers), **more_fields})
        return
    definition = schedule.parsed
    call.out.show(schedule_page(schedule, now))
    if definition.steps:
        call.out.show("", wish_table(definition.steps))
    if recent:
        call.out.show("", execution_table(recent, {schedule.id: definition.timezone}, now))
    call.out.show("", event_table([_brief(event) for event in events], now))
    for line in schedule_remedies(schedule, last, now):
        call.out.say(line)


def _brief(event: Any) -> Any:
    """Removes the definition from an event, which does not fit into a line."""
    import json
    from dataclasses import replace

    kept = {name: value for name, value in json.loads(event.data).items() if name in ("reason", "origin")}
    return replace(event, data=json.dumps(kept))


@command(schedules, "next")
def next_(call: Invocation, name: Name, count: Count = 5) -> None:
    """Show the next times of a schedule, in UTC and in its own time zone."""
    from headway.cli.tables.groups import schedule_remedies

    with call.desk() as desk:
        which = number_or_name(name)
        times, schedule = desk.client.schedules.preview(which, count), desk.client.schedules.get(which)
        now = desk.now()
    _show_times(call, schedule.parsed, times, {"schedule_id": schedule.id})
    if not call.out.as_json:
        for line in schedule_remedies(schedule, None, now):
            call.out.say(line)


@command(schedules, "preview")
def preview(
    call: Invocation,
    cron: Annotated[str, typer.Argument(metavar="CRON", help="Five fields in quotes: '30 2 * * mon-fri'.")],
    timezone: Zone = "UTC",
    count: Count = 5,
    after: Annotated[str | None, typer.Option(metavar="WHEN", help="First time to consider (default: now).")] = None,
) -> None:
    """Explain a cron expression: a sentence, and its next times. Needs no database."""
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
    _show_times(call, made, upcoming(made, 0, now, count), {"cron": made.cron})


def _show_times(call: Invocation, definition: Any, times: Any, what: dict[str, Any]) -> None:
    from headway.api.schemas.groups import in_words, preview_json
    from headway.cli.tables.groups import preview_table

    sentence, zone = in_words(definition), definition.timezone
    if call.out.as_json:
        items = [preview_json(time) for time in times]
        call.out.data({**what, "timezone": zone, "sentence": sentence, "items": items, "next": None})
        return
    call.out.show(sentence)
    if times:
        call.out.show(preview_table(times, zone if zone != "UTC" else "LOCAL"))


@command(schedules, "ticks")
def ticks(call: Invocation, name: Name, limit: Limit = 20, cursor: Cursor = None) -> None:
    """List the ticks of a schedule, the latest first: fired, skipped, missed or coalesced, and why."""
    from headway.api.schemas.groups import tick_json
    from headway.cli.tables.groups import tick_table

    with call.desk() as desk:
        schedule = desk.client.schedules.get(number_or_name(name))
        page = desk.client.schedules.ticks(schedule.id, limit=limit, cursor=cursor)
    if call.out.as_json:
        call.out.data({"items": [tick_json(tick) for tick in page.items], "next": page.next})
    elif not page.items:
        call.out.say("no tick is decided yet: a process with the role scheduler decides them (`headway up`)")
    else:
        call.out.show(tick_table(page.items, schedule.parsed.timezone))
        more(call, page.next)


schedule_actions.register(schedules)
schedules_import.register(schedules)
