"""Scales from values to positions, and a time axis with round labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from markupsafe import Markup

SECOND = 1_000_000
_STEPS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000)


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps `low`..`high` to `left`..`right`; a single value is placed in the middle."""

    low: float
    high: float
    left: float
    right: float

    def at(self, value: float) -> float:
        if self.high <= self.low:
            return (self.left + self.right) / 2
        share = (value - self.low) / (self.high - self.low)
        return round(self.left + share * (self.right - self.left), 2)


def times(scale: Scale, most: int = 6) -> Iterator[int]:
    """Yields round instants on a scale of microseconds, at most `most`."""
    wanted = (scale.high - scale.low) / SECOND / max(1, most)
    step = next((size for size in _STEPS if size >= wanted), _STEPS[-1]) * SECOND
    at = int(-(-scale.low // step) * step)
    while at <= scale.high:
        yield at
        at += step


def time_axis(scale: Scale, *, top: float, bottom: float, zone: str = "UTC", most: int = 6, unit: str = "") -> Markup:
    """Draws lines and labels for a scale of instants, with the labels below `bottom`.

    `unit` is the unit of positions, `%` or none.
    """
    wide = scale.high - scale.low > 2 * 86_400 * SECOND
    fine = scale.high - scale.low < 120 * SECOND
    shape = "%d %b" if wide else "%H:%M:%S" if fine else "%H:%M"
    parts = []
    for at in times(scale, most):
        x = scale.at(at)
        local = datetime.fromtimestamp(at / SECOND, UTC).astimezone(ZoneInfo(zone))
        parts.append(
            Markup('<line class="axis" x1="{0}{3}" y1="{1}" x2="{0}{3}" y2="{2}"/>').format(x, top, bottom, unit)
            + Markup('<text x="{}{}" y="{}" text-anchor="{}">{}</text>').format(
                x, unit, bottom + 13, anchor(x, unit), local.strftime(shape)
            )
        )
    return Markup("").join(parts)


def anchor(x: float, unit: str) -> str:
    """Returns the text anchor of a label; a label at the edge must not be cut off."""
    if unit != "%" or 8 <= x <= 92:
        return "middle"
    return "start" if x < 8 else "end"


def picture(width: int, height: int, label: str, *parts: Markup) -> Markup:
    """Renders an SVG with a text alternative."""
    return Markup(
        '<svg class="picture" viewBox="0 0 {0} {1}" role="img" aria-label="{2}"><title>{2}</title>{3}</svg>'
    ).format(width, height, label, Markup("").join(parts))


def fluid(height: int, label: str, *parts: Markup) -> Markup:
    """Renders an SVG as wide as its container; positions along it are percentages."""
    return Markup('<svg class="picture" height="{0}" role="img" aria-label="{1}"><title>{1}</title>{2}</svg>').format(
        height, label, Markup("").join(parts)
    )
