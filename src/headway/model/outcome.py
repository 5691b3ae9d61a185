"""What happened to a piece of work, as a value: the one thing that is handed to `decide()`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FailureKind(StrEnum):
    EXCEPTION = "EXCEPTION"
    EXIT_CODE = "EXIT_CODE"
    TIMEOUT = "TIMEOUT"
    LOST = "LOST"
    INTERRUPTED = "INTERRUPTED"
    BUDGET = "BUDGET"
    BAD_PARAMS = "BAD_PARAMS"
    UNKNOWN_TASK = "UNKNOWN_TASK"


@dataclass(frozen=True, slots=True)
class Completed:
    """The work returned. `result` is JSON text."""

    result: str = "null"
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The work failed. `final` means that no retry will help; `retry_after` (seconds) replaces the backoff."""

    kind: FailureKind
    error: str
    exit_code: int | None = None
    retry_after: float | None = None
    final: bool = False


@dataclass(frozen=True, slots=True)
class Skipped:
    """The work said that there was nothing to do."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The work ended because a stop request reached it (which one, the row says)."""

    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The worker shut down and the work did not end within the grace."""

    error: str = "the worker shut down before the job could finish"


@dataclass(frozen=True, slots=True)
class Lost:
    """The owner of the claim is gone. `remains` says that its processes could not be ended."""

    why: str
    remains: bool = False


Outcome = Completed | Failed | Skipped | Stopped | Interrupted | Lost
