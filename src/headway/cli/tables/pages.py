"""Pages about one thing: names with values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headway.cli.output import Json, visible
from headway.cli.tables.times import when
from headway.model.jobs.job import Actor

if TYPE_CHECKING:
    from rich.table import Table


def pairs(rows: Sequence[tuple[str, object]]) -> Table:
    """Creates a page of names and values; leaves out empty values."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    made.add_column(no_wrap=True, style="bold")
    made.add_column(overflow="fold")
    for name, value in rows:
        if value not in (None, "", "{}", "[]"):
            made.add_row(name, value if isinstance(value, Text) else Text(visible(str(value))))
    return made


def actor(found: Json) -> str:
    return Actor(**found).identified


def created(found: Json, now: int) -> str:
    """Describes when a thing was created, and by which actor."""
    return f"{when(found['created_at'], now)} by {actor(found['created_by'])}"


def deleted(found: Json, now: int) -> str | None:
    """Describes when a thing was deleted, and by which actor; None for a thing that exists."""
    if found["deleted_at"] is None:
        return None
    by = f" by {actor(found['deleted_by'])}" if found["deleted_by"] is not None else ""
    return f"{when(found['deleted_at'], now)}{by}"


def compact(value: object) -> str:
    """Returns JSON text in the format in which it is stored."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
