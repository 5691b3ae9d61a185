"""The queue as a whole: `queue ls`, `pause`, `resume`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.call import Call, Desk, command, family

if TYPE_CHECKING:
    from headway.model.waiting import Pause

queue = family("Look at the queue, pause it, let it go on.")
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="1..200", help="How many at most.")]


@command(queue, "ls")
def ls(call: Call, limit: Limit = 20) -> None:
    """List what waits, in the order it will start, and why it waits."""
    from headway.cli.shapes import blocker_json, job_json
    from headway.cli.tables import queue_table
    from headway.engine.limits import lives
    from headway.store import reading
    from headway.store.pages import check_limit

    with call.desk() as desk, desk.read() as tx:
        found = reading.queue(tx, desk.tenant_id, check_limit(limit), lives=lives)
        now = desk.database.clock.now()
    if call.out.as_json:
        items = [{**job_json(one.view), "blockers": [blocker_json(b) for b in one.blockers]} for one in found]
        call.out.data({"items": items, "next": None})
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
    from headway.store import lanes

    with desk.read() as tx:
        own, all_of_us = lanes.pauses(tx, desk.tenant_id)
    if call.out.as_json:
        call.out.data(pause_json(own, all_of_us))
        return
    now = desk.database.clock.now()
    if own is None and all_of_us is None:
        call.out.show("the queue is open: jobs start in their order")
    if own is not None:
        call.out.show(f"the queue is paused{_until(own, now)}: headway queue resume lets it go on")
    if all_of_us is not None:
        call.out.show(f"every queue is paused{_until(all_of_us, now)}: headway queue resume --all lets them go on")


def _until(found: Pause, now: int) -> str:
    from headway.cli.tables import when

    return f" until {when(found.until, now)}" if found.until else ""


def pause_json(own: Pause | None, everybody: Pause | None = None) -> dict[str, object]:
    """How the queue stands; `everybody` is the pause of all queues, if there is one."""
    found = own or everybody
    nothing = {"since": None, "until": None, "note": None}
    facts = _facts(found) if found is not None else nothing
    return {"paused": found is not None, **facts, "everybody": _facts(everybody) if everybody is not None else None}


def _facts(found: Pause) -> dict[str, object]:
    from headway.cli.shapes import time_or_none

    return {"since": time_or_none(found.since), "until": time_or_none(found.until), "note": found.note}
