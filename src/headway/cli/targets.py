"""Targets, the things only one job at a time may touch: `targets ls`, `show`, `pause`, `resume`, `release`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.call import Call, command, family

if TYPE_CHECKING:
    from rich.table import Table

    from headway.cli.call import Desk
    from headway.model.targets import TargetView

targets = family("Look at targets, pause them, let them go.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="A target by its name.", show_default=False)]
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="1..200", help="How many at most.")]
Cursor = Annotated[str | None, typer.Option(metavar="CURSOR", help="Go on where a page ended: its `next`.")]
Only = Annotated[
    list[str], typer.Option("--state", metavar="STATE", help="Only free, busy, held or paused ones; may be repeated.")
]
NONE: list[str] = []
STYLES = {"busy": "cyan", "held": "bold red", "paused": "yellow"}


@command(targets, "ls")
def ls(call: Call, state: Only = NONE, limit: Limit = 20, cursor: Cursor = None) -> None:
    """List targets by name: how each stands, who has it, since when, why, and how many jobs wait."""
    from headway.model import words
    from headway.store.pages import Page

    wanted = words.target_states(state, label="--state")
    with call.desk() as desk:
        items: list[TargetView] = []
        while True:  # a page whose filter finds little is read on
            page = desk.list_targets(wanted, limit - len(items), cursor)
            items += page.items
            cursor = page.next
            if cursor is None or len(items) >= limit:
                break
        now = desk.now()
    _show(call, Page(items, cursor), now, filtered=bool(wanted))


def _show(call: Call, page: Any, now: int, *, filtered: bool) -> None:
    from headway.api.wire.lanes import target_json

    if call.out.as_json:
        call.out.data({"items": [target_json(one) for one in page.items], "next": page.next})
    elif not page.items:
        call.out.say("no target is like that" if filtered else "no targets yet")
        call.out.say("a target comes into being with its first job: headway run TASK --target desk-1")
    else:
        call.out.show(target_table(page.items, now))
        if page.next is not None:
            call.out.say(f"there are more: --cursor {page.next}")


@command(targets, "show")
def show(call: Call, name: Name) -> None:
    """Show everything about a target, with its history, and how to let it go."""
    from headway.api.wire.jobs import event_json
    from headway.api.wire.lanes import target_json
    from headway.cli.tables import event_table

    with call.desk() as desk:
        one, events = desk.shown_target(_checked(name))
        now = desk.now()
    if call.out.as_json:
        call.out.data({**target_json(one), "events": [event_json(event) for event in events]})
        return
    call.out.show(target_page(one, now), "", event_table(events, now))
    for line in remedies(one):
        call.out.say(line)


def _checked(name: str) -> str:
    from headway.model.values import check_name

    return check_name(name, field="target")


@command(targets, "pause")
def pause(
    call: Call,
    name: Name,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for those who look.")] = None,
) -> None:
    """Start no more jobs on a target. What runs there goes on."""
    with call.desk() as desk:
        desk.client.pause_target(_checked(name), note=note)
        _answer(call, desk, name)


@command(targets, "resume")
def resume(call: Call, name: Name) -> None:
    """Start jobs on a paused target again."""
    from headway.errors import WrongState
    from headway.model.targets import TargetState

    with call.desk() as desk:
        before = desk.target(_checked(name))
        if before.state is TargetState.HELD:
            text = f"the target {name!r} is not paused: job {before.held_by} holds it ({before.reason})"
            raise WrongState(f"{text}; `headway targets show` says how to let it go", status=before.state.value)
        desk.client.resume_target(name)
        _answer(call, desk, name)


@command(targets, "release")
def release(call: Call, name: Name) -> None:
    """Give up the PAUSED or ERROR job that holds a target: it ends FAILED, and the next one may start."""
    with call.desk() as desk:
        job = desk.client.release_target(_checked(name))
        if not call.out.as_json:
            call.out.show(f"job {job.id} released: now {job.status.name}")
        _answer(call, desk, name)


def _answer(call: Call, desk: Desk, name: str) -> None:
    from headway.api.wire.lanes import target_json
    from headway.cli.out import visible

    one = desk.target(name)
    if call.out.as_json:
        call.out.data(target_json(one))
        return
    facts = [f"{visible(one.name)} is {one.state.value}"]
    facts += [f"job {one.running} runs on"] if one.running is not None and one.state == "paused" else []
    facts += [f"job {one.held_by} holds it"] if one.held_by is not None else []
    facts += [f"{_waiting(one)} wait{'s' if one.waiting == 1 else ''}"] if one.waiting else []
    call.out.show(", ".join(facts))
    for line in remedies(one):
        call.out.say(line)


# --- for people ---------------------------------------------------------------------------------------------------


def remedies(one: TargetView) -> list[str]:
    """What opens a target that does not open by itself."""
    import shlex

    name, lines = shlex.quote(one.name), []
    if one.state == "paused":
        lines.append(f"to let jobs start again: headway targets resume {name}")
    if one.held_by is not None and not one.resumed:
        lines.append(f"to let it go on: headway jobs resume {one.held_by}, or resolve, retry, cancel")
        lines.append(f"to give it up: headway targets release {name}")
    return lines


def target_table(found: Iterable[TargetView], now: int) -> Table:
    from headway.cli.out import styled, table
    from headway.cli.tables import age

    made = table("TARGET", "STATE", "BY", "SINCE", "WAITING", "WHY", flexible=("TARGET", "WHY"))
    for one in found:
        made.add_row(
            styled(one.name),
            styled(one.state.value, STYLES.get(one.state.value, "")),
            _by(one),
            age(one.since, now),
            _waiting(one),
            styled("; ".join(word for word in (one.note, one.reason) if word)),
        )
    return made


def target_page(one: TargetView, now: int) -> Table:
    from headway.cli.out import styled
    from headway.cli.tables import pairs, when

    return pairs(
        [
            ("target", one.name),
            ("state", styled(one.state.value, STYLES.get(one.state.value, ""))),
            ("since", when(one.since, now)),
            ("note", one.note),
            ("held by", f"job {one.held_by}" if one.held_by is not None else None),
            ("reason", one.reason),
            ("running", f"job {one.running}" if one.running is not None else None),
            ("direct call", f"reservation {one.direct}" if one.direct is not None else None),
            ("waiting", _waiting(one)),
        ]
    )


def _by(one: TargetView) -> str:
    job = one.held_by if one.held_by is not None else one.running
    if job is not None:
        return f"job {job}"
    return "a direct call" if one.direct is not None else ""


def _waiting(one: TargetView) -> str:
    return f"{one.waiting}{'+' if one.at_least else ''}"


def blocked_text(found: Sequence[TargetView]) -> str | None:
    """The targets that wait for a person, in one line."""
    held = [f"{one.name} by job {one.held_by}" for one in found if one.state == "held"]
    paused = [f"{one.name} ({one.note})" if one.note else one.name for one in found if one.state == "paused"]
    parts = [_named("held", held), _named("paused", paused)]
    return "; ".join(part for part in parts if part) or None


def _named(word: str, names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{len(names)} {word}: {', '.join(names[:most])}{more}" if names else ""
