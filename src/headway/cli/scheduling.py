"""What people do to schedules: `schedules enable`, `disable`, `delete`, `create`, `run`, `backfill`."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.call import Call, command
from headway.cli.choosing import Yes, confirm, number_or_name
from headway.cli.running import AppOption, Resources, Target, Timeout

if TYPE_CHECKING:
    from headway.cli.call import Desk
    from headway.model.schedule import Schedule
    from headway.store.plans_reading import GroupView

NONE: list[str] = []
Name = Annotated[str, typer.Argument(metavar="NAME", help="A schedule by its name or number.", show_default=False)]
Zone = Annotated[str, typer.Option("--timezone", metavar="ZONE", help="An IANA name, like Europe/Berlin.")]
Pairs = Annotated[list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Params.", show_default=False)]
Params = Annotated[str | None, typer.Option(metavar="JSON|@FILE|-", help="All params at once; - reads stdin.")]
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def register(schedules: typer.Typer) -> None:
    @command(schedules, "enable")
    def enable(call: Call, name: Name) -> None:
        """Let a schedule fire, from now on. What it did not fire meanwhile stays so."""
        with call.desk() as desk:
            _answer(call, desk, desk.client.schedules.enable(number_or_name(name)), "enabled")

    @command(schedules, "disable")
    def disable(
        call: Call,
        name: Name,
        reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for those who look.")] = None,
    ) -> None:
        """Let a schedule fire no more. Executions that exist go on."""
        with call.desk() as desk:
            _answer(call, desk, desk.client.schedules.disable(number_or_name(name), reason=reason), "disabled")

    @command(schedules, "delete")
    def delete(call: Call, name: Name, yes: Yes = False) -> None:
        """Delete a schedule. Its executions and what became of its times stay; its name is free again."""
        with call.desk() as desk:
            one = desk.client.schedules.get(number_or_name(name))
            confirm(f"delete the schedule {one.name!r}", yes=yes)
            _answer(call, desk, desk.client.schedules.delete(one.id), "deleted")

    @command(schedules, "create")
    def create(
        call: Call,
        name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.", show_default=False)],
        pairs: Pairs = None,
        cron: Annotated[str | None, typer.Option(metavar="CRON", help="Five fields: '30 2 * * mon-fri'.")] = None,
        interval: Annotated[str | None, typer.Option(metavar="DURATION", help="Every so often, like 10m.")] = None,
        at: Annotated[list[str], typer.Option("--time", metavar="TIME", help="At this time; may be repeated.")] = NONE,
        timezone: Zone = "UTC",
        task: Annotated[str | None, typer.Option(metavar="TASK", help="The task it runs.")] = None,
        template: Annotated[str | None, typer.Option(metavar="NAME", help="The template it runs.")] = None,
        params: Params = None,
        target: Target = None,
        resource: Resources = NONE,
        timeout: Timeout = None,
        overlap: Annotated[
            str | None, typer.Option(metavar="skip|queue|allow|cancel_running", help="While the last one still runs.")
        ] = None,
        catch_up: Annotated[
            str | None, typer.Option(metavar="last|none|all", help="What to do about times that were missed.")
        ] = None,
        jitter: Annotated[str | None, typer.Option(metavar="DURATION", help="Fire up to this much later.")] = None,
        note: Annotated[str | None, typer.Option(metavar="TEXT", help="What it is for.")] = None,
        disabled: Annotated[bool, typer.Option("--disabled", help="Do not let it fire yet.")] = False,
        app: AppOption = None,
    ) -> None:
        """Make a schedule of one task or template. For several steps write a file: headway apply."""
        from headway.cli import parsing
        from headway.errors import BadInput
        from headway.model.schedule import Definition

        if (task is None) == (template is None):
            raise BadInput("say what it runs: --task or --template, and not both", field="task")
        wishes = {"target": target, "resources": resource or None, "timeout": timeout}
        kept = {name: wish for name, wish in wishes.items() if wish is not None}
        which = None if template is None else number_or_name(template)
        what: dict[str, object] = {"steps": [{"task": task, "template": which, **kept}]}
        if task is None and not kept:
            what = {"template": which}
        given = {"cron": cron, "interval": interval, "times": at or None, "timezone": timezone, "overlap": overlap}
        rest = {"catch_up": catch_up, "jitter": jitter, "note": note, "params": parsing.params(pairs or [], params)}
        made = Definition.parse({**given, **rest, **what})
        with call.workshop(app, task=task, resources=resource) as desk:
            _answer(call, desk, desk.client.schedules.create(name, made.facts(), enabled=not disabled), "made")

    @command(schedules, "run")
    def run(
        call: Call,
        name: Name,
        pairs: Pairs = None,
        params: Params = None,
        force: Annotated[bool, typer.Option("--force", help="Even if one of its executions has not ended.")] = False,
        follow: Annotated[bool, typer.Option("--follow", "-f", help="Tell what its steps do until it ends.")] = False,
        app: AppOption = None,
    ) -> int:
        """Make an execution of a schedule now, also of a disabled one."""
        from headway.api.wire.plans import execution_json
        from headway.cli import parsing

        given = parsing.params(pairs or [], params)
        with call.desk(app, tasks=True) as desk:
            made = desk.client.schedules.run(number_or_name(name), force, given)
            if follow:
                return _follow(call, desk, made)
            view, alone = desk.group(made, "execution"), desk.alone()
        if call.out.as_json:
            call.out.data(execution_json(view, steps=True))
            return 0
        call.out.show(str(made))
        if alone:
            call.out.say("no worker is alive: start one with `headway work`, or `headway up`")
        else:
            call.out.say(f"see it with `headway executions show {made}`")
        return 0

    @command(schedules, "backfill")
    def backfill(
        call: Call,
        name: Name,
        since: Annotated[str, typer.Option(metavar="WHEN", help="From: 2d (ago), a day, or a time.")],
        until: Annotated[str | None, typer.Option(metavar="WHEN", help="Before this; up to now if not given.")] = None,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which times it would be.")] = False,
        app: AppOption = None,
    ) -> None:
        """Make executions for past times that did not fire, oldest first, one after another."""
        from headway.cli.plan_tables import local
        from headway.model.values import instant_text

        with call.desk(app, tasks=True) as desk:
            verbs = desk.client.schedules
            one = verbs.get(number_or_name(name))
            zone = one.parsed.timezone
            first, last = _moment(since, zone, "since"), None if until is None else _moment(until, zone, "until") - 1
            end = desk.stored_now() if last is None else last
            times = verbs.backfill(one.id, first, end, dry_run=True)
            made = [] if dry_run else verbs.backfill(one.id, first, end)
        if call.out.as_json:
            call.out.data({"times": [instant_text(at) for at in times], "executions": made})
            return
        for at in times if dry_run else ():
            call.out.show(f"{local(at, zone)} ({zone})")
        for number in made:
            call.out.show(str(number))
        if dry_run or not times:
            what = (
                f"{len(times)} executions would be made" if times else "nothing to make up for: every time there fired"
            )
            call.out.say(what)
        else:
            call.out.say(f"{len(made)} executions, one after another: headway executions ls --schedule {one.id}")


def _answer(call: Call, desk: Desk, one: Schedule, said: str) -> None:
    from headway.api.wire.plans import in_words, schedule_json
    from headway.cli.out import visible
    from headway.cli.plan_tables import local

    if call.out.as_json:
        call.out.data(schedule_json(one, desk.template_numbers(one)))
        return
    zone = one.parsed.timezone
    soon = f"; next {local(one.next_at, zone)} ({zone})" if one.next_at is not None else ""
    call.out.show(f"{visible(one.name)} {said}: {in_words(one.parsed)}{soon}")


def _follow(call: Call, desk: Desk, execution_id: int) -> int:
    from headway.api.wire.plans import execution_json
    from headway.cli.plan_tables import group_remedies, step_table

    if desk.alone():
        call.out.say(f"execution {execution_id} waits: no worker is alive. Start one: headway work")
    try:
        view = _to_the_end(call, desk, execution_id)
    except KeyboardInterrupt:
        call.out.say(f"execution {execution_id} goes on: headway executions show {execution_id}, or cancel")
        return 130
    group = view.group
    if call.out.as_json:
        call.out.data(execution_json(view, steps=True))
    else:
        call.out.show(step_table(view, desk.now()))
    call.out.say(f"execution {group.id} {group.status}" + (f": {group.error}" if group.error else ""))
    for line in group_remedies(view):
        call.out.say(line)
    return 0 if group.status == "COMPLETED" else 1


def _to_the_end(call: Call, desk: Desk, execution_id: int) -> GroupView:
    """Tells what its steps do, until it has ended or waits for a person."""
    from headway.cli.asking import LOOK_SECONDS

    said: dict[str, tuple[int, str]] = {}
    while True:
        view = desk.group(execution_id, "execution")
        for step in view.steps:
            stands = (step.job_id, step.status.name)
            if said.get(step.step) != stands:
                call.out.say(f"{step.step}: job {step.job_id} {step.status.name}")
                said[step.step] = stands
        if view.group.finished_at is not None or view.held_by:
            return view
        time.sleep(LOOK_SECONDS)


def _moment(text: str, zone: str, field: str) -> int:
    """A day is one of the schedule's zone."""
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from headway.cli import parsing
    from headway.model.values import instant, refuse

    if _DAY.fullmatch(text):
        try:
            day = datetime.fromisoformat(text)
        except ValueError as error:
            refuse(field, f"is not a day that exists: {error}")
        return instant(day.replace(tzinfo=ZoneInfo(zone)), field=field)
    found = parsing.moment(text, field=field)
    assert found is not None
    return found
