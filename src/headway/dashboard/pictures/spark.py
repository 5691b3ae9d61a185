"""The last executions of a schedule as small bars: how each ended by its colour, how long it took by its height."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from markupsafe import Markup

from headway.dashboard import words
from headway.dashboard.pictures.axis import picture
from headway.model.estimate import span
from headway.model.plan import Group

MOST = 20
_WIDE, _GAP, _HIGH, _LOWEST = 5, 2, 22, 4


def spark(executions: Sequence[Group], now: int) -> Markup:
    """Oldest first, at most so many; they stand at the right, where the newest is."""
    shown = executions[-MOST:]
    longest = max((_lasted(one, now) for one in shown), default=0)
    first = MOST - len(shown)
    bars = [_bar(first + n, one, longest, now) for n, one in enumerate(shown)]
    empty = [
        Markup('<rect class="ghost" x="{}" y="{}" width="{}" height="2"/>').format(*_base(n)) for n in range(first)
    ]
    return picture(MOST * (_WIDE + _GAP) - _GAP, _HIGH, summary(shown), *empty, *bars)


def summary(executions: Sequence[Group]) -> str:
    """`last 20 executions: 18 completed, 2 failed`."""
    if not executions:
        return "no execution yet"
    counts = Counter(one.status for one in executions)
    told = ", ".join(f"{count} {status.lower().replace('_', ' ')}" for status, count in counts.most_common())
    return f"last {words.count(len(executions), 'execution')}: {told}"


def _bar(place: int, one: Group, longest: int, now: int) -> Markup:
    lasted = _lasted(one, now)
    height = _LOWEST + round((_HIGH - _LOWEST) * (lasted / longest if longest else 1), 1)
    said = f"{one.status.lower().replace('_', ' ')}, {span(lasted)}"
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}" rx="1"><title>#{} {}</title></rect>').format(
        words.tone(one.status), place * (_WIDE + _GAP), round(_HIGH - height, 1), _WIDE, height, one.id, said
    )


def _base(place: int) -> tuple[int, int, int]:
    return place * (_WIDE + _GAP), _HIGH - 2, _WIDE


def _lasted(one: Group, now: int) -> int:
    return max(0, (one.finished_at or now) - one.created_at)
