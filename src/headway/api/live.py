"""What happens, as it happens: `GET /api/events` and the log of a job as server-sent events."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import Query, Response

from headway.api.access import names_tenant
from headway.api.asking import LARGEST, JobId
from headway.api.routes import Here, Routes, Visit
from headway.api.streams import CHECK, Place, Stream, Streams
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
) -> Response:
    """Follow what happens, from now on or from Last-Event-ID on."""
    wanted = Wanted(_whose(here), tuple(kind or ()), thing, thing_id)
    after = _after(here, last_event_id)
    ready = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_ready() -> None:
        loop.call_soon_threadsafe(ready.set)

    with _entering(here) as place:
        subscription = await place.streams.run(
            lambda: here.service.tail.subscribe(after, wanted, on_ready=on_ready),
        )

    def leave() -> None:
        subscription.close()
        place.leave()

    return Stream(_follow(place, subscription, ready), leave)


@contextmanager
def _entering(here: Visit) -> Iterator[Place]:
    """A place among the streams; given back if what is to be followed cannot be."""
    streams: Streams = here.request.app.state.streams
    place = streams.enter(here.service.database, here.visitor, here.request.scope.get("headway.session"))
    try:
        yield place
    except BaseException:
        place.leave()
        raise


def _whose(here: Visit) -> int | None:
    """Everything is for those of the system who name no tenant."""
    everything = here.visitor.system and not names_tenant(here.request.scope)
    return None if everything else here.tenant_id


def _after(here: Visit, given: int | None) -> int | None:
    text = here.request.headers.get("last-event-id")
    if not text:
        return given
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= LARGEST):
        raise BadInput(f"Last-Event-ID must be the id of an event, not {text!r}", field="Last-Event-ID")
    return int(text)


async def _follow(place: Place, subscription: Subscription, ready: asyncio.Event) -> AsyncIterator[str]:
    """Until the client goes or may not stay, or the server ends: then it comes again with the id it had last."""
    # The id first: who is cut off before anything happened goes on from here, and misses nothing.
    yield f": here\nid: {subscription.position}\n\n"
    heard = time.monotonic()
    while not subscription.closed:
        ready.clear()
        allowed = await place.may_stay()
        if allowed is False:
            yield message("end", {"reason": place.reason})
            return
        got = await place.streams.run(lambda: subscription.get(0.0)) if allowed else None
        if got is None:
            if not allowed:
                await asyncio.sleep(CHECK)
            elif not await _wait(ready, min(CHECK, HEARTBEAT)) and time.monotonic() - heard >= HEARTBEAT:
                # Whatever came meanwhile was not for this client, and it need not be looked through again.
                yield f": still here\nid: {subscription.position}\n\n"
                heard = time.monotonic()
            continue
        heard = time.monotonic()
        if isinstance(got, Reset):
            yield message("reset", {"reason": got.reason}, got.position)
        else:
            for event in got:
                yield message(event.kind, event_json(event), event.id)


async def _wait(ready: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(ready.wait(), seconds)
    except TimeoutError:
        return False
    return True


# --- one job ------------------------------------------------------------------------------------------------------


@routes.get("/api/jobs/{job_id}/live", media="text/event-stream")
async def follow_job(here: Here, job_id: JobId, last_event_id: AfterId = None) -> Response:
    """Follow one job: `lines` of its log, `job` when it changes or makes progress, `end` when it has ended."""
    after = _after(here, last_event_id) or 0
    follower = LogFollower(here.service.database, here.tenant_id, job_id, after=after)
    with _entering(here) as place:
        first = await place.streams.run(lambda: _look(here, follower))
    return Stream(_follow_job(here, place, follower, first), place.leave)


def _look(here: Visit, follower: LogFollower) -> tuple[Lines, JobView]:
    with here.read() as tx:
        return follower.look_in(tx), reading.view(tx, here.tenant_id, follower.job_id)


async def _follow_job(
    here: Visit, place: Place, follower: LogFollower, first: tuple[Lines, JobView]
) -> AsyncIterator[str]:
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
        while (allowed := await place.may_stay()) is None:
            await asyncio.sleep(CHECK)
        if not allowed:
            yield message("end", {"reason": place.reason})
            return
        try:
            found = await place.streams.run(lambda: _look(here, follower))
        except NotFound:
            found = None  # pruned meanwhile


def message(kind: str, data: Any, number: int | None = None) -> str:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))  # JSON has no line breaks of its own
    return f"{'' if number is None else f'id: {number}{chr(10)}'}event: {kind}\ndata: {text}\n\n"
