"""Parses and writes durations and instants."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

from headway.model.values.refuse import refuse

MAX_SECONDS = 36_525 * 86_400.0
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_AMOUNT = r"(?:([0-9]+(?:\.[0-9]+)?)\s*{}\s*)?"
_DURATION = re.compile("".join(_AMOUNT.format(unit) for unit in ("d", "h", "m", "s", "ms")))
_UNITS = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)
_LIKE = "write it like 10s, 5m or 1h30m"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  # the years 1 to 9999, the range of RFC 3339
_RFC3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]+)?"
    r"([Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])?"
)


def seconds(value: object, *, field: str) -> float:
    """Returns a duration in seconds from a number, a timedelta or text: `10s`, `1h30m`, `250ms`, `2d`."""
    amount = _amount(value, field)
    if amount != amount:  # NaN; math.isnan fails for a very large int
        refuse(field, f"is not a duration: {_LIKE}")
    if amount < 0:
        refuse(field, f"must not be negative: {_LIKE}")
    if amount > MAX_SECONDS:
        refuse(field, f"is longer than 100 years: {_LIKE}")
    return float(amount)


def longest_wait(value: object, *, field: str) -> float:
    """Returns the longest time to wait, in seconds; math.inf for `none`, which means no limit."""
    if value == math.inf or (isinstance(value, str) and value.strip().lower() == "none"):
        return math.inf
    return seconds(value, field=field)


def seconds_or_none(value: object, *, field: str) -> float | None:
    """Returns a duration in seconds; None for None and for the word `none`."""
    if value is None or (isinstance(value, str) and value.strip().lower() == "none"):
        return None
    return seconds(value, field=field)


def _amount(value: object, field: str) -> float:
    match value:
        case bool():
            pass
        case int() | float():
            return value
        case timedelta():
            return value.total_seconds()
        case str():
            return _parse_duration(value, field)
    refuse(field, f"must be a duration, not {type(value).__name__}: {_LIKE}")


def _parse_duration(text: str, field: str) -> float:
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    bare = text.removeprefix("-")
    match = _DURATION.fullmatch(bare)
    if not bare or match is None:
        refuse(field, f"is not a duration: {_LIKE}")
    amount = sum(float(amount) * unit for amount, unit in zip(match.groups(), _UNITS, strict=True) if amount)
    return amount if bare == text else -amount


def duration_text(seconds: float) -> str:
    """Formats a duration to the microsecond: `1h30m`, `1.5s`, `250ms`. `seconds()` parses it."""
    micros = round(abs(seconds) * 1_000_000)
    if not micros:
        return "0s"
    text = f"{_decimal(micros, 3)}ms" if micros < 1_000_000 else _long_duration(micros)
    return f"-{text}" if seconds < 0 else text


def _long_duration(micros: int) -> str:
    minutes, micros = divmod(micros, 60_000_000)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    whole = "".join(f"{amount}{unit}" for amount, unit in ((days, "d"), (hours, "h"), (minutes, "m")) if amount)
    return whole + (f"{_decimal(micros, 6)}s" if micros else "")


def _decimal(amount: int, places: int) -> str:
    whole, rest = divmod(amount, 10**places)
    return f"{whole}.{rest:0{places}d}".rstrip("0").rstrip(".")


def instant(value: object, *, field: str) -> int:
    """Returns microseconds since 1970 UTC, from an aware datetime or RFC 3339 text.

    Digits past the microsecond are dropped.
    """
    moment = _parse_instant(value, field) if isinstance(value, str) else value
    if not isinstance(moment, datetime):
        refuse(field, f"must be a time, not {type(value).__name__}: write it like 2026-03-01T09:00:00Z")
    if moment.utcoffset() is None:
        refuse(field, "has no time zone: write datetime.now(timezone.utc), or datetime(…, tzinfo=ZoneInfo(…))")
    micros = (moment - _EPOCH) // _MICROSECOND
    if not _FIRST <= micros <= _LAST:
        refuse(field, "is outside the years 1 to 9999 UTC")
    return micros


def _parse_instant(text: str, field: str) -> datetime:
    match = _RFC3339.fullmatch(text.strip())
    if match is None:
        refuse(field, "is not an RFC 3339 time: write it like 2026-03-01T09:00:00Z or 2026-03-01T10:00:00+01:00")
    day, time, fraction, zone = match.groups()
    if zone is None:
        refuse(field, "has no time zone: add Z for UTC, or an offset such as +01:00")
    try:
        return datetime.fromisoformat(f"{day}T{time}{fraction or ''}{zone.upper()}")
    except ValueError as error:
        refuse(field, f"is not a time that exists: {error}")


def instant_text(us: int) -> str:
    """Formats an instant as RFC 3339 in UTC, with microseconds if there are any: `2026-03-01T09:00:00Z`."""
    return (_EPOCH + timedelta(microseconds=us)).isoformat().replace("+00:00", "Z")
