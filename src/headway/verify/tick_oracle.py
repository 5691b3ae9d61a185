"""Computes when a schedule should fire, without the scheduler's own calendar.

The checker must not trust the code that it checks, so cron expressions have a second, small parser here. Local times
are mapped to instants day by day. Days without a clock change are counted, not listed, so that a year of a schedule
that fires every minute is cheap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Any, Protocol
from zoneinfo import ZoneInfo

SECOND = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
MIDNIGHT, NOON = time(0), time(12)
NEVER = 2**63 - 1

MONTHS = {
    "jan": 1,
    "feb": 2,
    "mar": 3,
    "apr": 4,
    "may": 5,
    "jun": 6,
    "jul": 7,
    "aug": 8,
    "sep": 9,
    "oct": 10,
    "nov": 11,
    "dec": 12,
}
WEEKDAYS = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
SHORTHANDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class Clockwork(Protocol):
    """The nominal times of a definition, in microseconds UTC."""

    def count(self, after: int, until: int) -> int:
        """Counts the nominal times after one instant, up to and including another."""
        ...

    def first(self, after: int, until: int) -> int | None:
        """Returns the first nominal time in that span; None if there is none."""
        ...


def is_tick(clockwork: Clockwork, at: int) -> bool:
    return clockwork.count(at - 1, at) == 1


# --- intervals and given times ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Every:
    """The nominal times of an interval: the anchor, and every interval after it."""

    anchor: int
    interval: int

    def _before(self, at: int) -> int:
        """Counts the nominal times up to an instant."""
        return max(0, (at - self.anchor) // self.interval + 1)

    def count(self, after: int, until: int) -> int:
        return max(0, self._before(until) - self._before(after))

    def first(self, after: int, until: int) -> int | None:
        first = self.anchor + self._before(after) * self.interval
        return first if first <= until else None


@dataclass(frozen=True, slots=True)
class Times:
    at: tuple[int, ...]

    def count(self, after: int, until: int) -> int:
        return len(_between(self.at, after, until))

    def first(self, after: int, until: int) -> int | None:
        times = _between(self.at, after, until)
        return times[0] if times else None


# --- cron ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fields:
    """The minutes of a day that match, and the days that match.

    `elapsed`: the hour has a star or a step, so elapsed time counts and not the local clock.
    """

    minutes: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    both: bool
    elapsed: bool

    def on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (in_month and in_week) if self.both else (in_month or in_week)


@lru_cache(maxsize=1024)
def parse(text: str) -> Fields:
    """Parses a cron expression by Vixie's rules.

    Raises ValueError for any other text.
    """
    parts = SHORTHANDS.get(text.strip().lower(), text).lower().split()
    if len(parts) != 5:
        raise ValueError(f"{text!r} has {len(parts)} fields")
    minute, hour, day, month, weekday = parts
    hours = sorted(_field(hour, 0, 23, {}))
    minutes = sorted(_field(minute, 0, 59, {}))
    return Fields(
        minutes=tuple(60 * h + m for h in hours for m in minutes),
        days=frozenset(_field(day, 1, 31, {})),
        months=frozenset(_field(month, 1, 12, MONTHS)),
        weekdays=frozenset(n % 7 for n in _field(weekday, 0, 7, WEEKDAYS)),
        # A day field that begins with a star does not restrict. Two fields that restrict are alternatives.
        both=day.startswith("*") or weekday.startswith("*"),
        elapsed="*" in hour or "/" in hour,
    )


def _field(text: str, low: int, high: int, words: dict[str, int]) -> set[int]:
    values: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        if span == "*":
            first, last = low, high
        else:
            begin, dash, end = span.partition("-")
            first = _number(begin, words)
            last = _number(end, words) if dash else high if slash else first
            # Sunday is 0 or 7, so a range of weekdays may end with it.
            last = 7 if words is WEEKDAYS and last == 0 < first else last
        if not low <= first <= last <= high:
            raise ValueError(f"{part!r} is not within {low} to {high}")
        values.update(range(first, last + 1, int(step) if slash else 1))
    return values


def _number(text: str, words: dict[str, int]) -> int:
    return words[text] if text in words else int(text)


class Cron:
    """The nominal times of a cron expression.

    Caches the last days, which the checks ask for repeatedly.
    """

    def __init__(self, text: str, zone: str) -> None:
        self.fields = parse(text)
        self.zone = ZoneInfo(zone)
        self.even: dict[date, bool] = {}
        self.listed: dict[date, list[int]] = {}
        self.at_hand: list[int] = [0]

    def count(self, after: int, until: int) -> int:
        if until <= after:
            return 0
        whole, edges = 0, set[int]()
        for day in self._days(after, until):
            if self._ordinary(day) and after < self._midnight(day) and self._midnight(day + DAY) <= until:
                whole += len(self.fields.minutes)
            else:
                edges.update(_between(self._list(day), after, until))
        return whole + len(edges)

    def first(self, after: int, until: int) -> int | None:
        if self.at_hand[0] <= after < self.at_hand[-1]:
            found = self.at_hand[bisect_right(self.at_hand, after)]
        else:
            found = self._search(after, until)
        return found if found <= until else None

    def _search(self, after: int, until: int) -> int:
        found = NEVER
        for day in self._days(after, until):
            # A time that a DST gap moves may come after the first time of the next day.
            if found < NEVER and self._ordinary(day):
                break
            if self._ordinary(day):
                self.at_hand = self._list(day)
            found = min(found, *_between(self._list(day), after, until)[:1], NEVER)
        return found

    def _days(self, after: int, until: int) -> Iterator[date]:
        """Yields the days that match."""
        day, last = self._local(after) - DAY, self._local(until) + DAY
        while day <= last:
            if self.fields.on(day):
                yield day
            day += DAY

    def _local(self, at: int) -> date:
        return (EPOCH + timedelta(microseconds=at)).astimezone(self.zone).date()

    def _ordinary(self, day: date) -> bool:
        """Returns True if the local clock does not change on this day or the day before."""
        return self._is_even(day) and self._is_even(day - DAY)

    def _is_even(self, day: date) -> bool:
        if day not in self.even:
            _make_room(self.even, 1000)
            noon = datetime.combine(day, NOON, self.zone)
            ends = [datetime.combine(end, MIDNIGHT, self.zone) for end in (day, day + DAY)]
            offsets = {when.replace(fold=fold).utcoffset() for when in (*ends, noon) for fold in (0, 1)}
            self.even[day] = len(offsets) == 1
        return self.even[day]

    def _list(self, day: date) -> list[int]:
        if day not in self.listed:
            _make_room(self.listed, 8)
            self.listed[day] = sorted(set(self._instants(day)))
        return self.listed[day]

    def _instants(self, day: date) -> Iterator[int]:
        if self._ordinary(day):
            start = self._midnight(day)
            yield from (start + minute * 60 * SECOND for minute in self.fields.minutes)
        else:
            for minute in self.fields.minutes:
                yield from self._mapped(datetime.combine(day, time(*divmod(minute, 60)), self.zone))

    def _mapped(self, wall: datetime) -> Iterator[int]:
        """Yields the instants of a local time at which the expression fires."""
        first, second = _micros(wall.replace(fold=0)), _micros(wall.replace(fold=1))
        if first == second or (first < second and not self.fields.elapsed):
            yield first
        elif first < second:  # a fold repeats this local time
            yield from (first, second)
        elif not self.fields.elapsed:  # a gap removes this local time
            yield self._change(second, first)

    def _change(self, before: int, after: int) -> int:
        """Returns the first instant whose offset differs from that of `before`."""
        was = self._offset(before)
        seconds = range(before // SECOND, after // SECOND + 1)
        found = bisect_left(seconds, True, key=lambda second: self._offset(second * SECOND) != was)
        return seconds[min(found, len(seconds) - 1)] * SECOND

    def _offset(self, at: int) -> timedelta | None:
        return (EPOCH + timedelta(microseconds=at)).astimezone(self.zone).utcoffset()

    def _midnight(self, day: date) -> int:
        return _micros(datetime.combine(day, MIDNIGHT, self.zone))


def _between(times: Sequence[int], after: int, until: int) -> Sequence[int]:
    return times[bisect_right(times, after) : bisect_right(times, until)]


def _make_room(known: dict[date, Any], most: int) -> None:
    if len(known) >= most:
        known.clear()


def _micros(when: datetime) -> int:
    return (when.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)


@lru_cache(maxsize=1024)
def cron(text: str, zone: str) -> Cron:
    """Returns a shared instance.

    Schedules with the same expression share its cache.
    """
    return Cron(text, zone)


# --- definitions --------------------------------------------------------------------------------------------------


def instant(text: str) -> int:
    return _micros(datetime.fromisoformat(text))


def clockwork(definition: dict[str, Any], created_at: int) -> Clockwork:
    """Returns the nominal times of a definition.

    Raises KeyError, TypeError or ValueError for a bad one.
    """
    if "cron" in definition:
        return cron(definition["cron"], definition.get("timezone", "UTC"))
    if "interval" in definition:
        start = definition.get("start")
        return Every(instant(start) if start else created_at, round(definition["interval"] * SECOND))
    return Times(tuple(sorted(map(instant, definition["times"]))))
