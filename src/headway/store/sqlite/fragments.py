"""The statements in SQLite's dialect."""

from __future__ import annotations

from functools import cache

from headway.store.rows import fragments as column_fragments
from headway.store.statements import load_statements, render, statements_of


def _rows(columns: str) -> str:
    names = [column.split()[0] for column in columns.split(",")]
    picks = ", ".join(f"json_extract(value, '$[{n}]') as {name}" for n, name in enumerate(names))
    return f"(select key as n, {picks} from json_each(:rows))"


FRAGMENTS = {
    "pk": "integer primary key",
    "pkp": "integer primary key",
    "now": ":now",
    "rows": _rows,
    "ids": "(select value as id from json_each(:ids))",
    # Scheme, host and port of a URL.
    "address": lambda url: f"substr({url}, 1, instr(substr({url}, 9) || '/', '/') + 7)",
    "for_update": "",
    "skip_locked": "",
    "json_names": "json_group_array(a.name)",
    "json_ids": "json_group_array(w.id)",
    "json_rows": lambda columns: f"json_group_array(json_array({columns}))",
    "for_update_j": "",
    **column_fragments(),
}


@cache
def texts() -> dict[str, list[str]]:
    """Returns every named statement as the driver takes it."""
    return {name: statements_of(render(text, FRAGMENTS)) for name, text in load_statements("sqlite").items()}
