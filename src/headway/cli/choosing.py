"""Which jobs a verb means: those named by number, or all that a filter finds, after asking."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.call import Call
from headway.cli.out import one_line

if TYPE_CHECKING:
    from headway.cli.call import Desk
    from headway.errors import HeadwayError
    from headway.store.pages import Filters

LARGEST = 2**63 - 1


def job_number(text: str) -> int:
    """A job as people name it."""
    if text.isascii() and text.isdigit() and len(text) <= len(str(LARGEST)) and 1 <= int(text) <= LARGEST:
        return int(text)
    shown = text if len(text) <= 40 else f"{text[:20]}…"
    raise typer.BadParameter(f"{shown} is no job number: give one like 12, from `headway jobs ls`")


def number_or_pair(text: str) -> str:
    """A job, or a param to set."""
    return text if "=" in text else str(job_number(text))


Id = Annotated[int, typer.Argument(metavar="ID", help="A job by its number.", parser=job_number)]
Ids = Annotated[
    list[int] | None, typer.Argument(metavar="ID", help="Jobs by number.", show_default=False, parser=job_number)
]
Status = Annotated[list[str], typer.Option("--status", metavar="STATUS", help="In this state; may be repeated.")]
TaskName = Annotated[str | None, typer.Option("--task", metavar="TASK", help="Of this task.")]
Key = Annotated[str | None, typer.Option("--key", metavar="TEXT", help="With this key.")]
Kind = Annotated[str | None, typer.Option("--failure-kind", metavar="KIND", help="Failed this way, like TIMEOUT.")]
By = Annotated[str | None, typer.Option("--created-by", metavar="NAME", help="Made by this user, token or worker.")]
Since = Annotated[str | None, typer.Option("--since", metavar="WHEN", help="Made since: 2h (ago), a day, or a time.")]
Until = Annotated[str | None, typer.Option("--until", metavar="WHEN", help="Made before.")]
Search = Annotated[str | None, typer.Option("--search", "-q", metavar="TEXT", help="In task, key, reason or error.")]
TargetName = Annotated[str | None, typer.Option("--target", metavar="NAME", help="On this target.")]
GroupNumber = Annotated[
    int | None,
    typer.Option("--group", metavar="ID", help="Of this group or execution.", min=1, max=LARGEST, show_default=False),
]
ScheduleName = Annotated[str | None, typer.Option("--schedule", metavar="NAME", help="Of this schedule's executions.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def choose(call: Call, desk: Desk, verb: str, ids: Sequence[int], given: dict[str, Any], *, yes: bool) -> list[int]:
    """The jobs a verb is for. A filter alone takes those whose state allows the verb, after a question."""
    from headway.cli import parsing
    from headway.errors import BadInput
    from headway.model.states import MOVES, State, Verb

    schedule = given.pop("schedule", None)
    wanted = of_schedule(desk, parsing.filters(**given), schedule)
    filtered = any(given.values()) or schedule is not None
    if ids and filtered:
        raise BadInput(f"name jobs by number or by filter, not both: see `headway jobs {verb} --help`")
    if not ids and not filtered:
        raise BadInput(f"which jobs? Name them by number, or by --status, --task or --since: `headway jobs {verb} 12`")
    if ids:
        return list(dict.fromkeys(ids))
    if not wanted.statuses:
        # What was cancelled, or waits for a person, is retried by number or by --status only.
        usual = {State.FAILED} if verb == "retry" else MOVES[Verb(verb)]
        wanted = replace(wanted, statuses=frozenset(usual))
    found = desk.job_ids(wanted, unretried=verb == "retry")  # one that was retried is left to its retry
    if not found:
        call.out.say("no job fits: nothing was changed")
    else:
        confirm(f"{verb} {len(found)} job{'s' if len(found) != 1 else ''}", yes=yes)
    return found


def of_schedule(desk: Desk, wanted: Filters, schedule: str | None) -> Filters:
    """With the executions of a schedule, by its name; by its number also those of one that was deleted."""
    if schedule is None:
        return wanted
    which = number_or_name(schedule)
    return replace(wanted, schedule_id=which if isinstance(which, int) else desk.client.schedules.get(which).id)


def number_or_name(text: str) -> int | str:
    """How schedules and templates are named: digits are a number."""
    from headway.errors import BadInput

    if not (text.isascii() and text.isdigit()):
        return text
    if len(text) > len(str(LARGEST)) or int(text) > LARGEST:
        shown = text if len(text) <= 40 else f"{text[:20]}…"
        raise BadInput(f"{shown} is read as a number, and numbers end at {LARGEST}: is it the right one?")
    return int(text)


def confirm(what: str, *, yes: bool) -> None:
    """Asks, unless the answer was given."""
    from headway.errors import BadInput, Refused

    if yes:
        return
    if not sys.stdin.isatty():
        raise BadInput(f"this would {what}: add --yes to do it")
    print(f"{what}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refused("nothing was changed")


def apply(call: Call, desk: Desk, ids: Sequence[int], change: Callable[[int], Any], said: str) -> int:
    """Does it to each. One job's refusal is its own error; of many, each is told and the last counts."""
    from headway.cli.main import code_of
    from headway.errors import HeadwayError, Unreachable

    done: list[int] = []
    refused: list[HeadwayError] = []
    for job_id in ids:
        try:
            done.append(change(job_id).id)
        except Unreachable:
            raise
        except HeadwayError as error:
            if len(ids) == 1:
                raise
            refused.append(error)
    _answer(call, desk, done, refused, said)
    return max(map(code_of, refused), default=0)


def _answer(call: Call, desk: Desk, done: Sequence[int], refused: Sequence[HeadwayError], said: str) -> None:
    from headway.api.wire.jobs import job_json

    views = desk.views(done)
    if call.out.as_json:
        errors = [{"code": error.code, "message": str(error)} for error in refused]
        call.out.data({"items": [job_json(view) for view in views], "errors": errors, "next": None})
        return
    for error in refused:
        call.out.say(f"headway: {one_line(str(error))}")
    for view in views:
        reason = f" ({one_line(view.job.reason)})" if view.job.reason else ""
        if view.job.stop:  # the work was asked, and has yet to answer
            call.out.show(f"job {view.job.id} was asked to stop: still {view.job.status.name}{reason}")
        else:
            call.out.show(f"job {view.job.id} {said}: now {view.job.status.name}{reason}")
