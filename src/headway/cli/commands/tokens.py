"""Creates, lists and revokes access tokens: `tokens create`, `ls`, `revoke`.

A token is printed once, when it is created.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.command import Invocation, command, family
from headway.cli.commands.jobs import Cursor, Limit, more

if TYPE_CHECKING:
    from rich.table import Table

    from headway.model.access.permissions import Token

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
    from headway.api.schemas.access import made_json
    from headway.errors import BadInput

    if system and tenant is not None:
        raise BadInput("--tenant and --system exclude each other: remove one of them", field="tenant")
    with call.workshop(bare=True) as desk:
        first = desk.is_open()
        made, plain = desk.create_token(name, role, tenant=tenant, system=system, expires=expires)
        now = desk.now()
    if call.out.as_json:
        call.out.data(made_json(made, plain, now))
    else:
        call.out.say(f"token {made.id} created for {made.name}, {_may(made)}; it is shown only this once:")
        call.out.lines(plain)
    if first:
        call.out.say("from now on every HTTP request needs a token")


@command(tokens, "ls")
def ls(call: Invocation, limit: Limit = 20, cursor: Cursor = None) -> None:
    """List tokens, the oldest first, expired and revoked ones included. The hint is the beginning of a token."""
    from headway.api.schemas.access import token_json
    from headway.store.paging import check_limit, make_cursor, read_cursor

    after = 0 if cursor is None else read_cursor(cursor)
    with call.desk() as desk:
        found = desk.client.tokens.list(everywhere=True, after=after, limit=check_limit(limit) + 1)
        now = desk.now()
    shown = found[:limit]
    rest = make_cursor(shown[-1].id) if len(found) > limit else None
    if call.out.as_json:
        call.out.data({"items": [token_json(token, now) for token in shown], "next": rest})
    elif not shown:
        call.out.say("no tokens yet: only this machine has access, and its users may do everything")
        call.out.say("create one: headway tokens create NAME --role operator")
    else:
        call.out.show(token_table(shown, now))
        more(call, rest)


@command(tokens, "revoke")
def revoke(
    call: Invocation,
    number: Annotated[int, typer.Argument(metavar="TOKEN", help="Number of the token.", show_default=False)],
) -> None:
    """Revoke a token: requests with it are refused from now on."""
    from headway.api.schemas.access import token_json
    from headway.cli.output import visible

    with call.desk() as desk:
        ended = desk.client.tokens.revoke(number, everywhere=True)
        now, last = desk.now(), desk.is_open()
    if call.out.as_json:
        call.out.data(token_json(ended, now))
    else:
        call.out.show(f"token {ended.id} of {visible(ended.name)} revoked")
    if last:
        call.out.say("it was the last token: every user of this machine may now do everything")


def token_table(found: Iterable[Token], now: int) -> Table:
    from headway.cli.output import styled, table
    from headway.cli.tables.jobs import age

    made = table("ID", "NAME", "ROLE", "TENANT", "TOKEN", "AGE", "STATE", flexible=("NAME", "TENANT"))
    for token in found:
        owner = styled("(system)" if token.tenant is None else token.tenant)
        state = styled(_state(token, now), "" if token.state(now) == "live" else "dim")
        since = age(token.created_at, now)
        made.add_row(str(token.id), styled(token.name), token.role.value, owner, token.hint, since, state)
    return made


def _state(token: Token, now: int) -> str:
    from headway.cli.tables.jobs import about

    state = token.state(now)
    if state == "live" and token.expires_at is not None:
        return f"expires in {about((token.expires_at - now) / 1e6)}"
    return state


def _may(token: Token) -> str:
    return f"{token.role.value} of {'the system' if token.tenant is None else token.tenant}"
