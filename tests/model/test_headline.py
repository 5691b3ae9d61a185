"""How things stand in one sentence: the most urgent of it comes first."""

from __future__ import annotations

import pytest

from headway.model.headline import Standing, headline


@pytest.mark.parametrize(
    ("seen", "tone", "text"),
    [
        (Standing(0, 0, 0, 1), "good", "All quiet: nothing runs, nothing waits."),
        (Standing(0, 0, 0, 0), "good", "All quiet: nothing runs, nothing waits."),
        (Standing(1, 0, 0, 1), "good", "1 job runs, nothing waits."),
        (Standing(2, 1, 0, 1), "good", "2 jobs run, 1 job waits."),
        (Standing(0, 1_200, 0, 1), "good", "Nothing runs yet, 1,200 jobs wait."),
        (Standing(2, 5, 1, 1), "held", "1 job needs a decision. 2 jobs run, 5 jobs wait."),
        (Standing(0, 0, 3, 1), "held", "3 jobs need a decision. All quiet: nothing runs, nothing waits."),
        (Standing(2, 5, 0, 1, paused=True), "held", "The queue is paused."),
        (Standing(0, 5, 3, 0), "bad", "5 jobs wait and no worker is alive."),
    ],
)
def test_headlines(seen: Standing, tone: str, text: str) -> None:
    found = headline(seen)
    assert (found.tone, found.text) == (tone, text)
    assert found.command == ("headway work" if tone == "bad" else None)
