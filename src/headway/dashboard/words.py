"""What states are called for people, which colour they wear, and what is in line."""

from __future__ import annotations

from headway.model.states import State

# Each state with its tone: the name of a colour in the style sheet.
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


# What is counted as in line, on every page.
IN_LINE = frozenset({State.WAITING, State.SCHEDULED, State.QUEUED})
IN_LINE_MEANS = (
    "In line is every job that has not begun: it waits for its turn (QUEUED), for its time (SCHEDULED), or for its"
    " stage or a person (WAITING)."
)


def tone(state: State | str) -> str:
    return _OF_NAMES.get(state.name if isinstance(state, State) else str(state).upper(), "quiet")


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
