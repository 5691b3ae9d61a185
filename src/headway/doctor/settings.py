"""Loads the settings for `doctor`, or as many of them as are valid."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from headway.cli.command import Invocation
from headway.config import Settings, explain, load
from headway.config.sources import DEFAULT_FILE, FILE, Given, Problem, from_environment, from_file, from_flags
from headway.doctor.filesystem import privacy
from headway.errors import BadInput, HeadwayError
from headway.model.checks import broken, judge_privacy, ok

if TYPE_CHECKING:
    from headway.model.checks import Answer

NOTHING = Path(os.devnull)
DATABASE = ("database",)


def given(call: Invocation) -> tuple[Settings | None, Answer]:
    """Returns the settings and a verdict on them.

    Invalid settings are left out, so that the other checks can run. None if the installation cannot be determined.
    """
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
        return settings, broken(f"concurrency.policy: {error}", "correct it, or name a built-in policy")
    count = sum(setting.source != "default" for setting in explain(settings))
    file = call.config or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)
    if file is not None and _has_password(file) and (wide := judge_privacy([privacy(file)])) is not None:
        return settings, wide
    where = f"{file.absolute()}, " if file else f"no {DEFAULT_FILE} in {Path.cwd()}; "
    return settings, ok(f"{where}{count} given, the others have their defaults")


def _has_password(file: Path) -> bool:
    """Returns True if an address in a settings file has a password in it."""
    values = [setting.value for setting in from_file(file, [])]
    return any(urlsplit(value).password for value in values if isinstance(value, str) and "://" in value)


def _valid_ones(call: Invocation) -> Settings | None:
    """Loads every setting that is valid by itself and beside those before it.

    None if the file cannot be read, or if the named database is not among the valid settings.
    """
    kept: dict[str, Any] = {}
    named: object = None
    problems: list[Problem] = []
    for setting in _all_given(call, problems):
        named = setting.value if setting.path == DATABASE else named
        nested: Any = setting.value
        for part in reversed(setting.path):
            nested = {part: nested}
        if _loads(nested) and _loads(_merged(kept, nested)):
            kept = _merged(kept, nested)
    lost = any(problem.source.rank == FILE or problem.setting == "database" for problem in problems)
    return None if lost or kept.get("database") != named else load(NOTHING, {}, kept)


def _all_given(call: Invocation, problems: list[Problem]) -> Iterator[Given]:
    yield from from_file(call.config, problems)
    yield from from_environment(os.environ, problems)
    yield from from_flags(call.flags)


def _merged(base: dict[str, Any], override: dict[str, Any]) -> dict[str, Any]:
    """Merges nested settings; `override` wins."""
    both = {**base, **override}
    for name in base.keys() & override.keys():
        if isinstance(base[name], dict) and isinstance(override[name], dict):
            both[name] = _merged(base[name], override[name])
    return both


def _loads(settings: dict[str, Any]) -> bool:
    try:
        load(NOTHING, {}, settings)
    except BadInput:
        return False
    return True
