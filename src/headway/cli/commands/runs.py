"""Shows and retries runs, the records of executed jobs: `runs ls`, `show`, `retry`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import typer

from headway.cli.command import Invocation, command, family
from headway.cli.commands.jobs import Cursor, Limit, more
from headway.cli.job_selection import LARGEST, JobFilterOptions, apply

runs = family("List and retry runs, the records of executed jobs.")
Id = Annotated[int, typer.Argument(metavar="ID", help="Run number, equal to the job number.", min=1, max=LARGEST)]


@dataclass(frozen=True)
class RunFilterOptions(JobFilterOptions):
    """The options that filter runs."""

    status: Annotated[
        list[str],
        typer.Option("--status", metavar="STATUS", help="COMPLETED, FAILED, SKIPPED, or RUNNING for open runs."),
    ] = field(default_factory=list)
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help="Only runs started since: 2h (ago), a day, or a time.")
    ] = None
    until: Annotated[str | None, typer.Option("--until", metavar="WHEN", help="Only runs started before.")] = None


@command(runs, "ls")
def ls(
    call: Invocation,
    filters: RunFilterOptions,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> None:
    """List runs, the run of the newest job first."""
    from headway.api.schemas.jobs import run_json
    from headway.cli.tables.jobs import run_table

    wanted = filters.parse()
    with call.desk() as desk:
        page = desk.list_runs(filters.of_schedule(desk, wanted), limit, cursor)
        now = desk.now()
    if call.out.as_json:
        call.out.data({"items": [run_json(run) for run in page.items], "next": page.next})
    elif not page.items:
        call.out.say("no run matches: a job gets its run when a worker starts it (`headway work`)")
    else:
        call.out.show(run_table(page.items, now))
        more(call, page.next)


@command(runs, "show")
def show(call: Invocation, run_id: Id) -> None:
    """Show a run with its params, times, and result or error."""
    from headway.api.schemas.jobs import run_json
    from headway.cli.tables.jobs import run_page

    with call.desk() as desk:
        run = desk.run(run_id)
        now = desk.now()
    if call.out.as_json:
        call.out.data(run_json(run))
    else:
        call.out.show(run_page(run, now))


@command(runs, "retry")
def retry(call: Invocation, run_id: Id) -> int:
    """Retry a run with its params, as a new job."""
    with call.desk() as desk:
        return apply(call, desk, [run_id], desk.client.retry, "is the retry")
