"""Shows and retries runs, the records of executed jobs: `runs ls`, `show`, `retry`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import typer

from headway.cli.command import Invocation, command, family
from headway.cli.commands.jobs import Cursor, Limit
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
    from headway.cli.tables.jobs import run_table

    empty = ["no run matches: a job gets its run when a worker starts it (`headway work`)"]
    wanted = filters.parse()
    with call.backend() as backend:
        page, now = backend.jobs.runs(filters.of_schedule(backend, wanted), limit, cursor), backend.now()
    call.out.page(page, lambda found: run_table(found, now), empty=empty)


@command(runs, "show")
def show(call: Invocation, run_id: Id) -> None:
    """Show a run with its params, times, and result or error."""
    from headway.cli.tables.jobs import run_page

    with call.backend() as backend:
        run, now = backend.jobs.run(run_id), backend.now()
    call.out.answer(run, lambda: [run_page(run, now)])


@command(runs, "retry")
def retry(call: Invocation, run_id: Id) -> int:
    """Retry a run with its params, as a new job."""
    with call.backend() as backend:
        return apply(call, backend, [run_id], backend.jobs.retry, "is the retry")
