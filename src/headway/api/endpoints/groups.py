"""`/api/job-groups`: jobs created together.

Executions are groups too and share code with them.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Response

from headway.api.endpoints.jobs import group_of
from headway.api.http.query import Cursor, Id, Limit, Text
from headway.api.http.routing import Here, RequestContext, Routes, answer
from headway.api.schemas.common import Body, PageSchema
from headway.api.schemas.groups import GroupSchema, GroupWithStepsSchema, NewGroupBody, group_json
from headway.engine.client.client import Client
from headway.errors import BadInput
from headway.model.values.suggestions import closest
from headway.store.groups import views as group_views

routes = Routes("groups")
STATUSES = ("RUNNING", "COMPLETED", "PARTIAL", "CANCELLED")


@routes.post("/api/job-groups", long=True, answer=GroupWithStepsSchema, status=201, creates=True)
def create(here: Here, body: NewGroupBody) -> Response:
    """Create a group with all its jobs, or nothing."""
    members = body.members()

    def work(client: Client) -> int:
        return client.groups.create(group_of(here, client, body, members))

    return here.make_once(work, lambda made: _shown(here, int(made), 201), body.model_dump())


@routes.get("/api/job-groups", answer=PageSchema[GroupSchema])
def ls(here: Here, status: Text = None, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List groups, the newest first."""
    wanted = checked_status(status, STATUSES)
    with here.read() as tx:
        page = group_views.groups_page(tx, here.tenant_id, status=wanted, limit=limit, cursor=cursor)
    return answer({"items": [group_json(view) for view in page.items], "next": page.next})


def checked_status(given: str | None, known: Sequence[str]) -> str | None:
    """Returns a status in upper case; accepts the spelling CANCELED."""
    if given is None:
        return None
    name = {"CANCELED": "CANCELLED"}.get(given.strip().upper(), given.strip().upper())
    if name not in known:
        near = closest(name, known)
        hint = f"did you mean {near}?" if near else f"one of {', '.join(known)}"
        raise BadInput(f"status: there is no status {given!r}: {hint}", field="status")
    return name


@routes.get("/api/job-groups/{group_id}", answer=GroupWithStepsSchema)
def show(here: Here, group_id: Id) -> Response:
    """Show a group with its steps."""
    return _shown(here, group_id)


def _shown(here: RequestContext, group_id: int, status: int = 200) -> Response:
    with here.read() as tx:
        view = group_views.group_view(tx, here.tenant_id, group_id, "group")
    headers = {"Location": here.address(f"/api/job-groups/{group_id}")} if status == 201 else {}
    return answer(group_json(view, steps=True), status, **headers)


@routes.post("/api/job-groups/{group_id}/cancel", answer=GroupWithStepsSchema)
def cancel(here: Here, group_id: Id, body: Body | None = None) -> Response:
    """Cancel a group.

    Waiting jobs end at once, running jobs as soon as they stop.
    """
    here.client.groups.cancel(group_id, "group")
    return _shown(here, group_id)


@routes.post("/api/job-groups/{group_id}/retry", long=True, answer=GroupWithStepsSchema, status=201, creates=True)
def retry(here: Here, group_id: Id, body: Body | None = None) -> Response:
    """Retry a failed group as a new one.

    The new group has the failed members and the later stages.
    """
    return here.make_once(
        lambda client: client.groups.retry(group_id, "group"), lambda made: _shown(here, int(made), 201), {}
    )
