"""All commands in one tree."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import applying, demo, developing, doctor, hold, running, serving, system
from headway.cli.db import db
from headway.cli.executions import executions
from headway.cli.groups import groups
from headway.cli.jobs import jobs
from headway.cli.limits import limits
from headway.cli.queue import queue
from headway.cli.runs import runs
from headway.cli.schedules import schedules
from headway.cli.service import service
from headway.cli.settings import config
from headway.cli.targets import targets
from headway.cli.templates import templates
from headway.cli.tenants import tenants
from headway.cli.tokens import tokens
from headway.cli.webhooks import webhooks

if TYPE_CHECKING:
    from typer.core import TyperGroup


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
def build() -> TyperGroup:
    """The command tree, ready to be run."""
    root = typer.Typer(no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)
    root.callback()(_root)
    for part in (demo, serving, developing, running, hold, system, applying, doctor):
        part.register(root)
    families = {
        "jobs": jobs,
        "runs": runs,
        "groups": groups,
        "schedules": schedules,
        "executions": executions,
        "templates": templates,
        "queue": queue,
        "targets": targets,
        "webhooks": webhooks,
        "limits": limits,
        "tokens": tokens,
        "tenants": tenants,
        "workers": system.workers,
        "db": db,
        "config": config,
        "service": service,
    }
    for name, one in families.items():
        root.add_typer(one, name=name)
    command = typer.main.get_command(root)
    assert isinstance(command, typer.core.TyperGroup)
    return command
