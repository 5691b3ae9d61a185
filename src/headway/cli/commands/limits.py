"""Shows and changes the concurrency limits: `limits ls`, `limits set`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.command import Invocation, command, family

if TYPE_CHECKING:
    from rich.table import Table

    from headway.model.queue.policies import Concurrency
    from headway.store.queue.lane_views import LaneView

limits = family("List lanes and resources, and change their limits.")


@command(limits, "ls")
def ls(call: Invocation) -> None:
    """List lanes and resources with their limits, running jobs, reservations and waiting jobs."""
    from headway.api.schemas.queue import limits_json

    with call.desk() as desk:
        concurrency, found = desk.limits()
    if call.out.as_json:
        call.out.data(limits_json(concurrency, found))
        return
    call.out.show(concurrency_page(concurrency), "", lane_table(found))
    if not any(lane.kind == "resource" for lane in found):
        call.out.say("no resources yet: define them in the settings, like ollama = 1 below [resources]")


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
    with call.desk() as desk:
        found = desk.set_limit(name, capacity)
    _answer(call, {lane.name: lane for lane in found}, name)


def _capacity(text: str) -> int | None:
    from headway.errors import BadInput

    if text.strip().lower() == "none":
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise BadInput(f"a limit must be a whole number from 1, or none, not {text!r}", field="limit")
    return int(text)


def _answer(call: Invocation, found: Mapping[str, LaneView], name: str) -> None:
    from headway.api.schemas.queue import lane_json

    lane = found[name] if name in found else found[f"task:{name}"]
    if call.out.as_json:
        call.out.data(lane_json(lane))
        return
    call.out.show(f"the limit of {lane.name} is now {_limit(lane)}: {lane.running} running, {_waiting(lane)} waiting")
    call.out.say("the next worker that starts alone replaces it with its settings: change the settings too to keep it")


# --- tables -------------------------------------------------------------------------------------------------------


def concurrency_page(concurrency: Concurrency) -> Table:
    from headway.cli.tables.jobs import pairs
    from headway.model.values.json import duration_text

    aging = f"one priority for every {duration_text(concurrency.aging)}" if concurrency.aging else "off"
    return pairs([("policy", concurrency.policy), ("targets", concurrency.targets), ("aging", aging)])


def lane_table(found: Iterable[LaneView]) -> Table:
    from headway.cli.output import styled, table

    made = table("LANE", "KIND", "LIMIT", "RUNNING", "RESERVED", "WAITING", flexible=("LANE",))
    for lane in found:
        full = lane.limit is not None and lane.running + lane.reserved >= lane.limit
        running = styled(str(lane.running), "cyan" if full else "")
        made.add_row(styled(lane.name), lane.kind, _limit(lane), running, str(lane.reserved), _waiting(lane))
    return made


def _limit(lane: LaneView) -> str:
    return "none" if lane.limit is None else str(lane.limit)


def _waiting(lane: LaneView) -> str:
    return f"{lane.waiting}{'+' if lane.at_least else ''}"
