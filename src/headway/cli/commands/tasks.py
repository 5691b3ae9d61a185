"""Lists the known tasks: `tasks ls`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headway.cli.command import Invocation, command, family
from headway.cli.commands.run import AppOption

if TYPE_CHECKING:
    from rich.table import Table

    from headway.cli.output import Json

tasks = family("List the tasks that jobs can run.")


@command(tasks, "ls")
def ls(call: Invocation, app: AppOption = None) -> None:
    """List the tasks of the app and of all workers of the last 30 days, with their params where they are known."""
    with call.backend(app, tasks=True) as backend:
        found = backend.tasks()
    call.out.answer(found, lambda: [task_table(found["items"])])


def task_table(found: Iterable[Json]) -> Table:
    from headway.cli.output import styled, table

    made = table("TASK", "PARAMS", "RESOURCES", "PRIORITY", "SEEN", flexible=("PARAMS",))
    for task in found:
        made.add_row(
            styled(task["task"]),
            styled(_params(task)),
            styled(", ".join(task["resources"])),
            str(task["priority"]),
            task["seen_at"] or "never",
        )
    return made


def _params(task: Json) -> str:
    if task["params"] is None:
        return "known to other processes only"
    shown = [param["name"] + ("" if param["required"] else "=…") for param in task["params"]]
    return " ".join([*shown, *(["…"] if task["open"] else [])])
