"""The nominal times of a schedule, and the decision about each. Pure.

A tick is due at its nominal time plus its jitter. Ticks are decided in the order of their nominal times, each once:
FIRED, SKIPPED, MISSED or COALESCED. Long spans of ticks are counted, never listed.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from math import inf
from typing import Protocol

from headway.model.schedules import cron
from headway.model.schedules.cron import Cron
from headway.model.schedules.definition import Definition

# By default a tick decided within this time after it was due is on time, if its schedule does not fire again so soon:
# see `tolerance`. A later one falls under catch-up.
TOLERANCE = 60_000_000
OVERLAP = "overlap"
OUTSIDE = "outside start and end"
INACTIVE = "tenant inactive"
LIMITED = "tenant limit reached"
# The outcomes of a tick that was late and did not fire: not made up for, or a later one fired for it.
MISSED = ("MISSED", "COALESCED")


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


# --- nominal times ------------------------------------------------------------------------------------------------


class Times(Protocol):
    """Nominal times in ascending order; `after` is exclusive, `until` is inclusive."""

    def between(self, after: int, until: int) -> Iterator[int]: ...
    def count(self, after: int, until: int) -> int: ...
    def last(self, after: int, until: int, most: int) -> list[int]: ...
    def next(self, after: int) -> int | None: ...


@dataclass(frozen=True, slots=True)
class ByCron:
    expression: Cron
    zone: str

    def between(self, after: int, until: int) -> Iterator[int]:
        return cron.ticks(self.expression, self.zone, after, until)

    def count(self, after: int, until: int) -> int:
        return cron.count(self.expression, self.zone, after, until)

    def last(self, after: int, until: int, most: int) -> list[int]:
        return cron.last_ticks(self.expression, self.zone, after, until, most)

    def next(self, after: int) -> int | None:
        return cron.next_tick(self.expression, self.zone, after)


@dataclass(frozen=True, slots=True)
class ByInterval:
    """Times at a fixed interval. The anchor is the first one."""

    anchor: int
    step: int

    def _number(self, instant: int) -> int:
        """Returns the number of the last time up to an instant; -1 before the first."""
        return max(-1, (instant - self.anchor) // self.step)

    def between(self, after: int, until: int) -> Iterator[int]:
        numbers = range(self._number(after) + 1, self._number(until) + 1)
        return (self.anchor + number * self.step for number in numbers)

    def count(self, after: int, until: int) -> int:
        return max(0, self._number(until) - self._number(after))

    def last(self, after: int, until: int, most: int) -> list[int]:
        numbers = range(self._number(after) + 1, self._number(until) + 1)[-most:]
        return [self.anchor + number * self.step for number in numbers]

    def next(self, after: int) -> int | None:
        found = self.anchor + (self._number(after) + 1) * self.step
        return found if found <= cron.LATEST else None


@dataclass(frozen=True, slots=True)
class Listed:
    times: tuple[int, ...]

    def _some(self, after: int, until: int) -> tuple[int, ...]:
        return self.times[bisect_right(self.times, after) : bisect_right(self.times, until)]

    def between(self, after: int, until: int) -> Iterator[int]:
        return iter(self._some(after, until))

    def count(self, after: int, until: int) -> int:
        return len(self._some(after, until))

    def last(self, after: int, until: int, most: int) -> list[int]:
        return list(self._some(after, until)[-most:])

    def next(self, after: int) -> int | None:
        later = self.times[bisect_right(self.times, after) :]
        return later[0] if later else None


@dataclass(frozen=True, slots=True)
class Within:
    """Limits times to those from `start` to `end`, both inclusive."""

    times: Times
    start: int | None
    end: int | None

    def _clip(self, after: int, until: int) -> tuple[int, int]:
        after = after if self.start is None else max(after, self.start - 1)
        until = until if self.end is None else min(until, self.end)
        return after, max(after, until)

    def between(self, after: int, until: int) -> Iterator[int]:
        return self.times.between(*self._clip(after, until))

    def count(self, after: int, until: int) -> int:
        return self.times.count(*self._clip(after, until))

    def last(self, after: int, until: int, most: int) -> list[int]:
        return self.times.last(*self._clip(after, until), most)

    def next(self, after: int) -> int | None:
        found = self.times.next(self._clip(after, after)[0])
        return None if found is None or (self.end is not None and found > self.end) else found


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Cron:
    return cron.parse(text)


def every_time(definition: Definition, anchor: int) -> Times:
    """Returns all nominal times, including those outside start and end."""
    if definition.cron is not None:
        return ByCron(_parsed(definition.cron), definition.timezone)
    if definition.interval is not None:
        return ByInterval(anchor, _micros(definition.interval))
    return Listed(definition.times)


def times_of(definition: Definition, anchor: int) -> Times:
    """Returns the nominal times between start and end, at which the schedule may fire."""
    return Within(every_time(definition, anchor), definition.start, definition.end)


def jitter_of(schedule_id: int, nominal: int, jitter: float) -> int:
    """Returns the jitter of a tick, derived from schedule and tick so that every process agrees."""
    if not jitter:
        return 0
    digest = hashlib.sha256(f"{schedule_id}:{nominal}".encode()).digest()
    return int.from_bytes(digest[:8], "big") * _micros(jitter) >> 64


def tolerance(times: Times, nominal: int, most: int = TOLERANCE) -> int:
    """Returns how late a tick may be decided and still be on time: at most half the time to the next tick."""
    following = times.next(nominal)
    return most if following is None else min(most, (following - nominal) // 2)


def was_late(definition: Definition, anchor: int, nominal: int, decided_at: int, most: int = TOLERANCE) -> bool:
    """Returns True if a tick that was decided then had certainly been missed before."""
    late = decided_at - nominal - _micros(definition.jitter)
    return late > 0 and late > tolerance(times_of(definition, anchor), nominal, most)


def next_due(definition: Definition, anchor: int, schedule_id: int, after: int) -> int | None:
    """Returns when the first tick after an instant is due; None if there is no further tick."""
    nominal = times_of(definition, anchor).next(after)
    return None if nominal is None else nominal + jitter_of(schedule_id, nominal, definition.jitter)


# --- decisions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlannedTick:
    """The decision about a nominal time, or about neighbours with the same decision (first, last, count).

    `waits` means that the execution starts after the schedule's last unfinished one, `cancels` that it cancels the
    running ones.
    """

    nominal_at: int
    until: int
    count: int
    outcome: str
    reason: str | None = None
    waits: bool = False
    cancels: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """The decisions about all nominal times up to `until`; `next_at` is when the next one is due."""

    until: int
    ticks: tuple[PlannedTick, ...]
    next_at: int | None


@dataclass(slots=True)
class _Executions:
    """The schedule's executions, updated while its ticks are decided one after another.

    `room` is how many ticks that are on time may join the line of a catch-up; 0 while no catch-up is under way.
    """

    active: bool
    waiting: bool
    room: float = 0


def decide(
    definition: Definition,
    anchor: int,
    *,
    schedule_id: int,
    decided_until: int,
    now: int,
    active: bool = False,
    waiting: bool = False,
    line: int = 0,
    settle: bool = False,
    inactive: bool = False,
    most: int = TOLERANCE,
) -> Decision:
    """Decides all ticks that are due.

    `active` means that the schedule has an unfinished execution, `waiting` that one has not started. `line` is how many
    are unfinished while a catch-up is under way, otherwise 0. `settle` ignores jitter and decides everything up to now.
    `inactive` means that the tenant is inactive: no tick fires, and none is caught up later. `most` is how late a tick
    may be and still be on time.
    """
    if now <= decided_until:  # the clock stepped back; decided ticks stay decided
        return Decision(decided_until, (), next_due(definition, anchor, schedule_id, decided_until))
    times, before = times_of(definition, anchor), _Executions(active, waiting)
    if line and definition.catch_up == "all":
        before.room = definition.cap - line
    late_until, on_time, until = _due(definition, times, schedule_id, decided_until, now, settle, most)
    if inactive:
        found, on_time = _span(times, decided_until, until, "SKIPPED", INACTIVE), []
    elif definition.catch_up == "last" and on_time:  # a tick that is on time replaces all missed ones
        found = _span(times, decided_until, late_until, "COALESCED")
    else:
        found = _caught_up(definition, times, decided_until, late_until, now, before)
    found += [_one(nominal, definition.overlap, before) for nominal in on_time]
    inside = _shared(found)
    ticks = (*_before_start(definition, anchor, decided_until, until), *inside)
    ticks = (*ticks, *_after_end(definition, anchor, decided_until, until))
    return Decision(until, ticks, next_due(definition, anchor, schedule_id, until))


def _due(
    definition: Definition, times: Times, schedule_id: int, decided_until: int, now: int, settle: bool, most: int
) -> tuple[int, list[int], int]:
    """Returns the end of the late ticks, the ticks that are due and on time, and the end of all due ticks."""
    late_until = max(decided_until, now - most - _micros(definition.jitter) - 1)
    on_time: list[int] = []
    due = 0
    for nominal in times.between(late_until, now):
        # Ticks are decided in order, so a tick that waits for its jitter delays those after it.
        due = max(due, nominal + jitter_of(schedule_id, nominal, definition.jitter))
        if due > now and not settle:
            return late_until, on_time, nominal - 1
        if now - due > tolerance(times, nominal, most):
            late_until = nominal
        else:
            on_time.append(nominal)
    return late_until, on_time, now


def _caught_up(
    definition: Definition, times: Times, after: int, until: int, now: int, before: _Executions
) -> list[PlannedTick]:
    """Decides ticks that came while no scheduler ran."""
    match definition.catch_up:
        case "none":
            return _span(times, after, until, "MISSED")
        case "last":
            last = times.last(after, until, 1)
            coalesced = _span(times, after, last[0] - 1, "COALESCED") if last else []
            return [*coalesced, *(_one(nominal, definition.overlap, before) for nominal in last)]
    chosen = times.last(max(after, now - _micros(definition.window)), until, definition.cap)
    missed = _span(times, after, chosen[0] - 1 if chosen else until, "MISSED")
    if chosen:
        before.room = inf  # those on time come right behind them
    return [*missed, *_chain(chosen, definition.overlap, before)]


def _chain(chosen: Sequence[int], overlap: str, before: _Executions) -> list[PlannedTick]:
    """Fires caught-up ticks one after another; only with `allow` does the first start beside running ones."""
    found = [
        PlannedTick(nominal, nominal, 1, "FIRED", waits=n > 0 or overlap != "allow") for n, nominal in enumerate(chosen)
    ]
    before.waiting = before.waiting or len(chosen) > 1 or (before.active and bool(chosen))
    before.active = before.active or bool(chosen)
    return found


def _one(nominal: int, overlap: str, before: _Executions) -> PlannedTick:
    if overlap == "allow" or not before.active:
        before.active = True
        return PlannedTick(nominal, nominal, 1, "FIRED")
    if before.room > 0:
        before.room -= 1
        before.waiting = True
        return PlannedTick(nominal, nominal, 1, "FIRED", waits=True)
    if overlap == "skip" or before.waiting:
        return PlannedTick(nominal, nominal, 1, "SKIPPED", OVERLAP)
    before.waiting = True
    return PlannedTick(nominal, nominal, 1, "FIRED", waits=True, cancels=overlap == "cancel_running")


def _span(times: Times, after: int, until: int, outcome: str, reason: str | None = None) -> list[PlannedTick]:
    """Returns one decision for all ticks of a span."""
    count = times.count(after, until)
    first = times.next(after) if count else None
    if first is None:
        return []
    return [PlannedTick(first, times.last(after, until, 1)[0], count, outcome, reason)]


def _before_start(definition: Definition, anchor: int, after: int, until: int) -> list[PlannedTick]:
    if definition.start is None or after >= definition.start - 1:
        return []
    return _span(every_time(definition, anchor), after, min(until, definition.start - 1), "SKIPPED", OUTSIDE)


def _after_end(definition: Definition, anchor: int, after: int, until: int) -> list[PlannedTick]:
    if definition.end is None or until <= definition.end:
        return []
    return _span(every_time(definition, anchor), max(after, definition.end), until, "SKIPPED", OUTSIDE)


def _shared(ticks: Sequence[PlannedTick]) -> list[PlannedTick]:
    """Merges neighbours with the same decision into one row; a fired tick keeps its own row."""
    found: list[PlannedTick] = []
    for (outcome, reason), group in groupby(ticks, key=lambda tick: (tick.outcome, tick.reason)):
        some = list(group)
        if outcome == "FIRED":
            found += some
        else:
            count = sum(tick.count for tick in some)
            found.append(PlannedTick(some[0].nominal_at, some[-1].until, count, outcome, reason))
    return found
