"""The commands about one group or execution: `show`, `cancel`, `retry`. Both kinds have the same."""
# Without `from __future__ import annotations`: the type of the number depends on the kind.

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.command import Invocation, command
from headway.cli.job_selection import LARGEST

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headway.cli.backend.base import Backend, GroupsBackend
    from headway.cli.output import Json


def register(family: typer.Typer, kind: str) -> None:
    a_kind = f"{'an' if kind == 'execution' else 'a'} {kind}"
    about = typer.Argument(metavar="ID", help=f"{kind.capitalize()} number.", min=1, max=LARGEST)

    @command(
        family, "show", help=f"Show {a_kind} with its steps by stage, its history, and the commands that continue it."
    )
    def show(call: Invocation, number: Annotated[int, about]) -> None:
        from headway.cli.tables.groups import group_remedies

        with call.backend() as backend:
            group = _groups(backend, kind).shown(number)
            call.out.answer(group, lambda: _page(backend, group), notes=group_remedies(group))

    @command(family, "cancel", help=f"Cancel {a_kind}: waiting jobs at once, running jobs as soon as they stop.")
    def cancel(call: Invocation, number: Annotated[int, about]) -> None:
        with call.backend() as backend:
            group = _groups(backend, kind).cancel(number)
        call.out.answer(group, lambda: [_cancelled(group)])

    again = "Run the failed steps and all later stages as a new {}. Steps that succeeded are not run again."

    @command(family, "retry", help=again.format(kind))
    def retry(call: Invocation, number: Annotated[int, about]) -> None:
        with call.backend() as backend:
            made = _groups(backend, kind).retry(number)
        call.out.answer(made, lambda: [str(made[f"{kind}_id"])], notes=_retried(made))


def _groups(backend: "Backend", kind: str) -> "GroupsBackend":
    return backend.executions if kind == "execution" else backend.groups


def _page(backend: "Backend", group: "Json") -> "list[RenderableType]":
    from headway.cli.tables.events import event_table
    from headway.cli.tables.groups import group_page, step_table

    schedule_id = group.get("schedule_id")
    zone = "UTC" if schedule_id is None else backend.schedules.zones([schedule_id]).get(schedule_id, "UTC")
    now = backend.now()
    return [group_page(group, now, zone), "", step_table(group, now), "", event_table(group["events"], now)]


def _cancelled(group: "Json") -> str:
    from headway.cli.tables.groups import kind_of, number_of
    from headway.model.jobs.states import State

    name = f"{kind_of(group)} {number_of(group)}"
    if group["finished_at"] is not None:
        return f"{name} is {group['status']}"
    running = [
        f"{step['step']} (job {step['job_id']})" for step in group["steps"] if not State[step["status"]].terminal
    ]
    return f"{name} is being cancelled: waiting for {', '.join(running)} to stop"


def _retried(group: "Json") -> Iterator[str]:
    from headway.cli.tables.groups import kind_of, number_of

    kind, number = kind_of(group), number_of(group)
    again = [step["step"] for step in group["steps"] if not step["linked"]]
    kept = len(group["steps"]) - len(again)
    linked = f"; {kept} other step{' is' if kept == 1 else 's are'} linked, not run again" if kept else ""
    yield f"{kind} {number} runs the unfinished steps of {group['retry_of']}: {', '.join(again)}{linked}"
    yield f"see it with `headway {kind}s show {number}`"
