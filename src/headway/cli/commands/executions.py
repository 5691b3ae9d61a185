"""Lists and changes executions, the firings of schedules: `executions ls`, `show`, `cancel`, `retry`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.command import Invocation, command, family
from headway.cli.commands.groups import answer_with, cancelled, checked_status, retried
from headway.cli.commands.jobs import Cursor, Limit, more
from headway.cli.job_selection import LARGEST, ScheduleName, number_or_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headway.cli.command import Desk
    from headway.model.groups.group import Group

executions = family("List, cancel and retry executions, the firings of schedules.")
Id = Annotated[int, typer.Argument(metavar="ID", help="Execution number.", min=1, max=LARGEST)]
Status = Annotated[
    str | None, typer.Option("--status", metavar="STATUS", help="IN_PROGRESS, COMPLETED, FAILED or CANCELLED.")
]
STATUSES = ("IN_PROGRESS", "COMPLETED", "FAILED", "CANCELLED")


@command(executions, "ls")
def ls(
    call: Invocation, schedule: ScheduleName = None, status: Status = None, limit: Limit = 20, cursor: Cursor = None
) -> None:
    """List executions, the newest first, with their nominal time, open stage and error."""
    from headway.api.schemas.groups import execution_json
    from headway.cli.tables.groups import execution_table

    wanted = checked_status(status, STATUSES)
    with call.desk() as desk:
        number = None if schedule is None else _number(desk, schedule)
        page = desk.list_groups("execution", wanted, limit, cursor, schedule_id=number)
        zones = zones_of(desk, [view.group for view in page.items])
        now = desk.now()
    if call.out.as_json:
        call.out.data({"items": [execution_json(view) for view in page.items], "next": page.next})
    elif not page.items:
        call.out.say("no execution matches" if schedule or wanted else "no executions yet")
        call.out.say("a schedule creates one when it fires; create one now with `headway schedules run NAME`")
    else:
        call.out.show(execution_table(page.items, zones, now))
        more(call, page.next)


def _number(desk: Desk, schedule: str) -> int:
    which = number_or_name(schedule)
    return which if isinstance(which, int) else desk.client.schedules.get(which).id


def zones_of(desk: Desk, found: Iterable[Group]) -> dict[int, str]:
    """Returns the current time zones of the schedules of these executions."""
    return desk.zones({group.schedule_id for group in found if group.schedule_id is not None})


@command(executions, "show")
def show(call: Invocation, execution_id: Id) -> None:
    """Show an execution with its steps by stage, its history, and the commands that continue it."""
    from headway.api.schemas.groups import execution_json

    with call.desk() as desk:
        view, events = desk.shown_group(execution_id, "execution")
        zone = zones_of(desk, [view.group]).get(view.group.schedule_id or 0, "UTC")
        answer_with(call, desk, view, events, execution_json(view, steps=True), zone)


@command(executions, "cancel")
def cancel(call: Invocation, execution_id: Id) -> None:
    """Cancel an execution: waiting jobs at once, running jobs as soon as they stop."""
    from headway.api.schemas.groups import execution_json

    with call.desk() as desk:
        desk.client.groups.cancel(execution_id, "execution")
        view = desk.group(execution_id, "execution")
    cancelled(call, view, execution_json(view, steps=True))


@command(executions, "retry")
def retry(call: Invocation, execution_id: Id) -> None:
    """Run the failed steps and all later stages as a new execution. Steps that succeeded are not run again."""
    from headway.api.schemas.groups import execution_json

    with call.desk() as desk:
        made = desk.client.groups.retry(execution_id, "execution")
        view = desk.group(made, "execution")
    retried(call, view, execution_json(view, steps=True))
