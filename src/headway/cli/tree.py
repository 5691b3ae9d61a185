"""Builds the command tree."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.commands import apply, dev, doctor, hold, run, status, up
from headway.cli.commands.config import config
from headway.cli.commands.db import db
from headway.cli.commands.events import events
from headway.cli.commands.executions import executions
from headway.cli.commands.groups import groups
from headway.cli.commands.jobs import jobs
from headway.cli.commands.limits import limits
from headway.cli.commands.queue import queue
from headway.cli.commands.reservations import reservations
from headway.cli.commands.runs import runs
from headway.cli.commands.schedules import schedules
from headway.cli.commands.targets import targets
from headway.cli.commands.templates import templates
from headway.cli.commands.tenants import tenants
from headway.cli.commands.tokens import tokens
from headway.cli.commands.webhooks import webhooks
from headway.cli.demo import scenes
from headway.cli.service.command import service

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
    """Builds the command tree once and returns it."""
    root = typer.Typer(no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)
    root.callback()(_root)
    for part in (scenes, up, dev, run, hold, status, apply, doctor):
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
        "events": events,
        "limits": limits,
        "reservations": reservations,
        "tokens": tokens,
        "tenants": tenants,
        "workers": status.workers,
        "db": db,
        "config": config,
        "service": service,
    }
    for name, family in families.items():
        root.add_typer(family, name=name)
    command = typer.main.get_command(root)
    assert isinstance(command, typer.core.TyperGroup)
    return command
