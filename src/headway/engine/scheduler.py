"""The scheduler's loop: finds the schedules that are due, decides their ticks and starts what fires.

Any number of them may run: who locks a schedule first decides, the others pass it by.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from headway.clock import SECOND
from headway.engine.firing import Ready, fire, ready
from headway.engine.loop import WokenLoop
from headway.errors import BadInput
from headway.model.schedule import Schedule
from headway.model.ticks import next_due
from headway.store import schedules
from headway.store.db import Tx

if TYPE_CHECKING:
    from headway.engine.client import Client

log = logging.getLogger("headway")
# Schedules in one transaction: few, so that workers get in between.
BATCH = 25
# Nobody has to wake us: a clock may be put forward, a notification be lost.
LONGEST = 30.0
# Every commit of anybody may wake us; we look at most this often.
SHORTEST = 1.0
# Others have in hand what is due.
ASIDE = 0.05


class Scheduler(WokenLoop):
    name = "scheduler"

    def __init__(self, client: Client) -> None:
        super().__init__(client.database.waiter())
        self.client = client
        self.database = client.database
        self.began = False
        self.unreadable: set[tuple[int, int]] = set()

    def tick(self) -> float:
        if not self.began:
            self._wake_silent()
            self.began = True
        with self.database.read() as tx:
            now, next_at = schedules.next_due(tx)
            if next_at is None:
                return LONGEST
            if next_at > now:
                return min(LONGEST, (next_at - now) / SECOND)
            due = schedules.due(tx, BATCH + len(self.unreadable))
        found = [schedule for schedule in due if self._readable(schedule)]
        if not found:
            return SHORTEST
        decided = self._fire([ready(self.client, schedule) for schedule in found])
        return 0.0 if decided else ASIDE

    def _readable(self, schedule: Schedule) -> bool:
        """One that only another version of Headway, or of the time zones, can read is left to it."""
        known = (schedule.id, schedule.version)
        if known not in self.unreadable:
            try:
                schedule.parsed  # noqa: B018
            except BadInput as error:
                log.warning("schedule %s cannot be read here: %s", schedule.name, error)
                self.unreadable.add(known)
        return known not in self.unreadable

    def _fire(self, batch: list[Ready]) -> int:
        """How many schedules were decided."""
        known = {one.schedule.id: one for one in batch}

        def work(tx: Tx) -> int:
            tx.run("pin_plans")
            locked = schedules.lock_due(tx, list(known))
            ((now,),) = tx.run("time")
            same = [_as_locked(known[schedule.id], schedule) for schedule in locked]
            fresh = [one for one in same if one is not None]
            fire(tx, fresh, now=int(now))
            return len(locked)

        return self.database.transact("fire", work)

    def _wake_silent(self) -> None:
        """A schedule that is to fire again and does not know when: the calendar of its zone may have changed."""
        with self.database.read() as tx:
            found = schedules.silent(tx)
        for schedule in filter(self._readable, found):
            next_at = next_due(schedule.parsed, schedule.anchor, schedule.id, schedule.decided_until)
            if next_at is not None:
                self.database.transact(
                    "wake_schedule", partial(schedules.speak_again, schedule=schedule, next_at=next_at)
                )

    def wait(self, seconds: float) -> None:
        if seconds > SHORTEST:
            self.ended.wait(SHORTEST)
            super().wait(0.0 if self.ended.is_set() else seconds - SHORTEST)
        else:
            self.ended.wait(seconds)


def _as_locked(one: Ready, schedule: Schedule) -> Ready | None:
    """What was worked out holds for the schedule as it was read; one that was edited since has its turn next."""
    if schedule.version != one.schedule.version:
        return None
    return Ready(schedule, one.definition, one.placed, one.problem)
