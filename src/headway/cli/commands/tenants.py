"""Shows and changes tenants: `tenants ls`, `create`, `edit`, `set`, `deactivate`, `activate`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.command import Invocation, command, family
from headway.cli.commands.jobs import Limit

if TYPE_CHECKING:
    from rich.table import Table

    from headway.cli.output import Json

tenants = family("List, create, limit, deactivate and activate tenants.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the tenant.", show_default=False)]
Queued = Annotated[str | None, typer.Option("--max-queued", metavar="N|none", help="Limit of waiting jobs.")]
Running = Annotated[str | None, typer.Option("--max-running", metavar="N|none", help="Limit of running jobs.")]
Allow = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="KIND|all|none", help="Admin kinds that its own admins may give: command, …"),
]
DefaultAllow = Annotated[
    list[str] | None,
    typer.Option(
        "--default-allow",
        metavar="KIND|all|none",
        help="Admin kinds that the tenant default keeps.",
    ),
]
Schedules = Annotated[str | None, typer.Option("--max-schedules", metavar="N|none", help="Limit of schedules.")]


@command(tenants, "ls")
def ls(
    call: Invocation,
    limit: Limit = 50,
    after: Annotated[str, typer.Option(metavar="NAME", help="Only tenants whose names come after this one.")] = "",
) -> None:
    """List tenants by name, with their state and limits."""
    with call.backend() as backend:
        page = backend.tenants.page(limit, after)
    rest = page["next"]
    notes = [] if rest is None else [f"there are more: --after {rest!r}"]
    call.out.answer(page, lambda: [tenant_table(page["items"])], notes=notes)


@command(tenants, "show")
def show(call: Invocation, name: Name) -> None:
    """Show a tenant with its state and limits."""
    with call.backend() as backend:
        found = backend.tenants.get(name)
    call.out.answer(found, lambda: [tenant_table([found])])


@command(tenants, "create")
def create(
    call: Invocation,
    name: Name,
    max_queued: Queued = None,
    max_running: Running = None,
    max_schedules: Schedules = None,
    allow: Allow = None,
    default_allow: DefaultAllow = None,
) -> None:
    """Create a tenant with its own jobs, schedules, targets and tokens. Tenants with waiting jobs take turns."""
    options, kinds = _limits(max_queued, max_running, max_schedules), _kinds(allow)
    with call.new_backend(bare=True) as backend:
        there = backend.tenants.page(2)["items"]
        kept = _kinds(default_allow) if default_allow is not None else None
        if kept is None and len(there) == 1 and there[0]["allow"]:
            kept = _kept_by_default(call, tuple(there[0]["allow"]))
        made = backend.tenants.create(name, allow=kinds, default_allow=kept, **options)
    _answer(call, made, "created")
    _say_consequence(call, name, kinds)
    _say_consequence(call, "default", kept or ())


def _kept_by_default(call: Invocation, kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the admin kinds that the tenant `default` keeps now that it gets a neighbour; asks on a terminal."""
    import sys

    from headway.errors import BadInput

    question = f"until now the admins of the tenant default could run {', '.join(kinds)} as the user of the worker"
    if call.out.as_json or not sys.stdin.isatty():
        raise BadInput(
            f"{question}, and this is the second tenant: say what holds from now on with --default-allow none,"
            " --default-allow all, or a kind",
            field="default_allow",
        )
    call.out.say(f"{question}. That user can read the jobs and secrets of the new tenant too.")
    return kinds if typer.confirm("Shall they keep that beside the new tenant?", err=True) else ()


@command(tenants, "set")
def set_kinds(call: Invocation, name: Name, allow: Allow = None) -> None:
    """Open a tenant for admin kinds, which its own admins may then give, and close it for the others."""
    from headway.errors import BadInput

    if allow is None:
        raise BadInput("no change given: give --allow with a kind, all or none", field="allow")
    kinds = _kinds(allow)
    with call.backend() as backend:
        tenant = backend.tenants.edit(name, {"allow": list(kinds)})
    _answer(call, tenant, f"is open for {', '.join(kinds)}" if kinds else "is open for no admin kind")
    _say_consequence(call, name, kinds)


def _kinds(given: list[str] | None) -> tuple[str, ...]:
    from headway.model.access.authority import KINDS, check_kinds

    wanted = [kind.strip() for text in given or [] for kind in text.split(",")]
    if "all" in wanted:
        return KINDS
    return check_kinds([kind for kind in wanted if kind != "none"], field="--allow")


def _say_consequence(call: Invocation, name: str, kinds: tuple[str, ...]) -> None:
    from headway.cli.output import visible

    if kinds:
        call.out.say(
            f"every admin of {visible(name)} now runs code as the user of the worker: they can read what that user"
            " can, the jobs and secrets of other tenants included; see docs/tenants.md"
        )
        if "sql" in kinds:
            call.out.say(
                f"sql opens every database in `connections` of the settings to {visible(name)}: none has owners"
            )


@command(tenants, "edit")
def edit(
    call: Invocation,
    name: Name,
    max_queued: Queued = None,
    max_running: Running = None,
    max_schedules: Schedules = None,
) -> None:
    """Change the limits of a tenant at once. Existing jobs stay, and running jobs continue."""
    from headway.errors import BadInput

    options = _limits(max_queued, max_running, max_schedules)
    if not options:
        raise BadInput("no change given: give --max-queued, --max-running or --max-schedules, a number or none")
    with call.backend() as backend:
        _answer(call, backend.tenants.edit(name, options), "changed")


@command(tenants, "deactivate")
def deactivate(call: Invocation, name: Name) -> None:
    """Deactivate a tenant: its jobs do not start, new jobs and its tokens are refused. Running jobs continue."""
    with call.backend() as backend:
        outcome = f"deactivated: activate it again with `headway tenants activate {name}`"
        _answer(call, backend.tenants.deactivate(name), outcome)


@command(tenants, "activate")
def activate(call: Invocation, name: Name) -> None:
    """Activate a tenant: its queue continues where it stopped."""
    with call.backend() as backend:
        _answer(call, backend.tenants.activate(name), "activated")


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


def _answer(call: Invocation, tenant: Json, what: str) -> None:
    from headway.cli.output import visible

    call.out.answer(tenant, lambda: [f"tenant {visible(tenant['name'])} {what}"])


def tenant_table(found: Iterable[Json]) -> Table:
    from headway.cli.output import styled, table

    made = table("ID", "NAME", "STATE", "MAX QUEUED", "MAX RUNNING", "MAX SCHEDULES", "OPEN FOR", flexible=("NAME",))
    for tenant in found:
        state = "inactive" if not tenant["active"] else "paused" if tenant["paused_at"] is not None else "active"
        most = (tenant[name] for name in ("max_queued", "max_running", "max_schedules"))
        limits = ("none" if limit is None else str(limit) for limit in most)
        style = "" if state == "active" else "yellow"
        kinds = ", ".join(tenant["allow"]) or "none"
        made.add_row(str(tenant["tenant_id"]), styled(tenant["name"]), styled(state, style), *limits, kinds)
    return made
