"""Looking at jobs: `jobs ls`, `show`, `logs`, `explain`, `wait`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import verbs
from headway.cli.call import Call, command, family
from headway.cli.choosing import (
    By,
    GroupNumber,
    Id,
    Key,
    Kind,
    ScheduleName,
    Search,
    Since,
    Status,
    TargetName,
    TaskName,
    Until,
    job_number,
    of_schedule,
)

if TYPE_CHECKING:
    from headway.cli.call import Desk
    from headway.store.reading import JobView

jobs = family("Look at jobs, change them, stop them.")
NONE: list[str] = []
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="1..200", help="How many at most.")]
Cursor = Annotated[str | None, typer.Option(metavar="CURSOR", help="Go on where a page ended: its `next`.")]


@command(jobs, "ls")
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
    """List jobs, the newest first."""
    from headway.api.wire.jobs import job_json
    from headway.cli import parsing
    from headway.cli.tables import job_table

    wanted = parsing.filters(status, task, key, kind, by, since, until, search, target, group)
    with call.desk() as desk:
        page = desk.list_jobs(of_schedule(desk, wanted, schedule), limit, cursor)
        now = desk.now()
    if call.out.as_json:
        call.out.data({"items": [job_json(view) for view in page.items], "next": page.next})
    elif not page.items:
        filtered = any((status, task, key, kind, by, since, until, search, target, group, schedule))
        call.out.say("no job fits" if filtered else "no jobs yet")
        call.out.say("make one: headway run TASK name=value, or headway sh -- echo hello")
    else:
        call.out.show(job_table(page.items, now))
        more(call, page.next)


def more(call: Call, cursor: str | None) -> None:
    if cursor is not None:
        call.out.say(f"there are more: --cursor {cursor}")


@command(jobs, "show")
def show(call: Call, job_id: Id) -> None:
    """Show everything about a job, with its history."""
    from headway.api.wire.jobs import event_json, job_json
    from headway.cli.tables import event_table, job_page

    with call.desk() as desk:
        view, events = desk.shown_job(job_id)
        now = desk.now()
    if call.out.as_json:
        call.out.data({**job_json(view), "events": [event_json(event) for event in events]})
    else:
        call.out.show(job_page(view, now), "", event_table(events, now))


@command(jobs, "logs")
def logs(
    call: Call,
    job_id: Id,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    tail: Annotated[int | None, typer.Option("--tail", metavar="N", help="Only the last lines.")] = None,
) -> None:
    """Print what a job logged, with -f as it comes."""
    from headway.errors import BadInput

    if tail is not None and tail < 0:
        raise BadInput("--tail must be 0 or more", field="tail")
    with call.desk() as desk:
        job = desk.client.get(job_id)
        lines, last = desk.log(job_id, tail)
        print_lines(call, lines)
        for lines in desk.more_lines(job_id, last, follow=follow):
            last = print_lines(call, lines)
    if not last:
        call.out.say(
            f"job {job_id} is {job.status.name} and logged nothing" + ("" if follow else "; follow it with -f")
        )


def print_lines(call: Call, lines: Any) -> int:
    from headway.api.wire.jobs import line_json
    from headway.cli.tables import line_text

    for line in lines:
        if call.out.as_json:
            call.out.record(line_json(line))
        else:
            print(line_text(line), flush=True)
    return lines[-1].chunk if lines else 0


@command(jobs, "explain")
def explain(call: Call, job_id: Id) -> None:
    """Say why a job does not run now, and when it may start; of one that runs, since when and where."""
    from headway.api.wire.jobs import explain_json
    from headway.cli.tables import explain_page

    with call.desk() as desk:
        explained, lost = desk.explain(job_id)
        view = desk.view(job_id) if explained.status == "RUNNING" and not call.out.as_json else None
    if call.out.as_json:
        call.out.data(explain_json(explained))
    else:
        call.out.show(*explain_page(explained, lost=lost, view=view))


@command(jobs, "wait")
def wait(
    call: Call,
    ids: Annotated[list[int], typer.Argument(metavar="ID", help="Jobs by number.", parser=job_number)],
    timeout: Annotated[str | None, typer.Option(metavar="DURATION", help="Give up after a while.")] = None,
) -> int:
    """Wait until jobs, with their retries, have ended. Exits 1 if one of them failed."""
    from headway.api.wire.jobs import job_json
    from headway.cli.following import succeeded
    from headway.cli.tables import job_table
    from headway.model.values import seconds

    deadline = None if timeout is None else time.monotonic() + seconds(timeout, field="timeout")
    with call.desk() as desk:
        views = [_waited_for(desk, job_id, deadline) for job_id in ids]
        now = desk.now()
    if call.out.as_json:
        call.out.data({"items": [job_json(view) for view in views], "next": None})
    else:
        call.out.show(job_table(views, now))
    return 0 if all(succeeded(view) for view in views) else 1


def _waited_for(desk: Desk, job_id: int, deadline: float | None) -> JobView:
    from headway.cli.asking import over
    from headway.errors import WrongState

    view = desk.wait(job_id, deadline)
    last = view.job
    if not over(last.status):
        text = f"job {last.id} is still {last.status.name}: wait longer, or see `headway jobs explain {last.id}`"
        raise WrongState(text, status=last.status.name)
    return view


verbs.register(jobs)
