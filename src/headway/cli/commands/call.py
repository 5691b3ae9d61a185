"""`call`: runs a task now, ahead of the queue of its lanes, and prints its result."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.command import Invocation, command
from headway.cli.commands.run import AppOption
from headway.cli.job_options import Resources, Target, Timeout, present

NONE: list[str] = []


def register(root: typer.Typer) -> None:
    command(root, "call")(call_task)


def call_task(
    call: Invocation,
    task: Annotated[str, typer.Argument(metavar="TASK", help="Name of the task.", show_default=False)],
    pairs: Annotated[list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Params of the call.")] = None,
    params: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE|-", help="Params as a whole; - reads stdin.")
    ] = None,
    wait: Annotated[str | None, typer.Option(metavar="DURATION", help="Longest wait for a free slot.")] = None,
    target: Target = None,
    resource: Resources = NONE,
    timeout: Timeout = None,
    app: AppOption = None,
) -> None:
    """Run a task now and print its result. It takes the next slot of its lanes and is not a job."""
    from headway.cli import arguments

    options = present({"wait": wait, "target": target, "resources": resource or None, "timeout": timeout})
    with call.new_backend(app, task=task, resources=resource) as backend:
        call.out.data(backend.call(task, arguments.params(pairs or [], params), options))
