"""Translates errors of psycopg."""

from __future__ import annotations

import re

import psycopg
from psycopg import errors as pg
from psycopg_pool import PoolTimeout

from headway.errors import HeadwayError, Unreachable
from headway.store.db import Conflict, LockTaken, ServerUnreachable
from headway.store.postgres.session import IDLE_SECONDS

# Unique indexes on user-chosen names. A violation is retried as a conflict, and the retry raises Headway's own error.
TAKEN = ("hw_job_key", "hw_schedule_name", "hw_template_name")


class _Translated:
    """Translates driver errors.

    Not a generator-based context manager, because every statement passes here.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and (known := ours(error)) is not None:
            raise known from error


_TRANSLATED = _Translated()


def translated() -> _Translated:
    """Returns a context that turns the driver's errors into Headway's."""
    return _TRANSLATED


def ours(error: BaseException) -> HeadwayError | None:
    """Returns the driver's error as a HeadwayError; None for a programming error."""
    match error:
        case pg.DeadlockDetected() | pg.SerializationFailure():
            return Conflict(str(error))
        case pg.UniqueViolation():
            # Another transaction took the name after this one's check; the retry's check finds it.
            return Conflict(str(error)) if error.diag.constraint_name in TAKEN else None
        case pg.ReadOnlySqlTransaction() | pg.InsufficientPrivilege():
            return Unreachable(
                f"PostgreSQL refuses writes by this user: {error}",
                hint="use the primary server and a user that may write",
            )
        case pg.LockNotAvailable():
            return LockTaken(f"PostgreSQL did not grant a lock in time: {first_line(error)}")
        case pg.DiskFull():
            return Unreachable("PostgreSQL's disk is full", hint="free some space; nothing was changed")
        case pg.IdleInTransactionSessionTimeout():
            return Unreachable(f"PostgreSQL ended a transaction that was idle for {IDLE_SECONDS} s", hint="try again")
        case psycopg.OperationalError() if _login_refused(error):
            return Unreachable(f"PostgreSQL refused the login: {first_line(error)}", hint=_CHECK_LOGIN)
        case psycopg.OperationalError() | psycopg.InterfaceError() | PoolTimeout():
            return ServerUnreachable("PostgreSQL cannot be reached", cause=first_line(error))
    return None


_CHECK_LOGIN = "check the user and the password in the address, or in PGUSER, PGPASSWORD and ~/.pgpass"
# A refusal while connecting mostly comes without its code. A server with messages in another language does not match
# here, and the error then says that PostgreSQL cannot be reached.
_LOGIN_REFUSED = re.compile(r"authentication failed|no password supplied|no pg_hba\.conf entry|role .* does not exist")


def _login_refused(error: psycopg.OperationalError) -> bool:
    return (error.sqlstate or "").startswith("28") or _LOGIN_REFUSED.search(str(error)) is not None


def was_answered(error: Unreachable) -> bool:
    """Returns True if the server refused a statement and kept the session.

    The message with which a server ends a session may follow a commit that was stored.
    """
    cause = error.__cause__
    return isinstance(cause, psycopg.Error) and cause.diag.severity_nonlocalized == "ERROR"


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
