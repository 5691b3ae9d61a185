"""The states of a job, and the table of moves between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum


class State(IntEnum):
    """The states of a job. Their numbers are stored and never change."""

    WAITING = 0
    SCHEDULED = 1
    QUEUED = 2
    RUNNING = 3
    PAUSED = 4
    ERROR = 5
    COMPLETED = 6
    FAILED = 7
    SKIPPED = 8
    CANCELLED = 9

    @property
    def terminal(self) -> bool:
        return self >= State.COMPLETED

    @property
    def claimable_later(self) -> bool:
        return self <= State.QUEUED


class Verb(StrEnum):
    """The verbs that change a job."""

    PROMOTE = "promote"
    EXPIRE = "expire"
    CLAIM = "claim"
    FINISH = "finish"
    HOLD = "hold"
    CANCEL = "cancel"
    INTERRUPT = "interrupt"
    RESUME = "resume"
    RESOLVE = "resolve"
    RELEASE = "release"
    RETRY = "retry"
    EDIT = "edit"
    MOVE = "move"
    SKIP = "skip"


# The reason of a RUNNING job that ignores its stop request.
NOT_STOPPING = "not stopping"
S = State
_UNCLAIMED = (S.WAITING, S.SCHEDULED, S.QUEUED)
_HELD = (S.PAUSED, S.ERROR)

# Verb -> state in which it is allowed -> states to which it may lead. A state that leads to itself does not change
# (a stop request on RUNNING, an edit). HOLD, EXPIRE and EDIT of params also require a job that was never claimed.
MOVES: Mapping[Verb, Mapping[State, frozenset[State]]] = {
    Verb.PROMOTE: {S.SCHEDULED: frozenset({S.QUEUED})},
    Verb.EXPIRE: {s: frozenset({S.SKIPPED}) for s in _UNCLAIMED},
    Verb.CLAIM: {S.QUEUED: frozenset({S.RUNNING})},
    Verb.FINISH: {S.RUNNING: frozenset({S.COMPLETED, S.FAILED, S.SKIPPED, S.CANCELLED, S.PAUSED, S.ERROR})},
    Verb.HOLD: {s: frozenset({S.WAITING}) for s in _UNCLAIMED},
    Verb.CANCEL: {s: frozenset({S.CANCELLED}) for s in (*_UNCLAIMED, *_HELD)} | {S.RUNNING: frozenset({S.RUNNING})},
    Verb.INTERRUPT: {s: frozenset({S.WAITING}) for s in _UNCLAIMED} | {S.RUNNING: frozenset({S.RUNNING})},
    Verb.RESUME: {s: frozenset({S.QUEUED}) for s in _HELD} | {S.WAITING: frozenset({S.WAITING, S.SCHEDULED, S.QUEUED})},
    Verb.RESOLVE: {s: frozenset({S.COMPLETED}) for s in _HELD},
    Verb.RELEASE: {s: frozenset({S.FAILED}) for s in _HELD},
    Verb.RETRY: {s: frozenset({S.FAILED}) for s in _HELD} | {s: frozenset({s}) for s in (S.FAILED, S.CANCELLED)},
    Verb.EDIT: {s: frozenset({s}) for s in _UNCLAIMED},
    Verb.MOVE: {s: frozenset({s}) for s in _UNCLAIMED},
    Verb.SKIP: {S.WAITING: frozenset({S.SKIPPED})},
}

# The allowed state changes as edges. `headway verify` checks the history against them.
EDGES: frozenset[tuple[State, State]] = frozenset(
    (origin, target)
    for moves in MOVES.values()
    for origin, targets in moves.items()
    for target in targets
    if origin != target
)


class StopRequest(StrEnum):
    """A stored request that a running job should stop."""

    CANCEL = "cancel"
    INTERRUPT = "interrupt"
