"""Renders the history of a thing as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headway.cli.output import Json, one_line, styled, table
from headway.cli.tables.pages import actor
from headway.cli.tables.times import age
from headway.text.events import facts_in_words, subject

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

STYLES = {
    "RUNNING": "cyan",
    "COMPLETED": "green",
    "FAILED": "red",
    "ERROR": "bold red",
    "PAUSED": "yellow",
    "CANCELLED": "magenta",
    "SKIPPED": "dim",
}


def status_text(status: str) -> Text:
    return styled(status, STYLES.get(status, ""))


def event_table(events: Iterable[Json], now: int) -> Table:
    made = table("WHEN", "EVENT", "STATUS", "BY", "WHAT", flexible=("BY", "WHAT"))
    for event in events:
        made.add_row(
            f"{age(event['at'], now)} ago",
            styled(event["kind"]),
            status_text(event["status"]) if event["status"] is not None else "",
            styled(actor(event["actor"])),
            styled(_facts(event["data"])),
        )
    return made


def audit_table(events: Iterable[Json], now: int) -> Table:
    made = table("WHEN", "EVENT", "ABOUT", "BY", "WHAT", flexible=("ABOUT", "BY", "WHAT"))
    for event in events:
        made.add_row(
            f"{age(event['at'], now)} ago",
            styled(event["kind"]),
            styled(one_line(subject(event["thing"], event["thing_id"], event["data"]))),
            styled(actor(event["actor"])),
            styled(one_line(facts_in_words(event["data"]))),
        )
    return made


def _facts(data: Json | None) -> str:
    facts = dict(data or {})
    if isinstance(facts.get("stage"), int):
        facts["stage"] += 1  # stages are displayed from 1
    return one_line(", ".join(f"{name} {value}" for name, value in facts.items()))
