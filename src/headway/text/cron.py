"""Describes a cron expression as a sentence: "at 02:30, Monday to Friday, Berlin time".

The sentence follows the meaning of the expression, not its spelling; a missing part means "any". A sentence that begins
with "every" follows elapsed time when clocks change, one with "at" or "from" follows the wall clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from headway.model.schedules.cron_parser import Cron

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_MOST_TIMES = 6  # more times than this are not listed


def sentence(cron: Cron, zone: str) -> str:
    times = _elapsed(cron) if cron.elapsed else _fixed(cron)
    days = _days(cron)
    # "every 15 minutes" holds in every zone, so the zone is left out.
    anywhere = times == _each(cron.minutes) and cron.minutes[0] == 0 and not days
    return ", ".join([times, *days, *([] if anywhere else [_zone(zone)])])


# --- times of the day ---------------------------------------------------------------------------------------------


def _fixed(cron: Cron) -> str:
    hours, minutes = cron.hours, cron.minutes
    first, last = _clock(hours[0], minutes[0]), _clock(hours[-1], minutes[-1])
    many = len(hours) * len(minutes)
    if many > 3 and _stride(hours) == 1 and len(minutes) == 1:
        return f"from {first} to {last}, every hour"
    if many > 3 and (len(hours) == 1 or _stride(hours) == 1) and _each(minutes):
        return f"from {first} to {last}, {_every(minutes[1] - minutes[0], 'minute')}"
    if many <= _MOST_TIMES:
        return "at " + _listed([_clock(hour, minute) for hour in hours for minute in minutes])
    return f"{_past(minutes)}, in the hours {_runs(hours)}"


def _elapsed(cron: Cron) -> str:
    """Describes an expression whose hour has a star or a step, and thus at least two values."""
    hours, minutes = cron.hours, cron.minutes
    each = _each(minutes)
    if len(hours) == 24:
        return each or f"every hour, {_past(minutes)}"
    stride = _stride(hours)
    if len(minutes) > 1 or stride is None:
        return f"{each or f'every hour, {_past(minutes)}'}, but only in the hours {_runs(hours)}"
    often = _every(stride, "hour")
    if hours[0] == 0 and hours[-1] + stride == 24:
        return f"{often}, {_past(minutes)}"
    return f"{often} from {_clock(hours[0], minutes[0])} to {_clock(hours[-1], minutes[0])}"


def _each(minutes: Sequence[int]) -> str:
    """Describes minutes that are evenly spaced across hours; empty for other minutes."""
    stride = _stride(minutes)
    if stride is None or minutes[-1] + stride != 60 + minutes[0]:
        return ""
    often = _every(stride, "minute")
    return often if minutes[0] == 0 else f"{often} from {minutes[0]} past the hour"


def _past(minutes: Sequence[int]) -> str:
    if tuple(minutes) == (0,):
        return "on the hour"
    return f"at {_runs(minutes)} minute{'' if tuple(minutes) == (1,) else 's'} past"


def _clock(hour: int, minute: int) -> str:
    return f"{hour:02}:{minute:02}"


# --- days ---------------------------------------------------------------------------------------------------------


def _days(cron: Cron) -> list[str]:
    """Describes days and months, in parts to be joined; empty for all days if the time says "every"."""
    months = "" if len(cron.months) == 12 else _runs([month - 1 for month in cron.months], _MONTHS)
    in_week = "" if len(cron.weekdays) == 7 else _in_week(cron.weekdays)
    within = [f"in {months}"] if months else []
    if len(cron.days) < 31 and in_week and not cron.both:
        return [_in_month(cron.days, "the month"), f"or {in_week}", *(f"but only {part}" for part in within)]
    if len(cron.days) < 31 and cron.both:
        return [_in_month(cron.days, months or "the month"), *([f"but only {in_week}"] if in_week else [])]
    if in_week and cron.both:
        return [in_week, *within]
    return within if cron.elapsed else [" ".join(["every day", *within])]


def _in_month(days: Sequence[int], month: str) -> str:
    stride = _stride(days)
    if stride is None or stride == 1 or len(days) < 4:
        return f"on day {_runs(days)} of {month}"
    return f"on every {_ordinal(stride)} day of {month} from day {days[0]} to day {days[-1]}"


def _ordinal(number: int) -> str:
    return f"{number}{'nd' if number == 2 else 'rd' if number == 3 else 'th'}"


def _in_week(weekdays: Sequence[int]) -> str:
    text = _runs(weekdays, _WEEKDAYS)
    return text if _stride(weekdays) == 1 and len(weekdays) > 2 else f"on {text}"


# --- words --------------------------------------------------------------------------------------------------------


def _stride(values: Sequence[int]) -> int | None:
    """Returns the step between the values; None if it varies."""
    steps = {later - earlier for earlier, later in pairwise(values)}
    return steps.pop() if len(steps) == 1 else None


def _every(number: int, unit: str) -> str:
    return f"every {unit}" if number == 1 else f"every {number} {unit}s"


def _runs(values: Sequence[int], names: Sequence[str] = ()) -> str:
    """Lists values as `1, 5 to 9 and 12`: three or more in a row become a range."""
    parts: list[str] = []
    start = 0
    for end in range(1, len(values) + 1):
        if end < len(values) and values[end] == values[end - 1] + 1:
            continue
        run = [names[value] if names else str(value) for value in values[start:end]]
        parts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else run
        start = end
    return _listed(parts)


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _zone(zone: str) -> str:
    """Turns `Europe/Berlin` into `Berlin time`; keeps names that are no places (UTC, CET, Etc/GMT+5)."""
    if zone in ("UTC", "Etc/UTC"):
        return "UTC"
    city = zone.rsplit("/", 1)[-1].replace("_", " ")
    return zone if zone.startswith("Etc/") or zone.isupper() else f"{city} time"
