"""The known tasks: those of this process, and those that a worker had recently."""

from __future__ import annotations

from headway.api.http.routing import RequestContext
from headway.api.schemas.common import Json
from headway.api.schemas.system import task_json
from headway.engine.client.client import KNOWN_FOR
from headway.engine.tasks.registry import Registry
from headway.model.access.permissions import Role
from headway.store.db import Tx
from headway.store.jobs import views as job_views


def known_tasks(here: RequestContext) -> list[Json]:
    """Returns all known tasks by name, each with its params where they are known."""
    with here.look() as tx:
        return tasks_of(tx, here.client.registry)


def tasks_of(tx: Tx, registry: Registry) -> list[Json]:
    """Returns the tasks of a registry and those that workers had, by name."""
    seen = {task.name: task for task in job_views.seen_tasks(tx, within=KNOWN_FOR)}
    found = []
    for name in sorted({*seen, *registry.specs}):
        spec = registry.specs.get(name)
        facts = registry.facts(name) if spec is not None else (seen[name].priority, seen[name].options)
        found.append(task_json(name, seen.get(name), spec, facts))
    return found


def offered_tasks(here: RequestContext) -> list[Json]:
    """Returns the tasks that this visitor may create jobs of.

    Some are for admins only.
    """
    admin = here.visitor.role.may(Role.ADMIN)
    return [task for task in known_tasks(here) if admin or not task["admin_only"]]
