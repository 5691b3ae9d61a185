"""One who follows the tail of the events, at a pace of its own."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headway.store import live
from headway.store.reading import Event

if TYPE_CHECKING:
    from headway.engine.tail import Tail

log = logging.getLogger("headway")
Wants = Callable[[Event], bool]
Ready = Callable[[], object]
# Read at once from the past.
PAGE = 500
# Numbers gone through at once for one tenant, which may have few of them.
STRETCH = 20_000


@dataclass(frozen=True, slots=True)
class Reset:
    """Something was missed, and the reader has to look at everything anew. What follows begins after `position`."""

    reason: str
    position: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """Events of one tenant; without a tenant of all, and of the installation itself (tenant 0: workers, lanes)."""

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


def _matches(wish: str, kind: str) -> bool:
    """`job.completed`, or `job.*` for all of a thing."""
    return kind.startswith(wish[:-1]) if wish.endswith(".*") else kind == wish


def everything(event: Event) -> bool:
    return True


class Subscription:
    """Either live, fed by the tail through a queue of so many places, or catching up from the table. One reader."""

    def __init__(self, tail: Tail, wants: Wants, on_ready: Ready | None, room: int) -> None:
        self.tail = tail
        self.wants = wants
        self.on_ready = on_ready
        self.room = room
        self.changed = threading.Condition(tail.lock)
        self.queue: deque[Event] = deque()
        self.live = True
        self.closed = False
        self.lost: str | None = None
        # Everything up to here was given to the reader, or is none of its business.
        self.position = 0
        self.offered = 0

    # --- the reader's side ---

    def get(self, timeout: float) -> list[Event] | Reset | None:
        """The next events. An empty list: there is more of the past to go through. None: nothing came in time, or it
        was closed. Who waits for `on_ready` calls it until it answers None."""
        with self.changed:
            if self.live and self.lost is None and not self.queue and not self.closed and timeout > 0:
                self.changed.wait(timeout)
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
        self.queue.clear()
        self.position = max(self.position, self.offered)
        return events

    def _begin_anew(self, reason: str) -> Reset:
        self.queue.clear()
        self.live, self.lost = True, None
        self.position = self.offered = self.tail.frontier or 0
        return Reset(reason, self.position)

    def _catch_up(self, upto: int) -> list[Event] | Reset:
        """A page of the past; none of it can change any more, because the tail is beyond it."""
        tenant_id = self.wants.tenant_id if isinstance(self.wants, Wanted) else None
        if tenant_id is not None:
            upto = min(upto, self.position + STRETCH)
        with self.tail.database.read() as tx:
            gone = live.whole_after(tx, self.position)
            events = [] if gone is not None else live.between(tx, self.position, upto, PAGE, tenant_id)
        with self.changed:
            if gone is not None:
                return self._begin_anew(gone)
            self.position = events[-1].id if len(events) == PAGE else max(upto, self.position)
            if self.position >= (self.tail.frontier or 0):
                self.live, self.offered = True, self.position
        return [event for event in events if self.wants(event)]

    def close(self) -> None:
        self.tail.leave(self)
        with self.changed:
            self.end()

    # --- the tail's side, under its lock ---

    def begin(self, after: int | None, gone: str | None) -> None:
        frontier = self.tail.frontier or 0
        self.position = self.offered = frontier if after is None else after
        self.live = self.position >= frontier  # another process may be ahead of our tail
        self.lost = gone

    def offer(self, events: Sequence[Event]) -> None:
        if self.closed:
            return
        if self.live and self.lost is None:
            wanted = self._pick(events)
            if len(self.queue) + len(wanted) > self.room:
                # Too slow: what is in the queue, and what follows, it reads from the table.
                self.queue.clear()
                self.live = False
            else:
                self.queue.extend(wanted)
                self.offered = max(self.offered, events[-1].id)
            if not (wanted or self.queue):
                return
        self._tell()

    def _pick(self, events: Sequence[Event]) -> list[Event]:
        try:
            return [event for event in events if event.id > self.offered and self.wants(event)]
        except Exception:  # its own code: it fails alone
            log.exception("tail: a subscriber failed and is closed")
            self.end()
            return []

    def lose(self, reason: str) -> None:
        self.lost = reason
        self.queue.clear()
        self._tell()

    def end(self) -> None:
        self.closed = True
        self._tell()

    def _tell(self) -> None:
        self.changed.notify_all()
        if self.on_ready is not None:
            try:
                self.on_ready()
            except Exception:  # the same
                log.exception("tail: a subscriber could not be told")
