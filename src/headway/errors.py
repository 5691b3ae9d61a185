"""Every error Headway raises on purpose, named by what the caller should do about it."""

from __future__ import annotations

from typing import Any


class HeadwayError(Exception):
    """Base of all errors of Headway. `code` is stable, the message is for people."""

    code = "error"

    def __init__(self, message: str, *, code: str | None = None, field: str | None = None, **facts: Any) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.field = field
        self.facts = facts


class BadInput(HeadwayError):
    """Correct the input and try again. `field` names the place."""

    code = "bad_input"


class NotFound(HeadwayError):
    """There is no such thing (for this tenant)."""

    code = "not_found"


class WrongState(HeadwayError):
    """The thing is not in a state that allows this; `facts["status"]` says which it is in."""

    code = "wrong_state"


class Refused(HeadwayError):
    """Not allowed here: a newer schema, a foreign policy, a missing right."""

    code = "refused"


class Unreachable(HeadwayError):
    """The database cannot be reached or used; nothing was changed."""

    code = "unreachable"


class CommitUnknown(Unreachable):
    """The connection broke while a commit was under way: it may or may not have been stored."""

    code = "commit_unknown"


class Busy(HeadwayError):
    """Others are at work there, and nothing was done. Try again after `facts["retry_after"]` seconds."""

    code = "busy"


class LeaseLost(HeadwayError):
    """The fence is stale: this claim has ended and its work must stop."""

    code = "lease_lost"


class JobFailed(HeadwayError):
    """`job.result()` of a job that ended without a result."""

    code = "job_failed"


class Retry(Exception):
    """Raised by a task: this try failed, the next one may begin after `after` seconds (or `"10m"`)."""

    def __init__(self, reason: str = "", *, after: float | str | None = None) -> None:
        super().__init__(reason or "the task asked for a retry")
        self.after = after


class Fail(Exception):
    """Raised by a task: it failed and no retry will help."""


class Skip(Exception):
    """Raised by a task: there is nothing to do. The run ends SKIPPED with this reason."""


class Stopped(BaseException):
    """Raised inside a task that was asked to stop. Not an `Exception`, so that work does not swallow it."""
