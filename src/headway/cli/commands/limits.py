"""Shows and changes the concurrency limits: `limits ls`, `set`, `aging`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.command import Invocation, command, family

if TYPE_CHECKING:
    from rich.table import Table

    from headway.cli.output import Json

limits = family("List lanes and resources, and change their limits.")


@command(limits, "ls")
def ls(call: Invocation) -> None:
    """List lanes and resources with their limits, running jobs, reservations and waiting jobs."""
    with call.backend() as backend:
        found = backend.queue.limits()
    has_resources = any(lane["kind"] == "resource" for lane in found["items"])
    hint = "no resources yet: define them in the settings, like ollama = 1 below [resources]"
    call.out.answer(
        found,
        lambda: [concurrency_page(found), "", lane_table(found["items"])],
        notes=[] if has_resources else [hint],
    )


@command(limits, "set")
def set_limit(
    call: Invocation,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Lane, task or resource.", show_default=False)],
    limit: Annotated[
        str, typer.Argument(metavar="N|none", help="Number of jobs that may run at once.", show_default=False)
    ],
) -> None:
    """Change a limit at once for all processes. Running jobs are not affected."""
    capacity = _capacity(limit)
    with call.backend() as backend:
        found = backend.queue.set_limit(name, capacity)
    lanes = {lane["name"]: lane for lane in found["items"]}
    lane = lanes[name] if name in lanes else lanes[f"task:{name}"]
    now_is = f"the limit of {lane['name']} is now {_limit(lane)}: {lane['running']} running, {_waiting(lane)} waiting"
    keep = "the next worker that starts alone replaces it with its settings: change the settings too to keep it"
    call.out.answer(lane, lambda: [now_is], notes=[keep])


@command(limits, "aging")
def set_aging(
    call: Invocation,
    interval: Annotated[
        str,
        typer.Argument(metavar="DURATION|none", help="Waiting time that adds 1 to the priority.", show_default=False),
    ],
) -> None:
    """Change aging at once for all processes; none turns it off."""
    from headway.model.values.times import seconds_or_none

    wanted = seconds_or_none(interval, field="aging")
    with call.backend() as backend:
        found = backend.queue.set_aging(wanted)
    now_is = f"aging is now {_aging(found)}"
    keep = "the next worker that starts alone replaces it with its settings: change the settings too to keep it"
    call.out.answer(found, lambda: [now_is], notes=[keep])


def _capacity(text: str) -> int | None:
    from headway.errors import BadInput

    if text.strip().lower() == "none":
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise BadInput(f"a limit must be a whole number from 1, or none, not {text!r}", field="limit")
    return int(text)


# --- tables -------------------------------------------------------------------------------------------------------


def concurrency_page(rules: Json) -> Table:
    from headway.cli.tables.pages import pairs

    return pairs([("policy", rules["policy"]), ("targets", rules["targets"]), ("aging", _aging(rules))])


def _aging(rules: Json) -> str:
    from headway.model.values.times import duration_text

    return f"one priority for every {duration_text(rules['aging'])}" if rules["aging"] else "off"


def lane_table(found: Iterable[Json]) -> Table:
    from headway.cli.output import styled, table

    made = table("LANE", "KIND", "LIMIT", "RUNNING", "RESERVED", "WAITING", flexible=("LANE",))
    for lane in found:
        full = lane["limit"] is not None and lane["running"] + lane["reserved"] >= lane["limit"]
        running = styled(str(lane["running"]), "cyan" if full else "")
        made.add_row(styled(lane["name"]), lane["kind"], _limit(lane), running, str(lane["reserved"]), _waiting(lane))
    return made


def _limit(lane: Json) -> str:
    return "none" if lane["limit"] is None else str(lane["limit"])


def _waiting(lane: Json) -> str:
    return f"{lane['waiting']}{'+' if lane['waiting_at_least'] else ''}"
