"""What happens, as it happens: `GET /api/events` and the log of a job as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from anyio import to_thread
from fastapi import Query
from starlette.responses import StreamingResponse

from headway.api.access import TENANT
from headway.api.asking import LARGEST, JobId
from headway.api.routes import Here, Routes, Visit
from headway.api.wire.jobs import event_json, job_json, line_json
from headway.engine.following import Lines, LogFollower
from headway.engine.subscription import Reset, Wanted
from headway.engine.tail import Subscription
from headway.errors import BadInput, NotFound
from headway.store import reading
from headway.store.reading import JobView

routes = Routes("live")
# A comment, so that both sides notice when the other is gone.
HEARTBEAT = 15.0
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
AfterId = Annotated[int | None, Query(ge=0, le=LARGEST, description="Like Last-Event-ID, for those who cannot set it")]


@routes.get("/api/events", media="text/event-stream")
async def events(
    here: Here,
    kind: Annotated[
        list[str] | None, Query(description="Kinds like job.completed, or job.* for all of a thing")
    ] = None,
    thing: Annotated[str | None, Query(max_length=50)] = None,
    thing_id: Annotated[int | None, Query(ge=0, le=LARGEST)] = None,
    last_event_id: AfterId = None,
) -> StreamingResponse:
    """Follow what happens, from now on or from Last-Event-ID on."""
    wanted = Wanted(_whose(here), tuple(kind or ()), thing, thing_id)
    after = _after(here, last_event_id)
    ready = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_ready() -> None:
        loop.call_soon_threadsafe(ready.set)

    tail = here.service.tail
    subscription = await to_thread.run_sync(lambda: tail.subscribe(after, wanted, on_ready=on_ready))
    return stream(_follow(subscription, ready))


def stream(parts: AsyncIterator[str]) -> StreamingResponse:
    return StreamingResponse(parts, headers=HEADERS, media_type="text/event-stream")


def _whose(here: Visit) -> int | None:
    """Everything is for those of the system who name no tenant."""
    everything = here.visitor.system and TENANT not in here.request.headers
    return None if everything else here.tenant_id


def _after(here: Visit, given: int | None) -> int | None:
    text = here.request.headers.get("last-event-id")
    if not text:
        return given
    if not (text.isascii() and text.isdigit() and int(text) <= LARGEST):
        raise BadInput(f"Last-Event-ID must be the id of an event, not {text!r}", field="Last-Event-ID")
    return int(text)


async def _follow(subscription: Subscription, ready: asyncio.Event) -> AsyncIterator[str]:
    """Until the client goes, or the server ends: then the client comes again with the id it had last."""
    try:
        yield ": here\n\n"
        while not subscription.closed:
            ready.clear()
            got = await to_thread.run_sync(subscription.get, 0.0)
            if isinstance(got, Reset):
                yield message("reset", {"reason": got.reason}, got.position)
            elif got is not None:
                for event in got:
                    yield message(event.kind, event_json(event), event.id)
            else:
                try:
                    await asyncio.wait_for(ready.wait(), HEARTBEAT)
                except TimeoutError:
                    # Whatever came meanwhile was not for this client, and it need not be looked through again.
                    yield f": still here\nid: {subscription.position}\n\n"
    finally:
        subscription.close()


# --- one job ------------------------------------------------------------------------------------------------------


@routes.get("/api/jobs/{job_id}/live", media="text/event-stream")
async def follow_job(here: Here, job_id: JobId, last_event_id: AfterId = None) -> StreamingResponse:
    """Follow one job: `lines` of its log, `job` when it changes or makes progress, `end` when it has ended."""
    after = _after(here, last_event_id) or 0
    follower = LogFollower(here.service.database, here.tenant_id, job_id, after=after)
    first = await to_thread.run_sync(lambda: _look(here, follower))
    return stream(_follow_job(here, follower, first))


def _look(here: Visit, follower: LogFollower) -> tuple[Lines, JobView]:
    lines = follower.look()
    with here.read() as tx:
        return lines, reading.view(tx, here.tenant_id, follower.job_id)


async def _follow_job(here: Visit, follower: LogFollower, first: tuple[Lines, JobView]) -> AsyncIterator[str]:
    found: tuple[Lines, JobView] | None = first
    shown, quiet = "", 0.0
    yield ": here\n\n"
    while found is not None and not here.service.closing.is_set():
        lines, view = found
        if lines.lines:
            yield message("lines", [line_json(line) for line in lines.lines], lines.position)
        text = json.dumps(job_json(view), ensure_ascii=False, separators=(",", ":"))
        if text != shown:
            yield f"event: job\ndata: {text}\n\n"
            shown = text
        if lines.ended and view.job.status.terminal:
            yield message("end", {"status": view.job.status.name})
            return
        quiet = 0.0 if lines.lines else quiet + lines.wait
        if quiet >= HEARTBEAT:
            yield ": still here\n\n"
            quiet = 0.0
        await asyncio.sleep(lines.wait)
        try:
            found = await to_thread.run_sync(lambda: _look(here, follower))
        except NotFound:
            found = None  # pruned meanwhile


def message(kind: str, data: Any, number: int | None = None) -> str:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))  # JSON has no line breaks of its own
    return f"{'' if number is None else f'id: {number}{chr(10)}'}event: {kind}\ndata: {text}\n\n"
