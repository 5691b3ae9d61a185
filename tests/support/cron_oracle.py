"""What cron should do, the slow way: every UTC minute of a year is looked at through `zoneinfo`.

Shares no code with the product: it has a reader of its own, plain sets, and no idea of offsets or transitions.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache, lru_cache
from itertools import compress, repeat
from zoneinfo import ZoneInfo

MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()  # noqa: SIM905
WEEKDAYS = "sun mon tue wed thu fri sat".split()  # noqa: SIM905
BEFORE = 3  # days before the year, so that clocks put back in them are known


def read(text: str, low: int, high: int, names: list[str] | None = None) -> set[int]:
    def number(word: str) -> int:
        return names.index(word) + low if names and word in names else int(word)

    found: set[int] = set()
    for term in text.lower().split(","):
        span, _, step = term.partition("/")
        if span == "*":
            first, last = low, high
        else:
            head, _, tail = span.partition("-")
            first, last = number(head), number(tail or head)
            if last < first:
                last = 7  # fri-sun
        found |= set(range(first, last + 1, int(step or 1)))
    return found


@dataclass(frozen=True)
class Expression:
    """The fields as sets, and the two rules that depend on how a field is written."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    both: bool
    elapsed: bool

    @staticmethod
    def of(text: str) -> Expression:
        minute, hour, day, month, weekday = text.split()
        return Expression(
            frozenset(read(minute, 0, 59)),
            frozenset(read(hour, 0, 23)),
            frozenset(read(day, 1, 31)),
            frozenset(read(month, 1, 12, MONTHS)),
            frozenset(number % 7 for number in read(weekday, 0, 6, WEEKDAYS)),
            day[0] == "*" or weekday[0] == "*",
            "*" in hour or "/" in hour,
        )

    def on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        answers = [day.day in self.days, day.isoweekday() % 7 in self.weekdays]
        return all(answers) if self.both else any(answers)

    def at(self, minute_of_day: int) -> bool:
        return minute_of_day // 60 in self.hours and minute_of_day % 60 in self.minutes


class Year:
    """One zone in one year of UTC. Wall-clock minutes are counted from the first one seen, days being 1440 of them."""

    def __init__(self, zone: str, year: int) -> None:
        begin = datetime(year, 1, 1, tzinfo=UTC) - timedelta(days=BEFORE)
        self.first = int(begin.timestamp()) // 60
        self.begin = self.first + BEFORE * 1440
        self.end = int(datetime(year + 1, 1, 1, tzinfo=UTC).timestamp()) // 60
        seconds = range(self.first * 60, self.end * 60, 60)
        shown = map(datetime.fromtimestamp, seconds, repeat(ZoneInfo(zone)))
        walls = array("i", [local.toordinal() * 1440 + local.hour * 60 + local.minute for local in shown])
        self.low, self.high = min(walls), max(walls)
        self.walls = array("i", (wall - self.low for wall in walls))
        self.places = self._places()

    def _places(self) -> array[int]:
        """For each wall-clock minute the UTC minute in which it comes first, or that ends the gap it fell into."""
        places = array("i")
        for minute, wall in enumerate(self.walls, self.first):
            while len(places) <= wall:
                places.append(minute)
        return places

    def ticks(self, expression: Expression) -> list[int]:
        """Microseconds UTC."""
        wanted = _wanted(expression, self.low, self.high)
        if expression.elapsed:
            minutes = list(compress(range(self.first, self.end), map(wanted.__getitem__, self.walls)))
        else:
            minutes = sorted({self.places[found.start()] for found in re.finditer(b"\1", wanted)})
        return [minute * 60_000_000 for minute in minutes if minute >= self.begin]


@lru_cache(maxsize=64)
def _wanted(expression: Expression, low: int, high: int) -> bytes:
    """One byte for every wall-clock minute: whether the expression names it."""
    day = bytes(expression.at(minute) for minute in range(1440))
    days = range(low // 1440, high // 1440 + 1)
    every = b"".join(day if expression.on(date.fromordinal(number)) else bytes(1440) for number in days)
    return every[low % 1440 : low % 1440 + high - low + 1]


@cache
def year_of(zone: str, year: int) -> Year:
    return Year(zone, year)
