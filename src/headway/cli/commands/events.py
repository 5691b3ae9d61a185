"""Lists what people and programs changed: `events ls`."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.command import Invocation, command, family
from headway.cli.commands.jobs import Cursor, Limit
from headway.cli.job_selection import LARGEST

events = family("List what was changed, when and by which actor.")


@command(events, "ls")
def ls(
    call: Invocation,
    actor: Annotated[
        str | None, typer.Option("--actor", metavar="NAME", help="Only by this user, token or schedule; name or id.")
    ] = None,
    thing: Annotated[
        str | None, typer.Option("--thing", metavar="THING", help="Only about these: schedule, token, lane, job, …")
    ] = None,
    number: Annotated[
        int | None,
        typer.Option(
            "--id", metavar="ID", help="With --thing: all events of it.", min=0, max=LARGEST, show_default=False
        ),
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help="Only of this kind, like token.created.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help="Only since: 2h (ago), a day, or a time.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="WHEN", help="Only before.")] = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> None:
    """List changes, the latest first: of limits, tokens, schedules and the like, and people's actions on jobs."""
    from headway.cli import arguments
    from headway.cli.tables.events import audit_table
    from headway.model.audit import AuditFilter

    times = {name: arguments.moment(text, field=name) for name, text in (("since", since), ("until", until))}
    given = {"actor": actor, "thing": thing, "thing_id": number, "kind": kind, **times}
    wanted = AuditFilter.from_query(given, labels={"thing": "--thing", "thing_id": "--id"})
    with call.backend() as backend:
        page, now = backend.audit(wanted, limit, cursor), backend.now()
    call.out.page(page, lambda found: audit_table(found, now), empty=("no change matches",))
