"""What a job was given, in one short line, so that jobs of the same task can be told apart. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# So much of stored params is looked at: what is longer is not read as JSON, only its beginning is shown.
LOOKED_AT = 600
LONGEST = 100


def excerpt(params: str, most: int = LONGEST) -> str:
    """`topic: fog, words: 800`. A secret is stored by its name alone, and shown by it. Empty for no params."""
    line = " ".join("".join(one if one.isprintable() else " " for one in _told(params)).split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def _told(params: str) -> str:
    try:
        found = json.loads(params) if len(params) <= LOOKED_AT else None
    except ValueError:
        found = None
    if not isinstance(found, Mapping):
        return params[:LOOKED_AT].removeprefix("{")
    return ", ".join(f"{name}: {_value(value)}" for name, value in found.items())


def _value(value: Any) -> str:
    match value:
        case str():
            return value
        case {"$secret": str() as name, **rest} if not rest:
            return f"secret {name}"
        case {"$result": str() as step, **rest} if not rest:
            return f"result of {step}"
    return json.dumps(value, ensure_ascii=False)
