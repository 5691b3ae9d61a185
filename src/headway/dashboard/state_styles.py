"""Tones and words for states, and the states that count as in line."""

from __future__ import annotations

from headway.model.jobs.states import State

# The tone of a state names a colour of the style sheet.
_TONES = {
    State.WAITING: "quiet",
    State.SCHEDULED: "quiet",
    State.QUEUED: "waits",
    State.RUNNING: "runs",
    State.PAUSED: "held",
    State.ERROR: "bad",
    State.COMPLETED: "good",
    State.FAILED: "bad",
    State.SKIPPED: "quiet",
    State.CANCELLED: "quiet",
}
_OF_NAMES = {
    **{state.name: tone for state, tone in _TONES.items()},
    "PENDING": "waits",
    "IN_PROGRESS": "runs",
    "PARTIAL": "held",
    "DELIVERED": "good",
    "FIRED": "good",
    "MISSED": "held",
}


# States that every page counts as in line.
IN_LINE = frozenset({State.WAITING, State.SCHEDULED, State.QUEUED})
IN_LINE_MEANS = (
    "All jobs that have not started: QUEUED jobs wait for a slot, SCHEDULED jobs for a time, WAITING jobs for their"
    " stage or a person."
)


def tone(state: State | str) -> str:
    return _OF_NAMES.get(state.name if isinstance(state, State) else str(state).upper(), "quiet")


def count(number: int, one: str, many: str | None = None) -> str:
    """Returns a number with its noun: `1 job`, `2 jobs`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
