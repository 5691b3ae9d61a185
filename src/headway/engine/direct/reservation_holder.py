"""The holder of reservations: an incarnation with a lease, and its places."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.engine.direct import reservations as direct_reservations
from headway.engine.direct.reservations import End, ReservationRequest
from headway.engine.loop import WokenLoop
from headway.engine.maintenance.recovery import Recovery
from headway.engine.worker.lease import Lease
from headway.engine.worker.reconciliation import Reconciliation
from headway.errors import Busy, HeadwayError, LeaseLost, Unreachable, is_unsure
from headway.model.jobs.job import Actor
from headway.model.values.times import duration_text
from headway.store import workers
from headway.store.db import Database, Tx
from headway.store.queue import reservations
from headway.store.queue.lanes import BucketCache
from headway.store.queue.reservations import Active
from headway.wakeup import Wakeup

log = logging.getLogger("headway")
IDLE_SECONDS = 60.0
# Interval at which a waiting holder grants reservations itself. Usually another process has done it before.
SETTLE_SECONDS = 0.5
LEAVE_SECONDS = 10.0
STEP_SECONDS = 0.5
MOST_RETRY_AFTER = 60
# Longest wait for the first heartbeat. Starting it takes far less on any machine.
BEAT_SECONDS = 120.0
LOST = End("ABANDONED", "its holder has no record of it")


@dataclass(frozen=True, slots=True)
class HolderConfig:
    """Settings of a holder. `secret` are the variables that secrets come from."""

    lease: float = 60.0
    heartbeat: float = 2.0
    recovery_interval: float = 30.0
    listen: str | None = None
    secret: frozenset[str] = frozenset()


def wait_in_steps(event: Wakeup, seconds: float | None = None) -> None:
    """Waits for an event in short steps.

    A Ctrl-C that arrives just before a wait begins is handled only when that wait returns.
    """
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    while not event.wait(min(STEP_SECONDS, max(0.0, deadline - time.monotonic()))):
        if time.monotonic() >= deadline:
            return


class ReservedPlace:
    """A place in the line, from before its reservation is stored until it is released."""

    __slots__ = ("granted", "id", "lost", "news", "stop")

    def __init__(self) -> None:
        self.id: int | None = None
        self.granted = False
        self.lost: str | None = None
        self.news = Wakeup()
        self.stop: Callable[[str], None] | None = None

    def let_in(self) -> None:
        self.granted = True
        self.news.set()

    def lose(self, why: str) -> None:
        """Stops the work of this place, because another call may get it now."""
        self.lost = self.lost or why
        self.news.set()
        stop = self.stop
        if stop is not None:
            stop(why)


class ReservationHolder(WokenLoop):
    """One incarnation.

    Any thread reserves, waits and releases; `tick` grants waiting places.
    """

    name = "reservations"

    def __init__(self, database: Database, terms: HolderConfig, *, resources: Mapping[str, int] | None = None) -> None:
        super().__init__(database.waiter())
        self.database = database
        self.terms = terms
        self.lease = Lease(database, terms, self)
        self.who, self.actor = self.lease.who, self.lease.actor
        # Used only under the claim lock, so by one thread at a time.
        self.lanes = BucketCache(database, resources=resources)
        self.places: dict[int, ReservedPlace] = {}
        self.ends: dict[int, End] = {}
        self.at_work: set[int] = set()
        self.reserving = threading.Lock()
        self.writing = threading.Lock()
        # True while the database may disagree with `places`.
        self.uncertain = False
        self.reconciliation = Reconciliation[ReservedPlace](lambda _: 0)
        self.closing = False
        self.gone = False
        self.settle_at = 0.0
        self.recovery: Recovery | None = None

    # --- life ---

    def open(self) -> None:
        """Registers the incarnation and starts its heartbeat.

        Until that is up, `tick` renews the lease.
        """
        try:
            self.register()
        except BaseException:
            self.waiter.close()
            raise
        self.lease.start_heartbeat()
        self.start()

    def register(self) -> None:
        self.lease.register(self._register)

    def _register(self, tx: Tx) -> None:
        workers.register(tx, self.who, self.actor, slots=1, tasks=[], lease=self.terms.lease, kind="caller")

    def stop_jobs(self, stops: Sequence[object]) -> None:
        """Does nothing: users stop jobs, not reservations."""
        return

    def compare_claims(self, message: dict[str, Any]) -> None:
        if self.reconciliation.differs(message, self.places):
            self._doubt()

    def late_lease(self, late: float, why: str) -> str:
        return f"the lease could not be renewed for {late:.0f} s ({why})"

    def lost_lease(self) -> str:
        self.gone = True
        return "another process recovered this one as lost"

    def stop_work(self, why: str) -> None:
        self.lease.beating.set()  # wakes the callers that wait for it
        for place in list(self.places.values()):
            place.lose(why)

    # --- a place ---

    def reserve(self, place: ReservedPlace, request: ReservationRequest, *, actor: Actor) -> None:
        self.lease.renew_if_late()
        with self.reserving:
            if self.closing or self.gone:
                raise LeaseLost("this process no longer holds reservations", hint="try again")
            try:
                number, granted = self.database.transact("reserve", lambda tx: self._reserve(tx, request, actor))
                place.id = number  # first: after a Ctrl-C from here on, the place can be released
                self.places[number] = place
            except BaseException as error:
                if is_unsure(error):  # it may have been stored, with an id that is unknown here
                    self._doubt()
                raise
        if granted:
            place.let_in()
        if self.lease.abandoned:
            place.lose("the lease was lost")

    def _doubt(self) -> None:
        self.uncertain = True
        self.waiter.wake()

    def _reserve(self, tx: Tx, request: ReservationRequest, actor: Actor) -> tuple[int, bool]:
        if not workers.lives(tx, self.who.id):
            raise LeaseLost("another process recovered this one as lost", hint="try again")
        return direct_reservations.reserve(tx, self.lanes, request, actor, worker_id=self.who.id)

    def wait_for(self, place: ReservedPlace, seconds: float | None, *, what: str) -> None:
        """Waits until the place is granted.

        Raises Busy after `seconds`; None waits for ever.
        """
        if not place.news.is_set():
            self.waiter.wake()
            wait_in_steps(place.news, seconds)
        if place.lost is not None:
            raise LeaseLost(f"{what} lost its reservation ({place.lost})", hint="try again")
        if not place.granted:
            assert seconds is not None
            text = f"{what} got no slot within {duration_text(seconds)}: try again later, or wait longer"
            raise Busy(text, retry_after=max(1, min(MOST_RETRY_AFTER, round(seconds))))

    def wait_for_beat(self) -> None:
        """Waits until the heartbeat process, which no work can starve, renews the lease."""
        wait_in_steps(self.lease.beating, BEAT_SECONDS)
        if not self.lease.beating.is_set():
            text = f"the heartbeat of this process did not start within {duration_text(BEAT_SECONDS)}: try again later"
            raise Busy(text, retry_after=MOST_RETRY_AFTER)

    def begin(self, place: ReservedPlace, stop: Callable[[str], None]) -> None:
        """Marks the start of the work.

        If the lease is lost, `stop` is called with the reason.
        """
        assert place.id is not None
        self.wait_for_beat()
        self.at_work.add(place.id)
        place.stop = stop
        if place.lost is not None:
            stop(place.lost)

    def finish(self, place: ReservedPlace) -> None:
        """Marks the end of the work."""
        assert place.id is not None
        self.at_work.discard(place.id)
        self.lease.say_stopped()

    def release(self, place: ReservedPlace, end: End) -> None:
        """Releases the place now; if the database is unreachable, as soon as it is back."""
        self.release_soon(place, end)
        self.write_ends()

    def write_ends(self) -> None:
        try:
            self._write_ends()
        except Unreachable as error:
            log.warning("a reservation could not be released yet: %s", error)

    def release_soon(self, place: ReservedPlace, end: End) -> None:
        """Releases the place without waiting for the transaction."""
        if place.id is not None:
            self.ends[place.id] = end
            self.waiter.wake()

    # --- state of the places ---

    def tick(self) -> float:
        beating = self.lease.beating.is_set()
        if not beating:
            self.lease.renew_if_late()
        self._write_ends()
        if self.uncertain:
            self._read_back()
        delay = SETTLE_SECONDS if self._look_after_waiting() else IDLE_SECONDS
        return delay if beating else min(delay, self.terms.lease / 6)

    def _look_after_waiting(self) -> bool:
        # The list is taken before the read: a place reserved meanwhile may be missing from the result.
        waiting = [place for place in list(self.places.values()) if not place.news.is_set()]
        if waiting:
            self._recover_meanwhile()
            active = {reservation.id: reservation for reservation in self._look()}
            for place in waiting:
                self._judge(place, active)
        return bool(waiting)

    def _recover_meanwhile(self) -> None:
        """Starts recovery in this process while places wait.

        A dead process may hold the lanes, and there may be no worker to recover it.
        """
        if self.recovery is None and self.thread is not None:
            self.recovery = Recovery(self.database, interval=self.terms.recovery_interval)
            self.recovery.own = self.lease.renew
            self.recovery.start()

    def _look(self) -> list[Active]:
        if time.monotonic() >= self.settle_at:
            self.settle_at = time.monotonic() + SETTLE_SECONDS
            return self.database.transact("grant", lambda tx: direct_reservations.settle(tx, self.lanes))
        with self.database.read() as tx:
            return reservations.active(tx)

    def _judge(self, place: ReservedPlace, active: Mapping[int, Active]) -> None:
        found = active.get(place.id or 0)
        if found is None:
            place.lose("another process ended the reservation")
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
        direct_reservations.end(tx, self.lanes, ends, self.actor)

    def _read_back(self) -> None:
        """Ends reservations that are unknown here, and places that another process ended.

        The claim lock makes the result final: a transaction with a broken connection holds it until its commit is
        decided.
        """
        with self.reserving, self.writing:
            ours = self.database.transact("release_reservation", self._end_strays)
            self.uncertain = False
            lost = [place for number, place in self.places.items() if number not in ours and number not in self.ends]
        for place in lost:
            place.lose("another process ended the reservation")

    def _end_strays(self, tx: Tx) -> set[int]:
        """Ends stored reservations that have no place here. Returns all stored ids."""
        ours = set(direct_reservations.held_by(tx, self.who.id))
        strays = ours - self.places.keys()
        if strays:
            self._end(tx, dict.fromkeys(strays, LOST))
        return ours

    # --- the end ---

    def leave(self) -> None:
        """Refuses new places, stops running work, and waits until all places are released."""
        with self.reserving:
            self.closing = True
        self.lease.abandon("this process is shutting down")
        deadline = time.monotonic() + LEAVE_SECONDS
        while self.places and time.monotonic() < deadline:
            time.sleep(0.005)

    def close(self) -> None:
        """Stops the loops and deregisters, after `leave`.

        Recovery releases the places that are left.
        """
        for loop in (self, self.recovery):
            if loop is not None:
                loop.stop()
                loop.join(LEAVE_SECONDS)
        self.lease.stop_heartbeat()
        self.waiter.close()
        try:
            self._write_ends()
            if self.uncertain:
                self._read_back()
            if not self.places:
                self.lease.deregister("done")
        except HeadwayError as error:
            log.warning("could not deregister: %s; recovery will clean up", error)
