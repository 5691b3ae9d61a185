"""Stacked bars over time, one for each span."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from headway.dashboard.charts.axis import Scale, picture, time_axis

_WIDTH, _HEIGHT = 440, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 432, 10, 126
_GAP = 3
# Ceilings of a scale, times powers of ten; half of each is a round number too.
_ROUND = (2, 4, 6, 10, 20)


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar from `since` on.

    `parts` are pairs of colour class and value, from the bottom up.
    """

    since: int
    title: str
    parts: tuple[tuple[str, float], ...]

    @property
    def height(self) -> float:
        return sum(value for _, value in self.parts)


def bars(found: Sequence[Bar], span: int, *, label: str, shown: Callable[[float], str], zone: str = "UTC") -> Markup:
    """Renders the bars.

    `shown` formats values of the scale, `span` is a bar's length in microseconds.
    """
    top = ceiling(max((bar.height for bar in found), default=0.0))
    first, last = (found[0].since, found[-1].since + span) if found else (0, span)
    x, y = Scale(first, last, _LEFT, _RIGHT), Scale(0, top, _BOTTOM, _TOP)
    drawn = (_bar(bar, x, y, span) for bar in found)
    return picture(
        _WIDTH,
        _HEIGHT,
        label,
        time_axis(x, top=_TOP, bottom=_BOTTOM, zone=zone),
        *(_line(y.at(value), shown(value)) for value in (0, top / 2, top)),
        *drawn,
    )


def ceiling(value: float) -> float:
    """Returns the smallest round number that is not below a value, at least 2."""
    power = 1.0
    while value > _ROUND[-1] * power:
        power *= 10
    return next(step * power for step in _ROUND if step * power >= value)


def _line(y: float, text: str) -> Markup:
    line = Markup('<line class="axis" x1="{}" y1="{y}" x2="{}" y2="{y}"/>').format(_LEFT, _RIGHT, y=y)
    return line + Markup('<text x="{}" y="{}" text-anchor="end">{}</text>').format(_LEFT - 6, y + 4, text)


def _bar(bar: Bar, x: Scale, y: Scale, span: int) -> Markup:
    """Renders a bar.

    Its title covers the whole column, because a thin bar is hard to point at.
    """
    left, right = x.at(bar.since) + _GAP / 2, x.at(bar.since + span) - _GAP / 2
    place = Markup('x="{}" width="{}"').format(round(left, 2), round(max(1.0, right - left), 2))
    parts, below = [], 0.0
    for colour, value in bar.parts:
        low, high = y.at(below), y.at(below + value)
        if value:
            shape = Markup('<rect class="{}" {} y="{}" height="{}"/>')
            parts.append(shape.format(colour, place, high, round(max(0.5, low - high), 2)))
        below += value
    column = Markup('<rect class="column" {} y="{}" height="{}"/>').format(place, _TOP, _BOTTOM - _TOP)
    return Markup("<g><title>{}</title>{}{}</g>").format(bar.title, column, Markup("").join(parts))
