"""The queue as a whole: `queue ls`, `pause`, `resume`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.call import Call, command, family

if TYPE_CHECKING:
    from headway.cli.call import Desk
    from headway.model.scene import Pause

queue = family("Look at the queue, pause it, let it go on.")
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="1..200", help="How many at most.")]


@command(queue, "ls")
def ls(call: Call, limit: Limit = 20) -> None:
    """List what waits, in the order it will start, and why it waits."""
    from headway.api.wire.lanes import waiting_json
    from headway.cli.tables import queue_table

    with call.desk() as desk:
        found = desk.queue(limit)
        now = desk.now()
    if call.out.as_json:
        call.out.data({"items": [waiting_json(one) for one in found], "next": None})
    elif not found:
        call.out.say("nothing waits: make a job with `headway run TASK name=value`")
    else:
        call.out.show(queue_table(found, now))


Everybody = Annotated[bool, typer.Option("--all", help="For everybody: all tenants of this database.")]


@command(queue, "pause")
def pause(
    call: Call,
    everybody: Everybody = False,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for those who look.")] = None,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="Go on by itself after a while, like 2h.")
    ] = None,
) -> None:
    """Start no more jobs. What runs goes on."""
    from headway.cli import parsing
    from headway.errors import BadInput
    from headway.model.values import seconds

    if duration is not None and not seconds(duration, field="--for"):
        raise BadInput("--for must be more than 0: write it like 10s, 5m or 1h30m", field="--for")
    until = parsing.later(duration, field="--for")
    with call.desk() as desk:
        desk.client.pause_queue(note=note, until=until, everybody=everybody)
        _answer(call, desk)


@command(queue, "resume")
def resume(call: Call, everybody: Everybody = False) -> None:
    """Start jobs again."""
    with call.desk() as desk:
        desk.client.resume_queue(everybody=everybody)
        _answer(call, desk)


def _answer(call: Call, desk: Desk) -> None:
    from headway.api.wire.lanes import pause_json

    own, all_of_us = desk.pauses()
    if call.out.as_json:
        call.out.data(pause_json(own, all_of_us))
        return
    now = desk.now()
    if own is None and all_of_us is None:
        call.out.show("the queue is open: jobs start in their order")
    if own is not None:
        call.out.show(f"the queue is paused{_until(own, now)}: headway queue resume lets it go on")
    if all_of_us is not None:
        call.out.show(f"every queue is paused{_until(all_of_us, now)}: headway queue resume --all lets them go on")


def _until(found: Pause, now: int) -> str:
    from headway.cli.tables import when

    return f" until {when(found.until, now)}" if found.until else ""
