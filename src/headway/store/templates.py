"""Stores templates. An archived template is kept for the jobs created from it."""

from __future__ import annotations

import json
from collections.abc import Iterable

from headway.errors import BadInput, NotFound, WrongState
from headway.model.event import NewEvent
from headway.model.jobs.job import Actor
from headway.model.schedules.schedule import Schedule
from headway.model.templates import Template
from headway.model.values.suggestions import closest
from headway.store import events
from headway.store.db import Tx

SUGGESTED_FROM = 1_000


def find(tx: Tx, tenant_id: int, which: int | str) -> Template:
    """Finds a template by number or by name.

    For a name, an active template wins, then the one archived last.
    """
    if isinstance(which, int):
        found = tx.run("template_by_id", id=which, tenant_id=tenant_id)
    else:
        found = tx.run("template_by_name", name=which, tenant_id=tenant_id)
    if not found:
        some = [
            row[2] for row in tx.run("templates_after", tenant_id=tenant_id, after=0, archived=0, limit=SUGGESTED_FROM)
        ]
        near = closest(which, some) if isinstance(which, str) else None
        hint = f"did you mean {near}?" if near else None
        raise NotFound(f"there is no template {which!r}", hint=hint, noun="template", code="unknown_template")
    return Template(*found[0])


def numbers(tx: Tx, tenant_id: int, found: Iterable[Schedule]) -> dict[str, int]:
    """Returns the numbers of the templates that schedules name.

    A template that was renamed since is missing from the result.
    """
    named = [one.parsed for one in found if one.readable]
    names = {definition.template for definition in named} | {step.template for one in named for step in one.steps}
    known = {}
    for name in sorted(name for name in names if isinstance(name, str)):
        for row in tx.run("template_by_name", name=name, tenant_id=tenant_id):
            known[name] = Template(*row).id
    return known


def lock(tx: Tx, tenant_id: int, which: int | str) -> Template:
    template = find(tx, tenant_id, which)
    return Template(*tx.run("lock_template", id=template.id)[0])


def page(tx: Tx, tenant_id: int, *, after: int = 0, archived: bool = False, limit: int = 50) -> list[Template]:
    """Lists templates in the order of their creation."""
    columns = {"after": after, "archived": int(archived), "limit": limit}
    return [Template(*row) for row in tx.run("templates_after", tenant_id=tenant_id, **columns)]


def insert(tx: Tx, tenant_id: int, *, name: str, task: str, definition: str, actor: Actor) -> Template:
    columns = {"name": name, "task": task, "definition": definition}
    found = tx.run("add_template", tenant_id=tenant_id, actor=actor.text(), **columns)
    if not found:
        raise BadInput(
            f"name: there is a template {name!r} already",
            hint="edit it, or take another name",
            code="name_taken",
            field="name",
        )
    template = Template(*tx.run("lock_template", id=found[0][0])[0])
    _record(tx, template, "created", actor)
    return template


def save(tx: Tx, template: Template, kind: str, actor: Actor, *, archive: bool = False) -> Template:
    """Stores a change of a locked template. An archived template is refused."""
    if template.archived_at is not None:
        raise WrongState(f"template {template.name!r} is archived", hint="make a new one", status="archived")
    columns = {"name": template.name, "task": template.task, "definition": template.definition}
    columns["author"] = template.author if archive else actor.text()
    landed = tx.run("save_template", id=template.id, version=template.version, archive=int(archive), **columns)
    assert landed, f"template {template.id} was changed without its lock"
    saved = Template(*tx.run("lock_template", id=template.id)[0])
    _record(tx, saved, kind, actor)
    return saved


def _record(tx: Tx, template: Template, kind: str, actor: Actor) -> None:
    facts = {"name": template.name, "task": template.task, "definition": json.loads(template.definition)}
    data = json.dumps(facts, separators=(",", ":"))
    event = NewEvent(
        f"template.{kind}",
        actor,
        tenant_id=template.tenant_id,
        thing_id=template.id,
        version=template.version,
        data=data,
    )
    events.record(tx, event)
