"""Shows and releases reservations: `reservations ls`, `show`, `release`."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.command import Invocation, command, family
from headway.cli.commands.jobs import Cursor, Limit
from headway.cli.job_selection import LARGEST

reservations = family("List and release reservations: the slots of direct calls, holds and other programs.")
STATUSES = ("ACTIVE", "RELEASED", "EXPIRED")
Id = Annotated[int, typer.Argument(metavar="ID", help="Reservation number.", min=1, max=LARGEST)]


@command(reservations, "ls")
def ls(
    call: Invocation,
    status: Annotated[
        str | None, typer.Option(metavar="STATUS", help=f"Only reservations that are {', '.join(STATUSES)}.")
    ] = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> None:
    """List reservations and direct calls, the newest first."""
    empty = ["no reservation matches: headway hold -- CMD makes one"]
    from headway.cli.tables.reservations import reservation_table

    with call.backend() as backend:
        page, now = backend.reservations.page(_status(status), limit, cursor), backend.now()
    call.out.page(page, lambda found: reservation_table(found, now), empty=empty)


@command(reservations, "show")
def show(call: Invocation, reservation_id: Id) -> None:
    """Show a reservation with its lanes, its holder and its times."""
    from headway.cli.tables.reservations import reservation_page

    with call.backend() as backend:
        reservation, now = backend.reservations.get(reservation_id), backend.now()
    call.out.answer(reservation, lambda: [reservation_page(reservation, now)])


@command(reservations, "release")
def release(call: Invocation, reservation_id: Id) -> None:
    """Release a reservation that a program made over HTTP. A hold or a call ends with its process."""
    with call.backend() as backend:
        reservation = backend.reservations.release(reservation_id)
    if call.out.as_json:
        call.out.data(reservation)
    else:
        call.out.say(f"reservation {reservation_id} released")


def _status(given: str | None) -> str | None:
    from headway.errors import BadInput

    if given is None or given.upper() in STATUSES:
        return given and given.upper()
    raise BadInput(f"--status: there is no status {given!r}: use {', '.join(STATUSES)}", field="status")
