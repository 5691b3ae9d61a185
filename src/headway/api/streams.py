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

from headway.engine.tokens import live_among
from headway.errors import Busy, HeadwayError
from headway.model.access import Visitor
from headway.store.db import Database

T = TypeVar("T")
log = logging.getLogger("headway")
MOST, MOST_EACH = 200, 20
RETRY_AFTER = 10
# Streams look into the database for a moment at a time; requests have other threads.
THREADS = 8
# One look for all streams of the process. Revoked, expired, of an inactive tenant: noticed within twice this.
CHECK = 0.75
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Streams:
    """All streams of a process. Used in its event loop alone."""

    def __init__(self) -> None:
        self.open: Counter[str] = Counter()
        self.tokens: Counter[int] = Counter()
        self.threads = CapacityLimiter(THREADS)
        self._looking = anyio.Lock()
        self._looked = -CHECK
        self._live: frozenset[int] | None = frozenset()
        self._closed_to_all = False

    async def run(self, work: Callable[[], T]) -> T:
        return await to_thread.run_sync(work, limiter=self.threads)

    def enter(self, database: Database, visitor: Visitor) -> Place:
        name = visitor.actor.text()
        if self.open.total() >= MOST:
            raise Busy(f"{MOST} streams are open here, no more: try again later", retry_after=RETRY_AFTER)
        if self.open[name] >= MOST_EACH:
            text = f"you have {MOST_EACH} streams open here, no more: close one, or try again later"
            raise Busy(text, retry_after=RETRY_AFTER)
        place = Place(self, database, name, int(visitor.actor.id) if visitor.actor.type == "token" else None)
        self.open[name] += 1
        if place.token_id is not None:
            self.tokens[place.token_id] += 1
            self._looked = -CHECK  # it is not among those of the last look
        return place

    def leave(self, place: Place) -> None:
        _less(self.open, place.name)
        if place.token_id is not None:
            _less(self.tokens, place.token_id)

    async def may_stay(self, place: Place) -> bool | None:
        """None: it cannot be known now, and nothing may be told meanwhile."""
        async with self._looking:
            if time.monotonic() - self._looked >= CHECK:
                await self._look(place.database)
        if self._live is None:
            return None
        return not self._closed_to_all if place.token_id is None else place.token_id in self._live

    async def _look(self, database: Database) -> None:
        wanted = sorted(self.tokens)
        self._looked = time.monotonic()
        try:
            self._live, self._closed_to_all = await self.run(lambda: live_among(database, wanted))
        except HeadwayError as error:
            self._live = None
            log.warning("whether the tokens of open streams are live is not known: %s", error)


def _less(counter: Counter[Any], name: object) -> None:
    counter[name] -= 1
    if not counter[name]:
        del counter[name]


class Place:
    """One stream. Left once, whatever became of it."""

    def __init__(self, streams: Streams, database: Database, name: str, token_id: int | None) -> None:
        self.streams = streams
        self.database = database
        self.name = name
        self.token_id = token_id
        self.left = False

    async def may_stay(self) -> bool | None:
        return await self.streams.may_stay(self)

    @property
    def reason(self) -> str:
        return "a token is needed now" if self.token_id is None else "token revoked"

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
