"""Lists and changes executions, the firings of schedules: `executions ls`, `show`, `cancel`, `retry`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.command import Invocation, command, family
from headway.cli.commands.group_actions import register
from headway.cli.commands.groups import checked_status
from headway.cli.commands.jobs import Cursor, Limit
from headway.cli.job_selection import ScheduleName, schedule_number

if TYPE_CHECKING:
    from rich.table import Table

    from headway.cli.backend.base import Backend
    from headway.cli.output import Json

executions = family("List, cancel and retry executions, the firings of schedules.")
Status = Annotated[
    str | None, typer.Option("--status", metavar="STATUS", help="IN_PROGRESS, COMPLETED, FAILED or CANCELLED.")
]
STATUSES = ("IN_PROGRESS", "COMPLETED", "FAILED", "CANCELLED")


@command(executions, "ls")
def ls(
    call: Invocation, schedule: ScheduleName = None, status: Status = None, limit: Limit = 20, cursor: Cursor = None
) -> None:
    """List executions, the newest first, with their nominal time, open stage and error."""
    wanted = checked_status(status, STATUSES)
    empty = (
        "no execution matches" if schedule or wanted else "no executions yet",
        "a schedule creates one when it fires; create one now with `headway schedules run NAME`",
    )
    with call.backend() as backend:
        number = None if schedule is None else schedule_number(backend, schedule)
        page = backend.executions.page(limit, cursor, status=wanted, schedule_id=number)
        call.out.page(page, lambda found: _table(backend, found), empty=empty)


def _table(backend: Backend, found: list[Json]) -> Table:
    from headway.cli.tables.groups import execution_table

    schedules = {execution["schedule_id"] for execution in found} - {None}
    return execution_table(found, backend.schedules.zones(schedules), backend.now())


register(executions, "execution")
