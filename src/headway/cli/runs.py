"""Runs, the records of what was executed: `runs ls`, `show`, `retry`."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.call import Call, command, family
from headway.cli.choosing import (
    LARGEST,
    By,
    GroupNumber,
    Key,
    Kind,
    ScheduleName,
    Search,
    TargetName,
    TaskName,
    apply,
    of_schedule,
)
from headway.cli.jobs import NONE, Cursor, Limit, more

runs = family("Look at runs, the records of what was executed.")
Id = Annotated[int, typer.Argument(metavar="ID", help="A run: it has its job's number.", min=1, max=LARGEST)]
Status = Annotated[
    list[str],
    typer.Option("--status", metavar="STATUS", help="COMPLETED, FAILED, SKIPPED, or RUNNING while it is open."),
]
Since = Annotated[
    str | None, typer.Option("--since", metavar="WHEN", help="Started since: 2h (ago), a day, or a time.")
]
Until = Annotated[str | None, typer.Option("--until", metavar="WHEN", help="Started before.")]


@command(runs, "ls")
def ls(
    call: Call,
    status: Status = NONE,
    task: TaskName = None,
    key: Key = None,
    kind: Kind = None,
    by: By = None,
    since: Since = None,
    until: Until = None,
    search: Search = None,
    target: TargetName = None,
    group: GroupNumber = None,
    schedule: ScheduleName = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> None:
    """List runs, those of the newest jobs first."""
    from headway.api.wire.jobs import run_json
    from headway.cli import parsing
    from headway.cli.tables import run_table

    wanted = parsing.filters(status, task, key, kind, by, since, until, search, target, group)
    with call.desk() as desk:
        page = desk.list_runs(of_schedule(desk, wanted, schedule), limit, cursor)
        now = desk.now()
    if call.out.as_json:
        call.out.data({"items": [run_json(run) for run in page.items], "next": page.next})
    elif not page.items:
        call.out.say("no run fits: jobs get a run when a worker starts them (headway work)")
    else:
        call.out.show(run_table(page.items, now))
        more(call, page.next)


@command(runs, "show")
def show(call: Call, run_id: Id) -> None:
    """Show a run: its params, times, result or error."""
    from headway.api.wire.jobs import run_json
    from headway.cli.tables import run_page

    with call.desk() as desk:
        run = desk.run(run_id)
        now = desk.now()
    if call.out.as_json:
        call.out.data(run_json(run))
    else:
        call.out.show(run_page(run, now))


@command(runs, "retry")
def retry(call: Call, run_id: Id) -> int:
    """Run it again, with its params, as a new job."""
    with call.desk() as desk:
        return apply(call, desk, [run_id], desk.client.retry, "is the retry")
