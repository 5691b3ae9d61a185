"""The known settings, read from their declarations: single settings, sections, and maps with user-chosen names."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from headway.config.settings import SettingPath, Settings
from headway.model.values import json


@dataclass(frozen=True, slots=True)
class Setting:
    description: str
    is_map: bool


def _settings_of(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Setting | None]]:
    """Yields every setting with its dotted name; None stands for a section."""
    for name, field in model.model_fields.items():
        kind: Any = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield prefix + name, None
            yield from _settings_of(kind, f"{prefix}{name}.")
        else:
            yield prefix + name, Setting(field.description or "", is_map=typing.get_origin(kind) is Mapping)


KNOWN = dict(_settings_of(Settings))
SECTIONS = frozenset(name for name, setting in KNOWN.items() if setting is None)
MAPS = frozenset(name for name, setting in KNOWN.items() if setting is not None and setting.is_map)
TABLES = SECTIONS | MAPS


def flatten(path: SettingPath, value: object) -> Iterator[tuple[SettingPath, object]]:
    """Yields the single values below a path; a table that is no setting stays whole for validation."""
    name = ".".join(path)
    if not isinstance(value, Mapping) or (path and name not in TABLES):
        yield path, value
    elif name in MAPS:
        yield from (((*path, key), item) for key, item in value.items())
    else:
        for key, item in value.items():
            yield from flatten((*path, key), item)


def exists(path: SettingPath) -> bool:
    return ".".join(path) in KNOWN or ".".join(path[:-1]) in MAPS


def shown(path: SettingPath) -> str:
    return "".join(json.step(part) for part in path).removeprefix(".")
