"""Computes cron ticks: the instants of an expression in a time zone.

The expression is matched on the wall clock; `timezones` maps the zone's clock changes. A tick is an integer number of
microseconds UTC; there are none before 1970.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from calendar import isleap
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

from headway.model.schedules.cron_parser import Cron, parse
from headway.model.schedules.timezones import DAY, LAST_YEAR, Stretch, check_zone, first_second, stretches

__all__ = [
    "LATEST",
    "Cron",
    "check_zone",
    "count",
    "last_ticks",
    "next_tick",
    "note_of_tick",
    "notes",
    "parse",
    "previous_tick",
    "shortest_gap",
    "ticks",
]

SECOND = 1_000_000
# The last instant that a schedule can have.
LATEST = first_second(LAST_YEAR + 1) * SECOND - 1
# 29 February meets a given weekday at least every 40 years; doubled, in case a zone skipped that very day.
SEARCH = 81 * 366 * DAY * SECOND

_EPOCH = date(1970, 1, 1).toordinal()
_YEARS = range(2000, 2028)  # a leap year and an ordinary one begin on every weekday in 28 years

# --- the calendar of the wall clock -------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _days_of_year(
    days: tuple[int, ...], months: tuple[int, ...], weekdays: tuple[int, ...], both: bool, leap: bool, weekday: int
) -> tuple[int, ...]:
    """Returns the matching days of a year that begins on this weekday, counted from its first day.

    The two days before the year and the two after it are counted too, as they overlap the year in some time zone.
    """
    first = next(date(year, 1, 1) for year in _YEARS if isleap(year) == leap and date(year, 1, 1).weekday() == weekday)
    found = []
    for number in range(-2, 365 + leap + 2):
        day = first + timedelta(number)
        in_month, in_week = day.day in days, day.weekday() in weekdays
        if day.month in months and ((in_month and in_week) if both else (in_month or in_week)):
            found.append(number)
    return tuple(found)


def _year(cron: Cron, year: int) -> tuple[int, tuple[int, ...]]:
    """Returns the first day of a year, counted from 1970, and its matching days."""
    first = date(year, 1, 1)
    matching = _days_of_year(cron.days, cron.months, cron.weekdays, cron.both, isleap(year), first.weekday())
    return first.toordinal() - _EPOCH, matching


def _days_by_year(
    cron: Cron, first: int, last: int, *, backwards: bool = False
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yields the first day of each year and the matching days in it, ascending."""
    if last < first:
        return
    years = range(_year_of(first), _year_of(last) + 1)
    for year in reversed(years) if backwards else years:
        begin, matching = _year(cron, year)
        low, high = max(first - begin, 0), min(last - begin, 364 + isleap(year))
        yield begin, matching[bisect_left(matching, low) : bisect_right(matching, high)]


def _days(cron: Cron, first: int, last: int, *, backwards: bool = False) -> Iterator[int]:
    """Yields the matching days, counted from 1970."""
    for begin, some in _days_by_year(cron, first, last, backwards=backwards):
        for day in reversed(some) if backwards else some:
            yield begin + day


def _count_days(cron: Cron, first: int, last: int) -> int:
    return sum(len(some) for _, some in _days_by_year(cron, first, last))


def _matches(cron: Cron, day: int) -> bool:
    return _count_days(cron, day, day) > 0


def _year_of(day: int) -> int:
    return date.fromordinal(day + _EPOCH).year


