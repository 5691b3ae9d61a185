"""Reads settings from the file, the environment and flags; keeps the source of every value."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.config.schema import MAPS, TABLES, exists, flatten, shown
from headway.config.settings import SettingPath
from headway.engine.execution.own_variables import WITHHELD
from headway.errors import BadInput
from headway.model.values import json

DEFAULT_FILE = Path("headway.toml")
PREFIX = "HEADWAY_"
# Variables that are no settings.
NOT_SETTINGS = (
    # The test suite sets these, and a worker sets them for a job's processes, which may call `headway`.
    *("HEADWAY_TEST_", "HEADWAY_PROOF", "HEADWAY_WORK", "HEADWAY_JOB_ID", "HEADWAY_FENCE", WITHHELD),
    # The command line reads its server, token and tenant from these.
    *("HEADWAY_SERVER", "HEADWAY_TOKEN", "HEADWAY_TENANT"),
)

_LINE = re.compile(r" \(at line ([0-9]+), column [0-9]+\)")
FILE, ENVIRONMENT, FLAG = range(3)


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """The source of a value. `says` is the setting that the label names; a message does not repeat it."""

    rank: int
    line: int
    label: str
    says: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    source: Source
    setting: str
    text: str

    def __str__(self) -> str:
        named = "" if self.setting == self.source.says else f"{self.setting}: "
        return f"{self.source.label}: {named}{self.text}"


@dataclass(frozen=True, slots=True)
class Given:
    path: SettingPath
    value: object
    source: Source


# --- the file -----------------------------------------------------------------------------------------------------


def from_file(path: Path | None, problems: list[Problem]) -> Iterator[Given]:
    file = DEFAULT_FILE if path is None else path
    if path is None and not file.exists():
        return
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        problems.append(Problem(Source(FILE, 0, str(file)), "", f"cannot be read: {error.strerror}"))
    except UnicodeDecodeError as error:
        problems.append(Problem(Source(FILE, 0, str(file)), "", f"is not UTF-8 text (byte {error.start})"))
    else:
        yield from _from_toml(file, text, problems)


def _from_toml(file: Path, text: str, problems: list[Problem]) -> Iterator[Given]:
    try:
        tree = tomllib.loads(text)
    except ValueError as error:
        problems.append(_toml_problem(str(error), file, text))
        return
    lines = _lines(text)
    for place, value in flatten((), tree):
        line = next(lines[place[:n]] for n in range(len(place), 0, -1) if place[:n] in lines)
        yield Given(place, value, Source(FILE, line, f"{file}:{line}"))


def _toml_problem(message: str, file: Path, text: str) -> Problem:
    match = _LINE.search(message)
    line = int(match[1]) if match else text.count("\n") + 1
    return Problem(Source(FILE, line, f"{file}:{line}"), "", f"is not TOML: {_LINE.sub('', message)}")


def _lines(text: str) -> dict[SettingPath, int]:
    """Returns the line of every key of a valid TOML text.

    tomllib does not report lines, so this function parses statement by statement to find where each one ends.
    """
    lines: dict[SettingPath, int] = {}
    table: SettingPath = ()
    statement, start = "", 1
    for number, line in enumerate(text.split("\n"), 1):
        start = start if statement else number
        statement += line + "\n"
        try:
            parsed = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue  # the value continues on the next line
        if statement.lstrip().startswith("["):
            table = list(_keys(parsed))[-1]
            lines.setdefault(table, start)
            lines.setdefault(table[:1], start)
        else:
            lines.update({table + key: start for key in _keys(parsed)})
        statement = ""
    return lines


def _keys(tree: Mapping[str, Any]) -> Iterator[SettingPath]:
    for key, value in tree.items():
        yield (key,)
        inner = value[0] if isinstance(value, list) and value and isinstance(value[0], dict) else value
        if isinstance(inner, dict):
            yield from ((key, *rest) for rest in _keys(inner))


# --- environment and flags ----------------------------------------------------------------------------------------


def from_environment(environ: Mapping[str, str], problems: list[Problem]) -> Iterator[Given]:
    for variable in sorted(environ):
        if variable.startswith(PREFIX) and not variable.startswith(NOT_SETTINGS):
            path = _named(variable.removeprefix(PREFIX).split("__"), "__")
            yield from _from_variable(variable, path, environ[variable], problems)


def _from_variable(variable: str, path: SettingPath, text: str, problems: list[Problem]) -> Iterator[Given]:
    source = Source(ENVIRONMENT, 0, variable, shown(path))
    value: object = text
    if not text.strip() and exists(path):
        problems.append(Problem(source, source.says, "is empty: unset it or give it a value"))
        return
    if ".".join(path) in TABLES:
        try:
            value = json.from_json(text, field="")
        except BadInput as error:
            problems.append(Problem(source, source.says, f"must be a JSON object: it {error.facts['problem']}"))
            return
    yield from (Given(place, item, source) for place, item in flatten(path, value))


def from_flags(overrides: Mapping[str, object]) -> Iterator[Given]:
    for name, value in overrides.items():
        for place, item in flatten(_named(name.split("."), "."), value):
            if item is not None:
                label = "--" + "-".join(place).replace("_", "-")
                yield Given(place, item, Source(FLAG, 0, label, shown(place)))


def _named(parts: list[str], separator: str) -> SettingPath:
    """Returns the path that a variable or flag names.

    Names inside a map are user-chosen and keep their case and separators.
    """
    lower = [part.lower() for part in parts]
    for cut in range(1, len(parts)):
        if ".".join(lower[:cut]) in MAPS:
            return (*lower[:cut], separator.join(parts[cut:]))
    return tuple(lower)
