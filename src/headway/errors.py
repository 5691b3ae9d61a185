"""The errors that Headway raises, named by what the caller should do about each."""

from __future__ import annotations

from typing import Any


class HeadwayError(Exception):
    """Base class of Headway's errors. `code` is stable; the message is for people and may change.

    `str(error)` says what happened, then what to do. `problem` and `hint` are these two parts; `hint` is None if the
    message has no remedy.
    """

    code = "error"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        code: str | None = None,
        field: str | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(message if hint is None else f"{message}: {hint}")
        self.problem = message
        self.hint = hint
        self.code = code or type(self).code
        self.field = field
        self.facts = facts


class BadInput(HeadwayError):
    """The input is not valid. Correct it and try again; `field` names the place."""

    code = "bad_input"


class NotFound(HeadwayError):
    """The requested thing does not exist, or belongs to another tenant. `noun` names its kind."""

    code = "not_found"

    def __init__(self, message: str, *, noun: str | None = "job", **rest: Any) -> None:
        super().__init__(message, **rest)
        self.noun = noun


class WrongState(HeadwayError):
    """The current state does not allow the change; `facts["status"]` is that state."""

    code = "wrong_state"


class Refused(HeadwayError):
    """The operation is not allowed: a newer schema, an unknown policy, a missing permission."""

    code = "refused"


class Unreachable(HeadwayError):
    """The database cannot be reached or used; nothing was changed."""

    code = "unreachable"


class CommitUnknown(Unreachable):
    """The connection broke during a commit: the transaction may or may not be stored."""

    code = "commit_unknown"


def is_unsure(error: BaseException) -> bool:
    """Returns True if the transaction that raised this error may have been committed.

    Its answer was lost, or an exception from outside Headway interrupted it.
    """
    return isinstance(error, CommitUnknown) or not isinstance(error, HeadwayError)


class Busy(HeadwayError):
    """The resource is in use and nothing was changed. Try again after `facts["retry_after"]` seconds."""

    code = "busy"


class LeaseLost(HeadwayError):
    """The fence is stale: this claim has ended and its work must stop."""

    code = "lease_lost"


class JobFailed(HeadwayError):
    """Raised by `job.result()` if the job ended without a result."""

    code = "job_failed"


class WaitsForItself(WrongState):
    """A task waits for a job that cannot start until the task ends. Enqueue the job and return instead."""

    code = "waits_for_itself"


class Retry(Exception):
    """Raised by a task: this attempt failed; the retry may start after `after` seconds (or `"10m"`)."""

    def __init__(self, reason: str = "", *, after: float | str | None = None) -> None:
        super().__init__(reason or "the task asked for a retry")
        self.after = after


class Fail(Exception):
    """Raised by a task: it failed, and a retry would not help."""


class Skip(Exception):
    """Raised by a task: there is nothing to do. The run ends SKIPPED with this reason."""


class Stopped(BaseException):
    """Raised inside a task after a stop request. A BaseException, so `except Exception` does not swallow it."""
