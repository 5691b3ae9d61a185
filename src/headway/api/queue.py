"""`/api/queue` and `/api/limits`: what waits, in its order; pausing, reordering, and how much may run at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Response

from headway.api.asking import Cursor, Limit
from headway.api.routes import Here, Routes, Visit, answer, etag
from headway.api.wire import answers_lanes as answers
from headway.api.wire import bodies_lanes as bodies
from headway.api.wire.lanes import limits_json, pause_json, waiting_json
from headway.clock import micros
from headway.engine import limits
from headway.errors import BadInput
from headway.model.access import Role, check_everybody
from headway.model.values import instant, seconds
from headway.store import lanes, lanes_reading, queue_reading

routes = Routes("queue")


@routes.get("/api/queue", answer=answers.Queue)
def ls(here: Here, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List what waits, in the order it will start, and why it waits."""
    with here.look() as tx:
        page = queue_reading.queue_page(tx, here.tenant_id, limit, cursor, lives=limits.lives)
        pauses = lanes.pauses(tx, here.tenant_id)
    items = [waiting_json(one) for one in page.items]
    return answer({"items": items, "next": page.next, "pause": pause_json(*pauses)})


@routes.post("/api/queue/pause", answer=answers.QueuePause)
def pause(here: Here, body: bodies.PauseQueue | None = None) -> Response:
    """Start no more jobs. What runs goes on."""
    wish = body or bodies.PauseQueue()
    check_everybody(here.visitor, wish.everybody)
    until = pause_end(here.service.database.clock.now(), wish.duration, wish.until)
    here.client.pause_queue(note=wish.note, until=until, everybody=wish.everybody)
    return _pauses(here)


def pause_end(now: int, duration: float | str | None, until: str | None = None) -> int | None:
    """After a while, or at a time; None: when somebody resumes it."""
    if duration is not None:
        end, field = now + micros(seconds(duration, field="for")), "for"
    elif until is not None:
        end, field = instant(until, field="until"), "until"
    else:
        return None
    if end <= now:
        raise BadInput(f"{field}: the pause would be over already", field=field)
    return end


@routes.post("/api/queue/resume", answer=answers.QueuePause)
def resume(here: Here, body: bodies.ResumeQueue | None = None) -> Response:
    """Start jobs again."""
    everybody = body is not None and body.everybody
    check_everybody(here.visitor, everybody)
    here.client.resume_queue(everybody=everybody)
    return _pauses(here)


def _pauses(here: Visit) -> Response:
    with here.look() as tx:
        return answer(pause_json(*lanes.pauses(tx, here.tenant_id)))


@routes.post("/api/queue/reorder", answer=answers.Reordered)
def reorder(here: Here, body: bodies.Reorder) -> Response:
    """Put several jobs into this order: they take the places they hold together, or nothing changes."""
    return answer({"moved": here.client.reorder(body.job_ids)})


# --- limits -------------------------------------------------------------------------------------------------------


@routes.get("/api/limits", answer=answers.Limits)
def show_limits(here: Here) -> Response:
    """List the lanes and resources there are: their limits, what runs on them, how many jobs wait for them."""
    return _limits(here)


@routes.put("/api/limits", Role.ADMIN, answer=answers.Limits)
def set_limits(here: Here, body: bodies.Limits) -> Response:
    """Change limits and rules, at once and for all processes, all or nothing. What runs goes on."""
    wished = dict(body.limits or {})
    if body.name is not None:
        wished[body.name] = body.limit
    limits.adjust(
        here.service.database,
        wished,
        _rules(body),
        tenant_id=here.tenant_id,
        actor=here.visitor.actor,
        installation=here.visitor.system,
        if_version=here.if_version,
    )
    return _limits(here)


def _rules(body: bodies.Limits) -> Mapping[str, Any]:
    rules: dict[str, Any] = {name: getattr(body, name) for name in ("policy", "targets") if getattr(body, name)}
    if "aging" in body.model_fields_set:
        rules["aging"] = None if body.aging is None else seconds(body.aging, field="aging")
    return rules


def _limits(here: Visit) -> Response:
    with here.look() as tx:
        concurrency, _ = lanes.read_concurrency(tx)
        version = lanes.limits_version(tx, here.tenant_id)
        return answer(limits_json(concurrency, lanes_reading.listed(tx, here.tenant_id)), ETag=etag(version))
