"""Lists and changes groups: `groups ls`, `show`, `cancel`, `retry`. Executions have the same commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from headway.cli.command import Invocation, command, family
from headway.cli.commands.group_actions import register
from headway.cli.commands.jobs import BodyFile, Cursor, Limit
from headway.cli.commands.run import AppOption

groups = family("List, cancel and retry groups, jobs that were created together.")
Status = Annotated[
    str | None, typer.Option("--status", metavar="STATUS", help="RUNNING, COMPLETED, PARTIAL or CANCELLED.")
]
GROUP_STATUSES = ("RUNNING", "COMPLETED", "PARTIAL", "CANCELLED")


@command(groups, "create")
def create(call: Invocation, file: BodyFile, app: AppOption = None) -> None:
    """Create a group from a JSON file, all jobs or none: {"mode": "staged", "jobs": [{"task": …, "stage": 0}]}."""
    from headway.cli import arguments

    wanted = arguments.body(file)
    with call.new_backend(app) as backend:
        made = backend.groups.create(wanted)
    number = made["group_id"]
    call.out.answer(made, lambda: [str(number)], notes=[f"show it with `headway groups show {number}`"])


@command(groups, "ls")
def ls(call: Invocation, status: Status = None, limit: Limit = 20, cursor: Cursor = None) -> None:
    """List groups, the newest first, with their status, open stage and the steps that hold them."""
    from headway.cli.tables.groups import group_table

    wanted = checked_status(status, GROUP_STATUSES)
    empty = (
        "no group matches" if wanted else "no groups yet",
        "create one in Python: app.plan('nightly').then(a.step()).then(b.step()).start()",
    )
    with call.backend() as backend:
        page = backend.groups.page(limit, cursor, status=wanted)
        call.out.page(page, lambda found: group_table(found, backend.now()), empty=empty)


def checked_status(given: str | None, known: Sequence[str]) -> str | None:
    from headway.errors import BadInput
    from headway.model.values.suggestions import closest

    if given is None:
        return None
    name = {"CANCELED": "CANCELLED", "RUNNING": known[0]}.get(given.strip().upper(), given.strip().upper())
    if name not in known:
        near = closest(name, known)
        hint = f"did you mean {near}?" if near else f"one of {', '.join(known)}"
        raise BadInput(f"--status: there is no status {given!r}: {hint}", field="status")
    return name


register(groups, "group")
