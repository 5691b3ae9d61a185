"""Server-sent events: `GET /api/events`, and the log of a running job."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Annotated, NamedTuple

from fastapi import Query, Response

from headway.api.http.auth import names_tenant
from headway.api.http.connections import CONNECTION
from headway.api.http.messages import line_messages, message, shortened
from headway.api.http.query import LARGEST, JobId
from headway.api.http.routing import Here, RequestContext, Routes
from headway.api.http.sse import CHECK, Stream, Streams, StreamSeat
from headway.api.schemas.common import Words
from headway.api.schemas.jobs import event_json, job_json
from headway.engine.events.log_follower import LogFollower
from headway.engine.events.subscription import EventFilter, Reset
from headway.engine.events.tail import Subscription
from headway.errors import BadInput, NotFound
from headway.store.jobs import views as job_views

routes = Routes("live")
# Interval of comments in a quiet stream, by which client and server notice a broken connection.
HEARTBEAT = 15.0
CROWDED = {429: "The token or its tenant has as many streams as it may have; try again after Retry-After"}
AfterId = Annotated[
    int | None, Query(ge=0, le=LARGEST, description="As Last-Event-ID, for clients that cannot set headers")
]


@routes.get("/api/events", media="text/event-stream", also=CROWDED)
async def events(
    here: Here,
    kind: Annotated[
        Words | None, Query(description="Kinds like job.completed, or job.* for all events of jobs")
    ] = None,
    thing: Annotated[str | None, Query(max_length=50)] = None,
    thing_id: Annotated[int | None, Query(ge=0, le=LARGEST)] = None,
    last_event_id: AfterId = None,
) -> Response:
    """Stream events, from now on or after Last-Event-ID."""
    wanted = EventFilter(_tenant(here), tuple(kind or ()), thing, thing_id)
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

    return Stream(_follow(here, place, subscription, ready), place, leave)


@contextmanager
def _entering(here: RequestContext) -> Iterator[StreamSeat]:
    """Counts the stream; uncounts it if it cannot be started."""
    streams: Streams = here.request.app.state.streams
    scope = here.request.scope
    place = streams.enter(
        here.service.database,
        here.visitor,
        cookie=scope.get("headway.session"),
        connection=scope.get(CONNECTION),
    )
    try:
        yield place
    except BaseException:
        place.leave()
        raise


def _tenant(here: RequestContext) -> int | None:
    """Returns the tenant whose events are sent.

    None means all, for system callers that name none.
    """
    all_tenants = here.visitor.system and not names_tenant(here.request.scope)
    return None if all_tenants else here.tenant_id


def _after(here: RequestContext, given: int | None) -> int | None:
    text = here.request.headers.get("last-event-id")
    if not text:
        return given
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= LARGEST):
        raise BadInput(f"Last-Event-ID must be the id of an event, not {text!r}", field="Last-Event-ID")
    return int(text)


async def _follow(
    here: RequestContext, place: StreamSeat, subscription: Subscription, ready: asyncio.Event
) -> AsyncIterator[bytes]:
    """Sends events until the client or the server leaves.

    The client then reconnects with the last id it received.
    """
    # Send the position first. A client that is cut off before the first event resumes from here.
    yield f": here\nid: {subscription.position}\n\n".encode()
    sent = time.monotonic()
    while not subscription.closed:
        ready.clear()
        allowed = await place.may_stay()
        messages = await place.streams.run(lambda: _next_messages(here, subscription)) if allowed else None
        if messages is None:
            if not allowed:
                await asyncio.sleep(CHECK)
            elif not await _wait(ready, sent + HEARTBEAT - time.monotonic()):
                # The position moves past events that the filter drops, so that a reconnect need not scan them again.
                yield f": still here\nid: {subscription.position}\n\n".encode()
                sent = time.monotonic()
            continue
        for text in messages:
            yield text
            sent = time.monotonic()


def _next_messages(here: RequestContext, subscription: Subscription) -> list[bytes] | None:
    """Returns the next events as messages, because a stream that is not read must not hold events.

    None means that there are no new ones.
    """
    got = subscription.get(0.0)
    if isinstance(got, Reset):
        return [message("reset", {"reason": got.reason}, got.position)]
    return None if got is None else [shortened(event.kind, event_json(here.shown(event)), event.id) for event in got]


async def _wait(ready: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(ready.wait(), seconds)
    except TimeoutError:
        return False
    return True


# --- one job ------------------------------------------------------------------------------------------------------


@routes.get("/api/jobs/{job_id}/live", media="text/event-stream", also=CROWDED)
async def follow_job(here: Here, job_id: JobId, last_event_id: AfterId = None) -> Response:
    """Stream a job: `lines` of its log, `job` when it changes, `end` when it ends."""
    after = _after(here, last_event_id) or 0
    follower = LogFollower(here.service.database, here.tenant_id, job_id, after=after)
    with _entering(here) as place:
        first = await place.streams.run(lambda: _look(here, follower))
    return Stream(_follow_job(here, place, follower, first), place, place.leave)


class JobNews(NamedTuple):
    """A look at a job: messages with new lines, the job as a message, and how to go on.

    `ended` is the name of the job's last state, once all lines were read.
    """

    lines: list[bytes]
    job: bytes
    ended: str | None
    wait: float


def _look(here: RequestContext, follower: LogFollower) -> JobNews:
    with here.read() as tx:
        found, view = follower.look_in(tx), job_views.view(tx, here.tenant_id, follower.job_id)
    status = view.job.status
    ended = status.name if found.ended and status.terminal else None
    return JobNews(list(line_messages(found.lines)), shortened("job", job_json(view)), ended, found.wait)


async def _follow_job(
    here: RequestContext, place: StreamSeat, follower: LogFollower, first: JobNews
) -> AsyncIterator[bytes]:
    found: JobNews | None = first
    shown, quiet = b"", 0.0
    yield b": here\n\n"
    while found is not None and not here.service.closing.is_set():
        for lines in found.lines:
            yield lines
        # A client that reads the log of a held job stops at the job, which therefore follows all the lines.
        if found.job != shown and (found.wait or found.ended):
            shown = found.job
            yield shown
        if found.ended is not None:
            yield message("end", {"status": found.ended})
            return
        quiet = 0.0 if found.lines else quiet + found.wait
        if quiet >= HEARTBEAT:
            yield b": still here\n\n"
            quiet = 0.0
        await asyncio.sleep(found.wait)
        while not await place.may_stay():
            await asyncio.sleep(CHECK)
        try:
            found = await place.streams.run(lambda: _look(here, follower))
        except NotFound:
            found = None  # pruned meanwhile
