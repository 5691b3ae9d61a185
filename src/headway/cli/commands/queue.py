"""Shows, pauses and resumes the queue: `queue ls`, `pause`, `resume`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.command import Invocation, command, family

if TYPE_CHECKING:
    from headway.cli.command import Desk
    from headway.model.explain.snapshot import Pause

queue = family("List, pause and resume the queue.")
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="1..200", help="Maximum number of items.")]


@command(queue, "ls")
def ls(call: Invocation, limit: Limit = 20) -> None:
    """List the waiting jobs in the order in which they will start, with the reason for the wait."""
    from headway.api.schemas.queue import waiting_json
    from headway.cli.tables.jobs import queue_table

    with call.desk() as desk:
        waiting = desk.queue(limit)
        now = desk.now()
    if call.out.as_json:
        call.out.data({"items": [waiting_json(job) for job in waiting], "next": None})
    elif not waiting:
        call.out.say("no job is waiting: create one with `headway run TASK name=value`")
    else:
        call.out.show(queue_table(waiting, now))


Everybody = Annotated[bool, typer.Option("--all", help="For all tenants of this database.")]


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
    from headway.model.values.json import seconds

    if duration is not None and not seconds(duration, field="--for"):
        raise BadInput("--for must be more than 0: write it like 10s, 5m or 1h30m", field="--for")
    until = arguments.later(duration, field="--for")
    with call.desk() as desk:
        desk.client.pause_queue(note=note, until=until, everybody=everybody)
        _answer(call, desk)


@command(queue, "resume")
def resume(call: Invocation, everybody: Everybody = False) -> None:
    """Resume the queue: jobs start again."""
    with call.desk() as desk:
        desk.client.resume_queue(everybody=everybody)
        _answer(call, desk)


def _answer(call: Invocation, desk: Desk) -> None:
    from headway.api.schemas.queue import pause_json

    own, global_pause = desk.pauses()
    if call.out.as_json:
        call.out.data(pause_json(own, global_pause))
        return
    now = desk.now()
    if own is None and global_pause is None:
        call.out.show("the queue is open: jobs start in their order")
    if own is not None:
        call.out.show(f"the queue is paused{_until(own, now)}: resume it with `headway queue resume`")
    if global_pause is not None:
        until = _until(global_pause, now)
        call.out.show(f"every queue is paused{until}: resume them with `headway queue resume --all`")


def _until(pause: Pause, now: int) -> str:
    from headway.cli.tables.jobs import when

    return f" until {when(pause.until, now)}" if pause.until else ""
