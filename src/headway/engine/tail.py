"""The tail of the event table: one thread per process follows it and hands events to those who subscribed.

Events are handed out strictly by number and none is left out, although PostgreSQL commits numbers out of order:
behind a gap the tail waits until every transaction that could fill it has ended. A subscriber that is slow, or begins
in the past, reads the table at its own pace and joins the others when it has caught up: the tail waits for nobody.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from headway.engine.loop import WokenLoop
from headway.engine.subscription import Ready, Reset, Subscription, Wants, everything
from headway.store import live
from headway.store.db import Database
from headway.store.reading import Event

__all__ = ["Reset", "Subscription", "Tail"]

log = logging.getLogger("headway")
PAGE = 1_000
# Between two looks, however often it is woken.
PAUSE = 0.02
# Not every commit wakes us: after one that did, or brought something, we look again soon, then more and more rarely.
SOON, RARELY = 0.05, 1.0
# Behind a gap that somebody is about to fill.
GAP_SOON, GAP_RARELY = 0.01, 0.25
# How long a transaction that stays open may hold up all events that were written after its own.
PATIENCE = 10.0
NOBODY = 60.0
LATE = 64
END = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Held:
    """Events up to `upto` are there, with gaps. These writers may fill them."""

    upto: int
    writers: frozenset[str]
    since: float


@dataclass(frozen=True, slots=True)
class Late:
    """Numbers that were passed over although these writers had not ended."""

    after: int
    upto: int
    writers: frozenset[str]


class Tail(WokenLoop):
    """`subscribe` from any thread; `start` and `stop` it like every loop."""

    name = "tail"

    def __init__(self, database: Database, *, patience: float = PATIENCE) -> None:
        super().__init__(database.waiter())
        self.database = database
        self.patience = patience
        database.watch(self.waiter)
        self.lock = threading.Lock()
        self.subscriptions: list[Subscription] = []
        # All events up to here were handed out; None while nobody listens.
        self.frontier: int | None = None
        self.held: Held | None = None
        self.late: list[Late] = []
        # Writers that are not waited for any more.
        self.tired: frozenset[str] = frozenset()
        self.delay = SOON
        self.looked = 0.0

    def subscribe(
        self, after: int | None = None, wants: Wants = everything, *, on_ready: Ready | None = None, room: int = 1_000
    ) -> Subscription:
        """Events after a number, or from now on. `on_ready` is called whenever there is more to get, in the tail's
        thread: it must only pass the word on."""
        with self.database.read() as tx:
            start = live.settled(tx)
            gone = None if after is None else live.whole_after(tx, after)
        with self.lock:
            if self.frontier is None:
                self.frontier, self.held, self.late, self.delay = start, None, [], SOON
            made = Subscription(self, wants, on_ready, room)
            made.begin(after, gone)
            self.subscriptions = [*self.subscriptions, made]
        self.waiter.nudge()
        return made

    def leave(self, subscription: Subscription) -> None:
        with self.lock:
            self.subscriptions = [one for one in self.subscriptions if one is not subscription]
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
        # In a transaction of its own: what those wrote who have ended by now is seen by the next one.
        writing = self._writers() if self.held is not None or self.late else frozenset()
        with self.database.read() as tx:
            rows = live.between(tx, frontier, END, PAGE)
            together = self._together(frontier, rows)
            gap = together < len(rows)
            if not rows and live.newest(tx) < frontier:
                return self._begin_anew(frontier)
            if gap and (self.held is None or rows[together].id > self.held.upto):
                self.held = Held(rows[-1].id, live.writers(tx) - self.tired, self.database.clock.monotonic())
                self.delay = GAP_SOON / 2
            elif gap:
                together = self._decide_gaps(frontier, rows, together, writing)
            else:
                self.held = None
        self._look_for_late(writing)
        return self._hand_out(frontier, rows[:together], full=len(rows) == PAGE)

    def _writers(self) -> frozenset[str]:
        with self.database.read() as tx:
            return live.writers(tx)

    def _together(self, frontier: int, rows: Sequence[Event], real: int = 0) -> int:
        """How many of these events follow each other without a gap, but for gaps up to `real`."""
        if self.database.one_writer:
            return len(rows)
        last = frontier
        for n, event in enumerate(rows):
            if event.id != last + 1 and event.id > real:
                return n
            last = event.id
        return len(rows)

    def _decide_gaps(self, frontier: int, rows: list[Event], together: int, writing: frozenset[str]) -> int:
        """Whether gaps that were seen before are there for good; then more of these events may be handed out."""
        assert self.held is not None
        held = self.held
        left = held.writers & writing
        self.tired &= writing
        if left and self.database.clock.monotonic() - held.since < self.patience:
            return together
        if left:
            log.warning("tail: a transaction that writes events is open for %g s; going on without it", self.patience)
            self.tired |= left
        if self.tired:
            self._remember_gaps(frontier, rows, held.upto)
        self.held = None
        return self._together(frontier, rows, held.upto)

    def _remember_gaps(self, frontier: int, rows: list[Event], upto: int) -> None:
        """Somebody keeps a transaction open: we go on without its events, and remember which those may be."""
        last = frontier
        for event in rows:
            if last + 1 < event.id <= upto:
                self.late.append(Late(last, event.id - 1, self.tired))
            last = event.id

    def _look_for_late(self, writing: frozenset[str]) -> None:
        if not self.late:
            return
        with self.database.read() as tx:
            came = [one for one in self.late if live.between(tx, one.after, one.upto, 1)]
        if came or len(self.late) > LATE:
            self.late = []
            self._reset("events were stored out of their order: a transaction stayed open too long")
        self.late = [one for one in self.late if one.writers & writing]

    def _reset(self, reason: str) -> None:
        with self.lock:
            for one in self.subscriptions:
                one.lose(reason)

    def _begin_anew(self, frontier: int) -> float:
        """The newest events are gone: pruned, or this is an older copy of the database. Numbers may be used again."""
        with self.database.read() as tx:
            start = live.settled(tx)
        with self.lock:
            if self.frontier == frontier:
                self.frontier, self.held, self.late = start, None, []
        self._reset("the newest events are gone")
        return SOON

    def _hand_out(self, frontier: int, events: list[Event], *, full: bool) -> float:
        with self.lock:
            if self.frontier != frontier:
                return 0.0  # all left, and others came, while we looked
            if events:
                self.frontier = events[-1].id
                for one in self.subscriptions:
                    one.offer(events)
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
            for one in self.subscriptions:
                one.end()
