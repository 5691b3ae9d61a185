"""Changes schedules: `schedules enable`, `disable`, `reset`, `delete`, `create`, `run`, `backfill`."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.command import Invocation, command
from headway.cli.commands.run import AppOption
from headway.cli.job_options import Resources, Target, Timeout
from headway.cli.job_selection import Yes, confirm, number_or_name

if TYPE_CHECKING:
    from headway.cli.command import Desk
    from headway.model.schedules.definition import Schedule
    from headway.store.groups.views import GroupView

NONE: list[str] = []
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name or number of the schedule.", show_default=False)]
Zone = Annotated[str, typer.Option("--timezone", metavar="ZONE", help="IANA time zone, like Europe/Berlin.")]
Pairs = Annotated[list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Params.", show_default=False)]
Params = Annotated[str | None, typer.Option(metavar="JSON|@FILE|-", help="Params as a whole; - reads stdin.")]
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def register(schedules: typer.Typer) -> None:
    @command(schedules, "enable")
    def enable(call: Invocation, name: Name) -> None:
        """Enable a schedule: it fires from now on. Times that passed while it was disabled are not made up for."""
        with call.desk() as desk:
            _answer(call, desk, desk.client.schedules.enable(number_or_name(name)), "enabled")

    @command(schedules, "disable")
    def disable(
        call: Invocation,
        name: Name,
        reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Reason to show with the schedule.")] = None,
    ) -> None:
        """Disable a schedule: it no longer fires. Existing executions continue."""
        with call.desk() as desk:
            _answer(call, desk, desk.client.schedules.disable(number_or_name(name), reason=reason), "disabled")

    @command(schedules, "reset")
    def reset(call: Invocation, name: Name) -> None:
        """Repair a schedule whose times were decided by a clock that was ahead: a copy replaces it from now on."""
        with call.desk() as desk:
            _answer(call, desk, desk.client.schedules.reset(number_or_name(name)), "reset")

    @command(schedules, "delete")
    def delete(call: Invocation, name: Name, yes: Yes = False) -> None:
        """Delete a schedule. Its executions and ticks stay; its name becomes free."""
        with call.desk() as desk:
            schedule = desk.client.schedules.get(number_or_name(name))
            confirm(f"delete the schedule {schedule.name!r}", yes=yes)
            _answer(call, desk, desk.client.schedules.delete(schedule.id), "deleted")

    @command(schedules, "create")
    def create(
        call: Invocation,
        name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new schedule.", show_default=False)],
        pairs: Pairs = None,
        cron: Annotated[
            str | None, typer.Option(metavar="CRON", help="Cron expression with five fields: '30 2 * * mon-fri'.")
        ] = None,
        interval: Annotated[str | None, typer.Option(metavar="DURATION", help="Fixed interval, like 10m.")] = None,
        at: Annotated[
            list[str], typer.Option("--time", metavar="TIME", help="Single time to fire at; may be repeated.")
        ] = NONE,
        timezone: Zone = "UTC",
        task: Annotated[str | None, typer.Option(metavar="TASK", help="Task to run.")] = None,
        template: Annotated[str | None, typer.Option(metavar="NAME", help="Template to run.")] = None,
        params: Params = None,
        target: Target = None,
        resource: Resources = NONE,
        timeout: Timeout = None,
        overlap: Annotated[
            str | None,
            typer.Option(
                metavar="skip|queue|allow|cancel_running", help="Action while an earlier execution still runs."
            ),
        ] = None,
        catch_up: Annotated[
            str | None, typer.Option(metavar="last|none|all", help="Which missed times fire after downtime.")
        ] = None,
        jitter: Annotated[
            str | None, typer.Option(metavar="DURATION", help="Fire up to this much later than the nominal time.")
        ] = None,
        note: Annotated[str | None, typer.Option(metavar="TEXT", help="Purpose of the schedule.")] = None,
        disabled: Annotated[bool, typer.Option("--disabled", help="Create the schedule disabled.")] = False,
        app: AppOption = None,
    ) -> None:
        """Create a schedule of one task or template. For several steps use `headway apply`."""
        from headway.cli import arguments
        from headway.errors import BadInput
        from headway.model.schedules.definition import Definition

        if (task is None) == (template is None):
            raise BadInput("a schedule runs one task or one template: give either --task or --template", field="task")
        wishes = {"target": target, "resources": resource or None, "timeout": timeout}
        kept = {name: wish for name, wish in wishes.items() if wish is not None}
        which = None if template is None else number_or_name(template)
        what: dict[str, object] = {"steps": [{"task": task, "template": which, **kept}]}
        if task is None and not kept:
            what = {"template": which}
        given = {"cron": cron, "interval": interval, "times": at or None, "timezone": timezone, "overlap": overlap}
        rest = {"catch_up": catch_up, "jitter": jitter, "note": note, "params": arguments.params(pairs or [], params)}
        made = Definition.parse({**given, **rest, **what})
        with call.workshop(app, task=task, resources=resource) as desk:
            _answer(call, desk, desk.client.schedules.create(name, made.facts(), enabled=not disabled), "created")

    @command(schedules, "run")
    def run(
        call: Invocation,
        name: Name,
        pairs: Pairs = None,
        params: Params = None,
        force: Annotated[bool, typer.Option("--force", help="Run even while another execution has not ended.")] = False,
        follow: Annotated[
            bool, typer.Option("--follow", "-f", help="Print the state of each step until the execution ends.")
        ] = False,
        app: AppOption = None,
    ) -> int:
        """Run a schedule now, also a disabled one: creates one execution."""
        from headway.api.schemas.groups import execution_json
        from headway.cli import arguments
        from headway.text.findings import NO_WORKER

        given = arguments.params(pairs or [], params)
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
            call.out.say(NO_WORKER.line)
        else:
            call.out.say(f"show it with `headway executions show {made}`")
        return 0

    @command(schedules, "backfill")
    def backfill(
        call: Invocation,
        name: Name,
        since: Annotated[str, typer.Option(metavar="WHEN", help="Start: 2d (ago), a day, or a time.")],
        until: Annotated[str | None, typer.Option(metavar="WHEN", help="End, itself excluded (default: now).")] = None,
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="Print the times without creating executions.")
        ] = False,
        app: AppOption = None,
    ) -> None:
        """Create executions for past times that did not fire, oldest first, one after another."""
        from headway.cli.tables.groups import local
        from headway.model.values.json import instant_text

        with call.desk(app, tasks=True) as desk:
            verbs = desk.client.schedules
            schedule = verbs.get(number_or_name(name))
            zone = schedule.parsed.timezone
            first, last = _moment(since, zone, "since"), None if until is None else _moment(until, zone, "until") - 1
            end = desk.stored_now() if last is None else last
            times = verbs.backfill(schedule.id, first, end, dry_run=True)
            made = [] if dry_run else verbs.backfill(schedule.id, first, end)
        if call.out.as_json:
            call.out.data({"times": [instant_text(at) for at in times], "executions": made})
            return
        for at in times if dry_run else ():
            call.out.show(f"{local(at, zone)} ({zone})")
        for number in made:
            call.out.show(str(number))
        if dry_run or not times:
            count = f"{len(times)} executions would be created"
            call.out.say(count if times else "nothing to backfill: every time of that period has fired")
        else:
            listing = f"`headway executions ls --schedule {schedule.id}`"
            call.out.say(f"{len(made)} executions created, which run one after another: see {listing}")


def _answer(call: Invocation, desk: Desk, schedule: Schedule, said: str) -> None:
    from headway.api.schemas.groups import in_words, schedule_json
    from headway.cli.output import visible
    from headway.cli.tables.groups import local

    if call.out.as_json:
        call.out.data(schedule_json(schedule, desk.template_numbers(schedule)))
        return
    zone = schedule.parsed.timezone
    soon = f"; next {local(schedule.next_at, zone)} ({zone})" if schedule.next_at is not None else ""
    call.out.show(f"{visible(schedule.name)} {said}: {in_words(schedule.parsed)}{soon}")


def _follow(call: Invocation, desk: Desk, execution_id: int) -> int:
    from headway.api.schemas.groups import execution_json
    from headway.cli.tables.groups import group_remedies, step_table
    from headway.text.findings import NO_WORKER

    if desk.alone():
        call.out.say(f"execution {execution_id} waits: {NO_WORKER.sentence}; {NO_WORKER.remedy.line}")
    try:
        view = _to_the_end(call, desk, execution_id)
    except KeyboardInterrupt:
        call.out.say(f"execution {execution_id} continues: headway executions show {execution_id}, or cancel")
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


def _to_the_end(call: Invocation, desk: Desk, execution_id: int) -> GroupView:
    """Prints each change of a step until the execution has ended or is held; returns its last state."""
    from headway.cli.backend.base import LOOK_SECONDS

    printed: dict[str, tuple[int, str]] = {}
    while True:
        view = desk.group(execution_id, "execution")
        for step in view.steps:
            state = (step.job_id, step.status.name)
            if printed.get(step.step) != state:
                call.out.say(f"{step.step}: job {step.job_id} {step.status.name}")
                printed[step.step] = state
        if view.group.finished_at is not None or view.held_by:
            return view
        time.sleep(LOOK_SECONDS)


def _moment(text: str, zone: str, field: str) -> int:
    """Parses a time, a duration before now, or a day in the schedule's time zone."""
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from headway.cli import arguments
    from headway.model.values.json import instant, refuse

    if _DAY.fullmatch(text):
        try:
            day = datetime.fromisoformat(text)
        except ValueError as error:
            refuse(field, f"is not a day that exists: {error}")
        return instant(day.replace(tzinfo=ZoneInfo(zone)), field=field)
    found = arguments.moment(text, field=field)
    assert found is not None
    return found
