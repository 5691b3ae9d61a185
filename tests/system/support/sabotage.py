"""Known bugs, to be switched on one by one in a forked process: the harness is worth something if it finds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headway.engine import finish, recovery, worker
from headway.model.job import Actor, Claim, Job
from headway.model.outcome import Outcome
from headway.model.states import State
from headway.store import db, jobs, workers
from headway.store.db import Database, Tx

ALL: dict[str, Callable[[], None]] = {}
# The script in which each bug does its harm.
WHERE: dict[str, str] = {}


def bug(script: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def add(switch_on: Callable[[], None]) -> Callable[[], None]:
        ALL[switch_on.__name__] = switch_on
        WHERE[switch_on.__name__] = script
        return switch_on

    return add


def rewrite(name: str, *changes: tuple[str, str]) -> None:
    """Other words in a named statement, in both dialects."""
    loaded = db.load_statements

    def load(dialect: str) -> dict[str, str]:
        found = loaded(dialect)
        text = found[name]
        for old, new in changes:
            text = text.replace(old, new)
        assert text != found[name], f"{name} no longer reads as this bug expects"
        return {**found, name: text}

    for module in _modules_with("load_statements"):
        module.load_statements = load  # type: ignore[attr-defined]


def _modules_with(name: str) -> list[object]:
    from headway.store import postgres, sqlite

    return [module for module in (db, postgres, sqlite) if hasattr(module, name)]
