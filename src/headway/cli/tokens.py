"""Who may come in over HTTP: `tokens create`, `ls`, `revoke`. A token is printed once, when it is made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.call import Call, command, family
from headway.cli.jobs import Cursor, Limit, more

if TYPE_CHECKING:
    from rich.table import Table

    from headway.model.access import Token

tokens = family("Make tokens for programs and people that come over HTTP, list them, revoke them.")
ROLES = "viewer, operator or admin"


@command(tokens, "create")
def create(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who it is for.", show_default=False)],
    role: Annotated[str, typer.Option(metavar="ROLE", help=f"What it may do: {ROLES}.")],
    tenant: Annotated[
        str | None, typer.Option(metavar="NAME", help="The tenant it is for; default if not said.")
    ] = None,
    system: Annotated[bool, typer.Option("--system", help="For all tenants, and the installation itself.")] = False,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME|DURATION", help="When it ends: 90d, or 2026-12-31T00:00:00Z.")
    ] = None,
) -> None:
    """Make a token and print it. It is stored as a hash: nobody can show it again."""
    from headway.api.wire.access import made_json
    from headway.errors import BadInput

    if system and tenant is not None:
        raise BadInput("say --tenant or --system, not both", field="tenant")
    with call.workshop(bare=True) as desk:
        first = desk.is_open()
        made, plain = desk.create_token(name, role, tenant=tenant, system=system, expires=expires)
        now = desk.now()
    if call.out.as_json:
        call.out.data(made_json(made, plain, now))
    else:
        call.out.say(f"token {made.id} made for {made.name}, {_may(made)}; it is shown this once:")
        call.out.lines(plain)
    if first:
        call.out.say("from now on every HTTP request needs a token")


@command(tokens, "ls")
def ls(call: Call, limit: Limit = 20, cursor: Cursor = None) -> None:
    """List tokens, the oldest first, also those that have ended. The hint is how a token begins."""
    from headway.api.wire.access import token_json
    from headway.store.pages import check_limit, make_cursor, read_cursor

    after = 0 if cursor is None else read_cursor(cursor)
    with call.desk() as desk:
        found = desk.client.tokens.list(everywhere=True, after=after, limit=check_limit(limit) + 1)
        now = desk.now()
    shown = found[:limit]
    rest = make_cursor(shown[-1].id) if len(found) > limit else None
    if call.out.as_json:
        call.out.data({"items": [token_json(one, now) for one in shown], "next": rest})
    elif not shown:
        call.out.say("no tokens yet: only this machine can come in, and it may do everything")
        call.out.say("make one: headway tokens create NAME --role operator")
    else:
        call.out.show(token_table(shown, now))
        more(call, rest)


@command(tokens, "revoke")
def revoke(
    call: Call,
    number: Annotated[int, typer.Argument(metavar="TOKEN", help="A token by its number.", show_default=False)],
) -> None:
    """Let a token open nothing any more, from this moment on."""
    from headway.api.wire.access import token_json
    from headway.cli.out import visible

    with call.desk() as desk:
        ended = desk.client.tokens.revoke(number, everywhere=True)
        now, last = desk.now(), desk.is_open()
    if call.out.as_json:
        call.out.data(token_json(ended, now))
    else:
        call.out.show(f"token {ended.id} of {visible(ended.name)} revoked")
    if last:
        call.out.say("it was the last one: whoever is on this machine may do everything now")


def token_table(found: Iterable[Token], now: int) -> Table:
    from headway.cli.out import styled, table
    from headway.cli.tables import age

    made = table("ID", "NAME", "ROLE", "TENANT", "TOKEN", "AGE", "STATE", flexible=("NAME", "TENANT"))
    for one in found:
        owner = styled("(system)" if one.tenant is None else one.tenant)
        state = styled(_state(one, now), "" if one.state(now) == "live" else "dim")
        made.add_row(str(one.id), styled(one.name), one.role.value, owner, one.hint, age(one.created_at, now), state)
    return made


def _state(token: Token, now: int) -> str:
    from headway.cli.tables import about

    state = token.state(now)
    if state == "live" and token.expires_at is not None:
        return f"ends in {about((token.expires_at - now) / 1e6)}"
    return state


def _may(token: Token) -> str:
    return f"{token.role.value} of {'the system' if token.tenant is None else token.tenant}"
