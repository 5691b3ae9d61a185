"""Lists and changes groups: `groups ls`, `show`, `cancel`, `retry`. Executions share these functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.command import Invocation, command, family
from headway.cli.commands.jobs import Cursor, Limit, more
from headway.cli.job_selection import LARGEST

if TYPE_CHECKING:
    from headway.cli.command import Desk
    from headway.model.event import Event
    from headway.store.groups.views import GroupView

groups = family("List, cancel and retry groups, jobs that were created together.")
Id = Annotated[int, typer.Argument(metavar="ID", help="Group number.", min=1, max=LARGEST)]
Status = Annotated[
    str | None, typer.Option("--status", metavar="STATUS", help="RUNNING, COMPLETED, PARTIAL or CANCELLED.")
]
GROUP_STATUSES = ("RUNNING", "COMPLETED", "PARTIAL", "CANCELLED")


@command(groups, "ls")
def ls(call: Invocation, status: Status = None, limit: Limit = 20, cursor: Cursor = None) -> None:
    """List groups, the newest first, with their status, open stage and the steps that hold them."""
    from headway.api.schemas.groups import group_json
    from headway.cli.tables.groups import group_table

    wanted = checked_status(status, GROUP_STATUSES)
    with call.desk() as desk:
        page = desk.list_groups("group", wanted, limit, cursor)
        now = desk.now()
    if call.out.as_json:
        call.out.data({"items": [group_json(view) for view in page.items], "next": page.next})
    elif not page.items:
        call.out.say("no group matches" if wanted else "no groups yet")
        call.out.say("create one in Python: app.plan('nightly').then(a.step()).then(b.step()).start()")
    else:
        call.out.show(group_table(page.items, now))
        more(call, page.next)


def checked_status(given: str | None, known: Sequence[str]) -> str | None:
    from headway.errors import BadInput
    from headway.model.values.json import closest

    if given is None:
        return None
    name = {"CANCELED": "CANCELLED", "RUNNING": known[0]}.get(given.strip().upper(), given.strip().upper())
    if name not in known:
        near = closest(name, known)
        hint = f"did you mean {near}?" if near else f"one of {', '.join(known)}"
        raise BadInput(f"--status: there is no status {given!r}: {hint}", field="status")
    return name


@command(groups, "show")
def show(call: Invocation, group_id: Id) -> None:
    """Show a group with its steps by stage, its history, and the commands that continue it."""
    from headway.api.schemas.groups import group_json

    with call.desk() as desk:
        view, events = desk.shown_group(group_id, "group")
        answer_with(call, desk, view, events, group_json(view, steps=True))


def answer_with(
    call: Invocation, desk: Desk, view: GroupView, events: list[Event], shape: dict[str, Any], zone: str = "UTC"
) -> None:
    from headway.api.schemas.jobs import event_json
    from headway.cli.tables.groups import group_page, group_remedies, step_table
    from headway.cli.tables.jobs import event_table

    now = desk.now()
    if call.out.as_json:
        call.out.data({**shape, "events": [event_json(event) for event in events]})
        return
    call.out.show(group_page(view, now, zone), "", step_table(view, now), "", event_table(events, now))
    for line in group_remedies(view):
        call.out.say(line)


@command(groups, "cancel")
def cancel(call: Invocation, group_id: Id) -> None:
    """Cancel a group: waiting jobs at once, running jobs as soon as they stop."""
    from headway.api.schemas.groups import group_json

    with call.desk() as desk:
        desk.client.groups.cancel(group_id, "group")
        view = desk.group(group_id, "group")
    cancelled(call, view, group_json(view, steps=True))


def cancelled(call: Invocation, view: GroupView, shape: dict[str, Any]) -> None:
    group = view.group
    if call.out.as_json:
        call.out.data(shape)
        return
    running = [f"{step.step} (job {step.job_id})" for step in view.steps if not step.status.terminal]
    if group.finished_at is None:
        call.out.show(f"{group.kind} {group.id} is being cancelled: waiting for {', '.join(running)} to stop")
    else:
        call.out.show(f"{group.kind} {group.id} is {group.status}")


@command(groups, "retry")
def retry(call: Invocation, group_id: Id) -> None:
    """Run the failed steps and all later stages as a new group. Steps that succeeded are not run again."""
    from headway.api.schemas.groups import group_json

    with call.desk() as desk:
        made = desk.client.groups.retry(group_id, "group")
        view = desk.group(made, "group")
    retried(call, view, group_json(view, steps=True))


def retried(call: Invocation, view: GroupView, shape: dict[str, Any]) -> None:
    group = view.group
    if call.out.as_json:
        call.out.data(shape)
        return
    again = [step.step for step in view.steps if not step.linked]
    kept = len(view.steps) - len(again)
    call.out.show(str(group.id))
    linked = f"; {kept} other step{' is' if kept == 1 else 's are'} linked, not run again" if kept else ""
    steps = f"the unfinished steps of {group.retry_of}: {', '.join(again)}"
    call.out.say(f"{group.kind} {group.id} runs {steps}{linked}")
    call.out.say(f"see it with `headway {group.kind}s show {group.id}`")
