"""What `doctor` works with: the settings, or as many of them as are valid."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.call import Call
from headway.config import Settings, explain, load
from headway.config.sources import DEFAULT_FILE, FILE, Given, Problem, from_environment, from_file, from_flags
from headway.errors import BadInput, HeadwayError
from headway.model.diagnosis import broken, ok

if TYPE_CHECKING:
    from headway.model.diagnosis import Answer

NOTHING = Path(os.devnull)
DATABASE = ("database",)


def given(call: Call) -> tuple[Settings | None, Answer]:
    """The settings with how they stand. Broken ones are left out, so that the rest can be looked at all the same; None
    if nobody can tell which installation is meant."""
    try:
        settings = call.settings()
    except BadInput as error:
        if error.code != "bad_settings":
            raise
        problems = "; ".join(error.facts["problems"])
        return _valid_ones(call), broken(problems, "correct it; no process starts with these settings")
    try:
        settings.concurrency.value(settings.aging).lanes("command", (), on_target=False)
    except HeadwayError as error:
        return settings, broken(f"concurrency.policy: {error}", "correct it, or name one that comes with Headway")
    count = sum(one.source != "default" for one in explain(settings))
    file = call.config or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)
    where = f"{file.absolute()}, " if file else f"no {DEFAULT_FILE} in {Path.cwd()}; "
    return settings, ok(f"{where}{count} given, the others have their defaults")


def _valid_ones(call: Call) -> Settings | None:
    """Each setting by itself; two that are valid but do not go together are both left out. None without the file, or
    without the database that was named."""
    kept: dict[str, Any] = {}
    named: object = None
    problems: list[Problem] = []
    for one in _all_given(call, problems):
        named = one.value if one.path == DATABASE else named
        wish: Any = one.value
        for part in reversed(one.path):
            wish = {part: wish}
        if _loads(wish) and _loads(_merged(kept, wish)):
            kept = _merged(kept, wish)
    lost = any(one.source.rank == FILE or one.setting == "database" for one in problems)
    return None if lost or kept.get("database") != named else load(NOTHING, {}, kept)


def _all_given(call: Call, problems: list[Problem]) -> Iterator[Given]:
    yield from from_file(call.config, problems)
    yield from from_environment(os.environ, problems)
    yield from from_flags(call.flags)


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The other wins."""
    both = {**one, **other}
    for name in one.keys() & other.keys():
        if isinstance(one[name], dict) and isinstance(other[name], dict):
            both[name] = _merged(one[name], other[name])
    return both


def _loads(wishes: dict[str, Any]) -> bool:
    try:
        load(NOTHING, {}, wishes)
    except BadInput:
        return False
    return True
