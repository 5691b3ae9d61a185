"""Shows and changes targets: `targets ls`, `show`, `pause`, `resume`, `release`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.command import Invocation, command, family

if TYPE_CHECKING:
    from rich.table import Table

    from headway.cli.output import Json

targets = family("List, pause, resume and release targets.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the target.", show_default=False)]
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="1..200", help="Maximum number of items.")]
Cursor = Annotated[str | None, typer.Option(metavar="CURSOR", help="Continue after a page: the `next` of that page.")]
Only = Annotated[
    list[str],
    typer.Option("--state", metavar="STATE", help="Only free, busy, held or paused targets; may be repeated."),
]
NONE: list[str] = []
STYLES = {"busy": "cyan", "held": "bold red", "paused": "yellow"}


@command(targets, "ls")
def ls(call: Invocation, state: Only = NONE, limit: Limit = 20, cursor: Cursor = None) -> None:
    """List targets by name, with their state, its cause, the job on them and the number of waiting jobs."""
    from headway.model.values import state_names

    wanted = state_names.target_states(state, label="--state")
    empty = (
        "no target matches" if wanted else "no targets yet",
        "the first job on a target creates it: headway run TASK --target desk-1",
    )
    with call.backend() as backend:
        page, now = backend.targets.page(wanted, limit, cursor), backend.now()
    call.out.page(page, lambda found: target_table(found, now), empty=empty)


@command(targets, "show")
def show(call: Invocation, name: Name) -> None:
    """Show a target with its history, and the commands that open it."""
    from headway.cli.tables.events import event_table

    with call.backend() as backend:
        target, now = backend.targets.shown(_checked(name)), backend.now()
    call.out.answer(
        target, lambda: [target_page(target, now), "", event_table(target["events"], now)], notes=remedies(target)
    )


def _checked(name: str) -> str:
    from headway.model.values.names import check_name

    return check_name(name, field="target")


@command(targets, "pause")
def pause(
    call: Invocation,
    name: Name,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="Reason to show with the pause.")] = None,
) -> None:
    """Pause a target: no more jobs start on it. A running job continues."""
    with call.backend() as backend:
        _answer(call, backend.targets.pause(_checked(name), note=note))


@command(targets, "resume")
def resume(call: Invocation, name: Name) -> None:
    """Resume a paused target: jobs start on it again."""
    from headway.errors import WrongState

    with call.backend() as backend:
        before = backend.targets.get(_checked(name))
        if before["state"] == "held":
            text = f"the target {name!r} is not paused: job {before['held_by']} holds it ({before['reason']})"
            raise WrongState(f"{text}; `headway targets show` lists the ways to open it", status="held")
        _answer(call, backend.targets.resume(name))


@command(targets, "release")
def release(call: Invocation, name: Name) -> None:
    """End the PAUSED or ERROR job that holds a target as FAILED, so that the next job may start."""
    with call.backend() as backend:
        job = backend.targets.release(_checked(name))
        target = backend.targets.get(name)
    _answer(call, target, f"job {job['job_id']} released: now {job['status']}")


def _answer(call: Invocation, target: Json, *before: str) -> None:
    from headway.cli.output import visible

    running, held_by, waiting = target["running"], target["held_by"], target["waiting"]
    facts = [f"{visible(target['name'])} is {target['state']}"]
    facts += [f"job {running} keeps running"] if running is not None and target["state"] == "paused" else []
    facts += [f"job {held_by} holds it"] if held_by is not None else []
    facts += [f"{_waiting(target)} wait{'s' if waiting == 1 else ''}"] if waiting else []
    call.out.answer(target, lambda: [*before, ", ".join(facts)], notes=remedies(target))


# --- tables -------------------------------------------------------------------------------------------------------


def remedies(target: Json) -> list[str]:
    """Returns the commands that open a paused or held target."""
    import shlex

    name, lines = shlex.quote(target["name"]), []
    if target["state"] == "paused":
        lines.append(f"to start jobs on it again: headway targets resume {name}")
    if target["held_by"] is not None and not target["resumed"]:
        lines.append(f"to continue the job: headway jobs resume {target['held_by']}, or resolve, retry, cancel")
        lines.append(f"to end the job as FAILED: headway targets release {name}")
    return lines


def target_table(found: Iterable[Json], now: int) -> Table:
    from headway.cli.output import styled, table
    from headway.cli.tables.times import age

    made = table("TARGET", "STATE", "BY", "SINCE", "WAITING", "WHY", flexible=("TARGET", "WHY"))
    for target in found:
        made.add_row(
            styled(target["name"]),
            styled(target["state"], STYLES.get(target["state"], "")),
            _by(target),
            age(target["since"], now),
            _waiting(target),
            styled("; ".join(word for word in (target["note"], target["reason"]) if word)),
        )
    return made


def target_page(target: Json, now: int) -> Table:
    from headway.cli.output import styled
    from headway.cli.tables.pages import pairs
    from headway.cli.tables.times import when

    return pairs(
        [
            ("target", target["name"]),
            ("state", styled(target["state"], STYLES.get(target["state"], ""))),
            ("since", when(target["since"], now)),
            ("note", target["note"]),
            ("held by", f"job {target['held_by']}" if target["held_by"] is not None else None),
            ("reason", target["reason"]),
            ("running", f"job {target['running']}" if target["running"] is not None else None),
            ("direct call", f"reservation {target['direct']}" if target["direct"] is not None else None),
            ("waiting", _waiting(target)),
        ]
    )


def _by(target: Json) -> str:
    job = target["held_by"] if target["held_by"] is not None else target["running"]
    if job is not None:
        return f"job {job}"
    return "a direct call" if target["direct"] is not None else ""


def _waiting(target: Json) -> str:
    return f"{target['waiting']}{'+' if target['waiting_at_least'] else ''}"


def blocked_text(found: Sequence[Json]) -> str | None:
    """Lists the held and paused targets in one line; returns None if there are none."""
    held = [f"{target['name']} by job {target['held_by']}" for target in found if target["state"] == "held"]
    pauses = [target for target in found if target["state"] == "paused"]
    paused = [f"{target['name']} ({target['note']})" if target["note"] else target["name"] for target in pauses]
    parts = [_named("held", held), _named("paused", paused)]
    return "; ".join(part for part in parts if part) or None


def _named(word: str, names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{len(names)} {word}: {', '.join(names[:most])}{more}" if names else ""
