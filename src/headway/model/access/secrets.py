"""Secrets: where each comes from, and which tenants and tasks may use it. Pure.

A secret that is unknown and a secret of others are refused alike, so that no caller learns the names of secrets.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from headway.errors import BadInput
from headway.model.access.tenants import DEFAULT, EVERYBODY
from headway.model.groups.group import SECRET
from headway.model.values.json import step

REFERENCE = f'"{SECRET}"'
# The built-in task whose param `connection` names a connection of the settings.
SQL = "sql"


@dataclass(frozen=True, slots=True)
class OwnedSecret:
    """A secret of the settings: its source, and its owners.

    `source` is `env:VARIABLE` or `file:/path`. `tenants` are names, or `*` for all; `tasks` are patterns.
    """

    source: str
    tenants: tuple[str, ...] = (DEFAULT,)
    tasks: tuple[str, ...] = ("*",)

    def may(self, tenant: str, task: str) -> bool:
        known = tenant in self.tenants or EVERYBODY in self.tenants
        return known and any(fnmatchcase(task, pattern) for pattern in self.tasks)

    def unused_patterns(self, tasks: Sequence[str]) -> list[str]:
        """Returns the patterns that fit none of these tasks."""
        return [pattern for pattern in self.tasks if not any(fnmatchcase(task, pattern) for task in tasks)]

    @property
    def variable(self) -> str | None:
        """The environment variable that the secret comes from; None for a file."""
        kind, _, name = self.source.partition(":")
        return name if kind == "env" else None

    def __str__(self) -> str:
        """Returns the secret as the settings write it."""
        if (self.tenants, self.tasks) == ((DEFAULT,), ("*",)):
            return self.source
        lists = f"tenants = {json.dumps(self.tenants)}, tasks = {json.dumps(self.tasks)}"
        return f"{{ from = {json.dumps(self.source)}, {lists} }}"


def not_given(name: str, tenant: str, task: str) -> str:
    """Returns the one refusal of an unknown secret and of a secret of others."""
    return (
        f"asks for the secret {name}, which is unknown, or not for {task} of the tenant {tenant}:"
        " add it to secrets in the worker's settings"
    )


def check_secrets(
    secrets: Mapping[str, OwnedSecret], params: Sequence[str], *, tenant: str, task: str, unknown: bool = False
) -> None:
    """Refuses params that name secrets of others; with `unknown` also secrets that are not in these settings."""
    for text in params:
        if REFERENCE not in text:
            continue
        for place, name in _named(json.loads(text), "params"):
            secret = secrets.get(name)
            if not unknown if secret is None else secret.may(tenant, task):
                continue
            why = not_given(name, tenant, task)
            errors = [{"field": place, "problem": why}]
            raise BadInput(f"{task}: {place} {why}", code="bad_params", field=place, errors=errors)


def check_connection(connections: Collection[str], text: str, *, task: str) -> None:
    """Refuses a script of the built-in task `sql` for a connection that these settings do not name."""
    params = json.loads(text) if task == SQL else {}
    name = params.get("connection")
    if not isinstance(name, str) or name in connections:
        return
    why = f"names the connection {name}, which is unknown: add it to connections in the worker's settings"
    errors = [{"field": "params.connection", "problem": why}]
    raise BadInput(f"{task}: params.connection {why}", code="bad_params", field="params.connection", errors=errors)


def _named(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yields the place and the name of each reference to a secret."""
    if isinstance(value, dict):
        if value.keys() == {SECRET} and isinstance(value[SECRET], str):
            yield place, value[SECRET]
        for name, item in value.items():
            yield from _named(item, place + step(name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _named(item, f"{place}[{number}]")
