"""Builds the command tree."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from typer.core import TyperGroup

_COMMANDS = "headway.cli.commands"
# The modules of the commands, each with the names that it registers, in the order of the help text.
_REGISTERED = {
    "headway.cli.demo.scenes": ("demo",),
    f"{_COMMANDS}.up": ("up", "work"),
    f"{_COMMANDS}.dev": ("dev",),
    f"{_COMMANDS}.run": ("run", "sh"),
    f"{_COMMANDS}.call": ("call",),
    f"{_COMMANDS}.hold": ("hold",),
    f"{_COMMANDS}.status": ("status", "stats", "top", "verify", "version"),
    f"{_COMMANDS}.apply": ("apply",),
    f"{_COMMANDS}.doctor": ("doctor",),
}
# The families of commands, and the modules that have them under the same name.
_FAMILIES = {
    "jobs": f"{_COMMANDS}.jobs",
    "runs": f"{_COMMANDS}.runs",
    "groups": f"{_COMMANDS}.groups",
    "schedules": f"{_COMMANDS}.schedules",
    "executions": f"{_COMMANDS}.executions",
    "templates": f"{_COMMANDS}.templates",
    "queue": f"{_COMMANDS}.queue",
    "targets": f"{_COMMANDS}.targets",
    "webhooks": f"{_COMMANDS}.webhooks",
    "events": f"{_COMMANDS}.events",
    "limits": f"{_COMMANDS}.limits",
    "reservations": f"{_COMMANDS}.reservations",
    "tasks": f"{_COMMANDS}.tasks",
    "tokens": f"{_COMMANDS}.tokens",
    "tenants": f"{_COMMANDS}.tenants",
    "workers": f"{_COMMANDS}.status",
    "db": f"{_COMMANDS}.db",
    "config": f"{_COMMANDS}.config",
    "service": "headway.cli.service.command",
}


def _version(wanted: bool) -> None:
    if wanted:
        from headway import __version__

        print(f"headway {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Run long, expensive, exclusive jobs, one after the other, and lose none of them."""


@cache
def build(wanted: str | None = None) -> TyperGroup:
    """Builds the command tree once and returns it.

    With the first word of a command line, only the branch of that word: the other modules are not imported. A word that
    names no branch gets the whole tree, which knows what to suggest.
    """
    root = typer.Typer(no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)
    root.callback()(_root)
    known = wanted in _FAMILIES or any(wanted in names for names in _REGISTERED.values())
    for module, names in _REGISTERED.items():
        if not known or wanted in names:
            import_module(module).register(root)
    for name, module in _FAMILIES.items():
        if not known or wanted == name:
            root.add_typer(getattr(import_module(module), name), name=name)
    command = typer.main.get_command(root)
    assert isinstance(command, typer.core.TyperGroup)
    return command
