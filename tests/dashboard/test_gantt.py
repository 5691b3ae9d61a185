"""The picture of stages over time: what it shows is where it belongs, and names stay names."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from headway.dashboard.charts.gantt import LEFT, RIGHT, THINNEST, Gantt, GanttRow, gantt
from headway.model.groups.progress import Attempt, Phase, Planned, Spent
from headway.model.jobs.states import State

pytestmark = pytest.mark.shown

SECOND = 1_000_000
HOSTILE = '"><script>alert(1)</script>&'


def drawn(*rows: GanttRow, now: int | None = 100 * SECOND, label: str = "steps") -> list[ElementTree.Element]:
    text = gantt(Gantt(label, 0, 100 * SECOND, now, rows=rows))
    return list(ElementTree.fromstring(str(text)).iter())


def place(text: str) -> float:
    """Along the axis, in percent of what room there is."""
    assert text.endswith("%")
    return float(text.removesuffix("%"))


def bars(found: list[ElementTree.Element], *classes: str) -> list[dict[str, str]]:
    return [one.attrib for one in found if one.tag == "rect" and one.get("class") in classes]


def test_waiting_and_running_are_told_apart_and_retries_share_a_row() -> None:
    first = Attempt(
        1, "pull", State.FAILED, (Phase(Spent.WAITING, 0, 20 * SECOND), Phase(Spent.RUNNING, 20 * SECOND, 40 * SECOND))
    )
    second = Attempt(
        2,
        "pull",
        State.RUNNING,
        (Phase(Spent.DELAYED, 40 * SECOND, 50 * SECOND), Phase(Spent.RUNNING, 50 * SECOND, None)),
    )
    found = drawn(GanttRow("pull", 0, [first, second], ["bad", "runs"]))
    ((waits,), (failed,), (runs,), (delay,)) = (bars(found, one) for one in ("waits", "bad", "runs", "quiet"))
    assert float(waits["height"]) < float(failed["height"]) == float(runs["height"])
    assert float(delay["height"]) < float(waits["height"])
    middles = {float(one["y"]) + float(one["height"]) / 2 for one in (waits, failed, runs, delay)}
    assert len(middles) == 1
    ends = [place(one["x"]) + place(one["width"]) for one in (waits, failed, delay)]
    begins = [place(one["x"]) for one in (failed, delay, runs)]
    assert all(abs(end - begin) < 0.1 for end, begin in zip(ends, begins, strict=True))
    titles = [one.text for one in found if one.tag == "title"]
    assert "job 1, attempt 1 ran 20 s: FAILED" in titles
    assert "job 2, attempt 2 ran 50 s: RUNNING" in titles


def test_what_is_expected_is_hatched_and_after_now() -> None:
    row = GanttRow("mail", 1, planned=Planned(120 * SECOND, 200 * SECOND))
    found = drawn(row)
    (expected,) = bars(found, "expected")
    assert expected["fill"] == "url(#expected)"
    (line,) = [one for one in found if one.get("class") == "now"]
    assert LEFT < place(line.attrib["x1"]) < place(expected["x"])
    assert place(expected["x"]) + place(expected["width"]) <= RIGHT
    assert not [one for one in drawn(row, now=None) if one.get("class") == "now"]


def test_a_step_may_be_called_anything_and_take_no_time_at_all() -> None:
    row = GanttRow(
        HOSTILE * 3, 0, [Attempt(1, "x", State.FAILED, (Phase(Spent.RUNNING, 5, 5),))], ["bad"], note=HOSTILE
    )
    found = drawn(row, label=HOSTILE)
    shapes = {"svg", "title", "defs", "pattern", "line", "rect", "text"}
    assert {one.tag for one in found} <= {"div", "ol", "li", *shapes}
    assert [one.get("aria-label") for one in found if one.tag == "svg"] == [HOSTILE]
    (bar,) = bars(found, "bad")
    assert place(bar["width"]) >= THINNEST
    assert [(one.text, one.get("title")) for one in found if one.get("class") == "name"] == [
        (f"1 · {HOSTILE * 3}",) * 2
    ]
    assert len(drawn()) > 1


def test_words_at_the_edges_stay_inside() -> None:
    """The picture has no margin: a label that begins or ends it leans inwards."""
    found = drawn(GanttRow("pull", 0, [Attempt(1, "pull", State.RUNNING, (Phase(Spent.RUNNING, 0, None),))], ["runs"]))
    words = {one.text: one for one in found if one.tag == "text"}
    assert (place(words["00:00:00"].attrib["x"]), words["00:00:00"].get("text-anchor")) == (LEFT, "start")
    assert words["now"].get("text-anchor") == "end"
    assert words["00:01:00"].get("text-anchor") == "middle"
