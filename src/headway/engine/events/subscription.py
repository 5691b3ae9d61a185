"""A subscriber to the event tail, which reads at its own pace."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headway.model.event import Event
from headway.store import events as store_events
from headway.store.events import PAGE_BYTES, EventPage
from headway.wakeup import Wakeup

if TYPE_CHECKING:
    from headway.engine.events.tail import Tail

log = logging.getLogger("headway")
Wants = Callable[[Event], bool]
OnReady = Callable[[], object]
# Events per read of the table.
PAGE = 500
# Ids scanned per read for one tenant, which may have few events among them.
STRETCH = 20_000


@dataclass(frozen=True, slots=True)
class Reset:
    """Events were missed, and the reader must reload its state.

    Later events begin after `position`.
    """

    reason: str
    position: int


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Matches the events of one tenant, by kind and thing.

    Without a tenant it matches all tenants and the installation itself (tenant 0: workers, lanes).
    """

    tenant_id: int | None
    kinds: Collection[str] = ()
    thing: str | None = None
    thing_id: int | None = None

    def __call__(self, event: Event) -> bool:
        return (
            (self.tenant_id is None or event.tenant_id == self.tenant_id)
            and (self.thing is None or event.thing == self.thing)
            and (self.thing_id is None or event.thing_id == self.thing_id)
            and (not self.kinds or any(_matches(kind, event.kind) for kind in self.kinds))
        )


def _matches(pattern: str, kind: str) -> bool:
    """Matches `job.completed`, or `job.*` for every kind of a thing."""
    return kind.startswith(pattern[:-1]) if pattern.endswith(".*") else kind == pattern


def everything(event: Event) -> bool:
    return True


class Subscription:
    """One subscriber's stream of events, for one reader.

    It is either live, fed by the tail through a bounded queue, or reads the table to catch up.
    """

    def __init__(self, tail: Tail, wants: Wants, on_ready: OnReady | None, room: int) -> None:
        self.tail = tail
        self.wants = wants
        self.on_ready = on_ready
        self.room = room
        # Not a Condition: it ends with Python code, and an interrupt there would leave the tail's lock taken.
        self.news = Wakeup()
        self.queue: deque[Event] = deque()
        # Bytes of data in the queue.
        self.size = 0
        self.live = True
        self.closed = False
        self.lost: str | None = None
        # Events up to this id were returned to the reader or filtered out.
        self.position = 0
        self.offered = 0

    # --- the reader's side ---

    def get(self, timeout: float) -> list[Event] | Reset | None:
        """Returns the next events.

        An empty list means that more of the past is left to read. None means a timeout, or that the subscription is
        closed. A reader with `on_ready` calls it until it returns None.
        """
        with self.tail.lock:
            quiet = self.live and self.lost is None and not self.queue and not self.closed
            if quiet:
                self.news.clear()
        if quiet and timeout > 0:
            self.news.wait(timeout)
        with self.tail.lock:
            if self.closed:
                return None
            if self.lost is not None:
                return self._begin_anew(self.lost)
            if self.live:
                return self._drain() or None
            upto = self.tail.frontier
        return None if upto is None else self._catch_up(upto)

    def _drain(self) -> list[Event]:
        events = list(self.queue)
        self._forget()
        self.position = max(self.position, self.offered)
        return events

    def _begin_anew(self, reason: str) -> Reset:
        self._forget()
        self.live, self.lost = True, None
        self.position = self.offered = self.tail.frontier or 0
        return Reset(reason, self.position)

    def _catch_up(self, upto: int) -> list[Event] | Reset:
        """Reads a page of the past, which cannot change because the tail has passed it."""
        tenant_id = self.wants.tenant_id if isinstance(self.wants, EventFilter) else None
        if tenant_id is not None:
            upto = min(upto, self.position + STRETCH)
        with self.tail.database.read() as tx:
            gone = store_events.whole_after(tx, self.position)
            found = EventPage([], False)
            if gone is None:
                found = store_events.between(tx, self.position, upto, PAGE, tenant_id)
        with self.tail.lock:
            if gone is not None:
                return self._begin_anew(gone)
            self.position = found.events[-1].id if found.full else max(upto, self.position)
            if self.position >= (self.tail.frontier or 0):
                self.live, self.offered = True, self.position
        return [event for event in found.events if self.wants(event)]

    def close(self) -> None:
        self.tail.leave(self)
        with self.tail.lock:
            self.end()

    # --- the tail's side, under its lock ---

    def begin(self, after: int | None, gone: str | None) -> None:
        frontier = self.tail.frontier or 0
        self.position = self.offered = frontier if after is None else after
        self.live = self.position >= frontier  # another process may be ahead of this tail
        self.lost = gone

    def offer(self, events: Sequence[Event]) -> None:
        if self.closed:
            return
        if self.live and self.lost is None:
            wanted = self._pick(events)
            size = self.size + sum(len(event.data or "") for event in wanted)
            if len(self.queue) + len(wanted) > self.room or size > PAGE_BYTES:
                # The reader is too slow, so it reads these and later events from the table.
                self._forget()
                self.live = False
            else:
                self.queue.extend(wanted)
                self.size = size
                self.offered = max(self.offered, events[-1].id)
            if not (wanted or self.queue):
                return
        self._tell()

    def _pick(self, events: Sequence[Event]) -> list[Event]:
        try:
            return [event for event in events if event.id > self.offered and self.wants(event)]
        except Exception:  # user code: only this subscription fails
            log.exception("tail: a subscriber failed and is closed")
            self.end()
            return []

    def lose(self, reason: str) -> None:
        self.lost = reason
        self._forget()
        self._tell()

    def end(self) -> None:
        self.closed = True
        self._tell()

    def _forget(self) -> None:
        self.queue.clear()
        self.size = 0

    def _tell(self) -> None:
        self.news.set()
        if self.on_ready is not None:
            try:
                self.on_ready()
            except Exception:  # user code
                log.exception("tail: on_ready of a subscriber failed")
