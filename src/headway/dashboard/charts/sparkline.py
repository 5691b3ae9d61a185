"""Sparkline of a schedule's executions: outcome as colour, duration as height."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from markupsafe import Markup

from headway.dashboard import state_styles
from headway.dashboard.charts.axis import picture
from headway.model.explain.forecast import span
from headway.model.groups.group import Group

MOST = 20
_WIDE, _GAP, _HIGH, _LOWEST = 5, 2, 22, 4


def spark(executions: Sequence[Group], now: int) -> Markup:
    """Renders the last executions, oldest first, aligned to the right."""
    shown = executions[-MOST:]
    longest = max((_lasted(execution, now) for execution in shown), default=0)
    first = MOST - len(shown)
    bars = [_bar(first + n, execution, longest, now) for n, execution in enumerate(shown)]
    empty = [
        Markup('<rect class="ghost" x="{}" y="{}" width="{}" height="2"/>').format(*_base(n)) for n in range(first)
    ]
    return picture(MOST * (_WIDE + _GAP) - _GAP, _HIGH, summary(shown), *empty, *bars)


def summary(executions: Sequence[Group]) -> str:
    """Returns a text like `last 20 executions: 18 completed, 2 failed`."""
    if not executions:
        return "no execution yet"
    counts = Counter(execution.status for execution in executions)
    outcomes = ", ".join(f"{count} {status.lower().replace('_', ' ')}" for status, count in counts.most_common())
    return f"last {state_styles.count(len(executions), 'execution')}: {outcomes}"


def _bar(place: int, execution: Group, longest: int, now: int) -> Markup:
    lasted, tone = _lasted(execution, now), state_styles.tone(execution.status)
    height = _LOWEST + round((_HIGH - _LOWEST) * (lasted / longest if longest else 1), 1)
    title = f"{execution.status.lower().replace('_', ' ')}, {span(lasted)}"
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}" rx="1"><title>#{} {}</title></rect>').format(
        tone, place * (_WIDE + _GAP), round(_HIGH - height, 1), _WIDE, height, execution.id, title
    )


def _base(place: int) -> tuple[int, int, int]:
    return place * (_WIDE + _GAP), _HIGH - 2, _WIDE


def _lasted(execution: Group, now: int) -> int:
    return max(0, (execution.finished_at or now) - execution.created_at)
