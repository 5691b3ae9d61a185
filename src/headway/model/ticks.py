"""The nominal times of a schedule, and what becomes of each when its time has come. Pure.

A tick is due at its nominal time plus its jitter. Ticks are decided in the order of their nominal times, each once:
it fires, or it is SKIPPED, MISSED or COALESCED. Years of ticks are counted, never listed.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Protocol

from headway.model import cron
from headway.model.cron import Cron
from headway.model.schedule import Definition

# What is decided this much after it was due is on time; what comes later was missed, and is caught up or not.
GRACE = 60_000_000
OVERLAP = "overlap"
OUTSIDE = "outside start and end"
INACTIVE = "tenant inactive"
LIMITED = "tenant limit reached"


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


# --- nominal times ------------------------------------------------------------------------------------------------


class Times(Protocol):
    """Instants in ascending order; `after` is left out, `until` is in."""

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
    """The anchor is the first of them."""

    anchor: int
    step: int

    def _number(self, instant: int) -> int:
        """Of the last one up to an instant; -1 before the first."""
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
    """Those from `start` to `end`, both included."""

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
    """All nominal times, also those outside start and end."""
    if definition.cron is not None:
        return ByCron(_parsed(definition.cron), definition.timezone)
    if definition.interval is not None:
        return ByInterval(anchor, _micros(definition.interval))
    return Listed(definition.times)


def times_of(definition: Definition, anchor: int) -> Times:
    """The nominal times at which it may fire."""
    return Within(every_time(definition, anchor), definition.start, definition.end)


def jitter_of(schedule_id: int, nominal: int, jitter: float) -> int:
    """The same for everybody who asks: taken from the schedule and the tick."""
    if not jitter:
        return 0
    digest = hashlib.sha256(f"{schedule_id}:{nominal}".encode()).digest()
    return int.from_bytes(digest[:8], "big") * _micros(jitter) >> 64


def next_due(definition: Definition, anchor: int, schedule_id: int, after: int) -> int | None:
    """When the first tick after an instant is to be decided."""
    nominal = times_of(definition, anchor).next(after)
    return None if nominal is None else nominal + jitter_of(schedule_id, nominal, definition.jitter)


# --- decisions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TickWish:
    """What becomes of a nominal time, or of neighbours with the same fate: first, last, count.

    One that fires may have to wait for the end of the schedule's last unfinished execution, and may cancel those that
    run.
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
    """All nominal times up to `until` are decided; `next_at` is when the next one is due."""

    until: int
    ticks: tuple[TickWish, ...]
    next_at: int | None


@dataclass(slots=True)
class _Executions:
    """What there is of the schedule while its ticks are decided one after the other."""

    active: bool
    waiting: bool


def decide(
    definition: Definition,
    anchor: int,
    *,
    schedule_id: int,
    decided_until: int,
    now: int,
    active: bool = False,
    waiting: bool = False,
    settle: bool = False,
    inactive: bool = False,
) -> Decision:
    """Decides what has become due. `active`: the schedule has an unfinished execution; `waiting`: one that has not
    begun. With `settle` the jitter is not waited for: everything up to now is decided. `inactive`: its tenant is, so
    nothing fires, nor is anything caught up later."""
    if now <= decided_until:  # the clock was put back: what is decided stays so
        return Decision(decided_until, (), next_due(definition, anchor, schedule_id, decided_until))
    times, before = times_of(definition, anchor), _Executions(active, waiting)
    late_until, on_time, until = _due(definition, times, schedule_id, decided_until, now, settle)
    if inactive:
        found, on_time = _span(times, decided_until, until, "SKIPPED", INACTIVE), []
    elif definition.catch_up == "last" and on_time:  # one that is on time stands for all that were missed
        found = _span(times, decided_until, late_until, "COALESCED")
    else:
        found = _caught_up(definition, times, decided_until, late_until, now, before)
    found += [_one(nominal, definition.overlap, before) for nominal in on_time]
    inside = _shared(found)
    ticks = (*_before_start(definition, anchor, decided_until, until), *inside)
    ticks = (*ticks, *_after_end(definition, anchor, decided_until, until))
    return Decision(until, ticks, next_due(definition, anchor, schedule_id, until))


