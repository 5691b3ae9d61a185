"""Looking at jobs: `jobs ls`, `show`, `logs`, `explain`, `wait`."""

from __future__ import annotations

import time
from functools import partial
from typing import Annotated, Any

import typer

from headway.cli import verbs
from headway.cli.call import Call, Desk, command, family
from headway.cli.choosing import (
    LARGEST,
    By,
    GroupNumber,
    Key,
    Kind,
    ScheduleName,
    Search,
    Since,
    Status,
    TargetName,
    TaskName,
    Until,
    of_schedule,
)

jobs = family("Look at jobs, change them, stop them.")
NONE: list[str] = []
Id = Annotated[int, typer.Argument(metavar="ID", help="A job by its number.", min=1, max=LARGEST)]
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
    from headway.cli import parsing
    from headway.cli.shapes import job_json
    from headway.cli.tables import job_table
    from headway.store import reading

    wanted = parsing.filters(status, task, key, kind, by, since, until, search, target, group)
    with call.desk() as desk:
        wanted = of_schedule(desk, wanted, schedule)
        page = fill(desk, lambda tx, at: reading.list_jobs(tx, desk.tenant_id, wanted, limit, at), limit, cursor)
    if call.out.as_json:
        call.out.data({"items": [job_json(view) for view in page.items], "next": page.next})
    elif not page.items:
        filtered = any((status, task, key, kind, by, since, until, search, target, group, schedule))
        call.out.say("no job fits" if filtered else "no jobs yet")
        call.out.say("make one: headway run TASK name=value, or headway sh -- echo hello")
    else:
        call.out.show(job_table(page.items, desk.database.clock.now()))
        more(call, page.next)


def fill(desk: Desk, read: Any, limit: int, cursor: str | None) -> Any:
    """A page as long as asked for: one whose filter finds little is read on, piece by piece."""
    from headway.store.pages import Page

    items: list[Any] = []
    while True:
        with desk.read() as tx:
            page = read(tx, cursor)
        items += page.items
        cursor = page.next
        if cursor is None or len(items) >= limit:
            return Page(items[:limit], _cursor(items, limit) if len(items) > limit else cursor)


def _cursor(items: list[Any], limit: int) -> str:
    from headway.store.pages import make_cursor

    last = items[limit - 1]
    return make_cursor(last.job.id if hasattr(last, "job") else last.job_id)


def more(call: Call, cursor: str | None) -> None:
    if cursor is not None:
        call.out.say(f"there are more: --cursor {cursor}")


@command(jobs, "show")
def show(call: Call, job_id: Id) -> None:
    """Show everything about a job, with its history."""
    from headway.cli.shapes import event_json, job_json
    from headway.cli.tables import event_table, job_page
    from headway.store import reading

    with call.desk() as desk, desk.read() as tx:
        view = reading.view(tx, desk.tenant_id, job_id)
        events = reading.events(tx, job_id)
        now = desk.database.clock.now()
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
    from headway.store import reading

    if tail is not None and tail < 0:
        raise BadInput("--tail must be 0 or more", field="tail")
    with call.desk() as desk:
        job = desk.client.get(job_id)
        with desk.read() as tx:
            lines = reading.last_lines(tx, job_id, tail) if tail is not None else reading.log_lines(tx, job_id)
        last = print_lines(call, lines)
        if tail == 0:
            last = _end(desk, job_id)
        while True:
            ended = desk.client.get(job_id).status.terminal  # looked at first: then all that it wrote is there
            with desk.read() as tx:
                lines = reading.log_lines(tx, job_id, after=last)
            last = print_lines(call, lines) or last
            if not lines and (ended or not follow):
                break
            if not lines:
                time.sleep(0.2)
    if not last:
        call.out.say(
            f"job {job_id} is {job.status.name} and logged nothing" + ("" if follow else "; follow it with -f")
        )


def _end(desk: Desk, job_id: int) -> int:
    from headway.store import reading

    with desk.read() as tx:
        return next((line.chunk for line in reversed(reading.last_lines(tx, job_id, 1))), 0)


def print_lines(call: Call, lines: Any) -> int:
    from headway.cli.shapes import line_json
    from headway.cli.tables import line_text

    for line in lines:
        if call.out.as_json:
            call.out.record(line_json(line))
        else:
            print(line_text(line), flush=True)
    return lines[-1].chunk if lines else 0


@command(jobs, "explain")
def explain(call: Call, job_id: Id) -> None:
    """Say why a job does not run now, and when it may start."""
    from headway.cli.shapes import explain_json
    from headway.cli.tables import explain_page
    from headway.engine.limits import lives
    from headway.store import reading

    with call.desk() as desk, desk.read() as tx:
        explained = reading.explain(tx, desk.tenant_id, job_id, lives=lives)
        owner = reading.owner(tx, job_id)
    if call.out.as_json:
        call.out.data(explain_json(explained))
    else:
        lost = explained.status == "RUNNING" and (owner is None or not lives(owner))
        call.out.show(*explain_page(explained, lost=lost))


@command(jobs, "wait")
def wait(
    call: Call,
    ids: Annotated[list[int], typer.Argument(metavar="ID", help="Jobs by number.", min=1, max=LARGEST)],
    timeout: Annotated[str | None, typer.Option(metavar="DURATION", help="Give up after a while.")] = None,
) -> int:
    """Wait until jobs, with their retries, have ended. Exits 1 if one of them failed."""
    from headway.cli.following import succeeded, wait_until
    from headway.cli.shapes import job_json
    from headway.cli.tables import job_table
    from headway.errors import WrongState
    from headway.model.values import seconds
    from headway.store import reading

    deadline = None if timeout is None else time.monotonic() + seconds(timeout, field="timeout")
    with call.desk() as desk:
        for job_id in ids:
            if not wait_until(partial(_over, desk, job_id), deadline):
                last = _last(desk, job_id)
                text = (
                    f"job {last.id} is still {last.status.name}: wait longer, or see `headway jobs explain {last.id}`"
                )
                raise WrongState(text, status=last.status.name)
        with desk.read() as tx:
            views = [reading.view(tx, desk.tenant_id, _last(desk, job_id).id) for job_id in ids]
        now = desk.database.clock.now()
    if call.out.as_json:
        call.out.data({"items": [job_json(view) for view in views], "next": None})
    else:
        call.out.show(job_table(views, now))
    return 0 if all(succeeded(view) for view in views) else 1


def _last(desk: Desk, job_id: int) -> Any:
    from headway.store import reading

    with desk.read() as tx:
        return reading.last_of_chain(tx, desk.tenant_id, job_id)


def _over(desk: Desk, job_id: int) -> bool:
    from headway.cli.following import ENDS

    status = _last(desk, job_id).status
    return bool(status.terminal or status in ENDS)


verbs.register(jobs)
