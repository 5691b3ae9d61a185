"""Parses a cron expression: our own normaliser before APScheduler's field matcher.

The grammar is classic cron, as Vixie wrote it. Extensions, and forms that crons interpret differently, are refused with
a hint at the classic form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import NoReturn

from headway.model.values.refuse import refuse
from headway.model.values.suggestions import closest

MAX_TEXT = 1000

_ORDER = "minute hour day-of-month month day-of-week"
_LIKE = f"write five fields ({_ORDER}) such as 30 2 * * mon-fri"
_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_TERM = re.compile(r"(\*|[a-z0-9]+)(?:-([a-z0-9]+))?(?:/([0-9]+))?")
_NUMBER = re.compile(r"[0-9]+")
_QUARTZ = (
    (re.compile(r".*\?.*"), "? is not classic cron, write * instead"),
    (re.compile(r".*#.*"), "# (the n-th weekday) is not classic cron, write the days it can fall on, such as 1-7"),
    (
        re.compile(r"([0-9]*|[a-z]{3})l(w|-[0-9]+)?"),
        "L (the last) is not classic cron, write the days it can be: 28-31",
    ),
    (re.compile(r"[0-9]*w"), "W (the nearest weekday) is not classic cron, write the days and the weekdays"),
)


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression. Weekdays count from Monday = 0; `times` are hours and minutes as seconds of a day.

    `both` means that a day must match both day fields, because one of them begins with `*`; otherwise one is enough.
    `elapsed` means that the hour has `*` or a step, so ticks follow elapsed time when clocks change.
    """

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    both: bool
    elapsed: bool
    times: tuple[int, ...]

    def __str__(self) -> str:
        return self.text


# --- parsing ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of an expression. `matched` is its name in APScheduler."""

    name: str
    matched: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def extent(self) -> str:
        named = f", or {self.names[0]} to {self.names[-1]}" if self.names else ""
        return f"{self.low} to {self.high}{named}" + (" (0 and 7 are Sunday)" if self.name == "day-of-week" else "")


@dataclass(frozen=True, slots=True)
class _Term:
    text: str
    first: int
    last: int
    step: int


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (
    _Field("minute", "minute", 0, 59),
    _Field("hour", "hour", 0, 23),
    _Field("day-of-month", "day", 1, 31),
    _Field("month", "month", 1, 12, _MONTHS),
    _Field("day-of-week", "day_of_week", 0, 7, _WEEKDAYS),
)


def parse(text: object) -> Cron:
    """Parses classic cron: five fields, or a name such as `@daily`. Refuses anything else with a hint."""
    if not isinstance(text, str):
        refuse("cron", f"must be text, not {type(text).__name__}: {_LIKE}")
    if len(text) > MAX_TEXT:
        refuse("cron", f"is longer than {MAX_TEXT} characters: split it into several schedules")
    return _parse(text)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Cron:
    fields = _split(text)
    terms = [
        [_term(field, term) for term in written.split(",")] for field, written in zip(_FIELDS, fields, strict=True)
    ]
    minutes, hours, days, months, weekdays = (_values(*pair) for pair in zip(_FIELDS, terms, strict=True))
    _check_dates(days, months, fields)
    return Cron(
        text=" ".join(",".join(term.text for term in written) for written in terms),
        minutes=minutes,
        hours=hours,
        days=days,
        months=months,
        weekdays=weekdays,
        both=fields[2].startswith("*") or fields[4].startswith("*"),
        elapsed="*" in fields[1] or "/" in fields[1],
        times=tuple(hour * 3600 + minute * 60 for hour in hours for minute in minutes),
    )


def _split(text: str) -> list[str]:
    bare = text.strip().lower()
    if bare.startswith("@"):
        bare = _unnamed(bare)
    fields = bare.split()
    if len(fields) == 5:
        return fields
    if ", " in bare or " ," in bare:
        refuse("cron", "has blanks beside a comma: remove them")
    if len(fields) > 5:
        extra = "seconds" if len(fields) == 6 else "seconds and the year"
        refuse(
            "cron",
            f"has {len(fields)} fields, and classic cron has five ({_ORDER}): leave out {extra}; "
            "for less than a minute, use an interval",
        )
    refuse("cron", f"has {len(fields)} fields: {_LIKE}" if fields else f"is empty: {_LIKE}")


def _unnamed(name: str) -> str:
    if name == "@reboot":
        refuse("cron", "@reboot names no time: start that job where your program starts")
    if name not in _NAMED:
        near = closest(name, _NAMED)
        refuse("cron", f"{name!r} is not known: " + (f"did you mean {near}?" if near else f"write {', '.join(_NAMED)}"))
    return _NAMED[name]


def _bad(field: _Field, written: str, problem: str) -> NoReturn:
    refuse("cron", f"has {written!r} in the {field.name} field: {problem}")


