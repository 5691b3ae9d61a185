"""Creates, lists and revokes access tokens: `tokens create`, `ls`, `revoke`.

A token is printed once, when it is created.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.command import Invocation, command, family
from headway.cli.commands.jobs import Cursor, Limit

if TYPE_CHECKING:
    from rich.table import Table

    from headway.cli.output import Json

tokens = family("Create, list and revoke the access tokens of HTTP clients.")
ROLES = "viewer, operator or admin"


@command(tokens, "create")
def create(
    call: Invocation,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the user or program that gets it.", show_default=False)
    ],
    role: Annotated[str, typer.Option(metavar="ROLE", help=f"Role: {ROLES}.")],
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Tenant of the token (default: default).")] = None,
    system: Annotated[bool, typer.Option("--system", help="For all tenants and the installation itself.")] = False,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME|DURATION", help="Expiry: 90d, or 2026-12-31T00:00:00Z.")
    ] = None,
) -> None:
    """Create a token and print it. Only its hash is stored, so it cannot be shown again."""
    from headway.errors import BadInput

    if system and tenant is not None:
        raise BadInput("--tenant and --system exclude each other: remove one of them", field="tenant")
    with call.new_backend(bare=True) as backend:
        first = backend.tokens.is_open()
        made = backend.tokens.create(name, role, tenant=tenant, system=system, expires=expires)
    if call.out.as_json:
        call.out.data(made)
    else:
        call.out.say(f"token {made['token_id']} created for {made['name']}, {_may(made)}; it is shown only this once:")
        call.out.lines(made["token"])
    if first:
        call.out.say("from now on every HTTP request needs a token")


@command(tokens, "ls")
def ls(call: Invocation, limit: Limit = 20, cursor: Cursor = None) -> None:
    """List tokens, the oldest first, expired and revoked ones included. The hint is the beginning of a token."""
    empty = (
        "no tokens yet: only this machine has access, and its users may do everything",
        "create one: headway tokens create NAME --role operator",
    )
    with call.backend() as backend:
        call.out.page(backend.tokens.page(limit, cursor), lambda found: token_table(found, backend.now()), empty=empty)


@command(tokens, "show")
def show(
    call: Invocation,
    number: Annotated[int, typer.Argument(metavar="TOKEN", help="Number of the token.", show_default=False)],
) -> None:
    """Show a token without its text."""
    with call.backend() as backend:
        found, now = backend.tokens.get(number), backend.now()
    call.out.answer(found, lambda: [token_table([found], now)])


@command(tokens, "revoke")
def revoke(
    call: Invocation,
    number: Annotated[int, typer.Argument(metavar="TOKEN", help="Number of the token.", show_default=False)],
) -> None:
    """Revoke a token: requests with it are refused from now on."""
    from headway.cli.output import visible

    with call.backend() as backend:
        ended = backend.tokens.revoke(number)
        last = backend.tokens.is_open()
    call.out.answer(ended, lambda: [f"token {ended['token_id']} of {visible(ended['name'])} revoked"])
    if last:
        call.out.say("it was the last token: every user of this machine may now do everything")


def token_table(found: Iterable[Json], now: int) -> Table:
    from headway.cli.output import styled, table
    from headway.cli.tables.times import age

    made = table("ID", "NAME", "ROLE", "TENANT", "TOKEN", "AGE", "STATE", flexible=("NAME", "TENANT"))
    for token in found:
        owner = styled("(system)" if token["tenant"] is None else token["tenant"])
        state = styled(_state(token, now), "" if token["state"] == "live" else "dim")
        since = age(token["created_at"], now)
        made.add_row(str(token["token_id"]), styled(token["name"]), token["role"], owner, token["hint"], since, state)
    return made


def _state(token: Json, now: int) -> str:
    from headway.cli.tables.times import about, moment

    if token["state"] == "live" and token["expires_at"] is not None:
        return f"expires in {about((moment(token['expires_at']) - now) / 1e6)}"
    return str(token["state"])


def _may(token: Json) -> str:
    return f"{token['role']} of {'the system' if token['tenant'] is None else token['tenant']}"
