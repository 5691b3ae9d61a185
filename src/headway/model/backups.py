"""Names backups by their time, and decides which of them a rotation keeps. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from headway.errors import BadInput

_STAMP = "%Y%m%dT%H%M%SZ"
_NAME = re.compile(r"headway-(\d{8}T\d{6}Z)\.backup")
_RULE = re.compile(r"([1-9][0-9]{0,3})([dwmy])")
# The period that a backup belongs to, in UTC. Of each period the newest backup is kept.
_PERIODS: dict[str, Callable[[datetime], object]] = {
    "d": lambda at: at.date(),
    "w": lambda at: at.isocalendar()[:2],
    "m": lambda at: (at.year, at.month),
    "y": lambda at: at.year,
}
Keep = dict[str, int]


def parse_keep(text: str) -> Keep:
    """Parses a rule such as 7d,4w,6m: the newest backups of 7 days, 4 weeks and 6 months."""
    keep: Keep = {}
    for part in text.split(","):
        found = _RULE.fullmatch(part.strip())
        if found is None or found[2] in keep:
            raise BadInput(
                f"--keep must be numbers of days, weeks, months and years, like 7d,4w,6m, not {text!r}", field="keep"
            )
        keep[found[2]] = int(found[1])
    return keep


def name_at(now: int) -> str:
    """Returns the name of a backup that is made at this instant."""
    return f"headway-{datetime.fromtimestamp(now // 1_000_000, UTC).strftime(_STAMP)}.backup"


def taken_at(name: str) -> datetime | None:
    """Returns the time in the name of a backup; None if the name is another."""
    found = _NAME.fullmatch(name)
    try:
        return datetime.strptime(found[1], _STAMP).replace(tzinfo=UTC) if found else None
    except ValueError:
        return None


def expired(names: Iterable[str], keep: Keep) -> list[str]:
    """Returns the backups that the rule does not keep, oldest first. The newest is always kept; others are ignored."""
    times = {name: at for name in names if (at := taken_at(name)) is not None}
    newest_first = sorted(times, reverse=True)
    kept = set(newest_first[:1])
    for unit, count in keep.items():
        newest_of: dict[object, str] = {}
        for name in newest_first:
            newest_of.setdefault(_PERIODS[unit](times[name]), name)
        kept.update(list(newest_of.values())[:count])
    return [name for name in reversed(newest_first) if name not in kept]
