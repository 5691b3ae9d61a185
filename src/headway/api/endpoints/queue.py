"""`/api/queue` and `/api/limits`: the queue, its pauses and order; limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Response

from headway.api.http.query import Cursor, Limit
from headway.api.http.routing import Here, RequestContext, Routes, answer, etag
from headway.api.schemas.queue import (
    LimitsBody,
    LimitsSchema,
    PauseQueueBody,
    QueuePauseSchema,
    QueueSchema,
    ReorderBody,
    ReorderedSchema,
    ResumeQueueBody,
    limits_json,
    pause_json,
    waiting_json,
)
from headway.clock import micros
from headway.engine.client import limits
from headway.errors import BadInput
from headway.model.access.permissions import Role, check_everybody
from headway.model.values.times import instant, seconds, seconds_or_none
from headway.store.queue import lane_views, lanes, queue_views

routes = Routes("queue")


@routes.get("/api/queue", answer=QueueSchema)
def ls(here: Here, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List waiting jobs in the order they will start, with the reasons why they wait."""
    with here.look() as tx:
        page = queue_views.queue_page(tx, here.tenant_id, limit, cursor, lives=limits.lives)
        pauses = lanes.pauses(tx, here.tenant_id)
    items = [waiting_json(view) for view in page.items]
    return answer({"items": items, "next": page.next, "pause": pause_json(*pauses)})


@routes.post("/api/queue/pause", answer=QueuePauseSchema)
def pause(here: Here, body: PauseQueueBody | None = None) -> Response:
    """Pause the queue; running jobs continue."""
    request = body or PauseQueueBody()
    check_everybody(here.visitor, request.everybody)
    until = pause_end(here.service.database.clock.now(), request.duration, request.until)
    here.client.pause_queue(note=request.note, until=until, everybody=request.everybody)
    return _pauses(here)


def pause_end(now: int, duration: float | str | None, until: str | None = None) -> int | None:
    """Returns the end of a pause; None means until it is resumed."""
    if duration is not None:
        end, field = now + micros(seconds(duration, field="for")), "for"
    elif until is not None:
        end, field = instant(until, field="until"), "until"
    else:
        return None
    if end <= now:
        raise BadInput(f"{field}: the pause would end in the past: give a later time", field=field)
    return end


@routes.post("/api/queue/resume", answer=QueuePauseSchema)
def resume(here: Here, body: ResumeQueueBody | None = None) -> Response:
    """Resume the queue."""
    everybody = body is not None and body.everybody
    check_everybody(here.visitor, everybody)
    here.client.resume_queue(everybody=everybody)
    return _pauses(here)


def _pauses(here: RequestContext) -> Response:
    with here.look() as tx:
        return answer(pause_json(*lanes.pauses(tx, here.tenant_id)))


@routes.post("/api/queue/reorder", long=True, answer=ReorderedSchema)
def reorder(here: Here, body: ReorderBody) -> Response:
    """Put several jobs into the given order, within the places they hold together.

    All jobs are moved, or none.
    """
    return answer({"moved": here.client.reorder(body.job_ids)})


# --- limits -------------------------------------------------------------------------------------------------------


@routes.get("/api/limits", answer=LimitsSchema)
def show_limits(here: Here) -> Response:
    """List lanes and resources with their limits, running jobs and waiting jobs."""
    return _limits(here)


@routes.put("/api/limits", Role.ADMIN, answer=LimitsSchema)
def set_limits(here: Here, body: LimitsBody) -> Response:
    """Change limits and rules, all or none.

    They apply at once to all processes; running jobs continue.
    """
    changes = dict(body.limits or {})
    if body.name is not None:
        changes[body.name] = body.limit
    limits.adjust(
        here.service.database,
        changes,
        _rules(body),
        tenant_id=here.tenant_id,
        actor=here.visitor.actor,
        installation=here.visitor.system,
        if_version=here.if_version,
    )
    return _limits(here)


def _rules(body: LimitsBody) -> Mapping[str, Any]:
    rules: dict[str, Any] = {name: getattr(body, name) for name in ("policy", "targets") if getattr(body, name)}
    if "aging" in body.model_fields_set:
        rules["aging"] = seconds_or_none(body.aging, field="aging")
    return rules


def _limits(here: RequestContext) -> Response:
    with here.look() as tx:
        concurrency, _ = lanes.read_concurrency(tx)
        version = lanes.limits_version(tx, here.tenant_id)
        return answer(limits_json(concurrency, lane_views.listed(tx, here.tenant_id)), ETag=etag(version))
