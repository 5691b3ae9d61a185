"""Shows jobs: `jobs ls`, `show`, `logs`, `explain`, `wait`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.command import Invocation, command, family
from headway.cli.commands import job_actions
from headway.cli.job_selection import Id, JobFilterOptions, job_number

if TYPE_CHECKING:
    from headway.cli.command import Desk
    from headway.store.jobs.views import JobView

jobs = family("List, explain, change and stop jobs.")
NONE: list[str] = []
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="1..200", help="Maximum number of items.")]
Cursor = Annotated[str | None, typer.Option(metavar="CURSOR", help="Continue after a page: the `next` of that page.")]


@command(jobs, "ls")
def ls(
    call: Invocation,
    filters: JobFilterOptions,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> None:
    """List jobs, the newest first."""
    from headway.api.schemas.jobs import job_json
    from headway.cli.tables.jobs import job_table

    wanted = filters.parse()
    with call.desk() as desk:
        page = desk.list_jobs(filters.of_schedule(desk, wanted), limit, cursor)
        now = desk.now()
    if call.out.as_json:
        call.out.data({"items": [job_json(view) for view in page.items], "next": page.next})
    elif not page.items:
        call.out.say("no job matches" if filters.given else "no jobs yet")
        call.out.say("create one: headway run TASK name=value, or headway sh -- echo hello")
    else:
        call.out.show(job_table(page.items, now))
        more(call, page.next)


def more(call: Invocation, cursor: str | None) -> None:
    if cursor is not None:
        call.out.say(f"there are more: --cursor {cursor}")


@command(jobs, "show")
def show(call: Invocation, job_id: Id) -> None:
    """Show a job with its history."""
    from headway.api.schemas.jobs import event_json, job_json
    from headway.cli.tables.jobs import event_table, job_page

    with call.desk() as desk:
        view, events = desk.shown_job(job_id)
        now = desk.now()
    if call.out.as_json:
        call.out.data({**job_json(view), "events": [event_json(event) for event in events]})
    else:
        call.out.show(job_page(view, now), "", event_table(events, now))


@command(jobs, "logs")
def logs(
    call: Invocation,
    job_id: Id,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until the job ends.")] = False,
    tail: Annotated[int | None, typer.Option("--tail", metavar="N", help="Print only the last N lines.")] = None,
) -> None:
    """Print the log of a job; with -f also new lines until the job ends."""
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
            f"job {job_id} is {job.status.name} and has no log lines" + ("" if follow else "; follow it with -f")
        )


def print_lines(call: Invocation, lines: Any) -> int:
    from headway.api.schemas.jobs import line_json
    from headway.cli.tables.jobs import line_text

    for line in lines:
        if call.out.as_json:
            call.out.record(line_json(line))
        else:
            print(line_text(line), flush=True)
    return lines[-1].chunk if lines else 0


@command(jobs, "explain")
def explain(call: Invocation, job_id: Id) -> None:
    """Explain why a job does not run yet and when it may start; for a running job, since when and where it runs."""
    from headway.api.schemas.jobs import explain_json
    from headway.cli.tables.jobs import explain_page

    with call.desk() as desk:
        explained, lost = desk.explain(job_id)
        view = desk.view(job_id) if explained.status == "RUNNING" and not call.out.as_json else None
    if call.out.as_json:
        call.out.data(explain_json(explained))
    else:
        call.out.show(*explain_page(explained, lost=lost, view=view))


@command(jobs, "wait")
def wait(
    call: Invocation,
    ids: Annotated[list[int], typer.Argument(metavar="ID", help="Job numbers.", parser=job_number)],
    timeout: Annotated[str | None, typer.Option(metavar="DURATION", help="Longest time to wait.")] = None,
) -> int:
    """Wait until jobs and their retries have ended or are held. Exits 1 if a job did not succeed."""
    from headway.api.schemas.jobs import job_json
    from headway.cli.follow import succeeded
    from headway.cli.tables.jobs import job_table
    from headway.model.values.json import seconds

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
    from headway.cli.backend.base import over
    from headway.errors import WrongState

    view = desk.wait(job_id, deadline)
    last = view.job
    if not over(last.status):
        text = f"job {last.id} is still {last.status.name}: wait longer, or see `headway jobs explain {last.id}`"
        raise WrongState(text, status=last.status.name)
    return view


job_actions.register(jobs)
