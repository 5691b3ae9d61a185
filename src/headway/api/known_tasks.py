"""The tasks there are: those of this process, and those a worker had lately."""

from __future__ import annotations

from headway.api.routes import Visit
from headway.api.wire.jobs import Json
from headway.api.wire.system import task_json
from headway.engine.client import KNOWN_FOR
from headway.model.access import Role
from headway.store import reading


def known_tasks(here: Visit) -> list[Json]:
    """By name, each with what it takes where that is known."""
    registry = here.client.registry
    with here.look() as tx:
        seen = {one.name: one for one in reading.seen_tasks(tx, within=KNOWN_FOR)}
    found = []
    for name in sorted({*seen, *registry.specs}):
        spec = registry.specs.get(name)
        told = registry.told(name) if spec is not None else (seen[name].priority, seen[name].options)
        found.append(task_json(name, seen.get(name), spec, told))
    return found


def offered_tasks(here: Visit) -> list[Json]:
    """Those that this visitor may make jobs of: an admin's only for one."""
    admin = here.visitor.role.may(Role.ADMIN)
    return [one for one in known_tasks(here) if admin or not one["admin_only"]]
