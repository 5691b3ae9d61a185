"""The scheduler's loop: finds due schedules, decides their ticks and fires them.

Several schedulers may run: the first to lock a schedule decides it, the others skip it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from headway.clock import SECOND
from headway.engine.loop import WokenLoop
from headway.engine.scheduler.fire import Ready, fire, ready
from headway.errors import BadInput
from headway.model.schedules.schedule import Schedule
from headway.model.schedules.ticks import MISSED, next_due
from headway.store.db import Tx
from headway.store.schedules import schedules
from headway.store.schedules.schedules import NewTick
from headway.text.schedules import missed_words, skipped_words

if TYPE_CHECKING:
    from headway.engine.client.client import Client

log = logging.getLogger("headway")
# Schedules per transaction. Few, so that workers can commit in between.
BATCH = 25
# Longest delay between two polls. A clock may step forward, and a notification may be lost.
LONGEST = 30.0
# Shortest delay between two polls, because every commit may wake the scheduler.
SHORTEST = 1.0
# Delay while another scheduler has locked the due schedules.
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
        """True if this version of Headway can parse the schedule.

        Headway versions and time zone data may differ between processes.
        """
        known = (schedule.id, schedule.version)
        if known not in self.unreadable:
            try:
                schedule.parsed  # noqa: B018
            except BadInput as error:
                log.warning("schedule %s cannot be read here: %s", schedule.name, error)
                self.unreadable.add(known)
        return known not in self.unreadable

    def _fire(self, batch: list[Ready]) -> int:
        """Fires a batch. Returns the number of locked schedules."""
        known = {prepared.schedule.id: prepared for prepared in batch}

        def work(tx: Tx) -> tuple[int, list[NewTick]]:
            tx.run("pin_plans")
            locked = schedules.lock_due(tx, list(known))
            now = tx.now()
            same = [_as_locked(known[schedule.id], schedule) for schedule in locked]
            fresh = [prepared for prepared in same if prepared is not None]
            return len(locked), fire(tx, fresh, now=int(now))

        locked, decided = self.database.transact("fire", work)
        _tell(decided, {number: prepared.schedule.name for number, prepared in known.items()})
        return locked

    def _wake_silent(self) -> None:
        """Computes the next time of enabled schedules that have none.

        The calendar of their time zone may have changed.
        """
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


def _tell(decided: Sequence[NewTick], names: Mapping[int, str]) -> None:
    """Logs the ticks that did not fire: missed ones as one line per schedule, each skipped one."""
    missed: Counter[int] = Counter()
    for tick in decided:
        if tick.outcome in MISSED:
            missed[tick.schedule_id] += tick.times
        elif tick.outcome == "SKIPPED":
            log.info(
                "schedule %s: %s", names[tick.schedule_id], skipped_words(tick.nominal_at, tick.times, tick.reason)
            )
    for number, count in missed.items():
        log.warning("%s", missed_words(names[number], count))


def _as_locked(prepared: Ready, schedule: Schedule) -> Ready | None:
    """Returns the prepared schedule as locked; None if it was edited since.

    An edited schedule is decided in the next tick.
    """
    if schedule.version != prepared.schedule.version:
        return None
    return replace(prepared, schedule=schedule)
