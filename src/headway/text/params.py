"""Shortens the params of a job to one line, which distinguishes jobs of the same task. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# Longer params are not parsed as JSON; only their beginning is shown.
LOOKED_AT = 600
LONGEST = 100


def excerpt(params: str, most: int = LONGEST) -> str:
    """Returns `topic: fog, words: 800`; a secret appears by its name. Empty if there are no params."""
    line = " ".join("".join(char if char.isprintable() else " " for char in _listed(params)).split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def _listed(params: str) -> str:
    try:
        parsed = json.loads(params) if len(params) <= LOOKED_AT else None
    except ValueError:
        parsed = None
    if not isinstance(parsed, Mapping):
        return params[:LOOKED_AT].removeprefix("{")
    return ", ".join(f"{name}: {_value(value)}" for name, value in parsed.items())


def _value(value: Any) -> str:
    match value:
        case str():
            return value
        case {"$secret": str() as name, **rest} if not rest:
            return f"secret {name}"
        case {"$result": str() as step, **rest} if not rest:
            return f"result of {step}"
    return json.dumps(value, ensure_ascii=False)
