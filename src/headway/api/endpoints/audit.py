"""`GET /api/audit`: one list of what people and programs changed."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from headway.api.http.query import LARGEST, Cursor, Limit
from headway.api.http.routing import Here, RequestContext, Routes, answer
from headway.api.schemas.common import MOST_TIME, PageSchema
from headway.api.schemas.jobs import EventSchema, event_json
from headway.model.audit import AuditFilter
from headway.model.event import Event
from headway.store import audit_views
from headway.store.paging import Page

routes = Routes("audit")


@routes.get("/api/audit", answer=PageSchema[EventSchema])
def ls(
    here: Here,
    actor: Annotated[str | None, Query(max_length=300, description="Name or id of a user, token or schedule")] = None,
    thing: Annotated[str | None, Query(max_length=50, description="Like schedule, token, lane or job")] = None,
    thing_id: Annotated[int | None, Query(ge=0, le=LARGEST, description="With `thing`: all events of it")] = None,
    kind: Annotated[str | None, Query(max_length=100, description="Like token.created")] = None,
    since: Annotated[str | None, Query(max_length=MOST_TIME, description="At or after, RFC 3339")] = None,
    until: Annotated[str | None, Query(max_length=MOST_TIME, description="Before, RFC 3339")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List what was changed and by which actor, the latest first.

    All events of tenants, lanes, limits, targets, tokens, webhooks, templates and schedules, and the actions of people
    on jobs, groups and deliveries. A system token also sees what concerns the installation.
    """
    given = {"actor": actor, "thing": thing, "thing_id": thing_id, "kind": kind, "since": since, "until": until}
    page = audited(here, AuditFilter.from_query(given), limit, cursor)
    return answer({"items": [event_json(event) for event in page.items], "next": page.next})


def audited(here: RequestContext, wanted: AuditFilter, limit: int, cursor: str | None) -> Page[Event]:
    """Returns a page of the events that this visitor may see."""
    if here.visitor.system:
        with here.look() as tx:
            page = audit_views.listed(tx, (audit_views.SYSTEM_TENANT, here.tenant_id), wanted, limit, cursor)
    else:
        with here.read() as tx:
            page = audit_views.listed(tx, (here.tenant_id,), wanted, limit, cursor)
    return Page([here.shown(event) for event in page.items], page.next)
