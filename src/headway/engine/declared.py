"""Schedules that are declared in code: brought into the database when a scheduler starts.

What differs is changed, what is new is made, what is declared no more is disabled, never deleted. Whatever a person
disabled by hand stays so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headway.errors import BadInput
from headway.model.schedule import Definition, Schedule
from headway.store import schedules

if TYPE_CHECKING:
    from headway.engine.client import Client

BUILT_IN = ("command", "http", "powershell", "sql")
UNDECLARED = "no longer declared in code"


@dataclass(frozen=True, slots=True)
class Declared:
    """A schedule as code says it."""

    name: str
    definition: Definition


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of the declared schedules, by name; `kept`: there is one of that name that code did not make."""

    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    enabled: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """In words, one line for each kind."""
        words = {
            "created": "made",
            "changed": "changed to what the code says",
            "enabled": "declared again, and enabled",
            "disabled": f"{UNDECLARED}, so disabled",
            "kept": "left as they are: they were not made by code; rename or delete them",
        }
        found = {kind: getattr(self, kind) for kind in words}
        return [f"schedules {words[kind]}: {', '.join(names)}" for kind, names in found.items() if names]


def settle(client: Client, declared: Iterable[Declared]) -> Settled:
    """Brings code and database together. An app that declares nothing disables nothing: it may not be the one whose
    schedules these are."""
    wanted = {one.name: one for one in declared}
    found: dict[str, list[str]] = {kind: [] for kind in ("created", "changed", "enabled", "disabled", "kept")}
    stored = {schedule.name: schedule for schedule in _all(client)}
    for name, one in wanted.items():
        for kind in _bring(client, one, stored.get(name)):
            found[kind].append(name)
    for name, schedule in stored.items():
        gone = wanted and name not in wanted and schedule.origin == "code" and schedule.enabled
        if gone and _could_be_ours(client, schedule):
            client.schedules.disable(schedule.id, reason=UNDECLARED)
            found["disabled"].append(name)
    return Settled(**{kind: tuple(names) for kind, names in found.items()})


def _could_be_ours(client: Client, schedule: Schedule) -> bool:
    """Another app on the same database declares its own: what runs none of our tasks is not ours to disable."""
    tasks = {step.task for step in schedule.parsed.steps} if schedule.readable else set()
    return any(task in client.registry.specs and task not in BUILT_IN for task in tasks)


def _all(client: Client) -> list[Schedule]:
    found: list[Schedule] = []
    while page := client.schedules.list(after=found[-1].name if found else ""):
        found += page
    return found


def _bring(client: Client, one: Declared, stored: Schedule | None) -> list[str]:
    if stored is None:
        try:
            client.schedules.create(one.name, one.definition.facts(), origin="code")
        except BadInput as error:
            if error.code != "name_taken":
                raise
            return _bring(client, one, client.schedules.get(one.name))  # another process starts at the same time
        return ["created"]
    if stored.origin != "code" or not stored.readable:
        return ["kept"] if not stored.readable or stored.parsed != one.definition else []
    done: list[str] = []
    if stored.parsed != one.definition:
        client.schedules.edit(stored.id, _replacing(stored.parsed, one.definition))
        done.append("changed")
    if not stored.enabled and _was_undeclared(client, stored):
        client.schedules.enable(stored.id)
        done.append("enabled")
    return done


def _replacing(stored: Definition, wanted: Definition) -> Mapping[str, object]:
    """Every field, also those that are to go."""
    return {**dict.fromkeys(stored.facts()), **wanted.facts()}


def _was_undeclared(client: Client, schedule: Schedule) -> bool:
    with client.database.read() as tx:
        _, facts = schedules.last_switch(tx, schedule.id)
    return facts.get("reason") == UNDECLARED
