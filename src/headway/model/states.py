"""The states of a job, the one table of moves between them, and `decide()`: what an outcome leads to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import assert_never

from headway.model.outcome import Completed, Failed, FailureKind, Interrupted, Lost, Outcome, Skipped, Stopped
from headway.model.retry import RetryPolicy, retries


class State(IntEnum):
    """The numbers are stored, so they never change."""

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
    """What can be done to a job."""

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


S = State
_UNCLAIMED = (S.WAITING, S.SCHEDULED, S.QUEUED)
_HELD = (S.PAUSED, S.ERROR)

# Verb -> state it may be used in -> states it may lead to. A state that leads to itself keeps its state
# (a stop request on RUNNING, an edit). HOLD, EXPIRE and EDIT of params also need a job that was never claimed.
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

# The legal paths of domain.md §2, as edges; `headway verify` walks them.
EDGES: frozenset[tuple[State, State]] = frozenset(
    (origin, target)
    for moves in MOVES.values()
    for origin, targets in moves.items()
    for target in targets
    if origin != target
)


class Stop(StrEnum):
    """A stored wish that running work should end."""

    CANCEL = "cancel"
    INTERRUPT = "interrupt"


@dataclass(frozen=True, slots=True)
class Standing:
    """What the finishing transaction knows of the job, read inside it."""

    policy: RetryPolicy = field(default_factory=RetryPolicy)
    retries_used: int = 0
    stop: Stop | None = None
    stop_by: str = "user"
    on_target: bool = False
    on_lost: str = "retry"
    on_error: str = "hold"
    on_shutdown: str | None = None
    over_budget: str | None = None
    group_cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Transition:
    """Where a job goes when its claim ends, with everything that is recorded in the same transaction.

    `run` is the status its run is closed with (None: the run stays open); `retry` the seconds before the automatic
    retry (None: there is none); `resume` sends a PAUSED job straight back to QUEUED.
    """

    state: State
    run: State | None = None
    result: str | None = None
    exit_code: int | None = None
    error: str | None = None
    failure: FailureKind | None = None
    reason: str | None = None
    retry: float | None = None
    exhausted: bool = False
    resume: bool = False


def decide(standing: Standing, outcome: Outcome, rng: Callable[[], float]) -> Transition:
    """The only place that says what becomes of a RUNNING job."""
    match outcome:
        case Completed():
            return Transition(S.COMPLETED, run=S.COMPLETED, result=outcome.result, exit_code=outcome.exit_code)
        case Skipped():
            return Transition(S.SKIPPED, run=S.SKIPPED, reason=outcome.reason)
        case Failed():
            return _stopped(standing, outcome) or _failed(standing, outcome, rng)
        case Stopped():
            return _stopped(standing, Failed(FailureKind.INTERRUPTED, "", outcome.exit_code)) or _shut_down(
                standing, rng
            )
        case Interrupted():
            return _stopped(standing, Failed(FailureKind.INTERRUPTED, outcome.error)) or _shut_down(standing, rng)
        case Lost():
            lost = Failed(FailureKind.LOST, f"Scheduler crash recovery: {outcome.why}")
            return _stopped(standing, lost) or _lost(standing, lost, outcome, rng)
        case _:
            assert_never(outcome)


def _stopped(standing: Standing, failure: Failed) -> Transition | None:
    """The transition that a pending stop request causes, if there is one."""
    detail = f": {failure.error}" if failure.error else ""
    if standing.stop is Stop.CANCEL:
        error = f"cancelled by {standing.stop_by}{detail}"
        reason = f"cancelled by {standing.stop_by}"
        return Transition(
            S.CANCELLED, run=S.FAILED, exit_code=failure.exit_code, error=error, failure=failure.kind, reason=reason
        )
    if standing.stop is Stop.INTERRUPT:
        if standing.over_budget is not None and failure.kind is not FailureKind.BUDGET:
            failure = Failed(FailureKind.BUDGET, standing.over_budget)
        if failure.kind is FailureKind.BUDGET:
            return _last(standing, failure)
        return Transition(S.PAUSED, failure=failure.kind, reason=f"interrupted by {standing.stop_by}{detail}")
    return None


def _failed(standing: Standing, failure: Failed, rng: Callable[[], float]) -> Transition:
    used = standing.retries_used
    if standing.group_cancelled or not retries(standing.policy, failure.kind, used=used, final=failure.final):
        return _last(standing, failure)
    delay = failure.retry_after
    if delay is None:
        delay = 0.0 if failure.kind is FailureKind.INTERRUPTED else standing.policy.delay(used, rng)
    return Transition(
        S.FAILED, run=S.FAILED, exit_code=failure.exit_code, error=failure.error, failure=failure.kind, retry=delay
    )


def _last(standing: Standing, failure: Failed) -> Transition:
    """A failure that no automatic retry follows: on a target a person decides, elsewhere it is final."""
    if standing.on_target and standing.on_error != "fail":
        return Transition(
            S.ERROR, failure=failure.kind, reason=failure.error, exit_code=failure.exit_code, error=failure.error
        )
    return Transition(
        S.FAILED, run=S.FAILED, exit_code=failure.exit_code, error=failure.error, failure=failure.kind, exhausted=True
    )


def _shut_down(standing: Standing, rng: Callable[[], float]) -> Transition:
    if standing.on_shutdown == "resume":
        return Transition(S.PAUSED, failure=FailureKind.INTERRUPTED, reason="shutdown", resume=True)
    if standing.on_target or standing.policy.max_attempts == 0 or standing.on_shutdown == "pause":
        return Transition(S.PAUSED, failure=FailureKind.INTERRUPTED, reason="shutdown")
    return _failed(standing, Failed(FailureKind.INTERRUPTED, Interrupted().error), rng)


def _lost(standing: Standing, failure: Failed, lost: Lost, rng: Callable[[], float]) -> Transition:
    if lost.remains or standing.on_lost == "hold":
        return Transition(S.ERROR, failure=failure.kind, reason=failure.error, error=failure.error)
    if standing.on_lost == "fail":
        return _last(standing, failure)
    return _failed(standing, failure, rng)
