"""Who holds reservations: an incarnation with a lease of its own, and its places from their making to their end."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headway.engine import reserving
from headway.engine.heartbeat import TELL, Heartbeat
from headway.engine.loop import WokenLoop
from headway.engine.recovery import Recovery
from headway.engine.reserving import End, Wish
from headway.engine.worker import new_identity
from headway.errors import Busy, CommitUnknown, HeadwayError, LeaseLost, Unreachable
from headway.model.job import Actor
from headway.model.values import duration_text
from headway.store import reservations, workers
from headway.store.db import Database, Tx
from headway.store.lanes import Lanes
from headway.store.reservations import Active

log = logging.getLogger("headway")
IDLE_SECONDS = 60.0
# How often one who waits lets in who is next by itself: usually somebody else has done it long before.
SETTLE_SECONDS = 0.5
LEAVE_SECONDS = 10.0
STEP_SECONDS = 0.5
MOST_RETRY_AFTER = 60
# Long after any machine has started the heartbeat: what does not come then does not come.
BEAT_SECONDS = 120.0
LOST = End("ABANDONED", "its maker does not know of it")


@dataclass(frozen=True, slots=True)
class Terms:
    """How a holder is to live."""

    lease: float = 60.0
    heartbeat: float = 2.0
    recovery_interval: float = 30.0
    listen: str | None = None


def wait_in_steps(event: threading.Event, seconds: float | None = None) -> None:
    """A Ctrl-C that comes just before a wait begins is not seen before the wait is over: so no wait is long."""
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    while not event.wait(min(STEP_SECONDS, max(0.0, deadline - time.monotonic()))):
        if time.monotonic() >= deadline:
            return


class Place:
    """A place in the line, from before its reservation is made until it is given back."""

    __slots__ = ("granted", "id", "lost", "news", "stop")

    def __init__(self) -> None:
        self.id: int | None = None
        self.granted = False
        self.lost: str | None = None
        self.news = threading.Event()
        self.stop: Callable[[str], None] | None = None

    def let_in(self) -> None:
        self.granted = True
        self.news.set()

    def lose(self, why: str) -> None:
        """Somebody else may have it from here on: its work is stopped."""
        self.lost = self.lost or why
        self.news.set()
        stop = self.stop
        if stop is not None:
            stop(why)


class Holder(WokenLoop):
    """One incarnation. Any thread reserves, waits and releases; `tick` sees what became of the places that wait."""

    name = "reservations"

    def __init__(self, database: Database, terms: Terms, *, resources: Mapping[str, int] | None = None) -> None:
        super().__init__(database.waiter())
        self.database = database
        self.terms = terms
        self.who = new_identity()
        self.actor = Actor("worker", workers.worker_name(self.who.id), f"{self.who.host}:{self.who.pid}")
        self.lanes = Lanes(database, resources=resources)  # used under the claim lock alone, so by one at a time
        self.places: dict[int, Place] = {}
        self.ends: dict[int, End] = {}
        self.at_work: set[int] = set()
        self.reserving = threading.Lock()
        self.writing = threading.Lock()
        self.strays = False
        self.closing = False
        self.gone = False
        self.abandoned = False
        self.settle_at = 0.0
        self.renewed = time.monotonic()
        self.heartbeat: Heartbeat | None = None
        # Work may hold the interpreter from its first moment: none begins before the heartbeat is up.
        self.beating = threading.Event()
        self.beating.set()
        self.recovery: Recovery | None = None

    # --- life ---

    def open(self) -> None:
        """Makes itself known, then starts what renews its lease. Until that is up, `tick` does it."""
        try:
            self.register()
        except BaseException:
            self.waiter.close()
            raise
        terms = self.terms
        wishes = {"worker_id": self.who.id, "pid": self.who.pid, "database": self.database.url, "listen": terms.listen}
        self.beating.clear()
        wishes |= {"lease": terms.lease, "heartbeat": terms.heartbeat}
        self.heartbeat = Heartbeat(wishes, self.hear, idle=True)
        self.start()

    def register(self) -> None:
        self.database.transact("register", self._register)

    def _register(self, tx: Tx) -> None:
        workers.register(tx, self.who, self.actor, slots=1, tasks=[], lease=self.terms.lease, kind="caller")

    def renew(self) -> None:
        """A beat of our own, for a moment at which the heartbeat's may be late."""
        began = time.monotonic()
        if not self.database.transact("renew", lambda tx: workers.beat(tx, self.who.id, self.terms.lease)):
            self.hear({"gone": True})
            return
        self._renewed(began)
        if self.heartbeat is not None:
            self.heartbeat.reassure(began)

    def hear(self, said: dict[str, Any]) -> None:
        """What the heartbeat says: that it beats, that the lease is lost, or cannot be renewed."""
        if "beat" in said:
            self._renewed(said["beat"])
            self.beating.set()
        if "late" in said and time.monotonic() - self.renewed > self.terms.lease * TELL:
            self.abandon(f"the lease could not be renewed for {said['late']:.0f} s ({said['why']})")
        if said.get("gone"):
            self.gone = True
            self.abandon("this process was given up by others")

    def _renewed(self, at: float) -> None:
        self.renewed = max(self.renewed, at)
        self.abandoned = self.abandoned and bool(self.at_work)

    def abandon(self, why: str) -> None:
        """Ends all work, because its places may not be ours any more."""
        self.abandoned = True
        self.beating.set()  # nobody waits for it any more
        for place in list(self.places.values()):
            place.lose(why)
        self._say_stopped()

    def _say_stopped(self) -> None:
        """The heartbeat ends a process that goes on working without a lease: this one does not."""
        if self.abandoned and not self.at_work and self.heartbeat is not None:
            self.heartbeat.reassure()

    # --- a place ---

    def reserve(self, place: Place, wish: Wish, *, actor: Actor) -> None:
        self._renew_in_time()
        with self.reserving:
            if self.closing or self.gone:
                raise LeaseLost("this process holds reservations no more: try again")
            try:
                number, granted = self.database.transact("reserve", lambda tx: self._reserve(tx, wish, actor))
                place.id = number  # first: a Ctrl-C from here on finds a place that can be given back
                self.places[number] = place
            except BaseException as error:
                self._doubt(error)
                raise
        if granted:
            place.let_in()
        if self.abandoned:
            place.lose("the lease was lost")

    def _doubt(self, error: BaseException) -> None:
        """A lost answer, or Ctrl-C: the reservation may have been made, and then nobody knows its number."""
        if not isinstance(error, HeadwayError) or isinstance(error, CommitUnknown):
            self.strays = True
            self.waiter.nudge()

    def _reserve(self, tx: Tx, wish: Wish, actor: Actor) -> tuple[int, bool]:
        if not workers.lives(tx, self.who.id):
            raise LeaseLost("this process was given up by others: try again")
        return reserving.reserve(tx, self.lanes, wish, actor, worker_id=self.who.id)

    def wait_for(self, place: Place, seconds: float | None, *, what: str) -> None:
        """Until it is let in; beyond the time that is Busy. Without a limit, as long as it takes."""
        if not place.news.is_set():
            self.waiter.nudge()
            wait_in_steps(place.news, seconds)
        if place.lost is not None:
            raise LeaseLost(f"{what} lost its place in the line: {place.lost}: try again")
        if not place.granted:
            assert seconds is not None
            text = f"{what} was not let in within {duration_text(seconds)}: try again later, or wait longer"
            raise Busy(text, retry_after=max(1, min(MOST_RETRY_AFTER, round(seconds))))

    def wait_for_beat(self) -> None:
        """Until something renews the lease that no work here can starve."""
        wait_in_steps(self.beating, BEAT_SECONDS)
        if not self.beating.is_set():
            text = f"nothing renews the lease of this process after {duration_text(BEAT_SECONDS)}: try again later"
            raise Busy(text, retry_after=MOST_RETRY_AFTER)

    def begin(self, place: Place, stop: Callable[[str], None]) -> None:
        """Its work begins. When the lease is lost, `stop` is called with the reason."""
        assert place.id is not None
        self.wait_for_beat()
        self.at_work.add(place.id)
        place.stop = stop
        if place.lost is not None:
            stop(place.lost)

    def finish(self, place: Place) -> None:
        """Nothing of its work is left."""
        assert place.id is not None
        self.at_work.discard(place.id)
        self._say_stopped()

    def release(self, place: Place, end: End) -> None:
        """Gives it back, at once; should the database be away, as soon as it is there again."""
        self.release_soon(place, end)
        self.write_ends()

    def write_ends(self) -> None:
        try:
            self._write_ends()
        except Unreachable as error:
            log.warning("a reservation could not be released yet: %s", error)

    def release_soon(self, place: Place, end: End) -> None:
        """The same without waiting for it."""
        if place.id is not None:
            self.ends[place.id] = end
            self.waiter.nudge()

    # --- what became of the places ---

    def tick(self) -> float:
        beating = self.beating.is_set()
        if not beating:
            self._renew_in_time()
        self._write_ends()
        if self.strays:
            self._end_strays()
        delay = SETTLE_SECONDS if self._look_after_waiting() else IDLE_SECONDS
        return delay if beating else min(delay, self.terms.lease / 6)

    def _renew_in_time(self) -> None:
        if time.monotonic() - self.renewed > self.terms.lease / 3:
            self.renew()

    def _look_after_waiting(self) -> bool:
        # Those that were there before we look: one that is made meanwhile may be missing from what we see.
        waiting = [place for place in list(self.places.values()) if not place.news.is_set()]
        if waiting:
            self._recover_meanwhile()
            active = {one.id: one for one in self._look()}
            for place in waiting:
                self._judge(place, active)
        return bool(waiting)

    def _recover_meanwhile(self) -> None:
        """What they wait for may be held by a process that died, and there may be nobody else to see that."""
        if self.recovery is None and self.thread is not None:
            self.recovery = Recovery(self.database, interval=self.terms.recovery_interval)
            self.recovery.own = self.renew
            self.recovery.start()

    def _look(self) -> list[Active]:
        if time.monotonic() >= self.settle_at:
            self.settle_at = time.monotonic() + SETTLE_SECONDS
            return self.database.transact("grant", lambda tx: reserving.settle(tx, self.lanes))
        with self.database.read() as tx:
            return reservations.active(tx)

    def _judge(self, place: Place, active: Mapping[int, Active]) -> None:
        found = active.get(place.id or 0)
        if found is None:
            place.lose("others ended the reservation")
        elif found.granted_at is not None:
            place.let_in()

    def _write_ends(self) -> None:
        with self.writing:
            ends = dict(self.ends)
            if ends:
                self.database.transact("release_reservation", lambda tx: self._end(tx, ends))
            for number in ends:
                self.places.pop(number, None)
                self.ends.pop(number, None)

    def _end(self, tx: Tx, ends: Mapping[int, End]) -> None:
        reserving.end(tx, self.lanes, ends, self.actor)

    def _end_strays(self) -> None:
        """What is ours by the database and nobody here knows of: its making was interrupted."""
        with self.reserving:
            self.database.transact("release_reservation", self._release_strays)
            self.strays = False

    def _release_strays(self, tx: Tx) -> None:
        found = [reservations.find(tx, one.id) for one in reservations.active(tx)]
        ours = [one.id for one in found if one is not None and one.worker_id == self.who.id]
        self._end(tx, {number: LOST for number in ours if number not in self.places})

    # --- the end ---

    def leave(self) -> None:
        """Takes no more places, stops what runs, and waits until all were given back."""
        with self.reserving:
            self.closing = True
        self.abandon("this process takes leave")
        deadline = time.monotonic() + LEAVE_SECONDS
        while self.places and time.monotonic() < deadline:
            time.sleep(0.005)

    def close(self) -> None:
        """After `leave`. What could not be given back is left to recovery."""
        for loop in (self, self.recovery):
            if loop is not None:
                loop.stop()
                loop.join(LEAVE_SECONDS)
        if self.heartbeat is not None:
            self.heartbeat.close()
        self.waiter.close()
        try:
            self._write_ends()
            if self.strays:
                self._end_strays()
            if not self.places:
                self.database.transact("retire", lambda tx: workers.retire(tx, self.who.id, "done", actor=self.actor))
        except HeadwayError as error:
            log.warning("could not take leave: %s; recovery will see that this process is gone", error)
