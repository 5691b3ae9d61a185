"""`/api/job-groups`: jobs that belong together. Executions, which are groups too, share what is here."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Response

from headway.api.asking import Cursor, Id, Limit, Text
from headway.api.jobs import group_of
from headway.api.routes import Here, Routes, Visit, answer
from headway.api.wire import answers, answers_plans, bodies, bodies_plans
from headway.api.wire.plans import group_json
from headway.engine.client import Client
from headway.errors import BadInput
from headway.model.values import closest
from headway.store import plans_reading

routes = Routes("groups")
STATUSES = ("RUNNING", "COMPLETED", "PARTIAL", "CANCELLED")


@routes.post("/api/job-groups", answer=answers_plans.GroupWithSteps, status=201, creates=True)
def create(here: Here, body: bodies_plans.NewGroup) -> Response:
    """Make a group with all its jobs, or nothing."""
    members = [one.given() for one in body.jobs]

    def work(client: Client) -> int:
        return client.groups.create(group_of(here, client, body, members))

    return here.make_once(work, lambda made: _shown(here, int(made), 201), body.model_dump())


@routes.get("/api/job-groups", answer=answers.Page[answers_plans.Group])
def ls(here: Here, status: Text = None, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List groups, the newest first."""
    wanted = checked_status(status, STATUSES)
    with here.read() as tx:
        page = plans_reading.groups_page(tx, here.tenant_id, status=wanted, limit=limit, cursor=cursor)
    return answer({"items": [group_json(view) for view in page.items], "next": page.next})


def checked_status(given: str | None, known: Sequence[str]) -> str | None:
    """A status in any case, and as older systems spell it."""
    if given is None:
        return None
    name = {"CANCELED": "CANCELLED"}.get(given.strip().upper(), given.strip().upper())
    if name not in known:
        near = closest(name, known)
        hint = f"did you mean {near}?" if near else f"one of {', '.join(known)}"
        raise BadInput(f"status: there is no status {given!r}: {hint}", field="status")
    return name


@routes.get("/api/job-groups/{group_id}", answer=answers_plans.GroupWithSteps)
def show(here: Here, group_id: Id) -> Response:
    """Show a group with its steps."""
    return _shown(here, group_id)


def _shown(here: Visit, group_id: int, status: int = 200) -> Response:
    with here.read() as tx:
        view = plans_reading.group_view(tx, here.tenant_id, group_id, "group")
    headers = {"Location": here.address(f"/api/job-groups/{group_id}")} if status == 201 else {}
    return answer(group_json(view, steps=True), status, **headers)


@routes.post("/api/job-groups/{group_id}/cancel", answer=answers_plans.GroupWithSteps)
def cancel(here: Here, group_id: Id, body: bodies.Body | None = None) -> Response:
    """End a group: what waits at once, what runs as soon as it stops."""
    here.client.groups.cancel(group_id, "group")
    return _shown(here, group_id)


@routes.post("/api/job-groups/{group_id}/retry", answer=answers_plans.GroupWithSteps, status=201, creates=True)
def retry(here: Here, group_id: Id, body: bodies.Body | None = None) -> Response:
    """Run what failed, and what would have come after it, as a new group."""
    return here.make_once(
        lambda client: client.groups.retry(group_id, "group"), lambda made: _shown(here, int(made), 201), {}
    )
