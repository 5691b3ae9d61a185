"""Templates, stored defaults for a task: `templates ls`, `show`, `create`, `edit`, `archive`, `run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.call import Call, command, family
from headway.cli.choosing import number_or_name
from headway.cli.jobs import Cursor, Limit, more
from headway.cli.running import (
    NONE,
    AppOption,
    BaseDelay,
    Budget,
    Delay,
    ExpiresAt,
    Follow,
    Hold,
    Key,
    NotBefore,
    OnError,
    OnLost,
    Priority,
    Resources,
    Retries,
    Target,
    Timeout,
    make_of_template,
    wishes,
)

if TYPE_CHECKING:
    from headway.model.template import Template

templates = family("Look at templates, stored defaults for a task; make them, change them, run them.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="A template by its name or number.", show_default=False)]
Pairs = Annotated[list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Params.", show_default=False)]
Params = Annotated[str | None, typer.Option(metavar="JSON|@FILE|-", help="All params at once; - reads stdin.")]
Description = Annotated[str | None, typer.Option(metavar="TEXT", help="What it is for.")]
OpenParams = Annotated[
    list[str], typer.Option("--open-param", metavar="NAME", help="A param that operators may set; may be repeated.")
]


@command(templates, "ls")
def ls(
    call: Call,
    archived: Annotated[bool, typer.Option("--archived", help="Those that are archived too.")] = False,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> None:
    """List templates, the oldest first."""
    from headway.api.wire.plans import template_json
    from headway.cli.plan_tables import template_table
    from headway.store.pages import check_limit, make_cursor, read_cursor

    after = 0 if cursor is None else read_cursor(cursor)
    with call.desk() as desk:
        found = desk.client.templates.list(after=after, archived=archived, limit=check_limit(limit) + 1)
    shown = found[:limit]
    rest = make_cursor(shown[-1].id) if len(found) > limit else None
    if call.out.as_json:
        call.out.data({"items": [template_json(one) for one in shown], "next": rest})
    elif not shown:
        call.out.say("no templates yet")
        call.out.say("make one: headway templates create NAME --task TASK name=value")
    else:
        call.out.show(template_table(shown))
        more(call, rest)


@command(templates, "show")
def show(call: Call, name: Name) -> None:
    """Show everything about a template, with its history."""
    from headway.api.wire.jobs import event_json
    from headway.api.wire.plans import template_json
    from headway.cli.plan_tables import template_page
    from headway.cli.tables import event_table

    with call.desk() as desk:
        one, events = desk.shown_template(number_or_name(name))
        now = desk.now()
    if call.out.as_json:
        call.out.data({**template_json(one), "events": [event_json(event) for event in events]})
    else:
        call.out.show(template_page(one, now), "", event_table(events, now))


def _fields(
    *,
    priority: int | None,
    target: str | None,
    resource: list[str],
    timeout: str | None,
    retries: int | None,
    base_delay: str | None,
    budget: list[str],
    on_lost: str | None,
    on_error: str | None,
    description: str | None,
    open_param: list[str],
) -> dict[str, Any]:
    """What was said, by the names of the fields."""
    from headway.cli import parsing

    retry = {"max_attempts": retries, "base_delay": base_delay}
    given = {
        "priority": priority,
        "target": target,
        "resources": resource or None,
        "timeout": timeout,
        "retry_policy": {name: wish for name, wish in retry.items() if wish is not None} or None,
        "budget": parsing.budget(budget),
        "on_lost": on_lost,
        "on_error": on_error,
        "description": description,
        "open_params": open_param or None,
    }
    return {name: wish for name, wish in given.items() if wish is not None}


def _answer(call: Call, one: Template, said: str) -> None:
    from headway.api.wire.plans import template_json
    from headway.cli.out import visible

    if call.out.as_json:
        call.out.data(template_json(one))
        return
    call.out.show(f"{visible(one.name)} {said}: template {one.id} of {one.task}, version {one.version}")


@command(templates, "create")
def create(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.", show_default=False)],
    task: Annotated[str, typer.Option(metavar="TASK", help="The task it is for.")],
    pairs: Pairs = None,
    params: Params = None,
    priority: Priority = None,
    target: Target = None,
    resource: Resources = NONE,
    timeout: Timeout = None,
    retries: Retries = None,
    base_delay: BaseDelay = None,
    budget: Budget = NONE,
    on_lost: OnLost = None,
    on_error: OnError = None,
    description: Description = None,
    open_param: OpenParams = NONE,
    app: AppOption = None,
) -> None:
    """Store defaults for a task: params and options. Params that are left out are for those who run it."""
    from headway.cli import parsing

    fields = _fields(
        priority=priority,
        target=target,
        resource=resource,
        timeout=timeout,
        retries=retries,
        base_delay=base_delay,
        budget=budget,
        on_lost=on_lost,
        on_error=on_error,
        description=description,
        open_param=open_param,
    )
    fields["params"] = parsing.params(pairs or [], params)
    with call.workshop(app, task=task, resources=resource) as desk:
        _answer(call, desk.client.templates.create(name, task, **fields), "made")


@command(templates, "edit")
def edit(
    call: Call,
    name: Name,
    pairs: Pairs = None,
    params: Params = None,
    rename: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Another name.")] = None,
    task: Annotated[str | None, typer.Option(metavar="TASK", help="Another task.")] = None,
    clear: Annotated[list[str], typer.Option(metavar="FIELD", help="Take a field away; may be repeated.")] = NONE,
    priority: Priority = None,
    target: Target = None,
    resource: Resources = NONE,
    timeout: Timeout = None,
    retries: Retries = None,
    base_delay: BaseDelay = None,
    budget: Budget = NONE,
    on_lost: OnLost = None,
    on_error: OnError = None,
    description: Description = None,
    open_param: OpenParams = NONE,
    app: AppOption = None,
) -> None:
    """Change a template. Jobs and executions that exist keep what they got."""
    from headway.cli import parsing
    from headway.errors import BadInput
    from headway.model.template import FIELDS

    fields = _fields(
        priority=priority,
        target=target,
        resource=resource,
        timeout=timeout,
        retries=retries,
        base_delay=base_delay,
        budget=budget,
        on_lost=on_lost,
        on_error=on_error,
        description=description,
        open_param=open_param,
    )
    for field in clear:
        if field not in FIELDS:
            raise BadInput(f"--clear: a template has no field {field!r}: one of {', '.join(FIELDS)}", field="clear")
    fields |= dict.fromkeys(clear)
    fields |= {what: said for what, said in (("name", rename), ("task", task)) if said is not None}
    given = parsing.params(pairs or [], params)
    if not fields and not given and params is None:
        raise BadInput("edit what? Give name=value, --params, or an option: see `headway templates edit --help`")
    with call.workshop(app) if app else call.desk() as desk:
        before = desk.client.templates.get(number_or_name(name))
        if given or params is not None:  # single params are set, the others stay as they were when we looked
            fields["params"] = given if params is not None else {**before.params, **given}
        changed = desk.client.templates.edit(before.id, if_version=before.version, **fields)
        _answer(call, changed, "changed")


@command(templates, "archive")
def archive(call: Call, name: Name) -> None:
    """Let no more jobs be made of a template. What was made of it stays; its name is free again."""
    with call.desk() as desk:
        _answer(call, desk.client.templates.archive(number_or_name(name)), "archived")


@command(templates, "run")
def run(
    call: Call,
    name: Name,
    pairs: Pairs = None,
    params: Params = None,
    follow: Follow = False,
    priority: Priority = None,
    delay: Delay = None,
    not_before: NotBefore = None,
    expires_at: ExpiresAt = None,
    key: Key = None,
    timeout: Timeout = None,
    retries: Retries = None,
    base_delay: BaseDelay = None,
    budget: Budget = NONE,
    hold: Hold = False,
    on_lost: OnLost = None,
    on_error: OnError = None,
    target: Target = None,
    resource: Resources = NONE,
    app: AppOption = None,
) -> int:
    """Make a job of a template, with other params and options where they are given."""
    from headway.cli import parsing

    given = wishes(
        priority=priority,
        delay=delay,
        not_before=not_before,
        expires_at=expires_at,
        key=key,
        timeout=timeout,
        retries=retries,
        base_delay=base_delay,
        budget=budget,
        hold=hold,
        on_lost=on_lost,
        on_error=on_error,
        target=target,
        resources=resource,
    )
    values = parsing.params(pairs or [], params)
    return make_of_template(call, app, name, values, given, follow=follow)