def _term(field: _Field, written: str) -> _Term:
    for strange, problem in _QUARTZ:
        if strange.fullmatch(written):
            _bad(field, written, problem)
    match = _TERM.fullmatch(written)
    if match is None or (match[1] == "*" and match[2]):
        _bad(field, written, f"write *, a value, a range such as {field.low}-{field.high}, or a step such as */2")
    star = match[1] == "*"
    first = field.low if star else _number(field, written, match[1])
    last = _last(field, written, match, first)
    step = _step(field, written, match, first, last)
    start = "*" if star else _plain(match[1])
    text = start + (f"-{_plain(match[2])}" if match[2] else "") + (f"/{step}" if match[3] else "")
    return _Term(text, first, last, step)


def _plain(value: str) -> str:
    return str(int(value)) if _NUMBER.fullmatch(value) else value


def _number(field: _Field, written: str, value: str) -> int:
    if value in field.names:
        return field.names.index(value) + field.low
    if not _NUMBER.fullmatch(value):
        named = value[:3] if value[:3] in field.names else closest(value, field.names)
        _bad(field, written, f"it goes from {field.extent()}" + (f"; did you mean {named}?" if named else ""))
    if not field.low <= int(value) <= field.high:
        _bad(field, written, f"it goes from {field.extent()}")
    return int(value)


def _last(field: _Field, written: str, match: re.Match[str], first: int) -> int:
    if match[2] is None:
        # Sunday is 0 and 7, and `*` counts it once.
        return first if match[1] != "*" else min(field.high, 6) if field.name == "day-of-week" else field.high
    last = _number(field, written, match[2])
    if last < first and match[2] == "sun":
        return 7
    if last < first:
        _bad(field, written, f"a range cannot go over the end, write {_unwrapped(field, match[1], match[2], last)}")
    return last


def _unwrapped(field: _Field, first: str, last: str, number: int) -> str:
    """Rewrites a range that passes the end as ranges that classic cron accepts."""
    if field.name == "day-of-week":
        if first == "7":
            return f"0-{last}"
        tail = {0: "", 1: f",{last}"}.get(number, f",mon-{last}" if last in field.names else f",1-{last}")
        return f"{first}-{'sun' if first in field.names else 7}{tail}"
    low, high = (field.names[0], field.names[-1]) if field.names else (str(field.low), str(field.high))
    return ",".join([first if first == high else f"{first}-{high}", last if last == low else f"{low}-{last}"])


def _step(field: _Field, written: str, match: re.Match[str], first: int, last: int) -> int:
    if match[3] is None:
        return 1
    step = int(match[3])
    if step == 0:
        _bad(field, written, "a step is at least 1")
    if match[1] != "*" and match[2] is None:
        _bad(field, written, f"a step needs a range, write {match[1]}-{field.high}/{step}")
    if step > last - first:
        left = match[1] if match[2] else first
        _bad(field, written, f"a step of {step} leaves only {left}, write {left}")
    return step


def _values(field: _Field, terms: list[_Term]) -> tuple[int, ...]:
    """Returns the values that APScheduler's matcher accepts. It counts Monday as 0 and reads naive times."""
    # Imported here because it takes longer than all of Headway's model, and most processes parse no cron.
    from apscheduler.triggers.cron.fields import BaseField, DayOfMonthField, DayOfWeekField

    kind = {"day": DayOfMonthField, "day_of_week": DayOfWeekField}.get(field.matched, BaseField)
    weekly = field.name == "day-of-week"
    matcher = kind(field.matched, ",".join(_weekdays(term) if weekly else _range(term) for term in terms))
    return tuple(
        value
        for value in (range(7) if weekly else range(field.low, field.high + 1))
        if matcher.get_next_value(_moment(field.matched, value)) == value
    )


def _range(term: _Term) -> str:
    return str(term.first) if term.first == term.last else f"{term.first}-{term.last}/{term.step}"


def _weekdays(term: _Term) -> str:
    return ",".join(str((day - 1) % 7) for day in range(term.first, term.last + 1, term.step))


def _moment(field: str, value: int) -> datetime:
    """Returns a wall-clock time with this value. January has 31 days; 1 January 2001 was a Monday."""
    at = {"month": 1, "day": 1, "hour": 0, "minute": 0}
    at |= {"day": 1 + value} if field == "day_of_week" else {field: value}
    return datetime(2001, at["month"], at["day"], at["hour"], at["minute"])


def _check_dates(days: tuple[int, ...], months: tuple[int, ...], fields: list[str]) -> None:
    longest = max(29 if month == 2 else 30 if month in (4, 6, 9, 11) else 31 for month in months)
    if days[0] > longest:
        refuse(
            "cron",
            f"names a date that never comes: day {fields[2]} in month {fields[3]} "
            f"(no day-of-month above {longest} there)",
        )
