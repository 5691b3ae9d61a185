"""Reads and writes form fields that hold lists of names, retry policies or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from headway.model.values.json import from_json
from headway.model.values.refuse import refuse

NUMBER = re.compile(r"[0-9]{1,9}")


def params_of(text: str, place: str = "params") -> dict[str, object]:
    given = from_json(text or "{}", field=place)
    if not isinstance(given, dict):
        refuse(place, 'must be an object of names and values, like {"topic": "fog"}')
    return given


def json_text(value: object) -> str:
    return json.dumps(dict(value) if isinstance(value, Mapping) else value, indent=2, ensure_ascii=False)


def names_of(text: str, place: str) -> object:
    if text.startswith("["):
        return from_json(text, field=place)
    return [name.strip() for name in text.split(",") if name.strip()]


def names_text(names: Sequence[str]) -> str:
    """Joins names with commas, or writes JSON if commas would be ambiguous."""
    plain = names and all(name == name.strip() and "," not in name and not name.startswith("[") for name in names)
    return ", ".join(names) if plain else json.dumps(list(names), ensure_ascii=False)


def retry_of(text: str, place: str) -> object:
    """Reads a number of retries, or a whole retry policy as JSON."""
    return {"max_attempts": int(text)} if NUMBER.fullmatch(text) else from_json(text, field=place)


def retry_text(policy: object) -> str:
    if isinstance(policy, Mapping) and list(policy) == ["max_attempts"]:
        return str(policy["max_attempts"])
    return json_text(policy)


def duration_of(text: str) -> int | str:
    """Reads a number of seconds, or a text like `30m`."""
    return int(text) if NUMBER.fullmatch(text) else text
