"""How things stand in one sentence: the most urgent of it comes first."""

from __future__ import annotations

import pytest

from headway.text.overview import OverviewCounts, headline


@pytest.mark.parametrize(
    ("seen", "tone", "text"),
    [
        (OverviewCounts(0, 0, 0, 1), "good", "Idle: nothing runs, nothing is in line."),
        (OverviewCounts(0, 0, 0, 0), "good", "Idle: nothing runs, nothing is in line."),
        (OverviewCounts(1, 0, 0, 1), "good", "1 job runs, nothing is in line."),
        (OverviewCounts(2, 1, 0, 1), "good", "2 jobs run, 1 job is in line."),
        (OverviewCounts(0, 1_200, 0, 1), "good", "Nothing runs yet, 1,200 jobs are in line."),
        (OverviewCounts(0, 0, 0, 0, in_line=3), "good", "Nothing runs yet, 3 jobs are in line."),
        (OverviewCounts(2, 5, 0, 1, in_line=20_000, at_least=True), "good", "2 jobs run, 20,000+ jobs are in line."),
        (OverviewCounts(2, 5, 1, 1), "held", "1 job needs a decision. 2 jobs run, 5 jobs are in line."),
        (OverviewCounts(0, 0, 3, 1), "held", "3 jobs need a decision. Idle: nothing runs, nothing is in line."),
        (OverviewCounts(2, 5, 0, 1, paused=True), "held", "The queue is paused."),
        (OverviewCounts(0, 5, 3, 0, in_line=7), "bad", "7 jobs are in line and no worker is alive."),
        (OverviewCounts(0, 0, 0, 1, calls=1), "good", "1 direct call runs, nothing is in line."),
        (OverviewCounts(1, 1, 0, 1, calls=1), "good", "1 job and 1 direct call run, 1 job is in line."),
        (
            OverviewCounts(0, 0, 0, 1, calls=2, holds=1),
            "good",
            "2 direct calls run, 1 reservation is active, nothing is in line.",
        ),
        (OverviewCounts(0, 1, 0, 1, holds=2), "good", "2 reservations are active, 1 job is in line."),
    ],
)
def test_headlines(seen: OverviewCounts, tone: str, text: str) -> None:
    found = headline(seen)
    assert (found.tone, found.text) == (tone, text)
    assert (found.remedy and found.remedy.command) == ("headway work" if tone == "bad" else None)
