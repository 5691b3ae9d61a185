"""How long work usually takes, and what that says about work under way."""

from __future__ import annotations

from headway.model.explain.durations import Usual, by_progress, usual

MINUTE = 60_000_000


def test_usual_durations() -> None:
    assert usual([]) is None
    assert usual([n * MINUTE for n in range(1, 11)]) == Usual(5 * MINUTE, 9 * MINUTE, 10)


def test_usual_times_in_words() -> None:
    known = Usual(4 * MINUTE, 6 * MINUTE, 9)
    assert known.shown() == "usually 4 min"
    assert known.compared(MINUTE) == "about 3 min left"
    assert known.compared(4 * MINUTE) is None
    assert known.compared(6 * MINUTE) is None
    assert known.compared(7 * MINUTE) == "longer than usual: 9 of 10 took under 6 min"
    assert [known.exceeded(n * MINUTE) for n in (1, 6, 7)] == [False, False, True]


def test_one_run_is_not_usual() -> None:
    known = Usual(4 * MINUTE, 4 * MINUTE, 1)
    assert known.shown() == "4 min the last time"
    assert known.compared(5 * MINUTE) == "longer than the last time: 4 min"


def test_progress_knows_better_than_past_runs() -> None:
    assert by_progress(3 * MINUTE, 150, 900) == "about 15 min left by its progress"
    assert by_progress(3 * MINUTE, 0, 900) is None
    assert by_progress(3 * MINUTE, 900, 900) is None
    assert by_progress(3 * MINUTE, 5, None) is None
