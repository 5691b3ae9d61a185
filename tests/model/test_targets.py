"""How a target is told: every combination of a pause, a holder and a direct call."""

from __future__ import annotations

import itertools

import pytest

from headway.errors import WrongState
from headway.model.jobs.states import State
from headway.model.queue.target import TargetHolder, TargetState, check_paused, view
from headway.text.targets import remedy, resumed

HOLDERS = (None, State.QUEUED, State.RUNNING, State.PAUSED, State.ERROR)


@pytest.mark.parametrize(
    ("paused", "holder", "direct"), list(itertools.product((None, 5), HOLDERS, (None, (9, 7)))), ids=repr
)
def test_one_word_for_how_it_stands_and_everything_that_is_in_the_way(
    paused: int | None, holder: State | None, direct: tuple[int, int] | None
) -> None:
    has = None if holder is None else TargetHolder(3, holder, 4, "RuntimeError: broken\nTraceback …")
    found = view(1, "desk-1", paused_at=paused, note="dust" if paused else None, holder=has, direct=direct)
    held = holder in (State.QUEUED, State.PAUSED, State.ERROR)
    runs = holder is State.RUNNING
    if paused is not None:
        expected = TargetState.PAUSED, 5
    elif held:
        expected = TargetState.HELD, 4
    elif runs:
        expected = TargetState.BUSY, 4
    else:
        expected = (TargetState.BUSY, 7) if direct else (TargetState.FREE, None)  # type: ignore[assignment]
    assert (found.state, found.since) == expected
    assert (found.held_by, found.running, found.direct) == (
        3 if held else None,
        3 if runs else None,
        9 if direct else None,
    )
    assert found.note == ("dust" if paused else None)
    assert found.resumed == (holder is State.QUEUED)


def test_why_it_is_held_in_one_line() -> None:
    def why(status: State, reason: str | None) -> str | None:
        return view(1, "desk-1", holder=TargetHolder(3, status, 4, reason)).reason

    assert why(State.ERROR, "RuntimeError: broken\n  File …") == "RuntimeError: broken"
    assert why(State.PAUSED, "shutdown") == "shutdown"
    assert why(State.PAUSED, None) == "PAUSED"
    assert why(State.QUEUED, None) == "resumed: it goes first"
    assert why(State.RUNNING, None) is None


def test_what_a_person_has_to_do_is_said_only_where_there_is_something() -> None:
    error = TargetHolder(7, State.ERROR, 5, "the window did not open")
    assert remedy(view(1, "desk")) is None
    assert remedy(view(1, "desk", holder=TargetHolder(7, State.RUNNING, 5))) is None
    assert remedy(view(1, "desk", holder=TargetHolder(7, State.QUEUED, 5))) is None
    assert "Resume job 7" in (remedy(view(1, "desk", holder=error)) or "")
    both = remedy(view(1, "desk", holder=error, paused_at=9)) or ""
    assert both.startswith("Resume the target")
    assert "job 7 also holds it" in both


def test_resuming_a_target_is_refused_while_a_job_holds_it() -> None:
    error = TargetHolder(7, State.ERROR, 5, "the window did not open")
    with pytest.raises(WrongState, match="not paused: job 7 holds it"):
        check_paused(view(1, "desk", holder=error))
    check_paused(view(1, "desk", holder=error, paused_at=9))
    check_paused(view(1, "desk"))


def test_what_a_resume_has_led_to_is_told_by_how_it_stands() -> None:
    error = TargetHolder(7, State.ERROR, 5, "no window")
    assert resumed(view(1, "desk")) == "Jobs start on the target desk again."
    assert "no longer paused, but job 7 holds it. Resume job 7" in resumed(view(1, "desk", holder=error))
    assert "then paused again" in resumed(view(1, "desk", paused_at=9))
