"""Open event streams of a server: limits, access checks, and the end of a stream."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
from anyio import CancelScope, CapacityLimiter, to_thread
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from headway.api.http import connections, descriptors
from headway.api.http.connections import Activity, Connection
from headway.api.http.messages import message
from headway.api.http.shares import of_tenant, of_tenants
from headway.engine.client.tokens import Live, live_among
from headway.errors import Busy, HeadwayError
from headway.model.access.permissions import Visitor, fingerprint, looks_like_session
from headway.store.db import Database

T = TypeVar("T")
log = logging.getLogger("headway")
# A stream is a connection that stays: one connection in this many may be a stream.
CONNECTIONS_PER_STREAM = 5
MOST_EACH = 20
RETRY_AFTER = 10
# Streams read the database on their own threads, so that they cannot starve requests.
THREADS = 8
# Interval of the access check, one query for all streams. A stream whose token was revoked or expired, whose tenant is
# inactive or whose session ended is noticed within twice this.
CHECK = 0.5
# Seconds in which a client must take the last message of such a stream.
FAREWELL = 0.25
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """The most streams of a server, of all tenants, of one tenant, and of one caller."""

    server: int
    tenants: int
    tenant: int
    caller: int

    @staticmethod
    def under(most: int) -> StreamLimits:
        """Returns the limits of a server with at most so many connections."""
        server = max(1, most // CONNECTIONS_PER_STREAM)
        tenant = of_tenant(server)
        return StreamLimits(server, of_tenants(server), tenant, min(MOST_EACH, tenant))


class Streams:
    """All streams of a process. Used in its event loop only."""

    def __init__(self) -> None:
        self.callers: Counter[str] = Counter()
        # Streams of each tenant; those of the system's callers belong to none.
        self.tenants: Counter[int] = Counter()
        self.tokens: Counter[int] = Counter()
        self.sessions: Counter[str] = Counter()
        self.threads = CapacityLimiter(THREADS)
        self._looking = anyio.Lock()
        self._looked = -CHECK
        self._live: Live | None = None

    async def run(self, work: Callable[[], T]) -> T:
        return await to_thread.run_sync(work, limiter=self.threads)

    def enter(
        self, database: Database, visitor: Visitor, *, cookie: str | None = None, connection: Connection | None = None
    ) -> StreamSeat:
        """Counts a new stream. Refuses it if a share is used up.

        Without a connection the streams are those of another application's server, whose limits are not known.
        """
        name = visitor.actor.text()
        limits = StreamLimits.under(descriptors.MOST if connection is None else connection.counted.most)
        self._check_shares(visitor, limits)
        if self.callers[name] >= limits.caller:
            raise _too_many(f"you have {limits.caller} open streams here, the limit for one token", "close one of them")
        token_id = int(visitor.actor.id) if visitor.actor.type == "token" else None
        tenant_id = None if visitor.system else visitor.tenant_id
        place = StreamSeat(self, database, name, tenant_id, token_id, _session(cookie), connection)
        for counter, key in place.counted():
            counter[key] += 1
        if place.token_id is not None:
            self._looked = -CHECK  # the last check did not include this token
        return place

    def _check_shares(self, visitor: Visitor, limits: StreamLimits) -> None:
        if not visitor.system:
            if self.tenants[visitor.tenant_id] >= limits.tenant:
                text = f"the tenant {visitor.tenant!r} has {limits.tenant} open streams here, the limit for one tenant"
                raise _too_many(text, "close one of them")
            if self.tenants.total() >= limits.tenants:
                text = f"this server has {limits.tenants} open streams of tenants, its limit"
                raise Busy(text, hint="try again later", retry_after=RETRY_AFTER)
        if self.callers.total() >= limits.server:
            text = f"this server has {limits.server} open streams, its limit"
            raise Busy(text, hint="try again later", retry_after=RETRY_AFTER)

    def leave(self, place: StreamSeat) -> None:
        for counter, key in place.counted():
            counter[key] -= 1
            if not counter[key]:
                del counter[key]

    async def may_stay(self, place: StreamSeat) -> bool | None:
        """Returns True if the stream may go on.

        None means unknown: the database cannot be reached, and the stream must send nothing meanwhile.
        """
        async with self._looking:
            if time.monotonic() - self._looked >= CHECK:
                await self._look(place.database)
        live = self._live
        if live is None:
            return None
        if place.token_id is None:
            return not live.needed
        return place.token_id in live.tokens and (place.session is None or place.session in live.sessions)

    async def _look(self, database: Database) -> None:
        ids, hashes = sorted(self.tokens), sorted(self.sessions)
        self._looked = time.monotonic()
        try:
            self._live = await self.run(lambda: live_among(database, ids, hashes))
        except HeadwayError as error:
            self._live = None
            log.warning("cannot check the tokens of open streams, which send nothing meanwhile: %s", error)
        except BaseException:
            self._looked = -CHECK  # cancelled: the next stream looks again
            raise


def _too_many(text: str, hint: str) -> Busy:
    return Busy(text, hint=f"{hint}, or try again later", code="too_many_streams", retry_after=RETRY_AFTER)


def _session(cookie: str | None) -> str | None:
    """Returns the hash under which the session is stored."""
    return fingerprint(cookie) if cookie is not None and looks_like_session(cookie) else None


@dataclass(slots=True, eq=False)
class StreamSeat:
    """An open stream, counted until `leave`, which may be called more than once.

    `tenant_id` is None for a caller of the system.
    """

    streams: Streams
    database: Database
    name: str
    tenant_id: int | None
    token_id: int | None
    session: str | None
    connection: Connection | None
    left: bool = False

    def counted(self) -> list[tuple[Counter[Any], Any]]:
        """Returns the counters in which the stream is counted, with its key in each."""
        streams = self.streams
        keys: list[tuple[Counter[Any], Any]] = [
            (streams.callers, self.name),
            (streams.tenants, self.tenant_id),
            (streams.tokens, self.token_id),
            (streams.sessions, self.session),
        ]
        return [(counter, key) for counter, key in keys if key is not None]

    async def may_stay(self) -> bool | None:
        return await self.streams.may_stay(self)

    @property
    def reason(self) -> str:
        if self.token_id is None:
            return "a token is needed now"
        return "token revoked" if self.session is None else "session ended"

    def leave(self) -> None:
        if not self.left:
            self.left = True
            self.streams.leave(self)


class Stream(StreamingResponse):
    """A response that ends with the right to read it, and when its client does not read it.

    It calls `leave` even if its generator never ran.
    """

    def __init__(self, parts: AsyncIterator[bytes], place: StreamSeat, leave: Callable[[], object]) -> None:
        super().__init__(parts, headers=HEADERS, media_type="text/event-stream")
        self.place = place
        self.leave = leave
        # Time since which a part waits for the client, while one does.
        self.waits_since: float | None = None
        self.dismissed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.place.connection is not None:
            self.place.connection.buffer_little()
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.leave()

    async def stream_response(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        with CancelScope() as scope:
            watch = asyncio.create_task(self._watch(scope))
            try:
                async for part in self.body_iterator:
                    await self._send(send, part)
            finally:
                watch.cancel()
        with anyio.move_on_after(FAREWELL):
            if self.waits_since is None:
                if self.dismissed:
                    await self._send(send, message("end", {"reason": self.place.reason}))
                await self._send(send, b"", more_body=False)
        if self.waits_since is not None:
            await self._give_up()

    async def _send(self, send: Send, part: Any, *, more_body: bool = True) -> None:
        self.waits_since = time.monotonic()
        await send({"type": "http.response.body", "body": part, "more_body": more_body})
        self.waits_since = None

    async def _watch(self, scope: CancelScope) -> None:
        """Ends the stream when its caller may not stay, or has not read for too long.

        A stream whose watch fails ends too.
        """
        try:
            while not self.dismissed and not self._stalled():
                await asyncio.sleep(CHECK)
                self.dismissed = await self.place.may_stay() is False
        finally:
            scope.cancel()

    def _stalled(self) -> bool:
        since = self.waits_since
        return since is not None and time.monotonic() - since >= connections.DEADLINES[Activity.STALLED]

    async def _give_up(self) -> None:
        """Closes the connection and drops the parts that the client did not take.

        The server of another application closes it when it sees that the response is not complete.
        """
        if self.place.connection is not None:
            self.place.connection.abort()
            await asyncio.sleep(0)  # the event loop reports the loss of the connection in its next turn
