"""`/api/schedule-executions`: the firings of schedules."""

from __future__ import annotations

from fastapi import Response

from headway.api.asking import Cursor, Id, Limit, Number, Text
from headway.api.groups import checked_status
from headway.api.routes import Here, Routes, Visit, answer
from headway.api.wire import answers, answers_plans, bodies
from headway.api.wire.plans import execution_json
from headway.store import plans_reading

routes = Routes("executions")
STATUSES = ("IN_PROGRESS", "COMPLETED", "FAILED", "CANCELLED")


@routes.get("/api/schedule-executions", answer=answers.Page[answers_plans.Execution])
def ls(
    here: Here, status: Text = None, schedule_id: Number = None, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """List executions, the newest first."""
    with here.read() as tx:
        page = plans_reading.groups_page(
            tx,
            here.tenant_id,
            kind="execution",
            status=checked_status(status, STATUSES),
            schedule_id=schedule_id,
            limit=limit,
            cursor=cursor,
        )
    return answer({"items": [execution_json(view, steps=True) for view in page.items], "next": page.next})


@routes.get("/api/schedule-executions/{execution_id}", answer=answers_plans.Execution)
def show(here: Here, execution_id: Id) -> Response:
    """Show an execution with its steps."""
    return show_execution(here, execution_id)


def show_execution(here: Visit, execution_id: int, status: int = 200) -> Response:
    with here.read() as tx:
        view = plans_reading.group_view(tx, here.tenant_id, execution_id, "execution")
    headers = {"Location": here.address(f"/api/schedule-executions/{execution_id}")} if status == 201 else {}
    return answer(execution_json(view, steps=True), status, **headers)


@routes.post("/api/schedule-executions/{execution_id}/cancel", answer=answers_plans.Execution)
def cancel(here: Here, execution_id: Id, body: bodies.Body | None = None) -> Response:
    """End an execution: what waits at once, what runs as soon as it stops."""
    here.client.groups.cancel(execution_id, "execution")
    return show_execution(here, execution_id)


@routes.post("/api/schedule-executions/{execution_id}/retry", answer=answers_plans.Execution, status=201, creates=True)
def retry(here: Here, execution_id: Id, body: bodies.Body | None = None) -> Response:
    """Run what failed, and what would have come after it, as a new execution."""
    return here.make_once(
        lambda client: client.groups.retry(execution_id, "execution"),
        lambda made: show_execution(here, int(made), 201),
        {},
    )
