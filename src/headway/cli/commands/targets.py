"""Shows and changes targets: `targets ls`, `show`, `pause`, `resume`, `release`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.command import Invocation, command, family

if TYPE_CHECKING:
    from rich.table import Table

    from headway.cli.command import Desk
    from headway.model.queue.target import TargetView

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
    from headway.store.paging import Page

    wanted = state_names.target_states(state, label="--state")
    with call.desk() as desk:
        items: list[TargetView] = []
        while True:  # a filter can leave a page short, so pages are read until there are enough items
            page = desk.list_targets(wanted, limit - len(items), cursor)
            items += page.items
            cursor = page.next
            if cursor is None or len(items) >= limit:
                break
        now = desk.now()
    _show(call, Page(items, cursor), now, filtered=bool(wanted))


def _show(call: Invocation, page: Any, now: int, *, filtered: bool) -> None:
    from headway.api.schemas.queue import target_json

    if call.out.as_json:
        call.out.data({"items": [target_json(target) for target in page.items], "next": page.next})
    elif not page.items:
        call.out.say("no target matches" if filtered else "no targets yet")
        call.out.say("the first job on a target creates it: headway run TASK --target desk-1")
    else:
        call.out.show(target_table(page.items, now))
        if page.next is not None:
            call.out.say(f"there are more: --cursor {page.next}")


@command(targets, "show")
def show(call: Invocation, name: Name) -> None:
    """Show a target with its history, and the commands that open it."""
    from headway.api.schemas.jobs import event_json
    from headway.api.schemas.queue import target_json
    from headway.cli.tables.jobs import event_table

    with call.desk() as desk:
        target, events = desk.shown_target(_checked(name))
        now = desk.now()
    if call.out.as_json:
        call.out.data({**target_json(target), "events": [event_json(event) for event in events]})
        return
    call.out.show(target_page(target, now), "", event_table(events, now))
    for line in remedies(target):
        call.out.say(line)


def _checked(name: str) -> str:
    from headway.model.values.json import check_name

    return check_name(name, field="target")


@command(targets, "pause")
def pause(
    call: Invocation,
    name: Name,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="Reason to show with the pause.")] = None,
) -> None:
    """Pause a target: no more jobs start on it. A running job continues."""
    with call.desk() as desk:
        desk.client.pause_target(_checked(name), note=note)
        _answer(call, desk, name)


@command(targets, "resume")
def resume(call: Invocation, name: Name) -> None:
    """Resume a paused target: jobs start on it again."""
    from headway.errors import WrongState
    from headway.model.queue.target import TargetState

    with call.desk() as desk:
        before = desk.target(_checked(name))
        if before.state is TargetState.HELD:
            text = f"the target {name!r} is not paused: job {before.held_by} holds it ({before.reason})"
            raise WrongState(f"{text}; `headway targets show` lists the ways to open it", status=before.state.value)
        desk.client.resume_target(name)
        _answer(call, desk, name)


@command(targets, "release")
def release(call: Invocation, name: Name) -> None:
    """End the PAUSED or ERROR job that holds a target as FAILED, so that the next job may start."""
    with call.desk() as desk:
        job = desk.client.release_target(_checked(name))
        if not call.out.as_json:
            call.out.show(f"job {job.id} released: now {job.status.name}")
        _answer(call, desk, name)


def _answer(call: Invocation, desk: Desk, name: str) -> None:
    from headway.api.schemas.queue import target_json
    from headway.cli.output import visible

    target = desk.target(name)
    if call.out.as_json:
        call.out.data(target_json(target))
        return
    facts = [f"{visible(target.name)} is {target.state.value}"]
    facts += [f"job {target.running} keeps running"] if target.running is not None and target.state == "paused" else []
    facts += [f"job {target.held_by} holds it"] if target.held_by is not None else []
    facts += [f"{_waiting(target)} wait{'s' if target.waiting == 1 else ''}"] if target.waiting else []
    call.out.show(", ".join(facts))
    for line in remedies(target):
        call.out.say(line)


# --- tables -------------------------------------------------------------------------------------------------------


def remedies(target: TargetView) -> list[str]:
    """Returns the commands that open a paused or held target."""
    import shlex

    name, lines = shlex.quote(target.name), []
    if target.state == "paused":
        lines.append(f"to start jobs on it again: headway targets resume {name}")
    if target.held_by is not None and not target.resumed:
        lines.append(f"to continue the job: headway jobs resume {target.held_by}, or resolve, retry, cancel")
        lines.append(f"to end the job as FAILED: headway targets release {name}")
    return lines


def target_table(found: Iterable[TargetView], now: int) -> Table:
    from headway.cli.output import styled, table
    from headway.cli.tables.jobs import age

    made = table("TARGET", "STATE", "BY", "SINCE", "WAITING", "WHY", flexible=("TARGET", "WHY"))
    for target in found:
        made.add_row(
            styled(target.name),
            styled(target.state.value, STYLES.get(target.state.value, "")),
            _by(target),
            age(target.since, now),
            _waiting(target),
            styled("; ".join(word for word in (target.note, target.reason) if word)),
        )
    return made


def target_page(target: TargetView, now: int) -> Table:
    from headway.cli.output import styled
    from headway.cli.tables.jobs import pairs, when

    return pairs(
        [
            ("target", target.name),
            ("state", styled(target.state.value, STYLES.get(target.state.value, ""))),
            ("since", when(target.since, now)),
            ("note", target.note),
            ("held by", f"job {target.held_by}" if target.held_by is not None else None),
            ("reason", target.reason),
            ("running", f"job {target.running}" if target.running is not None else None),
            ("direct call", f"reservation {target.direct}" if target.direct is not None else None),
            ("waiting", _waiting(target)),
        ]
    )


def _by(target: TargetView) -> str:
    job = target.held_by if target.held_by is not None else target.running
    if job is not None:
        return f"job {job}"
    return "a direct call" if target.direct is not None else ""


def _waiting(target: TargetView) -> str:
    return f"{target.waiting}{'+' if target.at_least else ''}"


def blocked_text(found: Sequence[TargetView]) -> str | None:
    """Lists the held and paused targets in one line; returns None if there are none."""
    held = [f"{target.name} by job {target.held_by}" for target in found if target.state == "held"]
    pauses = [target for target in found if target.state == "paused"]
    paused = [f"{target.name} ({target.note})" if target.note else target.name for target in pauses]
    parts = [_named("held", held), _named("paused", paused)]
    return "; ".join(part for part in parts if part) or None


def _named(word: str, names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{len(names)} {word}: {', '.join(names[:most])}{more}" if names else ""
