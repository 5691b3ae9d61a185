"""Selects the jobs of a verb: by number, or by filter after a confirmation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.command import Invocation, OptionGroup
from headway.cli.output import one_line, visible

if TYPE_CHECKING:
    from headway.cli.backend.base import Backend
    from headway.cli.output import Json
    from headway.errors import HeadwayError
    from headway.model.jobs.filter import JobFilter

LARGEST = 2**63 - 1


def job_number(text: str) -> int:
    """Parses a job number."""
    if text.isascii() and text.isdigit() and len(text) <= len(str(LARGEST)) and 1 <= int(text) <= LARGEST:
        return int(text)
    shown = text if len(text) <= 40 else f"{text[:20]}…"
    raise typer.BadParameter(f"{shown} is not a job number: give one like 12, from `headway jobs ls`")


def number_or_pair(text: str) -> str:
    """Accepts a job number, or a param as name=value."""
    return text if "=" in text else str(job_number(text))


Id = Annotated[int, typer.Argument(metavar="ID", help="Job number.", parser=job_number)]
Ids = Annotated[
    list[int] | None, typer.Argument(metavar="ID", help="Job numbers.", show_default=False, parser=job_number)
]
ScheduleName = Annotated[str | None, typer.Option("--schedule", metavar="NAME", help="Only of this schedule.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@dataclass(frozen=True)
class JobFilterOptions(OptionGroup):
    """The options that filter jobs."""

    status: Annotated[
        list[str], typer.Option("--status", metavar="STATUS", help="Only jobs in this state; may be repeated.")
    ] = field(default_factory=list)
    task: Annotated[str | None, typer.Option("--task", metavar="TASK", help="Only jobs of this task.")] = None
    key: Annotated[str | None, typer.Option("--key", metavar="TEXT", help="Only jobs with this key.")] = None
    kind: Annotated[
        str | None,
        typer.Option("--failure-kind", metavar="KIND", help="Only jobs with this failure kind, like TIMEOUT."),
    ] = None
    by: Annotated[
        str | None,
        typer.Option("--created-by", metavar="NAME", help="Only jobs that this user, token or worker created."),
    ] = None
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help="Only jobs created since: 2h (ago), a day, or a time.")
    ] = None
    until: Annotated[str | None, typer.Option("--until", metavar="WHEN", help="Only jobs created before.")] = None
    search: Annotated[
        str | None,
        typer.Option("--search", "-q", metavar="TEXT", help="Only jobs with this text in task, key, reason or error."),
    ] = None
    target: Annotated[str | None, typer.Option("--target", metavar="NAME", help="Only jobs on this target.")] = None
    group: Annotated[
        int | None,
        typer.Option(
            "--group",
            metavar="ID",
            help="Only jobs of this group or execution.",
            min=1,
            max=LARGEST,
            show_default=False,
        ),
    ] = None
    schedule: ScheduleName = None
    exhausted: Annotated[
        bool, typer.Option("--exhausted", help="Only jobs that failed and get no automatic retry.")
    ] = False

    @property
    def given(self) -> bool:
        """True if any of the options is given."""
        return any(vars(self).values())

    def parse(self) -> JobFilter:
        """Checks the options; returns the filter without the schedule."""
        from headway.cli import arguments
        from headway.model.jobs.filter import JobFilter

        asked = {
            "status": self.status,
            "task": self.task,
            "key": self.key,
            "failure_kind": self.kind,
            "created_by": self.by,
            "since": arguments.moment(self.since, field="since"),
            "until": arguments.moment(self.until, field="until"),
            "q": self.search,
            "target": self.target,
            "group_id": self.group,
            "exhausted": self.exhausted or None,
        }
        return JobFilter.from_query(asked, labels={"status": "--status", "failure_kind": "--failure-kind"})

    def of_schedule(self, backend: Backend, wanted: JobFilter) -> JobFilter:
        """Restricts the filter to the executions of the schedule.

        A deleted schedule is found by its number only.
        """
        if self.schedule is None:
            return wanted
        return replace(wanted, schedule_id=schedule_number(backend, self.schedule))


def choose(
    call: Invocation, backend: Backend, verb: str, ids: Sequence[int], filters: JobFilterOptions, *, yes: bool
) -> list[int]:
    """Returns the jobs of a verb, by number or by filter.

    A filter without --status selects the jobs whose state allows the verb. A filter asks for confirmation.
    """
    from headway.errors import BadInput
    from headway.model.jobs.states import MOVES, State, Verb

    wanted = filters.of_schedule(backend, filters.parse())
    if ids and filters.given:
        raise BadInput(f"name jobs by number or by filter, not both: see `headway jobs {verb} --help`")
    if not ids and not filters.given:
        raise BadInput(
            f"no jobs given: name them by number (`headway jobs {verb} 12`), or by --status, --task, --since"
        )
    if ids:
        return list(dict.fromkeys(ids))
    if not wanted.statuses:
        # A cancelled, PAUSED or ERROR job is retried by number or with --status only.
        usual = {State.FAILED} if verb == "retry" else MOVES[Verb(verb)]
        wanted = replace(wanted, statuses=frozenset(usual))
    chosen = backend.jobs.numbers(wanted, unretried=verb == "retry")  # a job that has a retry is left out
    if not chosen:
        call.out.say("no job matches: nothing was changed")
    else:
        confirm(f"{verb} {len(chosen)} job{'s' if len(chosen) != 1 else ''}", yes=yes)
    return chosen


def number_or_name(text: str) -> int | str:
    """Parses the name of a schedule or template; digits are its number."""
    from headway.errors import BadInput

    if not (text.isascii() and text.isdigit()):
        return text
    if len(text) > len(str(LARGEST)) or int(text) > LARGEST:
        shown = text if len(text) <= 40 else f"{text[:20]}…"
        raise BadInput(f"{shown} is larger than the largest number, {LARGEST}: check the number")
    return int(text)


def schedule_number(backend: Backend, text: str) -> int:
    """Returns the number of a schedule; looks a name up."""
    which = number_or_name(text)
    return which if isinstance(which, int) else int(backend.schedules.get(which)["schedule_id"])


def confirm(what: str, *, yes: bool) -> None:
    """Asks for confirmation, unless `yes` is given; raises `Refused` if the answer is no."""
    from headway.errors import BadInput, Refused

    if yes:
        return
    if not sys.stdin.isatty():
        raise BadInput(f"this would {what}: add --yes to do it")
    print(f"{visible(what)}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refused("nothing was changed")


def apply(call: Invocation, backend: Backend, ids: Sequence[int], change: Callable[[int], int], outcome: str) -> int:
    """Applies a change to each job and prints the outcome; returns the highest exit code of the refusals.

    With a single job its refusal is raised instead.
    """
    from headway.cli.main import code_of
    from headway.errors import HeadwayError, Unreachable

    done: list[int] = []
    refused: list[HeadwayError] = []
    for job_id in ids:
        try:
            done.append(change(job_id))
        except Unreachable:
            raise
        except HeadwayError as error:
            if len(ids) == 1:
                raise
            refused.append(error)
    _answer(call, backend, done, refused, outcome)
    return max(map(code_of, refused), default=0)


def _answer(
    call: Invocation, backend: Backend, done: Sequence[int], refused: Sequence[HeadwayError], outcome: str
) -> None:
    changed = backend.jobs.many(done)
    if not call.out.as_json:
        for error in refused:
            call.out.say(f"headway: {one_line(str(error))}")
    errors = [{"code": error.code, "message": str(error)} for error in refused]
    call.out.answer(
        {"items": changed, "errors": errors, "next": None}, lambda: [_outcome(job, outcome) for job in changed]
    )


def _outcome(job: Json, outcome: str) -> str:
    name, status = f"job {job['job_id']}", job["status"]
    reason = f" ({one_line(job['reason'])})" if job["reason"] else ""
    if job["stop_requested"]:  # the stop request is stored, and the worker has not acted on it yet
        return f"{name} was asked to stop: still {status}{reason}"
    return f"{name} {outcome}: now {status}{reason}"
