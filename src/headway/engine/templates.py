"""What people and programs do to templates: each verb one transaction. A job made of one is a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headway.engine.task import make_job
from headway.errors import BadInput, Busy, WrongState
from headway.model import template as model
from headway.model.job import NewJob
from headway.model.template import Template
from headway.model.values import check_name, check_resources, check_task_name
from headway.store import templates
from headway.store.db import Tx

if TYPE_CHECKING:
    from headway.engine.client import Client

TRIES = 20


class Templates:
    """The verbs on templates, for one tenant and one actor."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def create(self, name: str, task: str, **fields: Any) -> Template:
        """`templates.create("nightly story", "story.generate", params={"topic": "fog"}, priority=5)`"""
        client, text = self.client, model.check_fields(fields)
        check_name(name, field="name")
        check_template(client, check_task_name(task), fields)
        wishes = {"name": name, "task": task, "definition": text, "actor": client.actor}
        return client.database.transact(
            "create_template",
            lambda tx: templates.insert(tx, client.tenant_id, **wishes),  # type: ignore[arg-type]
        )

    def edit(self, which: int | str, *, if_version: int | None = None, **changes: Any) -> Template:
        """Jobs and executions that exist keep what they got; `name` and `task` may change too."""
        new_name, new_task = changes.pop("name", None), changes.pop("task", None)
        for _ in range(TRIES):
            before = self.get(which)
            check_name(new_name or before.name, field="name")
            check_template(self.client, check_task_name(new_task or before.task), {**before.fields, **changes})
            wished = replace(before, name=new_name or before.name, task=new_task or before.task)
            wished = replace(wished, definition=model.changed(before, changes))
            if (edited := self._edit(before, wished, if_version)) is not None:
                return edited
            which = before.id  # what was checked is not what is there any more; its name may have changed
        raise Busy(f"template {which!r} is being changed by others all the time: try again", retry_after=1)

    def _edit(self, before: Template, wished: Template, if_version: int | None) -> Template | None:
        """None: somebody changed the template after it was read."""
        client = self.client

        def work(tx: Tx) -> Template | None:
            found = templates.lock(tx, client.tenant_id, before.id)
            _expect(found, if_version)
            if found.version != before.version:
                return None
            if wished.name != found.name and _taken(tx, client.tenant_id, wished.name):
                raise BadInput(f"name: there is a template {wished.name!r} already", code="name_taken", field="name")
            return templates.save(tx, wished, "changed", client.actor)

        return client.database.transact("edit_template", work)

    def archive(self, which: int | str, *, if_version: int | None = None) -> Template:
        """No more jobs are made of it. Its name is free again."""
        client = self.client

        def work(tx: Tx) -> Template:
            found = templates.lock(tx, client.tenant_id, which)
            _expect(found, if_version)
            return templates.save(tx, found, "archived", client.actor, archive=True)

        return client.database.transact("archive_template", work)

    def get(self, which: int | str) -> Template:
        with self.client.database.read() as tx:
            return templates.find(tx, self.client.tenant_id, which)

    def list(self, *, after: int = 0, archived: bool = False, limit: int = 200) -> list[Template]:
        with self.client.database.read() as tx:
            return templates.page(tx, self.client.tenant_id, after=after, archived=archived, limit=limit)

    def job(self, which: int | str | Template, params: Mapping[str, object] | None = None, **wishes: Any) -> NewJob:
        """A job as the template says, with other params and options where they are given."""
        template = in_use(which if isinstance(which, Template) else self.get(which))
        merged = {**template.params, **(params or {})}
        job = make_job(self.client, template.task, merged, {**template.wishes, **wishes})
        return job._replace(template_id=template.id)


def in_use(template: Template) -> Template:
    if template.archived_at is not None:
        raise BadInput(
            f"template {template.name!r} is archived: name another one, or make it anew",
            code="template_archived",
            field="template",
        )
    return template


def check_template(client: Client, task: str, fields: Mapping[str, Any]) -> None:
    """Its task is known, its options are right, and its params fit, as far as they are given."""
    given = {name: value for name, value in fields.items() if value is not None}
    wishes = {name: value for name, value in given.items() if name in model.WISHES}
    try:
        make_job(client, task, given.get("params", {}), wishes)
    except BadInput as error:
        # What is missing is for those to give who make jobs of it.
        if error.code != "bad_params" or any(one["problem"] != "is missing" for one in error.facts["errors"]):
            raise
    if "resources" in wishes:  # refused unless they are defined
        client.lanes.of(client.tenant_id, task, check_resources(wishes["resources"]), on_target="target" in wishes)


def _taken(tx: Tx, tenant_id: int, name: str) -> bool:
    found = tx.run("template_by_name", tenant_id=tenant_id, name=name)
    return bool(found) and Template(*found[0]).archived_at is None


def _expect(template: Template, version: int | None) -> None:
    if version is not None and version != template.version:
        raise WrongState(
            f"template {template.name!r} has changed since it was read (version {template.version}, not {version})",
            code="version_mismatch",
            status="archived" if template.archived_at is not None else "in use",
        )
