"""`/api/job-templates`: stored defaults for a task. Deleting one archives it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from headway.api.asking import Cursor, Id, Limit, Text
from headway.api.editing import as_seen
from headway.api.routes import Here, Routes, Visit, answer, etag
from headway.api.wire import answers, answers_plans, bodies_plans
from headway.api.wire.plans import template_json
from headway.engine.client import Client
from headway.model.access import check_task
from headway.model.template import Template
from headway.store import templates
from headway.store.pages import make_cursor, read_cursor

routes = Routes("templates")
Archived = Annotated[bool, Query(description="Those that are archived too")]


@routes.post("/api/job-templates", answer=answers_plans.Template, status=201, creates=True)
def create(here: Here, body: bodies_plans.NewTemplate) -> Response:
    """Make a template: defaults for a task."""

    def work(client: Client) -> Template:
        check_task(here.visitor, body.task)
        return client.templates.create(**body.fields())

    return here.make_once(work, lambda made: _shown(here, made, 201), body.model_dump())


@routes.get("/api/job-templates", answer=answers.Page[answers_plans.Template])
def ls(here: Here, name: Text = None, archived: Archived = False, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List templates, the oldest first; with a name, the one in use, or the last one that was archived."""
    after = 0 if cursor is None else read_cursor(cursor)
    with here.read() as tx:
        if name is not None:
            return answer({"items": [template_json(templates.find(tx, here.tenant_id, name))], "next": None})
        found = templates.page(tx, here.tenant_id, after=after, archived=archived, limit=limit + 1)
    more = make_cursor(found[limit - 1].id) if len(found) > limit else None
    return answer({"items": [template_json(one) for one in found[:limit]], "next": more})


@routes.get("/api/job-templates/{template_id}", answer=answers_plans.Template)
def show(here: Here, template_id: Id) -> Response:
    """Show a template, also an archived one."""
    with here.read() as tx:
        return _shown(here, templates.find(tx, here.tenant_id, template_id))


@routes.patch("/api/job-templates/{template_id}", answer=answers_plans.Template)
def edit(here: Here, template_id: Id, body: bodies_plans.TemplateEdit) -> Response:
    """Change a template; null takes a field away. Jobs and executions that exist keep what they got."""
    changes = body.changes()
    if "task" in changes:
        check_task(here.visitor, changes["task"])
    changed = as_seen(
        here,
        lambda: _ours(here, template_id),
        lambda seen, version: here.client.templates.edit(seen.id, if_version=version, **changes),
    )
    return _shown(here, changed)


@routes.delete("/api/job-templates/{template_id}", answer=answers_plans.Template)
def archive(here: Here, template_id: Id) -> Response:
    """Archive a template: no more jobs are made of it, and its name is free again."""
    archived = as_seen(
        here,
        lambda: _ours(here, template_id),
        lambda seen, version: here.client.templates.archive(seen.id, if_version=version),
    )
    return _shown(here, archived)


def _ours(here: Visit, template_id: int) -> Template:
    """A template that this visitor may change."""
    template = here.client.templates.get(template_id)
    check_task(here.visitor, template.task)
    return template


def _shown(here: Visit, template: Template, status: int = 200) -> Response:
    headers = {"ETag": etag(template.version)}
    if status == 201:
        headers["Location"] = here.address(f"/api/job-templates/{template.id}")
    return answer(template_json(template), status, **headers)
