"""Looking at schedules: `schedules ls`, `show`, `next`, `preview`, `ticks`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headway.cli import importing, scheduling
from headway.cli.call import Call, command, family
from headway.cli.choosing import number_or_name
from headway.cli.jobs import Cursor, Limit, more
from headway.cli.scheduling import Name, Zone

schedules = family("Look at schedules, make them, switch them on and off, run them now.")
Count = Annotated[int, typer.Option("--count", "-n", metavar="N", help="How many times.")]


@command(schedules, "ls")
def ls(call: Call, limit: Limit = 20, cursor: Cursor = None) -> None:
    """List schedules by name: whether they fire, when next, when last."""
    from headway.api.wire.plans import schedule_json
    from headway.cli.plan_tables import schedule_table

    with call.desk() as desk:
        page, numbers = desk.list_schedules(limit, cursor)
        now = desk.now()
    if call.out.as_json:
        call.out.data({"items": [schedule_json(one, numbers) for one in page.items], "next": page.next})
    elif not page.items:
        call.out.say("no schedules yet")
        call.out.say("make one: headway schedules create nightly --cron '30 2 * * *' --task TASK")
        call.out.say("or several, from a file: headway apply FILE; a crontab: headway schedules import FILE")
    else:
        call.out.show(schedule_table(page.items, now))
        more(call, page.next)


@command(schedules, "show")
def show(call: Call, name: Name) -> None:
    """Show everything about a schedule: its steps, its last executions, its history."""
    from headway.api.wire.jobs import event_json
    from headway.api.wire.plans import execution_json, schedule_json
    from headway.cli.plan_tables import execution_table, schedule_page, schedule_remedies, wish_table
    from headway.cli.tables import event_table

    with call.desk() as desk:
        one, numbers, recent, last, events = desk.shown_schedule(number_or_name(name))
        now = desk.now()
    if call.out.as_json:
        shown = {"executions": [execution_json(view) for view in recent]}
        call.out.data({**schedule_json(one, numbers), **shown, "events": [event_json(event) for event in events]})
        return
    definition = one.parsed
    call.out.show(schedule_page(one, now))
    if definition.steps:
        call.out.show("", wish_table(definition.steps))
    if recent:
        call.out.show("", execution_table(recent, {one.id: definition.timezone}, now))
    call.out.show("", event_table([_brief(event) for event in events], now))
    for line in schedule_remedies(one, last):
        call.out.say(line)


def _brief(event: Any) -> Any:
    """Without the whole definition, which no line has room for."""
    import json
    from dataclasses import replace

    kept = {name: value for name, value in json.loads(event.data).items() if name in ("reason", "origin")}
    return replace(event, data=json.dumps(kept))


@command(schedules, "next")
def next_(call: Call, name: Name, count: Count = 5) -> None:
    """Show the next times of a schedule, in UTC and on its own clocks."""
    from headway.cli.plan_tables import schedule_remedies

    with call.desk() as desk:
        which = number_or_name(name)
        found, one = desk.client.schedules.preview(which, count), desk.client.schedules.get(which)
    _tell_times(call, one.parsed, found, {"schedule_id": one.id})
    if not call.out.as_json:
        for line in schedule_remedies(one, None):
            call.out.say(line)


@command(schedules, "preview")
def preview(
    call: Call,
    cron: Annotated[str, typer.Argument(metavar="CRON", help="Five fields, in quotes: '30 2 * * mon-fri'.")],
    timezone: Zone = "UTC",
    count: Count = 5,
    after: Annotated[str | None, typer.Option(metavar="WHEN", help="From this time on, instead of now.")] = None,
) -> None:
    """Say what a cron expression means: a sentence, and its next times. Needs no database."""
    from headway.cli import parsing
    from headway.clock import SystemClock
    from headway.engine.schedules import upcoming
    from headway.errors import BadInput
    from headway.model.schedule import Definition

    if not 1 <= count <= 1_000:
        raise BadInput(f"--count must be from 1 to 1000, not {count}", field="count")
    begin = parsing.moment(after, field="after")
    made = Definition.parse({"cron": cron, "timezone": timezone, "steps": [{"task": "preview"}]})
    now = SystemClock().now() if begin is None else begin - 1
    _tell_times(call, made, upcoming(made, 0, now, count), {"cron": made.cron})


def _tell_times(call: Call, definition: Any, found: Any, what: dict[str, Any]) -> None:
    from headway.api.wire.plans import in_words, preview_json
    from headway.cli.plan_tables import preview_table

    sentence, zone = in_words(definition), definition.timezone
    if call.out.as_json:
        items = [preview_json(one) for one in found]
        call.out.data({**what, "timezone": zone, "sentence": sentence, "items": items, "next": None})
        return
    call.out.show(sentence)
    if found:
        call.out.show(preview_table(found, zone if zone != "UTC" else "LOCAL"))


@command(schedules, "ticks")
def ticks(call: Call, name: Name, limit: Limit = 20, cursor: Cursor = None) -> None:
    """List what became of the times of a schedule, the latest first: fired, skipped, missed, and why."""
    from headway.api.wire.plans import tick_json
    from headway.cli.plan_tables import tick_table

    with call.desk() as desk:
        one = desk.client.schedules.get(number_or_name(name))
        page = desk.client.schedules.ticks(one.id, limit=limit, cursor=cursor)
    if call.out.as_json:
        call.out.data({"items": [tick_json(tick) for tick in page.items], "next": page.next})
    elif not page.items:
        call.out.say("none of its times has come yet; a process with the role scheduler decides them: headway up")
    else:
        call.out.show(tick_table(page.items, one.parsed.timezone))
        more(call, page.next)


scheduling.register(schedules)
importing.register(schedules)
