"""The outcome of a claim, as a value. `decide()` turns it into a change of the job."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# The reason of a job whose user code never began, and the beginning of its run's error.
NEVER_BEGAN = "never began"
# The reason of a job that a shutdown paused.
SHUTDOWN = "shutdown"


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
    """The task returned. `result` is JSON text."""

    result: str = "null"
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The task failed. `final` rules out a retry; `retry_after` (seconds) replaces the backoff."""

    kind: FailureKind
    error: str
    exit_code: int | None = None
    retry_after: float | None = None
    final: bool = False


@dataclass(frozen=True, slots=True)
class Skipped:
    """The task raised Skip because there was nothing to do."""

    reason: str


@dataclass(frozen=True, slots=True)
class StoppedByRequest:
    """The task ended because of a stop request; the job's row says which one."""

    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The worker ended the task: the shutdown grace ran out, or the task blocked the event loop.

    `reason` is stored with a job that becomes PAUSED.
    """

    error: str = "the worker shut down before the job could finish"
    reason: str = SHUTDOWN


@dataclass(frozen=True, slots=True)
class NeverBegan:
    """No user code ran: a process, thread or descriptor was missing, or the job was stopped before it began."""

    why: str

    @property
    def error(self) -> str:
        return f"{NEVER_BEGAN}: {self.why}"


@dataclass(frozen=True, slots=True)
class Lost:
    """The owner of the claim is gone. `remains` means that its processes could not be killed."""

    why: str
    remains: bool = False


Outcome = Completed | Failed | Skipped | StoppedByRequest | Interrupted | NeverBegan | Lost
