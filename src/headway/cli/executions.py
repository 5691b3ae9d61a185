"""Executions, the firings of schedules: `executions ls`, `show`, `cancel`, `retry`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.call import Call, command, family
from headway.cli.choosing import LARGEST, ScheduleName, number_or_name
from headway.cli.groups import answer_with, cancelled, checked_status, retried
from headway.cli.jobs import Cursor, Limit, more

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headway.cli.call import Desk
    from headway.model.plan import Group

executions = family("Look at executions, the firings of schedules; stop them, try them again.")
Id = Annotated[int, typer.Argument(metavar="ID", help="An execution by its number.", min=1, max=LARGEST)]
Status = Annotated[
    str | None, typer.Option("--status", metavar="STATUS", help="IN_PROGRESS, COMPLETED, FAILED or CANCELLED.")
]
STATUSES = ("IN_PROGRESS", "COMPLETED", "FAILED", "CANCELLED")


@command(executions, "ls")
def ls(
    call: Call, schedule: ScheduleName = None, status: Status = None, limit: Limit = 20, cursor: Cursor = None
) -> None:
    """List executions, the newest first: what they are for, the open stage, and what went wrong."""
    from headway.api.wire.plans import execution_json
    from headway.cli.plan_tables import execution_table

    wanted = checked_status(status, STATUSES)
    with call.desk() as desk:
        number = None if schedule is None else _number(desk, schedule)
        page = desk.list_groups("execution", wanted, limit, cursor, schedule_id=number)
        zones = zones_of(desk, [view.group for view in page.items])
        now = desk.now()
    if call.out.as_json:
        call.out.data({"items": [execution_json(view) for view in page.items], "next": page.next})
    elif not page.items:
        call.out.say("no execution is like that" if schedule or wanted else "no executions yet")
        call.out.say("a schedule makes them when it fires, or at once: headway schedules run NAME")
    else:
        call.out.show(execution_table(page.items, zones, now))
        more(call, page.next)


def _number(desk: Desk, schedule: str) -> int:
    which = number_or_name(schedule)
    return which if isinstance(which, int) else desk.client.schedules.get(which).id


def zones_of(desk: Desk, found: Iterable[Group]) -> dict[int, str]:
    """The time zones of the schedules, as they are now; also of those that were deleted."""
    return desk.zones({group.schedule_id for group in found if group.schedule_id is not None})


@command(executions, "show")
def show(call: Call, execution_id: Id) -> None:
    """Show an execution with its steps by stage, its history, and what lets it go on."""
    from headway.api.wire.plans import execution_json

    with call.desk() as desk:
        view, events = desk.shown_group(execution_id, "execution")
        zone = zones_of(desk, [view.group]).get(view.group.schedule_id or 0, "UTC")
        answer_with(call, desk, view, events, execution_json(view, steps=True), zone)


@command(executions, "cancel")
def cancel(call: Call, execution_id: Id) -> None:
    """End an execution: what waits at once, what runs as soon as it stops."""
    from headway.api.wire.plans import execution_json

    with call.desk() as desk:
        desk.client.groups.cancel(execution_id, "execution")
        view = desk.group(execution_id, "execution")
    cancelled(call, view, execution_json(view, steps=True))


@command(executions, "retry")
def retry(call: Call, execution_id: Id) -> None:
    """Run what failed, and what would have come after it, as a new execution. What succeeded is not run again."""
    from headway.api.wire.plans import execution_json

    with call.desk() as desk:
        made = desk.client.groups.retry(execution_id, "execution")
        view = desk.group(made, "execution")
    retried(call, view, execution_json(view, steps=True))
