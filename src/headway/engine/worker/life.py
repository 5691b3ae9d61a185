"""The life of a worker as one state, with the table of its legal moves."""

from __future__ import annotations

import enum
import threading


class WorkerState(enum.Enum):
    """The states of a worker. Only a LIVE worker claims jobs; in every state, running jobs continue or are stopped.

    A worker that was registered is LIVE. Its lease holds claims back until the first renewal by the heartbeat.
    """

    LIVE = "live"
    # The process shuts down.
    DRAINING = "draining"
    # Another process gave this incarnation up. Its loop ends.
    LOST = "lost"
    # Work does not stop, and the worker is storing this. Recovery reads it, so the process must not exit yet.
    STALLED = "stalled"
    # Work does not stop. The process exits when its other jobs are done.
    STUCK = "stuck"


S = WorkerState
# State -> the states to which it may move. A worker whose work does not stop ignores the end that others ask for,
# because it ends its process anyway.
MOVES: dict[WorkerState, frozenset[WorkerState]] = {
    S.LIVE: frozenset({S.DRAINING, S.LOST, S.STALLED}),
    S.DRAINING: frozenset({S.LOST, S.STALLED}),
    S.LOST: frozenset({S.STALLED}),
    S.STALLED: frozenset({S.STUCK}),
    S.STUCK: frozenset({S.STALLED}),
}
# The threads that move a worker into a state, by their names in `threads.WRITERS`. `caller` may be the supervisor,
# which drains, or recovery, which renews the lease.
MOVERS: dict[WorkerState, set[str]] = {
    S.DRAINING: {"caller"},
    S.LOST: {"worker", "heartbeat", "caller"},
    S.STALLED: {"worker"},
    S.STUCK: {"worker"},
}
# The state in the database. A lost worker is 'gone' there, which no worker overwrites.
_STORED = {S.LIVE: "live", S.DRAINING: "draining", S.LOST: "draining", S.STALLED: "stuck", S.STUCK: "stuck"}


class WorkerLife:
    """The state of a worker, and the state that the database has.

    Any thread may read `state` and call `move`. Only the worker's thread writes `stored`.
    """

    def __init__(self) -> None:
        self.state = WorkerState.LIVE
        self.stored = "live"
        self._lock = threading.Lock()

    @property
    def claims(self) -> bool:
        return self.state is WorkerState.LIVE

    def move(self, to: WorkerState) -> bool:
        """Moves to another state; returns False if the table does not allow it."""
        with self._lock:
            if to not in MOVES[self.state]:
                return False
            self.state = to
            return True

    def unstored(self) -> str | None:
        """Returns the state to store; None if the database has it."""
        state = _STORED[self.state]
        return None if state == self.stored else state
