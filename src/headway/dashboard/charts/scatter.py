"""Scatter plot of run durations over start times; each dot links to its job."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from headway.dashboard.charts.axis import SECOND, Scale, time_axis

WIDTH, HEIGHT = 960, 250
# Durations are labelled on the right, beside the newest runs, because a narrow window shows that end first.
LEFT, RIGHT, TOP, BOTTOM = 12, 902, 30, 222
SHORTEST = 0.001
# Shortest time range, so that the axis has labels.
NARROWEST = 6 * SECOND
# Ratio of durations above which the scale is logarithmic.
WIDE = 30.0
_ROUND = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3_600.0, 21_600.0, 86_400.0, 604_800.0, 2_592_000.0)
_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))
_SHAPES = {
    "good": '<circle class="dot good" cx="{x}" cy="{y}" r="4.5"/>',
    "bad": '<path class="dot bad" d="M{x} {y}m-5.5 0l5.5 -5.5l5.5 5.5l-5.5 5.5z"/>',
    "quiet": '<path class="dot quiet" d="M{x} {y}m-4 -4h8v8h-8z"/>',
}


@dataclass(frozen=True, slots=True)
class Dot:
    """A run. `outcome` is its text, `tone` its shape and colour."""

    key: str
    href: str
    title: str
    at: int
    seconds: float
    outcome: str
    tone: str


def scatter(dots: Sequence[Dot], *, zone: str = "UTC") -> Markup:
    """Renders the plot.

    Its links are for pointers; a table on the page lists the same runs.
    """
    last = max(dot.at for dot in dots)
    across = Scale(min(last - NARROWEST, *(dot.at for dot in dots)), last, LEFT + 12, RIGHT - 12)
    up = durations([dot.seconds for dot in dots])
    # Draw the failed runs last, so that no other dot covers them.
    drawn = [
        _dot(dot, across.at(dot.at), up.at(dot.seconds)) for dot in sorted(dots, key=lambda dot: dot.tone == "bad")
    ]
    parts = [_legend(dots), up.axis(), time_axis(across, top=TOP, bottom=BOTTOM, zone=zone, most=8), *drawn]
    label = f"Duration of the runs below by start time: {len(dots)} runs"
    return Markup('<svg class="picture scatter" viewBox="0 0 {} {}" role="group" aria-label="{}">{}</svg>').format(
        WIDTH, HEIGHT, label, Markup("").join(parts)
    )


def _dot(dot: Dot, x: float, y: float) -> Markup:
    shape = Markup(_SHAPES.get(dot.tone, _SHAPES["quiet"])).format(x=x, y=y)
    return Markup('<a href="{}" data-key="{}" tabindex="-1" aria-label="{}">{}<title>{}</title></a>').format(
        dot.href, dot.key, dot.title, shape, dot.title
    )


def _legend(dots: Sequence[Dot]) -> Markup:
    counts = Counter((dot.tone, dot.outcome) for dot in dots)
    parts, x = [], LEFT + 8
    for (tone, outcome), count in sorted(counts.items(), key=lambda found: -found[1]):
        text = f"{outcome} {count}"
        parts.append(Markup(_SHAPES.get(tone, _SHAPES["quiet"])).format(x=x, y=12))
        parts.append(Markup('<text x="{}" y="16">{}</text>').format(x + 10, text))
        x += 34 + 7 * len(text)
    return Markup("").join(parts)


# --- durations ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Durations:
    """The vertical scale of seconds; `wide` makes it logarithmic."""

    scale: Scale
    wide: bool
    marks: tuple[float, ...]

    def at(self, seconds: float) -> float:
        return self.scale.at(_power(seconds) if self.wide else seconds)

    def axis(self) -> Markup:
        line = Markup('<line class="axis" x1="{}" y1="{y}" x2="{}" y2="{y}"/>')
        word = Markup('<text x="{}" y="{}">{}</text>')
        parts = []
        for mark in self.marks:
            y = self.at(mark)
            parts += [line.format(LEFT, RIGHT, y=y), word.format(RIGHT + 6, y + 4, in_words(mark))]
        return Markup("").join(parts)


def durations(seconds: Sequence[float]) -> Durations:
    low, high = max(SHORTEST, min(seconds)), max(SHORTEST, *seconds)
    if high / low <= WIDE:
        step = _step(high)
        marks = tuple(n * step for n in range(math.ceil(high / step) + 1))
        return Durations(Scale(0.0, marks[-1], BOTTOM, TOP), False, marks)
    below = max((mark for mark in _ROUND if mark <= low), default=SHORTEST)
    above = min((mark for mark in _ROUND if mark >= high), default=high)
    marks = tuple(_between(below, above))
    return Durations(Scale(_power(below), _power(above), BOTTOM, TOP), True, marks)


def _between(low: float, high: float) -> Iterator[float]:
    yield from (mark for mark in _ROUND if low <= mark <= high)
    if high > _ROUND[-1]:
        yield high


def _power(seconds: float) -> float:
    return math.log10(max(SHORTEST, seconds))


def _step(high: float) -> float:
    """Returns a round step of which three to six fit below `high`."""
    unit = next((size for size, _ in _UNITS if high >= 2 * size), None)
    size = unit or 10 ** math.floor(math.log10(high))
    wanted = high / size / 4
    rounds = (factor * 10.0**n for n in range(-2, 12) for factor in (1.0, 2.0, 5.0))
    return size * next(step for step in rounds if step >= wanted)


def in_words(seconds: float) -> str:
    """Formats a duration: `250 ms`, `1.5 s`, `3 min`."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1000:.3g} ms" if seconds else "0"
