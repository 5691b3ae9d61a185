"""The events of groups, executions, schedules, templates, targets and webhooks."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from headway.api.http.path_names import Name
from headway.api.http.query import Id, Limit
from headway.api.http.routing import Here, RequestContext, Routes, answer
from headway.api.schemas.common import PageSchema
from headway.api.schemas.jobs import EventSchema, event_json
from headway.store import templates
from headway.store.groups import advance as groups
from headway.store.jobs import views as job_views
from headway.store.queue import targets
from headway.store.schedules import schedules
from headway.store.webhooks import endpoints

routes = Routes("history")
After = Annotated[int, Query(ge=0, le=(1 << 31) - 1, description="`next` of the page before")]
PAGE = PageSchema[EventSchema]


def _page(here: RequestContext, thing: str, number: int, after: int, limit: int) -> Response:
    """Answers events, oldest first; `after` and `next` are versions."""
    with here.read() as tx:
        found = job_views.history(tx, thing, number, after=after, limit=limit)
    more = str(found[-1].version) if len(found) == limit else None
    return answer({"items": [event_json(here.shown(event)) for event in found], "next": more})


@routes.get("/api/job-groups/{group_id}/events", answer=PAGE)
def group_events(here: Here, group_id: Id, after: After = 0, limit: Limit = 200) -> Response:
    """List the events of a group, oldest first."""
    with here.read() as tx:
        groups.find(tx, group_id, here.tenant_id, "group")
    return _page(here, "group", group_id, after, limit)


@routes.get("/api/schedule-executions/{execution_id}/events", answer=PAGE)
def execution_events(here: Here, execution_id: Id, after: After = 0, limit: Limit = 200) -> Response:
    """List the events of an execution, oldest first."""
    with here.read() as tx:
        groups.find(tx, execution_id, here.tenant_id, "execution")
    return _page(here, "execution", execution_id, after, limit)


@routes.get("/api/schedules/{schedule_id}/events", answer=PAGE)
def schedule_events(here: Here, schedule_id: Id, after: After = 0, limit: Limit = 200) -> Response:
    """List the events of a schedule, oldest first."""
    with here.read() as tx:
        schedules.find(tx, here.tenant_id, schedule_id)
    return _page(here, "schedule", schedule_id, after, limit)


@routes.get("/api/job-templates/{template_id}/events", answer=PAGE)
def template_events(here: Here, template_id: Id, after: After = 0, limit: Limit = 200) -> Response:
    """List the events of a template, oldest first."""
    with here.read() as tx:
        templates.find(tx, here.tenant_id, template_id)
    return _page(here, "template", template_id, after, limit)


@routes.get("/api/webhooks/{webhook_id}/events", answer=PAGE)
def webhook_events(here: Here, webhook_id: Id, after: After = 0, limit: Limit = 200) -> Response:
    """List the events of a webhook, oldest first."""
    with here.read() as tx:
        endpoints.find(tx, here.tenant_id, webhook_id)
    return _page(here, "webhook", webhook_id, after, limit)


@routes.get("/api/targets/{name:path}/events", answer=PAGE)
def target_events(here: Here, name: Name, after: After = 0, limit: Limit = 200) -> Response:
    """List the events of a target, oldest first."""
    with here.look() as tx:
        found = targets.shown(tx, here.tenant_id, name)
    return _page(here, "target", found.id, after, limit)
