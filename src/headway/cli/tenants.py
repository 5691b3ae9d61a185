"""Separate worlds in one database: `tenants ls`, `create`, `edit`, `deactivate`, `activate`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.call import Call, command, family
from headway.cli.jobs import Limit

if TYPE_CHECKING:
    from rich.table import Table

    from headway.model.tenant import Tenant

tenants = family("Make tenants, look at them, limit them, switch them off and on.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="A tenant.", show_default=False)]
Queued = Annotated[str | None, typer.Option("--max-queued", metavar="N|none", help="How many jobs may wait.")]
Running = Annotated[str | None, typer.Option("--max-running", metavar="N|none", help="How many jobs may run at once.")]
Schedules = Annotated[str | None, typer.Option("--max-schedules", metavar="N|none", help="How many schedules.")]


@command(tenants, "ls")
def ls(
    call: Call,
    limit: Limit = 50,
    after: Annotated[str, typer.Option(metavar="NAME", help="Only those that come after this one.")] = "",
) -> None:
    """List tenants by name: whether they are active, and how much they may have."""
    from headway.api.wire.tenants import tenant_json
    from headway.store.pages import check_limit

    with call.desk() as desk:
        found = desk.client.tenants.list(after=after, limit=check_limit(limit) + 1)
    shown, rest = found[:limit], found[limit - 1].name if len(found) > limit else None
    if call.out.as_json:
        call.out.data({"items": [tenant_json(one) for one in shown], "next": rest})
        return
    call.out.show(tenant_table(shown))
    if rest is not None:
        call.out.say(f"more: --after {rest!r}")


@command(tenants, "create")
def create(
    call: Call, name: Name, max_queued: Queued = None, max_running: Running = None, max_schedules: Schedules = None
) -> None:
    """Make a tenant. Its jobs, schedules, targets and tokens are its own, and take turns with the others'."""
    wishes = _limits(max_queued, max_running, max_schedules)
    with call.workshop(bare=True) as desk:
        _answer(call, desk.client.tenants.create(name, **wishes), "made")


@command(tenants, "edit")
def edit(
    call: Call, name: Name, max_queued: Queued = None, max_running: Running = None, max_schedules: Schedules = None
) -> None:
    """Change how much a tenant may have, at once. What is there stays, and what runs goes on."""
    from headway.errors import BadInput

    wishes = _limits(max_queued, max_running, max_schedules)
    if not wishes:
        raise BadInput("say what to change: --max-queued, --max-running or --max-schedules, a number or none")
    with call.desk() as desk:
        _answer(call, desk.client.tenants.edit(name, wishes), "changed")


@command(tenants, "deactivate")
def deactivate(call: Call, name: Name) -> None:
    """Switch a tenant off: nothing of it starts, it gets no new jobs, its tokens are refused. What runs goes on."""
    with call.desk() as desk:
        _answer(call, desk.client.tenants.deactivate(name), f"inactive: headway tenants activate {name} switches it on")


@command(tenants, "activate")
def activate(call: Call, name: Name) -> None:
    """Switch a tenant on: its queue goes on where it stood."""
    with call.desk() as desk:
        _answer(call, desk.client.tenants.activate(name), "active")


def _limits(queued: str | None, running: str | None, schedules: str | None) -> dict[str, int | None]:
    given = {"max_queued": queued, "max_running": running, "max_schedules": schedules}
    return {name: _limit(name, text) for name, text in given.items() if text is not None}


def _limit(name: str, text: str) -> int | None:
    from headway.errors import BadInput

    if text.strip().lower() == "none":
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 10:
        option = name.replace("_", "-")
        raise BadInput(f"--{option} must be a whole number from 0, or none, not {text!r}", field=name)
    return int(text)


def _answer(call: Call, tenant: Tenant, what: str) -> None:
    from headway.api.wire.tenants import tenant_json
    from headway.cli.out import visible

    if call.out.as_json:
        call.out.data(tenant_json(tenant))
    else:
        call.out.show(f"tenant {visible(tenant.name)} {what}")


def tenant_table(found: Iterable[Tenant]) -> Table:
    from headway.cli.out import styled, table

    made = table("ID", "NAME", "STATE", "MAX QUEUED", "MAX RUNNING", "MAX SCHEDULES", flexible=("NAME",))
    for one in found:
        state = "inactive" if not one.active else "paused" if one.paused_at is not None else "active"
        limits = ("none" if most is None else str(most) for most in one.allowance.facts().values())
        made.add_row(str(one.id), styled(one.name), styled(state, "" if state == "active" else "yellow"), *limits)
    return made
