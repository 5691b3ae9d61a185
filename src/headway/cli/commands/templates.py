"""Shows, changes and runs templates: `templates ls`, `show`, `create`, `edit`, `archive`, `run`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.command import Invocation, command, family
from headway.cli.commands.jobs import Cursor, Limit
from headway.cli.commands.run import AppOption, Follow, make_of_template
from headway.cli.job_options import NewJobOptions, StoredOptions, present
from headway.cli.job_selection import number_or_name

if TYPE_CHECKING:
    from headway.cli.output import Json

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
    from headway.cli.tables.templates import template_table

    empty = ("no templates yet", "create one: headway templates create NAME --task TASK name=value")
    with call.backend() as backend:
        page = backend.templates.page(limit, cursor, archived=archived)
    call.out.page(page, template_table, empty=empty)


@command(templates, "show")
def show(call: Invocation, name: Name) -> None:
    """Show a template with its history."""
    from headway.cli.tables.events import event_table
    from headway.cli.tables.templates import template_page

    with call.backend() as backend:
        template, now = backend.templates.shown(number_or_name(name)), backend.now()
    call.out.answer(template, lambda: [template_page(template, now), "", event_table(template["events"], now)])


def _answer(call: Invocation, template: Json, outcome: str) -> None:
    from headway.cli.output import visible

    facts = f"template {template['template_id']} of {template['task']}, version {template['version']}"
    call.out.answer(template, lambda: [f"{visible(template['name'])} {outcome}: {facts}"])


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
    with call.new_backend(app, task=task, resources=options.resource) as backend:
        _answer(call, backend.templates.create(name, task, **fields), "created")


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
    fields |= {what: outcome for what, outcome in (("name", rename), ("task", task)) if outcome is not None}
    given = arguments.params(pairs or [], params)
    if not fields and not given and params is None:
        raise BadInput("no change given: give name=value, --params or an option, see `headway templates edit --help`")
    with call.new_backend(app) if app else call.backend() as backend:
        before = backend.templates.get(number_or_name(name))
        if given or params is not None:  # `name=value` changes single params; the version guards the others
            fields["params"] = given if params is not None else {**before["params"], **given}
        changed = backend.templates.edit(before["template_id"], if_version=before["version"], **fields)
        _answer(call, changed, "changed")


@command(templates, "archive")
def archive(call: Invocation, name: Name) -> None:
    """Archive a template: it creates no more jobs. Existing jobs stay; its name becomes free."""
    with call.backend() as backend:
        _answer(call, backend.templates.archive(number_or_name(name)), "archived")


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
