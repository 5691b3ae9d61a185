"""Shows, changes and runs templates: `templates ls`, `show`, `create`, `edit`, `archive`, `run`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.command import Invocation, command, family
from headway.cli.commands.jobs import Cursor, Limit, more
from headway.cli.commands.run import AppOption, Follow, make_of_template
from headway.cli.job_options import NewJobOptions, StoredOptions, present
from headway.cli.job_selection import number_or_name

if TYPE_CHECKING:
    from headway.model.templates import Template

NONE: list[str] = []
templates = family("List, create, change, archive and run templates, stored defaults for a task.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name or number of the template.", show_default=False)]
Pairs = Annotated[list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Params.", show_default=False)]
Params = Annotated[str | None, typer.Option(metavar="JSON|@FILE|-", help="Params as a whole; - reads stdin.")]


@dataclass(frozen=True)
class TemplateOptions(StoredOptions):
    """The options of a template."""

    description: Annotated[str | None, typer.Option(metavar="TEXT", help="Purpose of the template.")] = None
    open_param: Annotated[
        list[str], typer.Option("--open-param", metavar="NAME", help="Param that operators may set; may be repeated.")
    ] = field(default_factory=list)

    def fields(self) -> dict[str, Any]:
        return super().fields() | present({"description": self.description, "open_params": self.open_param or None})


@command(templates, "ls")
def ls(
    call: Invocation,
    archived: Annotated[bool, typer.Option("--archived", help="Include archived templates.")] = False,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> None:
    """List templates, the oldest first."""
    from headway.api.schemas.groups import template_json
    from headway.cli.tables.groups import template_table
    from headway.store.paging import check_limit, make_cursor, read_cursor

    after = 0 if cursor is None else read_cursor(cursor)
    with call.desk() as desk:
        found = desk.client.templates.list(after=after, archived=archived, limit=check_limit(limit) + 1)
    shown = found[:limit]
    rest = make_cursor(shown[-1].id) if len(found) > limit else None
    if call.out.as_json:
        call.out.data({"items": [template_json(template) for template in shown], "next": rest})
    elif not shown:
        call.out.say("no templates yet")
        call.out.say("create one: headway templates create NAME --task TASK name=value")
    else:
        call.out.show(template_table(shown))
        more(call, rest)


@command(templates, "show")
def show(call: Invocation, name: Name) -> None:
    """Show a template with its history."""
    from headway.api.schemas.groups import template_json
    from headway.api.schemas.jobs import event_json
    from headway.cli.tables.groups import template_page
    from headway.cli.tables.jobs import event_table

    with call.desk() as desk:
        template, events = desk.shown_template(number_or_name(name))
        now = desk.now()
    if call.out.as_json:
        call.out.data({**template_json(template), "events": [event_json(event) for event in events]})
    else:
        call.out.show(template_page(template, now), "", event_table(events, now))


def _answer(call: Invocation, template: Template, said: str) -> None:
    from headway.api.schemas.groups import template_json
    from headway.cli.output import visible

    if call.out.as_json:
        call.out.data(template_json(template))
        return
    facts = f"template {template.id} of {template.task}, version {template.version}"
    call.out.show(f"{visible(template.name)} {said}: {facts}")


@command(templates, "create")
def create(
    call: Invocation,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new template.", show_default=False)],
    task: Annotated[str, typer.Option(metavar="TASK", help="Task of the template.")],
    options: TemplateOptions,
    pairs: Pairs = None,
    params: Params = None,
    app: AppOption = None,
) -> None:
    """Create a template: stored params and options for a task. The remaining params are given when it runs."""
    from headway.cli import arguments

    fields = options.fields()
    fields["params"] = arguments.params(pairs or [], params)
    with call.workshop(app, task=task, resources=options.resource) as desk:
        _answer(call, desk.client.templates.create(name, task, **fields), "created")


@command(templates, "edit")
def edit(
    call: Invocation,
    name: Name,
    options: TemplateOptions,
    pairs: Pairs = None,
    params: Params = None,
    rename: Annotated[str | None, typer.Option("--name", metavar="NAME", help="New name.")] = None,
    task: Annotated[str | None, typer.Option(metavar="TASK", help="New task.")] = None,
    clear: Annotated[list[str], typer.Option(metavar="FIELD", help="Field to remove; may be repeated.")] = NONE,
    app: AppOption = None,
) -> None:
    """Change a template. Existing jobs and executions keep their values."""
    from headway.cli import arguments
    from headway.errors import BadInput
    from headway.model.templates import FIELDS

    fields = options.fields()
    for name_of_field in clear:
        if name_of_field not in FIELDS:
            raise BadInput(
                f"--clear: a template has no field {name_of_field!r}: one of {', '.join(FIELDS)}", field="clear"
            )
    fields |= dict.fromkeys(clear)
    fields |= {what: said for what, said in (("name", rename), ("task", task)) if said is not None}
    given = arguments.params(pairs or [], params)
    if not fields and not given and params is None:
        raise BadInput("no change given: give name=value, --params or an option, see `headway templates edit --help`")
    with call.workshop(app) if app else call.desk() as desk:
        before = desk.client.templates.get(number_or_name(name))
        if given or params is not None:  # `name=value` changes single params; the version guards the others
            fields["params"] = given if params is not None else {**before.params, **given}
        changed = desk.client.templates.edit(before.id, if_version=before.version, **fields)
        _answer(call, changed, "changed")


@command(templates, "archive")
def archive(call: Invocation, name: Name) -> None:
    """Archive a template: it creates no more jobs. Existing jobs stay; its name becomes free."""
    with call.desk() as desk:
        _answer(call, desk.client.templates.archive(number_or_name(name)), "archived")


@command(templates, "run")
def run(
    call: Invocation,
    name: Name,
    options: NewJobOptions,
    pairs: Pairs = None,
    params: Params = None,
    follow: Follow = False,
    app: AppOption = None,
) -> int:
    """Create a job of a template. Given params and options override those of the template."""
    from headway.cli import arguments

    values = arguments.params(pairs or [], params)
    return make_of_template(call, app, name, values, options, follow=follow)