def _walls(cron: Cron, begin: int, end: int, *, backwards: bool = False) -> Iterator[int]:
    """Yields the matching wall-clock times from `begin` to before `end`."""
    for day in _days(cron, begin // DAY, (end - 1) // DAY, backwards=backwards):
        midnight = day * DAY
        times = cron.times[bisect_left(cron.times, begin - midnight) : bisect_left(cron.times, end - midnight)]
        for time in reversed(times) if backwards else times:
            yield midnight + time


def _count_walls(cron: Cron, begin: int, end: int) -> int:
    """Returns the number of matching wall-clock times; days that lie in the span as a whole are not looked at."""
    if begin >= end:
        return 0
    first, last = begin // DAY, (end - 1) // DAY
    if first == last:
        return _count_times(cron, begin - first * DAY, end - first * DAY) * _matches(cron, first)
    edges = _count_times(cron, begin - first * DAY, DAY) * _matches(cron, first)
    edges += _count_times(cron, 0, end - last * DAY) * _matches(cron, last)
    return edges + len(cron.times) * _count_days(cron, first + 1, last - 1)


def _count_times(cron: Cron, begin: int, end: int) -> int:
    return bisect_left(cron.times, end) - bisect_left(cron.times, begin)


def shortest_gap(cron: Cron) -> int:
    """Returns the fewest seconds between two times on an unchanged wall clock; at most two days."""
    within = min((later - time for time, later in pairwise(cron.times)), default=2 * DAY)
    across = cron.times[0] + DAY - cron.times[-1]
    return across if across < within and _on_neighbouring_days(cron) else within


def _on_neighbouring_days(cron: Cron) -> bool:
    """Returns True if two consecutive days match, within eight years, which include a leap year."""
    first = date(2000, 1, 1).toordinal() - _EPOCH
    return any(later - day == 1 for day, later in pairwise(_days(cron, first, first + 8 * 366)))


# --- ticks --------------------------------------------------------------------------------------------------------


def _stretches(cron: Cron, zone: str, low: int, high: int, *, backwards: bool = False) -> Iterator[Stretch]:
    """Yields the stretches of the years that have a matching day: 29 February leaves out three years of four."""
    return stretches(zone, low, high, lambda year: bool(_year(cron, year)[1]), backwards=backwards)


def ticks(cron: Cron, zone: str, after: int, until: int) -> Iterator[int]:
    """Yields the nominal times after `after` up to and including `until`, ascending."""
    low, high = _seconds(after, until)
    for stretch in _stretches(cron, zone, low, high):
        moved, begin, end = _part(cron, stretch, low, high)
        if moved:
            yield stretch.start * SECOND
        for wall in _walls(cron, begin, end):
            yield (wall - stretch.offset) * SECOND


def _backwards(cron: Cron, zone: str, after: int, until: int) -> Iterator[int]:
    low, high = _seconds(after, until)
    for stretch in _stretches(cron, zone, low, high, backwards=True):
        moved, begin, end = _part(cron, stretch, low, high)
        for wall in _walls(cron, begin, end, backwards=True):
            yield (wall - stretch.offset) * SECOND
        if moved:
            yield stretch.start * SECOND


def count(cron: Cron, zone: str, after: int, until: int) -> int:
    """Returns the number of ticks in the span; counts by days instead of one by one."""
    low, high = _seconds(after, until)
    parts = (_part(cron, stretch, low, high) for stretch in _stretches(cron, zone, low, high))
    return sum(moved + _count_walls(cron, begin, end) for moved, begin, end in parts)


def next_tick(cron: Cron, zone: str, after: int) -> int | None:
    """Returns the first tick after `after`; None if there is none within 80 years."""
    return next(ticks(cron, zone, after, max(after, 0) + SEARCH), None)


def previous_tick(cron: Cron, zone: str, before: int) -> int | None:
    """Returns the last tick before `before`; None if there is none within 80 years."""
    return next(_backwards(cron, zone, before - SEARCH, before - 1), None)


def last_ticks(cron: Cron, zone: str, after: int, until: int, n: int) -> list[int]:
    """Returns the last `n` ticks of the span, ascending; does not read the rest of the span."""
    return list(islice(_backwards(cron, zone, after, until), n))[::-1]


def _seconds(after: int, until: int) -> tuple[int, int]:
    """Returns the span in whole seconds, as a start and an exclusive end within the calendar."""
    return max(0, after // SECOND + 1), min(first_second(LAST_YEAR + 1), until // SECOND + 1)


def _part(cron: Cron, stretch: Stretch, low: int, high: int) -> tuple[bool, int, int]:
    """Returns the part of a stretch with ticks, as wall-clock times.

    The first value is True if a tick from a gap moved to the start of the stretch.
    """
    begin = max(low, stretch.start) + stretch.offset
    end = min(high, stretch.end) + stretch.offset
    if cron.elapsed:
        return False, begin, end
    moved = low <= stretch.start and next(_gap(cron, stretch), None) is not None and not _ordinary(cron, stretch)
    begin = max(begin, stretch.shown)
    return moved, begin, max(begin, end)


def _ordinary(cron: Cron, stretch: Stretch) -> bool:
    """Returns True if the start of a stretch is a tick anyway, so that no tick moves there."""
    return bool(_count_walls(cron, stretch.begins, stretch.begins + 1))


def _gap(cron: Cron, stretch: Stretch) -> Iterator[int]:
    """Yields the matching wall-clock times in the gap before this stretch."""
    return _walls(cron, stretch.shown, stretch.begins)


# --- notes --------------------------------------------------------------------------------------------------------


def notes(cron: Cron, zone: str, instant: int) -> str | None:
    """Describes how a clock change affects this instant; None for an ordinary tick and for what is no tick."""
    return note_of_tick(cron, zone, instant) if count(cron, zone, instant - 1, instant) else None


def note_of_tick(cron: Cron, zone: str, instant: int) -> str | None:
    """Describes how a clock change affects this tick; None for an ordinary one."""
    second = instant // SECOND
    stretch = next(stretches(zone, second, second + 1))
    lost = [] if cron.elapsed or second != stretch.start else list(_gap(cron, stretch))
    if lost:
        return _moved(lost, stretch.begins, ordinary=_ordinary(cron, stretch))
    return _repeated(second, ZoneInfo(zone))


def _moved(lost: list[int], to: int, *, ordinary: bool) -> str:
    dated = lost[0] // DAY != to // DAY
    shown = [_clock(wall, dated=dated) for wall in lost]
    some = " and ".join(shown) if len(shown) < 3 else f"{shown[0]} … {shown[-1]} ({len(shown)} times)"
    if ordinary:
        return f"also replaces {some}, which the clock change skips"
    return f"moved by the clock change from {some} to {_clock(to, dated=dated)}"


def _repeated(second: int, zone: ZoneInfo) -> str | None:
    local = datetime.fromtimestamp(second, zone)
    if local.replace(fold=0).utcoffset() == local.replace(fold=1).utcoffset():
        return None
    return f"the {'second' if local.fold else 'first'} {local:%H:%M}: the clock change repeats it"


def _clock(wall: int, *, dated: bool) -> str:
    day, seconds = divmod(wall, DAY)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}"
    return f"{date.fromordinal(day + _EPOCH).isoformat()} {clock}" if dated else clock
