"""The tail of the event table: one thread per process hands events to subscribers.

Events are handed out in the order of their ids, none left out, although PostgreSQL commits ids out of order: at a gap
the tail waits until every transaction that could fill it has ended. A subscriber that is slow, or begins in the past,
reads the table at its own pace and joins the live ones later; the tail never waits for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from headway.engine.events.subscription import OnReady, Reset, Subscription, Wants, everything
from headway.engine.loop import WokenLoop
from headway.model.event import Event
from headway.store import events as store_events
from headway.store.db import Database

__all__ = ["Reset", "Subscription", "Tail"]

log = logging.getLogger("headway")
PAGE = 1_000
# Shortest delay between two polls, however often the tail is woken.
PAUSE = 0.02
# Not every commit wakes the tail. It polls soon after a wake-up or an event, then with growing delays.
SOON, RARELY = 0.05, 1.0
# The same while an open transaction may fill a gap.
GAP_SOON, GAP_RARELY = 0.01, 0.25
# Longest time that an open transaction may hold back the events written after its own.
PATIENCE = 10.0
NOBODY = 60.0
LATE = 64
END = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class EventGap:
    """A gap: events up to `upto` exist, and these writers may fill the missing ids."""

    upto: int
    writers: frozenset[str]
    since: float


@dataclass(frozen=True, slots=True)
class Late:
    """Ids that were skipped although these writers had not ended."""

    after: int
    upto: int
    writers: frozenset[str]


class Tail(WokenLoop):
    """The loop of the tail. Any thread may call `subscribe`."""

    name = "tail"

    def __init__(self, database: Database, *, patience: float = PATIENCE) -> None:
        super().__init__(database.waiter())
        self.database = database
        self.patience = patience
        database.watch(self.waiter)
        self.lock = threading.Lock()
        self.subscriptions: list[Subscription] = []
        # All events up to this id were handed out. None without subscribers.
        self.frontier: int | None = None
        self.held: EventGap | None = None
        self.late: list[Late] = []
        # Writers whose transactions exceeded `patience` and are no longer waited for.
        self.tired: frozenset[str] = frozenset()
        self.delay = SOON
        self.looked = 0.0

    def subscribe(
        self, after: int | None = None, wants: Wants = everything, *, on_ready: OnReady | None = None, room: int = 1_000
    ) -> Subscription:
        """Subscribes to events after an id, or from now on.

        `on_ready` is called in the tail's thread whenever there is more to get; it must return quickly.
        """
        with self.database.read() as tx:
            start = store_events.settled(tx)
            gone = None if after is None else store_events.whole_after(tx, after)
        with self.lock:
            if self.frontier is None:
                self.frontier, self.held, self.late, self.delay = start, None, [], SOON
            made = Subscription(self, wants, on_ready, room)
            made.begin(after, gone)
            self.subscriptions = [*self.subscriptions, made]
        self.waiter.wake()
        return made

    def leave(self, subscription: Subscription) -> None:
        with self.lock:
            self.subscriptions = [other for other in self.subscriptions if other is not subscription]
            if not self.subscriptions:
                self.frontier = None

    # --- the loop ---

    def wait(self, seconds: float) -> None:
        if seconds <= 0:
            return
        super().wait(seconds)
        rest = self.looked + PAUSE - time.monotonic()
        if rest > 0:
            self.ended.wait(rest)

    def tick(self) -> float:
        self.looked = time.monotonic()
        frontier = self.frontier
        if frontier is None:
            return NOBODY
        # A transaction of its own, so that the next one sees the events of all writers that have ended by now.
        writing = self._writers() if self.held is not None or self.late else frozenset()
        with self.database.read() as tx:
            rows, full = store_events.between(tx, frontier, END, PAGE)
            together = self._together(frontier, rows)
            gap = together < len(rows)
            if not rows and store_events.newest(tx) < frontier:
                return self._begin_anew(frontier)
            if gap and (self.held is None or rows[together].id > self.held.upto):
                self.held = EventGap(
                    rows[-1].id, store_events.writers(tx) - self.tired, self.database.clock.monotonic()
                )
                self.delay = GAP_SOON / 2
            elif gap:
                together = self._decide_gaps(frontier, rows, together, writing)
            else:
                self.held = None
        self._look_for_late(writing)
        return self._hand_out(frontier, rows[:together], full=full)

    def _writers(self) -> frozenset[str]:
        with self.database.read() as tx:
            return store_events.writers(tx)

    def _together(self, frontier: int, rows: Sequence[Event], real: int = 0) -> int:
        """Returns how many events follow each other without a gap.

        Gaps up to id `real` are permanent and do not count.
        """
        if self.database.one_writer:
            return len(rows)
        last = frontier
        for n, event in enumerate(rows):
            if event.id != last + 1 and event.id > real:
                return n
            last = event.id
        return len(rows)

    def _decide_gaps(self, frontier: int, rows: list[Event], together: int, writing: frozenset[str]) -> int:
        """Decides if known gaps are permanent. Returns how many events may be handed out."""
        assert self.held is not None
        held = self.held
        left = held.writers & writing
        self.tired &= writing
        if left and self.database.clock.monotonic() - held.since < self.patience:
            return together
        if left:
            log.warning(
                "tail: a transaction that writes events has been open for %g s; continuing without its events",
                self.patience,
            )
            self.tired |= left
        if self.tired:
            self._remember_gaps(frontier, rows, held.upto)
        self.held = None
        return self._together(frontier, rows, held.upto)

    def _remember_gaps(self, frontier: int, rows: list[Event], upto: int) -> None:
        """Remembers the ids that a long open transaction may still fill."""
        last = frontier
        for event in rows:
            if last + 1 < event.id <= upto:
                self.late.append(Late(last, event.id - 1, self.tired))
            last = event.id

    def _look_for_late(self, writing: frozenset[str]) -> None:
        if not self.late:
            return
        with self.database.read() as tx:
            came = [late for late in self.late if store_events.between(tx, late.after, late.upto, 1).events]
        if came or len(self.late) > LATE:
            self.late = []
            self._reset("events were committed out of order: a transaction stayed open too long")
        self.late = [late for late in self.late if late.writers & writing]

    def _reset(self, reason: str) -> None:
        with self.lock:
            for subscription in self.subscriptions:
                subscription.lose(reason)

    def _begin_anew(self, frontier: int) -> float:
        """Starts again after the newest events vanished.

        They were pruned, or this is an older copy of the database; ids may be used again.
        """
        with self.database.read() as tx:
            start = store_events.settled(tx)
        with self.lock:
            if self.frontier == frontier:
                self.frontier, self.held, self.late = start, None, []
        self._reset("the newest events are gone")
        return SOON

    def _hand_out(self, frontier: int, events: list[Event], *, full: bool) -> float:
        with self.lock:
            if self.frontier != frontier:
                return 0.0  # all subscribers left, and new ones came, during the read
            if events:
                self.frontier = events[-1].id
                for subscription in self.subscriptions:
                    subscription.offer(events)
        return self._next_look(found=bool(events), full=full)

    def _next_look(self, *, found: bool, full: bool) -> float:
        if full and found:
            return 0.0
        first, most = (GAP_SOON, GAP_RARELY) if self.held is not None else (SOON, RARELY)
        self.delay = first if found else min(max(self.delay, first) * 2, most)
        return self.delay

    def stop(self) -> None:
        super().stop()
        self.database.unwatch(self.waiter)
        with self.lock:
            for subscription in self.subscriptions:
                subscription.end()
