"""Shows jobs: `jobs ls`, `show`, `logs`, `explain`, `wait`."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.command import Invocation, command, family
from headway.cli.commands import job_actions
from headway.cli.commands.run import AppOption
from headway.cli.job_selection import Id, JobFilterOptions, job_number

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headway.cli.backend.base import Backend
    from headway.cli.output import Json

jobs = family("List, explain, change and stop jobs.")
NONE: list[str] = []
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="1..200", help="Maximum number of items.")]
BodyFile = Annotated[
    str,
    typer.Argument(metavar="FILE", help="JSON file with the body of the request; - reads stdin.", show_default=False),
]
Cursor = Annotated[str | None, typer.Option(metavar="CURSOR", help="Continue after a page: the `next` of that page.")]


@command(jobs, "ls")
def ls(
    call: Invocation,
    filters: JobFilterOptions,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> None:
    """List jobs, the newest first."""
    from headway.cli.tables.jobs import job_table

    empty = (
        "no job matches" if filters.given else "no jobs yet",
        "create one: headway run TASK name=value, or headway sh -- echo hello",
    )
    wanted = filters.parse()
    with call.backend() as backend:
        page, now = backend.jobs.page(filters.of_schedule(backend, wanted), limit, cursor), backend.now()
    call.out.page(page, lambda found: job_table(found, now), empty=empty)


@command(jobs, "show")
def show(call: Invocation, job_id: Id) -> None:
    """Show a job with its history."""
    with call.backend() as backend:
        job = backend.jobs.shown(job_id)
        call.out.answer(job, lambda: _page(backend, job))


def _page(backend: Backend, job: Json) -> list[RenderableType]:
    from headway.cli.tables.events import event_table
    from headway.cli.tables.jobs import job_page

    now = backend.now()
    return [job_page(job, _group_of(backend, job), now), "", event_table(job["events"], now)]


def _group_of(backend: Backend, job: Json) -> Json | None:
    """Returns the group or execution of a job; None without one, or if it was deleted meanwhile."""
    from headway.errors import NotFound

    with suppress(NotFound):
        if job["execution_id"] is not None:
            return backend.executions.get(job["execution_id"])
        if job["group_id"] is not None:
            return backend.groups.get(job["group_id"])
    return None


@command(jobs, "chain")
def chain(call: Invocation, job_id: Id, limit: Limit = 50, cursor: Cursor = None) -> None:
    """Show the retry chain that a job belongs to, the first job first; a star marks the job."""
    from headway.cli.tables.jobs import chain_table

    with call.backend() as backend:
        page, now = backend.jobs.chain(job_id, limit, cursor), backend.now()
    call.out.page(page, lambda found: chain_table(found, now), empty=("no more jobs in this chain",))


@command(jobs, "batch")
def batch(call: Invocation, file: BodyFile, app: AppOption = None) -> None:
    """Create the jobs of a JSON file, all or none: {"jobs": [{"task": …, "params": …}], "mode": "sequential"}.

    With a mode (sequential, parallel, staged) the jobs form a group.
    """
    from headway.cli import arguments

    wanted = arguments.body(file)
    with call.new_backend(app) as backend:
        made = backend.jobs.batch(wanted)
    group = [] if made["group_id"] is None else [f"group {made['group_id']}"]
    call.out.answer(made, lambda: [str(job["job_id"]) for job in made["items"]], notes=group)


@command(jobs, "artifacts")
def artifacts(
    call: Invocation,
    job_id: Id,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="File to download.", show_default=False)] = None,
    to: Annotated[str | None, typer.Option(metavar="FILE", help="Where to store it (default: its name, here).")] = None,
) -> None:
    """List the files that a job attached, or download one of them."""
    from headway.cli.tables.jobs import artifact_table

    with call.backend() as backend:
        if name is None:
            found = backend.jobs.artifacts(job_id)
            notes = [] if found["items"] else [f"job {job_id} attached no files"]
            call.out.answer(found, lambda: [artifact_table(found["items"])] if found["items"] else [], notes=notes)
            return
        place, content = _new_file(to or name.rpartition("/")[2]), backend.jobs.download(job_id, name)
    with open(place, "xb") as file:
        file.write(content)
    stored = {"name": name, "file": str(place), "size": len(content)}
    call.out.answer(stored, lambda: [str(place)], notes=[f"{len(content)} bytes of {name} stored"])


def _new_file(place: str) -> Path:
    from headway.errors import BadInput

    path = Path(place)
    if path.exists():
        raise BadInput(f"{path} exists already", hint="name another file with --to", field="to")
    return path


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
    with call.backend() as backend:
        job = backend.jobs.get(job_id)
        lines, position = backend.jobs.log(job_id, tail)
        print_lines(call, lines)
        is_empty = not position
        for lines in backend.jobs.more_lines(job_id, position, follow=follow):
            print_lines(call, lines)
            is_empty = False
    if is_empty:
        call.out.say(
            f"job {job_id} is {job['status']} and has no log lines" + ("" if follow else "; follow it with -f")
        )


def print_lines(call: Invocation, lines: list[Json]) -> None:
    from headway.cli.tables.jobs import line_text

    for line in lines:
        if call.out.as_json:
            call.out.record(line)
        else:
            print(line_text(line), flush=True)


@command(jobs, "explain")
def explain(call: Invocation, job_id: Id) -> None:
    """Explain why a job does not run yet and when it may start; for a running job, since when and where it runs."""
    with call.backend() as backend:
        explained = backend.jobs.explain(job_id)
        call.out.answer(explained, lambda: _explained(backend, explained))


def _explained(backend: Backend, explained: Json) -> list[RenderableType]:
    from headway.cli.tables.jobs import explain_page

    number = explained["job_id"]
    if explained["status"] != "RUNNING":
        return explain_page(explained, backend.now(), lost=False)
    lost, job = backend.jobs.is_lost(number), backend.jobs.get(number)
    return explain_page(explained, backend.now(), lost=lost, job=job)


@command(jobs, "wait")
def wait(
    call: Invocation,
    ids: Annotated[list[int], typer.Argument(metavar="ID", help="Job numbers.", parser=job_number)],
    timeout: Annotated[str | None, typer.Option(metavar="DURATION", help="Longest time to wait.")] = None,
) -> int:
    """Wait until jobs and their retries have ended or are held. Exits 1 if a job did not succeed."""
    from headway.cli.follow import succeeded
    from headway.cli.tables.jobs import job_table
    from headway.model.values.times import seconds

    deadline = None if timeout is None else time.monotonic() + seconds(timeout, field="timeout")
    with call.backend() as backend:
        ended = [_waited_for(backend, job_id, deadline) for job_id in ids]
        now = backend.now()
    call.out.answer({"items": ended, "next": None}, lambda: [job_table(ended, now)])
    return 0 if all(map(succeeded, ended)) else 1


def _waited_for(backend: Backend, job_id: int, deadline: float | None) -> Json:
    from headway.cli.backend.base import over
    from headway.errors import WrongState

    job = backend.jobs.wait(job_id, deadline)
    number, status = job["job_id"], job["status"]
    if not over(status):
        text = f"job {number} is still {status}: wait longer, or see `headway jobs explain {number}`"
        raise WrongState(text, status=status)
    return job


job_actions.register(jobs)
