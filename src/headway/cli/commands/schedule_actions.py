"""Changes schedules: `schedules enable`, `disable`, `reset`, `delete`, `create`, `edit`, `run`, `backfill`."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.command import Invocation, command
from headway.cli.commands.run import AppOption
from headway.cli.job_options import Resources, Target, Timeout
from headway.cli.job_selection import Yes, confirm, number_or_name

if TYPE_CHECKING:
    from headway.cli.backend.base import Backend
    from headway.cli.output import Json

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
        with call.backend() as backend:
            _answer(call, backend.schedules.enable(number_or_name(name)), "enabled")

    @command(schedules, "disable")
    def disable(
        call: Invocation,
        name: Name,
        reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Reason to show with the schedule.")] = None,
    ) -> None:
        """Disable a schedule: it no longer fires. Existing executions continue."""
        with call.backend() as backend:
            _answer(call, backend.schedules.disable(number_or_name(name), reason=reason), "disabled")

    @command(schedules, "reset")
    def reset(call: Invocation, name: Name) -> None:
        """Repair a schedule whose times were decided by a clock that was ahead: a copy replaces it from now on."""
        with call.backend() as backend:
            _answer(call, backend.schedules.reset(number_or_name(name)), "reset")

    @command(schedules, "seen")
    def seen(
        call: Invocation,
        name: Annotated[
            str | None, typer.Argument(metavar="NAME", help="Name or number of the schedule.", show_default=False)
        ] = None,
        every: Annotated[bool, typer.Option("--all", help="All schedules of the tenant.")] = False,
    ) -> None:
        """Mark the missed ticks of a schedule as seen: `status`, `doctor` and the Health page no longer report them."""
        from headway.cli.output import visible
        from headway.errors import BadInput

        if (name is None) != every:
            raise BadInput("give either the NAME of a schedule or --all", field="name")
        with call.backend() as backend:
            marked = [backend.schedules.see(number_or_name(name))] if name is not None else _see_all(backend)
        call.out.answer(
            {"items": marked, "next": None},
            lambda: [f"{visible(schedule['name'])}: its missed ticks are marked as seen" for schedule in marked],
            notes=[] if marked else ["no tick was missed that was not seen before"],
        )

    @command(schedules, "delete")
    def delete(call: Invocation, name: Name, yes: Yes = False) -> None:
        """Delete a schedule. Its executions and ticks stay; its name becomes free."""
        with call.backend() as backend:
            schedule = backend.schedules.get(number_or_name(name))
            confirm(f"delete the schedule {schedule['name']!r}", yes=yes)
            _answer(call, backend.schedules.delete(schedule["schedule_id"]), "deleted")

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
        options = {"target": target, "resources": resource or None, "timeout": timeout}
        kept = {name: option for name, option in options.items() if option is not None}
        which = None if template is None else number_or_name(template)
        what: dict[str, object] = {"steps": [{"task": task, "template": which, **kept}]}
        if task is None and not kept:
            what = {"template": which}
        given = {"cron": cron, "interval": interval, "times": at or None, "timezone": timezone, "overlap": overlap}
        rest = {"catch_up": catch_up, "jitter": jitter, "note": note, "params": arguments.params(pairs or [], params)}
        made = Definition.parse({**given, **rest, **what})
        with call.new_backend(app, task=task, resources=resource) as backend:
            _answer(call, backend.schedules.create(name, made.facts(), enabled=not disabled), "created")

    @command(schedules, "edit")
    def edit(
        call: Invocation,
        name: Name,
        pairs: Pairs = None,
        rename: Annotated[str | None, typer.Option(metavar="NAME", help="New name of the schedule.")] = None,
        cron: Annotated[str | None, typer.Option(metavar="CRON", help="New cron expression.")] = None,
        interval: Annotated[str | None, typer.Option(metavar="DURATION", help="New interval, like 10m.")] = None,
        timezone: Annotated[str | None, typer.Option(metavar="ZONE", help="New IANA time zone.")] = None,
        template: Annotated[str | None, typer.Option(metavar="NAME", help="Template to run from now on.")] = None,
        params: Params = None,
        overlap: Annotated[
            str | None, typer.Option(metavar="skip|queue|allow|cancel_running", help="New rule for overlap.")
        ] = None,
        catch_up: Annotated[
            str | None, typer.Option(metavar="last|none|all", help="New rule for missed times.")
        ] = None,
        jitter: Annotated[str | None, typer.Option(metavar="DURATION|none", help="New jitter.")] = None,
        start: Annotated[str | None, typer.Option(metavar="TIME|none", help="No tick before this time.")] = None,
        end: Annotated[str | None, typer.Option(metavar="TIME|none", help="No tick after this time.")] = None,
        note: Annotated[str | None, typer.Option(metavar="TEXT|none", help="New purpose of the schedule.")] = None,
        app: AppOption = None,
    ) -> None:
        """Change fields of a schedule; the others stay. Existing executions stay. For steps use `headway apply`."""
        from headway.cli import arguments
        from headway.errors import BadInput

        def cleared(text: str | None) -> dict[str, None]:
            return {} if text is None else {text: None}

        changes: dict[str, object] = {"cron": cron, "interval": interval, "timezone": timezone, "overlap": overlap}
        changes |= {"catch_up": catch_up, "name": rename}
        changes |= {"template": None if template is None else number_or_name(template)}
        changes = {field: value for field, value in changes.items() if value is not None}
        removable = {"jitter": jitter, "start": start, "end": end, "note": note}
        changes |= {field: None if text == "none" else text for field, text in removable.items() if text is not None}
        # A schedule has one kind of time, and either a template or steps.
        changes |= cleared("interval" if cron is not None else "cron" if interval is not None else None)
        changes |= cleared("times" if cron is not None or interval is not None else None)
        changes |= cleared("steps" if template is not None else None)
        if pairs or params is not None:
            changes["params"] = arguments.params(pairs or [], params)
        if not changes:
            raise BadInput("no change given", hint="give an option such as --cron or --note", field="cron")
        with call.backend(app, tasks=True) as backend:
            _answer(call, backend.schedules.edit(number_or_name(name), changes), "changed")

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
        from headway.cli import arguments
        from headway.text.findings import NO_WORKER

        given = arguments.params(pairs or [], params)
        with call.backend(app, tasks=True) as backend:
            made = backend.schedules.run(number_or_name(name), force=force, params=given)
            number = made["execution_id"]
            if follow:
                return _follow(call, backend, number)
            alone = backend.alone()
        look = f"show it with `headway executions show {number}`"
        call.out.answer(made, lambda: [str(number)], notes=[NO_WORKER.line if alone else look])
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
        with call.backend(app, tasks=True) as backend:
            schedule = backend.schedules.get(number_or_name(name))
            number, zone = schedule["schedule_id"], schedule["timezone"]
            first, last = _moment(since, zone, "since"), None if until is None else _moment(until, zone, "until") - 1
            end = backend.stored_now() if last is None else last
            done = backend.schedules.backfill(number, first, end, dry_run=dry_run)
        call.out.answer(
            done,
            lambda: _times(done["times"], zone) if dry_run else map(str, done["executions"]),
            notes=[_backfilled(done, number, dry_run=dry_run)],
        )


def _see_all(backend: Backend) -> list[Json]:
    """Marks the missed ticks of every schedule; the overview lists some of them at a time."""
    marked: list[Json] = []
    while unseen := backend.overview(listed=1)["missed_ticks"]:
        marked += [backend.schedules.see(missed["schedule_id"]) for missed in unseen]
    return marked


def _times(times: Sequence[str], zone: str) -> list[str]:
    from headway.cli.tables.times import local

    return [f"{local(at, zone)} ({zone})" for at in times]


def _backfilled(done: Json, number: int, *, dry_run: bool) -> str:
    if not done["times"]:
        return "nothing to backfill: every time of that period has fired"
    if dry_run:
        return f"{len(done['times'])} executions would be created"
    listing = f"`headway executions ls --schedule {number}`"
    return f"{len(done['executions'])} executions created, which run one after another: see {listing}"


def _answer(call: Invocation, schedule: Json, outcome: str) -> None:
    from headway.cli.output import visible
    from headway.cli.tables.times import local

    zone, then = schedule["timezone"], schedule["next_run_at"]
    soon = f"; next {local(then, zone)} ({zone})" if then is not None else ""
    call.out.answer(schedule, lambda: [f"{visible(schedule['name'])} {outcome}: {schedule['sentence']}{soon}"])


def _follow(call: Invocation, backend: Backend, number: int) -> int:
    from headway.cli.tables.groups import group_remedies, step_table
    from headway.text.findings import NO_WORKER

    if backend.alone():
        call.out.say(f"execution {number} waits: {NO_WORKER.sentence}; {NO_WORKER.remedy.line}")
    try:
        execution = _to_the_end(call, backend, number)
    except KeyboardInterrupt:
        call.out.say(f"execution {number} continues: headway executions show {number}, or cancel")
        return 130
    call.out.answer(execution, lambda: [step_table(execution, backend.now())])
    status, error = execution["status"], execution["error"]
    call.out.say(f"execution {number} {status}" + (f": {error}" if error else ""))
    for line in group_remedies(execution):
        call.out.say(line)
    return 0 if status == "COMPLETED" else 1


def _to_the_end(call: Invocation, backend: Backend, number: int) -> Json:
    """Prints each change of a step until the execution has ended or is held; returns its last state."""
    from headway.cli.backend.base import LOOK_SECONDS

    printed: dict[str, tuple[int, str]] = {}
    while True:
        execution = backend.executions.get(number)
        for step in execution["steps"]:
            state = (step["job_id"], step["status"])
            if printed.get(step["step"]) != state:
                call.out.say(f"{step['step']}: job {step['job_id']} {step['status']}")
                printed[step["step"]] = state
        if execution["finished_at"] is not None or execution["held_by"]:
            return execution
        time.sleep(LOOK_SECONDS)


def _moment(text: str, zone: str, field: str) -> int:
    """Parses a time, a duration before now, or a day in the schedule's time zone."""
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from headway.cli import arguments
    from headway.model.values.refuse import refuse
    from headway.model.values.times import instant

    if _DAY.fullmatch(text):
        try:
            day = datetime.fromisoformat(text)
        except ValueError as error:
            refuse(field, f"is not a day that exists: {error}")
        return instant(day.replace(tzinfo=ZoneInfo(zone)), field=field)
    found = arguments.moment(text, field=field)
    assert found is not None
    return found
