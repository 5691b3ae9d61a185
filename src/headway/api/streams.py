"""Who follows something: at most so many at once, on threads of their own, and only while they may come in."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import anyio
from anyio import CapacityLimiter, to_thread
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from headway.engine.tokens import Live, live_among
from headway.errors import Busy, HeadwayError
from headway.model.access import Visitor, fingerprint, looks_like_session
from headway.store.db import Database

T = TypeVar("T")
log = logging.getLogger("headway")
MOST, MOST_EACH = 200, 20
RETRY_AFTER = 10
# Streams look into the database for a moment at a time; requests have other threads.
THREADS = 8
# One look for all streams of the process. Revoked, expired, tenant inactive, logged out: noticed within twice this.
CHECK = 0.75
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Streams:
    """All streams of a process. Used in its event loop alone."""

    def __init__(self) -> None:
        self.open: Counter[str] = Counter()
        self.tokens: Counter[int] = Counter()
        self.sessions: Counter[str] = Counter()
        self.threads = CapacityLimiter(THREADS)
        self._looking = anyio.Lock()
        self._looked = -CHECK
        self._live: Live | None = None

    async def run(self, work: Callable[[], T]) -> T:
        return await to_thread.run_sync(work, limiter=self.threads)

    def enter(self, database: Database, visitor: Visitor, cookie: str | None = None) -> Place:
        name = visitor.actor.text()
        if self.open.total() >= MOST:
            raise Busy(f"{MOST} streams are open here, no more: try again later", retry_after=RETRY_AFTER)
        if self.open[name] >= MOST_EACH:
            text = f"you have {MOST_EACH} streams open here, no more: close one, or try again later"
            raise Busy(text, retry_after=RETRY_AFTER)
        token_id = int(visitor.actor.id) if visitor.actor.type == "token" else None
        place = Place(self, database, name, token_id, _session(cookie))
        self.open[name] += 1
        if place.token_id is not None:
            self.tokens[place.token_id] += 1
            self._looked = -CHECK  # it is not among those of the last look
        if place.session is not None:
            self.sessions[place.session] += 1
        return place

    def leave(self, place: Place) -> None:
        _less(self.open, place.name)
        if place.token_id is not None:
            _less(self.tokens, place.token_id)
        if place.session is not None:
            _less(self.sessions, place.session)

    async def may_stay(self, place: Place) -> bool | None:
        """None: it cannot be known now, and nothing may be told meanwhile."""
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
            log.warning("whether the tokens of open streams are live is not known: %s", error)


def _session(cookie: str | None) -> str | None:
    """As it is stored."""
    return fingerprint(cookie) if cookie is not None and looks_like_session(cookie) else None


def _less(counter: Counter[Any], name: object) -> None:
    counter[name] -= 1
    if not counter[name]:
        del counter[name]


class Place:
    """One stream. Left once, whatever became of it."""

    def __init__(
        self, streams: Streams, database: Database, name: str, token_id: int | None, session: str | None
    ) -> None:
        self.streams = streams
        self.database = database
        self.name = name
        self.token_id = token_id
        self.session = session
        self.left = False

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
    """Its place is given back even if nobody came for the first part: then its generator is never run."""

    def __init__(self, parts: AsyncIterator[str], leave: Callable[[], object]) -> None:
        super().__init__(parts, headers=HEADERS, media_type="text/event-stream")
        self.leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.leave()
