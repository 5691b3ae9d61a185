"""Parses names of states, failure kinds and step kinds, including those of older systems."""

from __future__ import annotations

from collections.abc import Sequence

from headway.errors import BadInput
from headway.model.jobs.outcome import FailureKind
from headway.model.jobs.states import State
from headway.model.queue.target import TargetState
from headway.model.values.suggestions import closest

_ALSO = {
    "CANCELED": "CANCELLED",
    "SUCCESS": "COMPLETED",
    "SUCCEEDED": "COMPLETED",
    "PENDING": "WAITING",
    "WAITINGFORPREVIOUSSTEP": "WAITING",
    "PROCESSING": "RUNNING",
}
# A RUNNING job with a stop request.
STOPPING = "CancellationRequested"
# The step kinds of older systems, and what a step here has instead.
_STEP_KINDS = {
    "runprofile": "a template: give `template`",
    "executable": "the task `command`",
    "sqlscript": "the task `sql`",
    "powershell": "the task `powershell`",
}


def states(names: Sequence[str], *, label: str = "status") -> frozenset[State]:
    """Parses names of states, in any case, as a list or separated by commas."""
    return frozenset(_state(part, label) for part in _parts(names))


def only_stopping(names: Sequence[str], *, label: str = "status") -> bool:
    """Returns True if the names ask for RUNNING jobs with a stop request, and for no others."""
    asked = {part.strip().lower() for part in _parts(names)}
    if STOPPING.lower() not in asked:
        return False
    if len(asked) > 1:
        text = f"{label}: {STOPPING} is RUNNING with a stop request, and cannot be combined with other states"
        raise BadInput(text, hint="ask for it alone, or for RUNNING", field="status")
    return True


def step_kind(name: object) -> str | None:
    """Returns what stands here for a step kind of an older system; None if the name is none."""
    return _STEP_KINDS.get(name.lower()) if isinstance(name, str) else None


def _parts(names: Sequence[str]) -> list[str]:
    return [part for name in names for part in name.split(",")]


def _state(name: str, label: str) -> State:
    upper = name.strip().upper()
    if upper == "ERROR" and name.strip() != upper:
        text = (
            f"{label}: {name.strip()!r} is ambiguous: in older systems it is FAILED, and here ERROR waits for a person"
        )
        raise BadInput(text, hint="write FAILED or ERROR", field="status")
    upper = _ALSO.get(upper, upper)
    if upper not in State.__members__:
        near = closest(upper, State.__members__)
        hint = f"did you mean {near}?" if near else f"one of {', '.join(State.__members__)}"
        raise BadInput(f"{label}: there is no status {name!r}", hint=hint, field="status")
    return State[upper]


def failure_kind(name: str | None, *, label: str = "failure_kind") -> str | None:
    if name is None or name.upper() in FailureKind.__members__:
        return name.upper() if name else None
    known = ", ".join(FailureKind.__members__)
    raise BadInput(f"{label}: there is no kind {name!r}", hint=f"one of {known}", field="failure_kind")


def target_states(names: Sequence[str], *, label: str = "state") -> frozenset[TargetState]:
    """Parses names of target states, in any case, as a list or separated by commas."""
    requested = [part.strip().lower() for name in names for part in name.split(",")]
    known = [state.value for state in TargetState]
    for name in requested:
        if name not in known:
            near = closest(name, known)
            hint = f"did you mean {near}?" if near else f"one of {', '.join(known)}"
            raise BadInput(f"{label}: there is no target state {name!r}", hint=hint, field="state")
    return frozenset(map(TargetState, requested))
