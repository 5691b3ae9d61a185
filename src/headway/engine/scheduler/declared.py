"""Stores the schedules that code declares, when a scheduler starts.

Changed ones are edited, new ones are created, and ones that are no longer declared are disabled, never deleted. A
schedule that a person disabled stays disabled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headway.errors import BadInput
from headway.model.access.authority import BUILT_IN
from headway.model.schedules.definition import Definition
from headway.model.schedules.schedule import Schedule
from headway.store.schedules import schedules

if TYPE_CHECKING:
    from headway.engine.client.client import Client

UNDECLARED = "no longer declared in code"


@dataclass(frozen=True, slots=True)
class DeclaredSchedule:
    """A schedule as code declares it."""

    name: str
    definition: Definition


@dataclass(frozen=True, slots=True)
class DeclaredChanges:
    """The declared schedules that were changed, by name.

    `kept` names schedules that exist and were not created by code.
    """

    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    enabled: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Returns one line of text for each kind of change."""
        words = {
            "created": "created",
            "changed": "changed to the definition in code",
            "enabled": "declared again, and enabled",
            "disabled": f"{UNDECLARED}, so disabled",
            "kept": "not changed, because they were not created by code; rename or delete them",
        }
        found = {kind: getattr(self, kind) for kind in words}
        return [f"schedules {words[kind]}: {', '.join(names)}" for kind, names in found.items() if names]


def settle(client: Client, declared: Iterable[DeclaredSchedule]) -> DeclaredChanges:
    """Updates the stored schedules from the declarations in code.

    An app without declarations disables nothing, because the schedules may belong to another app.
    """
    wanted = {schedule.name: schedule for schedule in declared}
    found: dict[str, list[str]] = {kind: [] for kind in ("created", "changed", "enabled", "disabled", "kept")}
    stored = {schedule.name: schedule for schedule in _all(client)}
    for name, declared_schedule in wanted.items():
        for kind in _bring(client, declared_schedule, stored.get(name)):
            found[kind].append(name)
    for name, schedule in stored.items():
        gone = wanted and name not in wanted and schedule.origin == "code" and schedule.enabled
        if gone and _could_be_ours(client, schedule):
            client.schedules.disable(schedule.id, reason=UNDECLARED)
            found["disabled"].append(name)
    return DeclaredChanges(**{kind: tuple(names) for kind, names in found.items()})


def _could_be_ours(client: Client, schedule: Schedule) -> bool:
    """True if the schedule runs one of this app's tasks.

    Otherwise another app on the same database may own it.
    """
    tasks = {step.task for step in schedule.parsed.steps} if schedule.readable else set()
    return any(task in client.registry.specs and task not in BUILT_IN for task in tasks)


def _all(client: Client) -> list[Schedule]:
    found: list[Schedule] = []
    while page := client.schedules.list(after=found[-1].name if found else ""):
        found += page
    return found


def _bring(client: Client, declared: DeclaredSchedule, stored: Schedule | None) -> list[str]:
    if stored is None:
        try:
            client.schedules.create(declared.name, declared.definition.facts(), origin="code")
        except BadInput as error:
            if error.code != "name_taken":
                raise
            # Another process created it at the same moment.
            return _bring(client, declared, client.schedules.get(declared.name))
        return ["created"]
    if stored.origin != "code" or not stored.readable:
        return ["kept"] if not stored.readable or stored.parsed != declared.definition else []
    done: list[str] = []
    if stored.parsed != declared.definition:
        client.schedules.edit(stored.id, _replacing(stored.parsed, declared.definition))
        done.append("changed")
    if not stored.enabled and _was_undeclared(client, stored):
        client.schedules.enable(stored.id)
        done.append("enabled")
    return done


def _replacing(stored: Definition, wanted: Definition) -> Mapping[str, object]:
    """Returns every field, with None for those to remove."""
    return {**dict.fromkeys(stored.facts()), **wanted.facts()}


def _was_undeclared(client: Client, schedule: Schedule) -> bool:
    with client.database.read() as tx:
        _, facts = schedules.last_switch(tx, schedule.id)
    return facts.get("reason") == UNDECLARED
