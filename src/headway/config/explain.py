"""Shows every setting as a user would write it, with its source and without passwords."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from headway.config.schema import KNOWN, shown
from headway.config.settings import SettingPath, Settings
from headway.model.values import times

_DATABASE_PASSWORD = re.compile(r"(?i)\b(ssl)?pass(word|wd)?\s*=\s*[^&\s]")
_USER_PASSWORD = re.compile(r"(://[^:/?#@]*):.*@", re.DOTALL)
_PASSWORD = re.compile(r"(?i)(\w*(?:pass|pwd|secret|token|key)\w*\s*=\s*)('(?:[^'\\]|\\.)*'?|\S*)")


class Explained(NamedTuple):
    name: str
    value: str
    source: str
    description: str


def explain(settings: Settings) -> list[Explained]:
    """Returns every setting for `headway config show`: name, written value, source, description."""
    return [
        Explained(shown(path), _value_text(value), settings.source_of(path), setting.description)
        for name, setting in KNOWN.items()
        if setting is not None
        for path, value in _values_of(settings, tuple(name.split(".")), is_map=setting.is_map)
    ]


def _values_of(settings: Settings, path: SettingPath, *, is_map: bool) -> Iterator[tuple[SettingPath, object]]:
    value: Any = settings
    for part in path:
        value = getattr(value, part)
    if is_map and value:
        yield from (((*path, key), item) for key, item in value.items())
    else:
        yield path, value


def _value_text(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case float():
            return times.duration_text(value)
        case dict():
            return "{}"
    return masked(str(value))


def masked(text: str) -> str:
    """Replaces passwords in addresses by `***`; hides too much rather than too little."""
    return _PASSWORD.sub(r"\1***", _USER_PASSWORD.sub(r"\1:***@", text))


def holds_password(address: str) -> bool:
    """Returns True if an address of a database, as a URL or as words `name=value`, has a password in it."""
    return bool(_USER_PASSWORD.search(address) or _DATABASE_PASSWORD.search(address))
