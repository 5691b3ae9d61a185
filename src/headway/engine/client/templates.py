"""The verbs on templates, each in one transaction.

A job copies its template's fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, Any

from headway.engine.client import authority, idempotency
from headway.engine.tasks.task import make_job
from headway.errors import BadInput, Busy, WrongState
from headway.model import templates as model
from headway.model.access import authority as rule
from headway.model.jobs.job import NewJob
from headway.model.templates import Template
from headway.model.values.json import to_json
from headway.model.values.names import check_name, check_resources, check_task_name
from headway.store import templates
from headway.store.db import Tx

if TYPE_CHECKING:
    from headway.engine.client.client import Client

TRIES = 20


class Templates:
    """The verbs on templates, for one tenant and one actor."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def create(self, name: str, task: str, **fields: Any) -> Template:
        """Creates a template.

        Example: `templates.create("nightly story", "story.generate", params={"topic": "fog"}, priority=5)`
        """
        client, text = self.client, model.check_fields(fields)
        check_name(name, field="name")
        authority.check_task(client, task)
        check_template(client, check_task_name(task), fields)
        options = {"name": name, "task": task, "definition": text, "actor": client.actor}
        return idempotency.create_once(
            client,
            "create_template",
            lambda tx: templates.insert(tx, client.tenant_id, **options),  # type: ignore[arg-type]
            noun=Template,
            look=f"headway templates show {quote(name)}",
        )

    def edit(self, which: int | str, *, if_version: int | None = None, **changes: Any) -> Template:
        """Edits fields, `name` and `task`; existing jobs and executions keep their copy."""
        new_name, new_task = changes.pop("name", None), changes.pop("task", None)
        for _ in range(TRIES):
            before = self.get(which)
            authority.check_task(self.client, before.task)
            authority.check_task(self.client, new_task or before.task)
            check_name(new_name or before.name, field="name")
            check_template(self.client, check_task_name(new_task or before.task), {**before.fields, **changes})
            requested = replace(before, name=new_name or before.name, task=new_task or before.task)
            requested = replace(requested, definition=model.changed(before, changes))
            if (edited := self._edit(before, requested, if_version)) is not None:
                return edited
            which = before.id  # the checked version is outdated, and its name may have changed
        raise Busy(f"other callers keep changing template {which!r}", hint="try again", retry_after=1)

    def _edit(self, before: Template, requested: Template, if_version: int | None) -> Template | None:
        """Stores the edited template. None if it changed after it was read."""
        client = self.client

        def work(tx: Tx) -> Template | None:
            found = templates.lock(tx, client.tenant_id, before.id)
            _expect(found, if_version)
            if found.version != before.version:
                return None
            if requested.name != found.name and _taken(tx, client.tenant_id, requested.name):
                raise BadInput(f"name: there is a template {requested.name!r} already", code="name_taken", field="name")
            return templates.save(tx, requested, "changed", client.actor)

        return client.transact("edit_template", work, noun=Template)

    def archive(self, which: int | str, *, if_version: int | None = None) -> Template:
        """Archives a template: no new job uses it, and its name is free again."""
        client = self.client
        authority.check_task(client, self.get(which).task)

        def work(tx: Tx) -> Template:
            found = templates.lock(tx, client.tenant_id, which)
            _expect(found, if_version)
            return templates.save(tx, found, "archived", client.actor, archive=True)

        return client.transact("archive_template", work, noun=Template)

    def get(self, which: int | str) -> Template:
        with self.client.database.read() as tx:
            return templates.find(tx, self.client.tenant_id, which)

    def list(self, *, after: int = 0, archived: bool = False, limit: int = 200) -> list[Template]:
        with self.client.database.read() as tx:
            return templates.page(tx, self.client.tenant_id, after=after, archived=archived, limit=limit)

    def job(self, which: int | str | Template, params: Mapping[str, object] | None = None, **options: Any) -> NewJob:
        """Returns a new job of the template, with the given params and options on top."""
        template = in_use(which if isinstance(which, Template) else self.get(which))
        self._check(template, params or {}, options)
        merged = {**template.params, **(params or {})}
        job = make_job(self.client, template.task, merged, {**template.options, **options})
        return job._replace(template_id=template.id)

    def _check(self, template: Template, params: Mapping[str, object], options: Mapping[str, object]) -> None:
        """Refuses a job that neither the caller nor the author of the template may place."""
        client = self.client
        if client.visitor is not None and template.task in rule.ADMIN_TASKS:
            caller = authority.of_caller(client)
            rule.check_from_template(caller, template, params, options)
            if not caller.may(template.task):
                rule.check_task(authority.of_author(client, client.tenant_id, template.author), template.task)


def in_use(template: Template) -> Template:
    if template.archived_at is not None:
        raise BadInput(
            f"template {template.name!r} is archived",
            hint="use another template, or create it again",
            code="template_archived",
            field="template",
        )
    return template


def check_template(client: Client, task: str, fields: Mapping[str, Any]) -> None:
    """Checks that the task is known, the options are valid and the given params fit."""
    given = {name: value for name, value in fields.items() if value is not None}
    options = {name: value for name, value in given.items() if name in model.OPTIONS}
    client.check_stored(task, [to_json(given.get("params", {}), field="params")])
    try:
        make_job(client, task, given.get("params", {}), options)
    except BadInput as error:
        # Missing params are allowed, because each job of the template may supply them.
        if error.code != "bad_params" or any(problem["problem"] != "is missing" for problem in error.facts["errors"]):
            raise
    if "resources" in options:  # raises for an undefined resource
        client.lanes.of(client.tenant_id, task, check_resources(options["resources"]), on_target="target" in options)


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
