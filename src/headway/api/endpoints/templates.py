"""`/api/job-templates`: stored defaults for a task.

Deleting a template archives it.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from headway.api.http.conditional import as_seen
from headway.api.http.query import Cursor, Id, Limit, Text
from headway.api.http.routing import Here, RequestContext, Routes, answer, etag
from headway.api.schemas.common import PageSchema
from headway.api.schemas.schedules import NewTemplateBody, TemplateEditBody, TemplateSchema, template_json
from headway.engine.client.authority import check_task
from headway.engine.client.client import Client
from headway.model.templates import Template
from headway.store import audit_views, templates
from headway.store.paging import make_cursor, read_cursor

routes = Routes("templates")
Archived = Annotated[bool, Query(description="Include archived templates")]


@routes.post("/api/job-templates", answer=TemplateSchema, status=201, creates=True)
def create(here: Here, body: NewTemplateBody) -> Response:
    """Create a template: defaults for a task."""

    def work(client: Client) -> Template:
        return client.templates.create(**body.fields())

    return here.make_once(work, lambda made: _shown(here, made, 201), body.model_dump())


@routes.get("/api/job-templates", answer=PageSchema[TemplateSchema])
def ls(here: Here, name: Text = None, archived: Archived = False, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List templates, the oldest first.

    `name` selects the template in use with that name, or else the one archived last.
    """
    after = 0 if cursor is None else read_cursor(cursor)
    with here.read() as tx:
        if name is not None:
            found = [templates.find(tx, here.tenant_id, name)]
        else:
            found = templates.page(tx, here.tenant_id, after=after, archived=archived, limit=limit + 1)
        by = audit_views.deleted_by(tx, "template", [one.id for one in found if one.archived_at is not None])
    more = make_cursor(found[limit - 1].id) if len(found) > limit else None
    items = [template_json(template, by.get(template.id)) for template in found[:limit]]
    return answer({"items": items, "next": more})


@routes.get("/api/job-templates/{template_id}", answer=TemplateSchema)
def show(here: Here, template_id: Id) -> Response:
    """Show a template, archived or not."""
    with here.read() as tx:
        found = templates.find(tx, here.tenant_id, template_id)
    return _shown(here, found)


@routes.patch("/api/job-templates/{template_id}", answer=TemplateSchema)
def edit(here: Here, template_id: Id, body: TemplateEditBody) -> Response:
    """Edit a template; null removes a field.

    Existing jobs and executions do not change.
    """
    changes = body.changes()
    if "task" in changes:
        check_task(here.client, changes["task"])
    changed = as_seen(
        here,
        lambda: _ours(here, template_id),
        lambda seen, version: here.client.templates.edit(seen.id, if_version=version, **changes),
    )
    return _shown(here, changed)


@routes.delete("/api/job-templates/{template_id}", answer=TemplateSchema)
def archive(here: Here, template_id: Id) -> Response:
    """Archive a template; it creates no more jobs, and its name is free again."""
    archived = as_seen(
        here,
        lambda: _ours(here, template_id),
        lambda seen, version: here.client.templates.archive(seen.id, if_version=version),
    )
    return _shown(here, archived)


def _ours(here: RequestContext, template_id: int) -> Template:
    """Returns a template that this visitor may change, or refuses."""
    template = here.client.templates.get(template_id)
    check_task(here.client, template.task)
    return template


def _shown(here: RequestContext, template: Template, status: int = 200) -> Response:
    with here.read() as tx:
        by = audit_views.deleted_by(tx, "template", [template.id] if template.archived_at is not None else ())
    headers = {"ETag": etag(template.version)}
    if status == 201:
        headers["Location"] = here.address(f"/api/job-templates/{template.id}")
    return answer(template_json(template, by.get(template.id)), status, **headers)
