"""`/api/schedule-executions`: the firings of schedules."""

from __future__ import annotations

from fastapi import Response

from headway.api.endpoints.groups import checked_status
from headway.api.http.query import Cursor, Id, Limit, Number, Text
from headway.api.http.routing import Here, RequestContext, Routes, answer
from headway.api.schemas.common import Body, PageSchema
from headway.api.schemas.groups import ExecutionSchema, execution_json
from headway.store.groups import views as group_views

routes = Routes("executions")
STATUSES = ("IN_PROGRESS", "COMPLETED", "FAILED", "CANCELLED")


@routes.get("/api/schedule-executions", answer=PageSchema[ExecutionSchema])
def ls(
    here: Here, status: Text = None, schedule_id: Number = None, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """List executions, the newest first."""
    with here.read() as tx:
        page = group_views.groups_page(
            tx,
            here.tenant_id,
            kind="execution",
            status=checked_status(status, STATUSES),
            schedule_id=schedule_id,
            limit=limit,
            cursor=cursor,
        )
    return answer({"items": [execution_json(view, steps=True) for view in page.items], "next": page.next})


@routes.get("/api/schedule-executions/{execution_id}", answer=ExecutionSchema)
def show(here: Here, execution_id: Id) -> Response:
    """Show an execution with its steps."""
    return show_execution(here, execution_id)


def show_execution(here: RequestContext, execution_id: int, status: int = 200) -> Response:
    with here.read() as tx:
        view = group_views.group_view(tx, here.tenant_id, execution_id, "execution")
    headers = {"Location": here.address(f"/api/schedule-executions/{execution_id}")} if status == 201 else {}
    return answer(execution_json(view, steps=True), status, **headers)


@routes.post("/api/schedule-executions/{execution_id}/cancel", answer=ExecutionSchema)
def cancel(here: Here, execution_id: Id, body: Body | None = None) -> Response:
    """Cancel an execution.

    Waiting jobs end at once, running jobs as soon as they stop.
    """
    here.client.groups.cancel(execution_id, "execution")
    return show_execution(here, execution_id)


@routes.post(
    "/api/schedule-executions/{execution_id}/retry", long=True, answer=ExecutionSchema, status=201, creates=True
)
def retry(here: Here, execution_id: Id, body: Body | None = None) -> Response:
    """Retry a failed execution as a new one.

    The new execution has the failed steps and the later stages.
    """
    return here.make_once(
        lambda client: client.groups.retry(execution_id, "execution"),
        lambda made: show_execution(here, int(made), 201),
        {},
    )
