"""Validates the settings of all sources.

`load()` reads every source before it validates any, so that it can report all problems at once, each with its file and
line, its variable or its flag.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from headway.config.schema import KNOWN, SECTIONS, TABLES, exists, shown
from headway.config.settings import SettingPath, Settings
from headway.config.sources import (
    ENVIRONMENT,
    FILE,
    PREFIX,
    Given,
    Problem,
    Source,
    from_environment,
    from_file,
    from_flags,
)
from headway.config.types import TOGETHER
from headway.engine.execution.own_variables import WITHHELD
from headway.errors import BadInput
from headway.model.values import suggestions

_MAY_BE_NONE = {"concurrency.limit", "aging", "retention"}


def load(path: Path | None, environ: Mapping[str, str], overrides: Mapping[str, object]) -> Settings:
    """Returns the settings, or raises one BadInput with every problem, one per line.

    `facts["problems"]` has the same lines. `path` None means `headway.toml` in the current folder, if it exists.
    Overrides are nested or dotted (`{"slots": 8, "concurrency.limit": "none"}`); None counts as not given.
    """
    problems: list[Problem] = []
    given: dict[SettingPath, Given] = {}
    for layer in (from_file(path, problems), from_environment(environ, problems), from_flags(overrides)):
        known = {item.path: item for item in layer if _is_known(item, problems)}
        _validate(known, problems, alone=True)  # a value that a later source overrides must be valid too
        given |= known
    _refuse_default(environ, given, problems)
    settings = _validate(given, problems)
    if settings is None or problems:
        lines = [str(problem) for problem in sorted(set(problems))]
        raise BadInput("\n".join(lines), code="bad_settings", problems=lines)
    settings.remember_sources({item.path: item.source.label for item in given.values()})
    return settings


def _refuse_default(environ: Mapping[str, str], given: Mapping[SettingPath, Given], problems: list[Problem]) -> None:
    """Refuses the default database in a process that a task started.

    Its worker has another database, whose address the process did not inherit.
    """
    withheld = environ.get(WITHHELD, "").split(",")
    variable = next((name for name in withheld if name.upper() == "HEADWAY_DATABASE"), None)
    if variable is not None and ("database",) not in given:
        text = "is not passed on to the programs of a job: name the database in headway.toml or with --database"
        problems.append(Problem(Source(ENVIRONMENT, 0, variable, "database"), "database", text))


def _validate(given: Mapping[SettingPath, Given], problems: list[Problem], *, alone: bool = False) -> Settings | None:
    try:
        return Settings.model_validate(_tree(given))
    except ValidationError as error:
        found = error.errors(include_input=False)
        problems += [_explain_error(item, given) for item in found if not (alone and item["type"] == TOGETHER)]
        return None


def _tree(given: Mapping[SettingPath, Given]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for item in given.values():
        branch = tree
        for part in item.path[:-1]:
            branch = branch.setdefault(part, {})
        branch[item.path[-1]] = item.value
    return tree


def _explain_error(details: ErrorDetails, given: Mapping[SettingPath, Given]) -> Problem:
    path = tuple(str(part) for part in details["loc"])
    if path not in given and path[-1] == "[key]":  # pydantic's mark for a wrong name instead of a wrong value
        path = path[:-1]
    # Defaults are valid, except for a default lease that is too short for a given heartbeat.
    cause = given.get(path) or given[("heartbeat",)]
    hint = ' (or "none")' if ".".join(path) in _MAY_BE_NONE else ""
    return Problem(cause.source, shown(path), _error_text(details) + hint)


def _error_text(details: ErrorDetails) -> str:
    facts = details.get("ctx", {})
    match details["type"]:
        case "value_error":
            return str(facts["error"])
        case "greater_than_equal":
            return f"must be at least {facts['ge']}"
        case "greater_than":
            return f"must be more than {facts['gt']:g}"
        case "less_than_equal":
            return f"must be at most {facts['le']}"
        case "literal_error":
            return f"must be {facts['expected']}"
        case "string_type":
            return "must be text"
        case "bool_type" | "bool_parsing":
            return "must be true or false"
    return details["msg"]


def _is_known(item: Given, problems: list[Problem]) -> bool:
    if ".".join(item.path) in TABLES:
        text = "must be a table of names and values"
    elif not exists(item.path):
        text = f"unknown setting{_suggestion(item)}"
    else:
        return True
    problems.append(Problem(item.source, shown(item.path), text))
    return False


def _suggestion(item: Given) -> str:
    inside = item.path[0] in SECTIONS
    by_tail = {known.rpartition(".")[2]: known for known in KNOWN if not inside or known.startswith(item.path[0] + ".")}
    names = by_tail if inside else by_tail | {known: known for known in KNOWN}
    near = suggestions.closest(item.path[-1] if inside else ".".join(item.path), names)
    return f", did you mean {_spelled(names[near], item.source.rank)}?" if near else ""


def _spelled(name: str, rank: int) -> str:
    if rank == ENVIRONMENT:
        return PREFIX + name.upper().replace(".", "__")
    return name if rank == FILE else "--" + name.replace(".", "-").replace("_", "-")
