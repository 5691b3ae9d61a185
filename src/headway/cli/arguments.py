"""Parses command-line text: params, times and budgets. Every refusal names the option."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headway.clock import SystemClock, micros
from headway.errors import BadInput
from headway.model.values.json import JSON_LIMIT, from_json
from headway.model.values.times import instant, seconds

# Input is read up to this size, so that the refusal of a large value can still state its length.
_MOST = 64 * JSON_LIMIT


def params(pairs: Sequence[str], given: str | None) -> dict[str, Any]:
    """Reads `--params` (JSON, `@file` or `-` for stdin); each `name=value` pair overrides it."""
    whole = {} if given is None else from_json(_text_of(given), field="params")
    if not isinstance(whole, dict):
        raise BadInput('params must be a JSON object, like {"topic": "fog"}', field="params")
    named: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise BadInput(f"{pair!r} is not a param: write it as name=value", field="params")
        if name in named:
            raise BadInput(f"params.{name} is given twice: give it once", field=f"params.{name}")
        named[name] = value(text, field=f"params.{name}")
    return {**whole, **named}


def body(file: str) -> dict[str, Any]:
    """Reads a JSON object from a file, or from stdin for `-`."""
    found = from_json(_text_of(file if file == "-" else f"@{file}", "FILE"), field="file")
    if not isinstance(found, dict):
        raise BadInput('the file must hold a JSON object, like {"jobs": [{"task": "story.generate"}]}', field="file")
    return found


def _text_of(given: str, option: str = "--params") -> str | bytes:
    if given == "-":
        return sys.stdin.buffer.read(_MOST)
    if not given.startswith("@"):
        return given
    try:
        with open(Path(given[1:]), "rb") as file:
            return file.read(_MOST)
    except OSError as error:
        raise BadInput(f"{option}: {given[1:]} cannot be read ({error.strerror}): name another file") from None


def value(text: str, *, field: str) -> Any:
    """Parses the text as JSON; returns the text itself if it is not JSON."""
    try:
        return from_json(text, field=field)
    except BadInput as error:
        if str(error.facts.get("problem", "")).startswith("is not JSON"):
            return text
        raise


def moment(text: str | None, *, field: str) -> int | None:
    """Parses a time, a day, or a duration before now: `2026-03-01T09:00:00Z`, `2026-03-01`, `2h`."""
    if text is None:
        return None
    if not text[:1].isdigit():
        raise BadInput(
            f"--{field} {text!r} is not a time: write 2h (ago), 2026-03-01 or 2026-03-01T09:00:00Z", field=field
        )
    if "-" not in text[1:]:
        return SystemClock().now() - micros(seconds(text, field=field))
    return instant(text if ":" in text else f"{text}T00:00:00Z", field=field)


def later(text: str | None, *, field: str) -> int | None:
    """Parses a time, or a duration from now on."""
    if text is None:
        return None
    if "-" not in text[1:]:
        return SystemClock().now() + micros(seconds(text, field=field))
    return instant(text, field=field)


def budget(pairs: Sequence[str]) -> dict[str, float] | None:
    """Parses caps such as `tokens=500000`; returns None if there are none."""
    caps: dict[str, float] = {}
    for pair in pairs:
        meter, equals, text = pair.partition("=")
        cap = value(text, field="budget") if equals else None
        if not meter or isinstance(cap, bool) or not isinstance(cap, int | float):
            raise BadInput(f"--budget {pair!r} is not a cap: write it as tokens=500000", field="budget")
        caps[meter] = cap
    return caps or None