def _due(
    definition: Definition, times: Times, schedule_id: int, decided_until: int, now: int, settle: bool
) -> tuple[int, list[int], int]:
    """Up to where ticks are late, which are due and on time, and up to where all are due."""
    late_until = max(decided_until, now - GRACE - _micros(definition.jitter) - 1)
    on_time: list[int] = []
    due = 0
    for nominal in times.between(late_until, now):
        # One that waits for its jitter keeps those behind it waiting.
        due = max(due, nominal + jitter_of(schedule_id, nominal, definition.jitter))
        if due > now and not settle:
            return late_until, on_time, nominal - 1
        if now - due > GRACE:
            late_until = nominal
        else:
            on_time.append(nominal)
    return late_until, on_time, now


def _caught_up(
    definition: Definition, times: Times, after: int, until: int, now: int, before: _Executions
) -> list[TickWish]:
    """What becomes of ticks that nobody was there to decide."""
    match definition.catch_up:
        case "none":
            return _span(times, after, until, "MISSED")
        case "last":
            last = times.last(after, until, 1)
            coalesced = _span(times, after, last[0] - 1, "COALESCED") if last else []
            return [*coalesced, *(_one(nominal, definition.overlap, before) for nominal in last)]
    chosen = times.last(max(after, now - _micros(definition.window)), until, definition.cap)
    missed = _span(times, after, chosen[0] - 1 if chosen else until, "MISSED")
    return [*missed, *_chain(chosen, definition.overlap, before)]


def _chain(chosen: Sequence[int], overlap: str, before: _Executions) -> list[TickWish]:
    """One after another, whatever the overlap; the first goes beside what runs only where that is allowed."""
    found = [
        TickWish(nominal, nominal, 1, "FIRED", waits=n > 0 or overlap != "allow") for n, nominal in enumerate(chosen)
    ]
    before.waiting = before.waiting or len(chosen) > 1 or (before.active and bool(chosen))
    before.active = before.active or bool(chosen)
    return found


def _one(nominal: int, overlap: str, before: _Executions) -> TickWish:
    if overlap == "allow" or not before.active:
        before.active = True
        return TickWish(nominal, nominal, 1, "FIRED")
    if overlap == "skip" or before.waiting:
        return TickWish(nominal, nominal, 1, "SKIPPED", OVERLAP)
    before.waiting = True
    return TickWish(nominal, nominal, 1, "FIRED", waits=True, cancels=overlap == "cancel_running")


def _span(times: Times, after: int, until: int, outcome: str, reason: str | None = None) -> list[TickWish]:
    """All of them in one row."""
    count = times.count(after, until)
    first = times.next(after) if count else None
    if first is None:
        return []
    return [TickWish(first, times.last(after, until, 1)[0], count, outcome, reason)]


def _before_start(definition: Definition, anchor: int, after: int, until: int) -> list[TickWish]:
    if definition.start is None or after >= definition.start - 1:
        return []
    return _span(every_time(definition, anchor), after, min(until, definition.start - 1), "SKIPPED", OUTSIDE)


def _after_end(definition: Definition, anchor: int, after: int, until: int) -> list[TickWish]:
    if definition.end is None or until <= definition.end:
        return []
    return _span(every_time(definition, anchor), max(after, definition.end), until, "SKIPPED", OUTSIDE)


def _shared(wishes: Sequence[TickWish]) -> list[TickWish]:
    """Neighbours with the same fate share a row; one that fires has its own."""
    found: list[TickWish] = []
    for (outcome, reason), group in groupby(wishes, key=lambda one: (one.outcome, one.reason)):
        some = list(group)
        if outcome == "FIRED":
            found += some
        else:
            count = sum(one.count for one in some)
            found.append(TickWish(some[0].nominal_at, some[-1].until, count, outcome, reason))
    return found
