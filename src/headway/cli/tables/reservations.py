"""Renders reservations, as a table and each on a page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headway.cli.output import Json, styled, table
from headway.cli.tables.pages import compact, created, pairs
from headway.cli.tables.times import age, when

if TYPE_CHECKING:
    from rich.table import Table


def reservation_table(reservations: Iterable[Json], now: int) -> Table:
    made = table("ID", "STATUS", "GRANTED", "HOLDS", "HOLDER", "CREATED", flexible=("HOLDS", "HOLDER"))
    for reservation in reservations:
        granted = reservation["granted_at"]
        made.add_row(
            str(reservation["reservation_id"]),
            styled(reservation["status"], "cyan" if reservation["status"] == "ACTIVE" else "dim"),
            "no" if granted is None else f"{age(granted, now)} ago",
            styled(_holds(reservation)),
            styled(reservation["holder"]),
            f"{age(reservation['created_at'], now)} ago",
        )
    return made


def reservation_page(reservation: Json, now: int) -> Table:
    return pairs(
        [
            ("reservation", str(reservation["reservation_id"])),
            ("status", reservation["status"]),
            ("holds", _holds(reservation)),
            ("holder", reservation["holder"]),
            ("task", reservation["task"]),
            ("params", None if reservation["params"] is None else compact(reservation["params"])),
            ("created", created(reservation, now)),
            ("granted", when(reservation["granted_at"], now)),
            ("expires", when(reservation["expires_at"], now)),
            ("finished", when(reservation["finished_at"], now)),
            ("outcome", reservation["outcome"]),
            ("error", reservation["error"]),
        ]
    )


def _holds(reservation: Json) -> str:
    """Names the lanes and the target of a reservation."""
    return ", ".join([*reservation["lanes"], *([reservation["target"]] if reservation["target"] is not None else [])])
