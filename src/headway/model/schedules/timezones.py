"""Time zones: their names, and their history as stretches with a constant offset.

Wall-clock time is counted in seconds, as if it were UTC, so that gaps and folds are plain arithmetic on stretches.
"""

from __future__ import annotations

from calendar import isleap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache, lru_cache
from zoneinfo import ZoneInfo, available_timezones

from headway.model.values.refuse import refuse
from headway.model.values.suggestions import similar

DAY = 86_400
LAST_YEAR = 9998  # a zone ahead of UTC must stay within Python's calendar
# From this year on every zone follows one rule; before it, single changes are listed (Africa/Casablanca until 2087).
RULED = 2100

# Names without a fixed meaning, or with a meaning that depends on the machine.
_NOT_ZONES = {"localtime", "Factory", "posixrules"}
_EXAMPLES = "write an IANA name such as Europe/Berlin, America/New_York or UTC"


@dataclass(frozen=True, slots=True)
class Stretch:
    """UTC seconds from `start` to before `end`, in which the wall clock is `offset` ahead.

    `shown` is the latest wall-clock time before this stretch. If it is less than `begins`, the clock skipped a gap; if
    it is more, the clock was put back and times up to `shown` occur again.
    """

    start: int
    end: int
    offset: int
    shown: int

    @property
    def begins(self) -> int:
        """Returns the wall-clock time at the start."""
        return self.start + self.offset


def check_zone(name: object) -> str:
    """Returns the IANA name in its official spelling; accepts any case."""
    if not isinstance(name, str):
        refuse("timezone", f"must be text, not {type(name).__name__}: {_EXAMPLES}")
    found = _names().get(name.strip().lower())
    if found is None:
        near = _near(name.strip().lower())
        refuse("timezone", f"{name[:80]!r} is not known: " + (f"did you mean {near}?" if near else _EXAMPLES))
    return found


def zone_names() -> list[str]:
    """Returns the names of all known zones, sorted."""
    return list(_names().values())


@cache
def _names() -> dict[str, str]:
    return {name.lower(): name for name in sorted(available_timezones() - _NOT_ZONES)}


def _near(name: str) -> str:
    """Suggests similar zones, those with the same city first: users write `Berlin` or `US/New York`."""
    cities = [found for lower, found in _names().items() if _city(lower) == _city(name)]
    alike = [_names()[lower] for lower in similar(name, _names(), most=3, cutoff=0.7)]
    return " or ".join(list(dict.fromkeys(cities + alike))[:3])


def _city(name: str) -> str:
    return name.rsplit("/", 1)[-1].replace("_", "").replace(" ", "")


def stretches(
    zone: str, low: int, high: int, wanted: Callable[[int], bool] | None = None, *, backwards: bool = False
) -> Iterator[Stretch]:
    """Yields the stretches that overlap the UTC seconds from `low` to before `high`, cut at years.

    Years that are not wanted are left out, and their clock changes are not looked for.
    """
    if low >= high:
        return
    years = range(_year(low), _year(high - 1) + 1)
    for year in filter(wanted, reversed(years) if backwards else years):
        found = _of_year(zone, year)
        ordered = reversed(found) if backwards else found
        yield from (stretch for stretch in ordered if stretch.start < high and stretch.end > low)


def _year(second: int) -> int:
    return datetime.fromtimestamp(second, UTC).year


def first_second(year: int) -> int:
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp())


@lru_cache(maxsize=16_384)
def _of_year(zone: str, year: int) -> tuple[Stretch, ...]:
    alike = year if year < RULED else _first_like(isleap(year), date(year, 1, 1).weekday())
    if alike != year:
        later = first_second(year) - first_second(alike)
        return tuple(
            Stretch(one.start + later, one.end + later, one.offset, one.shown + later) for one in _of_year(zone, alike)
        )
    begin, end = first_second(year), first_second(year + 1)
    # Starts two days earlier, to know of a clock that was put back just before the year, by at most a day.
    changes = _changes(ZoneInfo(check_zone(zone)), begin - 2 * DAY, end)
    found, shown = [], changes[0][0] + changes[0][1]
    for (start, offset), until in zip(changes, [change[0] for change in changes[1:]] + [end], strict=True):
        if until > begin:
            cut = max(start, begin)
            found.append(Stretch(cut, until, offset, shown if cut == start else max(shown, cut + offset)))
        shown = max(shown, until + offset)
    return tuple(found)


@cache
def _first_like(leap: bool, weekday: int) -> int:
    """Returns the first ruled year with these properties, on which alone the rule of a zone depends."""
    ruled = range(RULED, RULED + 40)
    return next(year for year in ruled if isleap(year) == leap and date(year, 1, 1).weekday() == weekday)


def _changes(zone: ZoneInfo, begin: int, end: int) -> list[tuple[int, int]]:
    """Returns the offset at `begin` and each later one, with its first second.

    Since 1970 every offset lasted at least six days, so that one sample in five days finds them all.
    """
    changes = [(begin, _offset(zone, begin))]
    for before in range(begin, end, 5 * DAY):
        low, high = before, min(before + 5 * DAY, end)
        offset = _offset(zone, high)
        if offset != changes[-1][1]:
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if _offset(zone, middle) == offset else (middle, high)
            changes.append((high, offset))
    return [change for change in changes if change[0] < end]


def _offset(zone: ZoneInfo, second: int) -> int:
    offset = datetime.fromtimestamp(second, zone).utcoffset()
    return 0 if offset is None else offset.days * DAY + offset.seconds
