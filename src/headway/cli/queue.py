"""The queue as a whole: `queue ls`, `pause`, `resume`."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.call import Call, Desk, command, family

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


@command(queue, "pause")
def pause(
    call: Call,
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
        desk.client.pause_queue(note=note, until=until)
        _answer(call, desk)


@command(queue, "resume")
def resume(call: Call) -> None:
    """Start jobs again."""
    with call.desk() as desk:
        desk.client.resume_queue()
        _answer(call, desk)


def _answer(call: Call, desk: Desk) -> None:
    from headway.cli.tables import when
    from headway.store import reading

    with desk.read() as tx:
        now = desk.database.clock.now()
        found = reading.pause(tx, desk.tenant_id, now)
    if call.out.as_json:
        call.out.data(pause_json(found))
    elif found is None:
        call.out.show("the queue is open: jobs start in their order")
    else:
        until = f" until {when(found.until, now)}" if found.until else ""
        call.out.show(f"the queue is paused{until}: headway queue resume lets it go on")


def pause_json(found: object) -> dict[str, object]:
    from headway.cli.shapes import time_or_none
    from headway.model.waiting import Pause

    if not isinstance(found, Pause):
        return {"paused": False, "since": None, "until": None, "note": None}
    since, until = time_or_none(found.since), time_or_none(found.until)
    return {"paused": True, "since": since, "until": until, "note": found.note}
