"""Shows, pauses and resumes the queue: `queue ls`, `pause`, `resume`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.command import Invocation, command, family

if TYPE_CHECKING:
    from headway.cli.output import Json

queue = family("List, pause and resume the queue.")
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="1..200", help="Maximum number of items.")]


@command(queue, "ls")
def ls(call: Invocation, limit: Limit = 20) -> None:
    """List the waiting jobs in the order in which they will start, with the reason for the wait."""
    from headway.cli.tables.jobs import queue_table

    empty = ["no job is waiting: create one with `headway run TASK name=value`"]
    with call.backend() as backend:
        page, now = backend.queue.page(limit), backend.now()
    call.out.page(page, lambda found: queue_table(found, now), empty=empty)


Everybody = Annotated[bool, typer.Option("--all", help="For all tenants of this database.")]


@command(queue, "reorder")
def reorder(
    call: Invocation,
    numbers: Annotated[
        list[int], typer.Argument(metavar="JOB...", help="Jobs in their new order.", show_default=False)
    ],
) -> None:
    """Put several jobs into this order, within the places they hold together. All others keep their place."""
    with call.backend() as backend:
        done = backend.queue.reorder(numbers)
    moved = ", ".join(map(str, done["moved"]))
    call.out.answer(done, lambda: [f"moved: {moved}" if moved else "the jobs were in this order already"])


@command(queue, "pause")
def pause(
    call: Invocation,
    everybody: Everybody = False,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="Reason to show with the pause.")] = None,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="Resume automatically after this time, like 2h.")
    ] = None,
) -> None:
    """Pause the queue: no more jobs start. Running jobs continue."""
    from headway.cli import arguments
    from headway.errors import BadInput
    from headway.model.values.times import seconds

    if duration is not None and not seconds(duration, field="--for"):
        raise BadInput("--for must be more than 0: write it like 10s, 5m or 1h30m", field="--for")
    until = arguments.later(duration, field="--for")
    with call.backend() as backend:
        _answer(call, backend.queue.pause(note=note, until=until, everybody=everybody), backend.now())


@command(queue, "resume")
def resume(call: Invocation, everybody: Everybody = False) -> None:
    """Resume the queue: jobs start again."""
    with call.backend() as backend:
        _answer(call, backend.queue.resume(everybody=everybody), backend.now())


def _answer(call: Invocation, queue: Json, now: int) -> None:
    call.out.answer(queue, lambda: _states(queue, now))


def _states(queue: Json, now: int) -> Iterator[str]:
    own, everybody = pauses(queue)
    if own is None and everybody is None:
        yield "the queue is open: jobs start in their order"
    if own is not None:
        yield f"the queue is paused{_until(own, now)}: resume it with `headway queue resume`"
    if everybody is not None:
        yield f"every queue is paused{_until(everybody, now)}: resume them with `headway queue resume --all`"


def pauses(queue: Json) -> tuple[Json | None, Json | None]:
    """Returns the pause of the tenant's own queue, and the pause of all queues."""
    everybody = queue["everybody"]
    shown = {name: queue[name] for name in ("since", "until", "note")} if queue["paused"] else None
    return (None if shown == everybody else shown), everybody


def _until(pause: Json, now: int) -> str:
    from headway.cli.tables.times import when

    return f" until {when(pause['until'], now)}" if pause["until"] else ""
