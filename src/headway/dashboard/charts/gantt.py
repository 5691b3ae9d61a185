"""Gantt chart: a row for each step with its attempts and expected run.

Waiting is drawn thin, running thick, and the expected run hatched. The chart is as wide as its container, so positions
along the time axis are percentages. Names are beside the chart and stay visible while it scrolls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from headway.dashboard.charts.axis import SECOND, Scale, anchor, fluid, time_axis
from headway.model.explain.forecast import span
from headway.model.groups.progress import Attempt, Planned, Spent

LEFT, RIGHT = 1.0, 98.0
TOP, ROW = 20, 26
THINNEST = 0.4
_HEIGHTS = {Spent.DELAYED: 2, Spent.WAITING: 6, Spent.RUNNING: 14, Spent.HELD: 10}
_WORDS = {
    Spent.DELAYED: "waited for its time",
    Spent.WAITING: "waited in the queue",
    Spent.RUNNING: "ran",
    Spent.HELD: "waited for a person",
}
_HATCH = Markup(
    '<defs><pattern id="expected" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<line class="hatch" x1="0" y1="0" x2="0" y2="7"/></pattern></defs>'
)


@dataclass(frozen=True, slots=True)
class GanttRow:
    """A step.

    `tones` are the colours of its attempts; `note` is shown if there is nothing to draw.
    """

    label: str
    stage: int
    attempts: Sequence[Attempt] = ()
    tones: Sequence[str] = ()
    planned: Planned | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Gantt:
    """The chart's range is `since` to `until`; `now` is None if everything has ended."""

    label: str
    since: int
    until: int
    now: int | None
    zone: str = "UTC"
    rows: Sequence[GanttRow] = field(default_factory=tuple)


def gantt(wanted: Gantt) -> Markup:
    bottom = TOP + ROW * len(wanted.rows)
    scale = _scale(wanted)
    parts = [_HATCH, _bands(wanted.rows), time_axis(scale, top=TOP, bottom=bottom, zone=wanted.zone, unit="%")]
    parts += [_row(row, TOP + ROW * n, scale, wanted) for n, row in enumerate(wanted.rows)]
    if wanted.now is not None:
        parts.append(_now(scale.at(wanted.now), bottom))
    return Markup(
        '<div class="gantt">{}'
        '<div class="scroll" tabindex="0" role="region" aria-label="The steps over time">{}</div></div>'
    ).format(_names(wanted), fluid(bottom + 20, wanted.label, *parts))


def _names(wanted: Gantt) -> Markup:
    names = [
        Markup('<li class="{}" title="{}">{}</li>').format("name band" if row.stage % 2 else "name", name, name)
        for row in wanted.rows
        for name in (f"{row.stage + 1} · {row.label}",)
    ]
    return Markup('<ol class="names">{}<li class="zone">{}</li></ol>').format(Markup("").join(names), wanted.zone)


def _scale(wanted: Gantt) -> Scale:
    """Returns the time scale, with a margin on the right."""
    ends = [row.planned.end for row in wanted.rows if row.planned is not None]
    high = max(wanted.until, *ends, wanted.since + SECOND)
    return Scale(wanted.since, high + (high - wanted.since) * 0.02, LEFT, RIGHT)


def _bands(rows: Sequence[GanttRow]) -> Markup:
    """Shades every other stage."""
    bands = [
        Markup('<rect class="band" x="0" y="{}" width="100%" height="{}"/>').format(TOP + ROW * n, ROW)
        for n, row in enumerate(rows)
        if row.stage % 2
    ]
    return Markup("").join(bands)


def _row(row: GanttRow, top: float, scale: Scale, wanted: Gantt) -> Markup:
    middle = top + ROW / 2
    now = wanted.until if wanted.now is None else wanted.now
    parts: list[Markup] = []
    for number, (attempt, tone) in enumerate(zip(row.attempts, row.tones, strict=True), 1):
        which = f"job {attempt.job_id}" + (f", attempt {number}" if len(row.attempts) > 1 else "")
        parts += _attempt(attempt, tone, which, middle, scale, now)
    if row.planned is not None:
        parts.append(_expected(row.planned, middle, scale))
    if row.note:
        parts.append(Markup('<text x="{}%" y="{}">{}</text>').format(LEFT, middle + 4, row.note))
    return Markup("").join(parts)


def _attempt(attempt: Attempt, tone: str, which: str, middle: float, scale: Scale, now: int) -> list[Markup]:
    parts = []
    for phase in attempt.phases:
        until = now if phase.until is None else phase.until
        word = f"{which} {_WORDS[phase.spent]} {span(until - phase.since)}"
        if phase.spent is Spent.RUNNING:
            word += f": {attempt.state.name}"
        colour = tone if phase.spent is Spent.RUNNING else _colour(phase.spent)
        parts.append(_bar(colour, phase.since, until, _HEIGHTS[phase.spent], word, middle, scale))
    return parts


def _colour(spent: Spent) -> str:
    return {Spent.WAITING: "waits", Spent.HELD: "held"}.get(spent, "quiet")


def _bar(tone: str, since: int, until: int, height: int, title: str, middle: float, scale: Scale) -> Markup:
    left = scale.at(since)
    width = max(THINNEST, round(scale.at(until) - left, 2))
    return Markup('<rect class="{}" x="{}%" y="{}" width="{}%" height="{}" rx="{}"><title>{}</title></rect>').format(
        tone, left, middle - height / 2, width, height, min(3, height / 2), title
    )


def _expected(planned: Planned, middle: float, scale: Scale) -> Markup:
    left, right = scale.at(planned.start), scale.at(planned.end)
    word = f"expected to take {span(planned.end - planned.start)}"
    return Markup(
        '<rect class="expected" fill="url(#expected)" x="{}%" y="{}" width="{}%" height="14" rx="3">'
        "<title>{}</title></rect>"
    ).format(left, middle - 7, max(THINNEST, round(right - left, 2)), word)


def _now(x: float, bottom: float) -> Markup:
    return Markup(
        '<line class="now" x1="{0}%" y1="{1}" x2="{0}%" y2="{2}"/>'
        '<text class="nowword" x="{0}%" y="{3}" text-anchor="{4}">now</text>'
    ).format(x, TOP - 4, bottom, TOP - 7, anchor(x, "%"))
