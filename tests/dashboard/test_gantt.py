"""The picture of stages over time: what it shows is where it belongs, and names stay names."""

from __future__ import annotations

from xml.etree import ElementTree

from headway.dashboard.pictures.gantt import LEFT, RIGHT, Gantt, Row, gantt
from headway.model.outlook import Attempt, Phase, Planned, Spent
from headway.model.states import State

SECOND = 1_000_000
HOSTILE = '"><script>alert(1)</script>&'


def drawn(*rows: Row, now: int | None = 100 * SECOND, label: str = "steps") -> list[ElementTree.Element]:
    text = gantt(Gantt(label, 0, 100 * SECOND, now, rows=rows))
    return list(ElementTree.fromstring(str(text)).iter())


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
    found = drawn(Row("pull", 0, [first, second], ["bad", "runs"]))
    ((waits,), (failed,), (runs,), (delay,)) = (bars(found, one) for one in ("waits", "bad", "runs", "quiet"))
    assert float(waits["height"]) < float(failed["height"]) == float(runs["height"])
    assert float(delay["height"]) < float(waits["height"])
    middles = {float(one["y"]) + float(one["height"]) / 2 for one in (waits, failed, runs, delay)}
    assert len(middles) == 1
    ends = [float(one["x"]) + float(one["width"]) for one in (waits, failed, delay)]
    begins = [float(one["x"]) for one in (failed, delay, runs)]
    assert all(abs(end - begin) < 0.1 for end, begin in zip(ends, begins, strict=True))
    titles = [one.text for one in found if one.tag == "title"]
    assert "job 1, attempt 1 ran 20 s: FAILED" in titles
    assert "job 2, attempt 2 ran 50 s: RUNNING" in titles


def test_what_is_expected_is_hatched_and_after_now() -> None:
    row = Row("mail", 1, planned=Planned(120 * SECOND, 200 * SECOND))
    found = drawn(row)
    (expected,) = bars(found, "expected")
    assert expected["fill"] == "url(#expected)"
    (line,) = [one for one in found if one.get("class") == "now"]
    assert LEFT < float(line.attrib["x1"]) < float(expected["x"])
    assert float(expected["x"]) + float(expected["width"]) <= RIGHT
    assert not [one for one in drawn(row, now=None) if one.get("class") == "now"]


def test_a_step_may_be_called_anything_and_take_no_time_at_all() -> None:
    row = Row(HOSTILE * 3, 0, [Attempt(1, "x", State.FAILED, (Phase(Spent.RUNNING, 5, 5),))], ["bad"], note=HOSTILE)
    found = drawn(row, label=HOSTILE)
    assert {one.tag for one in found} <= {"svg", "title", "defs", "pattern", "line", "rect", "text"}
    assert found[0].get("aria-label") == HOSTILE
    (bar,) = bars(found, "bad")
    assert float(bar["width"]) >= 2
    (label,) = [one.text for one in found if one.get("class") == "step"]
    assert label is not None
    assert len(label) <= 26
    assert len(drawn()) > 1
