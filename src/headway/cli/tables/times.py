"""Formats the times of the API's JSON: ages, durations, and times in a time zone."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from headway.clock import SECOND
from headway.model.values.times import duration_text, instant

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def moment(text: str) -> int:
    """Returns a time of the API in microseconds."""
    return instant(text, field="time")


def about(seconds: float) -> str:
    """Formats a duration in its largest unit, like `3m`."""
    whole = max(0, round(seconds))
    for size, unit in _UNITS:
        if whole >= size:
            return f"{whole // size}{unit}"
    return "0s"


def age(then: str | None, now: int) -> str:
    return "" if then is None else about((now - moment(then)) / 1e6)


def time_between(since: str, until: str | None, now: int) -> str:
    """Formats the time from `since` until an end, or until now."""
    return age(since, now if until is None else moment(until))


def took(since: str, until: str) -> str:
    return duration_text(round((moment(until) - moment(since)) / 1e6, 3))


def when(then: str | None, now: int) -> str | None:
    return None if then is None else f"{then} ({relative(then, now)})"


def relative(then: str, now: int) -> str:
    far = (moment(then) - now) / 1e6
    return f"in {about(far)}" if far > 0 else f"{about(-far)} ago"


def local(then: str, zone: str | None) -> str:
    """Formats a time in a time zone, without seconds if they are zero. An unknown zone counts as UTC."""
    then_micros = moment(then)
    at = datetime.fromtimestamp(then_micros // SECOND, _zone(zone))
    return f"{at:%Y-%m-%d %H:%M}" if then_micros % (60 * SECOND) == 0 else f"{at:%Y-%m-%d %H:%M:%S}"


def _zone(name: str | None) -> tzinfo:
    """Returns a time zone; UTC for one that only another version of Headway or of the time zones knows."""
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        return UTC
