"""Translates errors of apsw."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from headway.errors import Refused, Unreachable
from headway.store.db import FileUnusable
from headway.store.sqlite import busy
from headway.store.transfer.seal import MESSAGE


def ours(error: apsw.Error) -> Exception:
    """Returns the driver's error as a HeadwayError with a remedy.

    A programming error is returned unchanged.
    """
    match error:
        case apsw.BusyError():
            seconds = f"{busy.BUSY_SECONDS:.0f} s"
            return Unreachable(
                f"another process has kept the database locked for {seconds}", hint="end it or try again"
            )
        case apsw.NotADBError() | apsw.CorruptError():
            return Unreachable(
                f"the database file is damaged ({error})",
                hint="check it with `headway db check`, or restore a backup with `headway db restore`",
            )
        case apsw.ReadOnlyError():
            return Unreachable("the database file or its folder is read-only", hint="make both writable for this user")
        case apsw.FullError():
            return Unreachable("the disk is full", hint="free some space; nothing was changed")
        case apsw.IOError() | apsw.CantOpenError():
            return FileUnusable("the database file cannot be read or written", cause=str(error))
        case apsw.ConstraintError() if str(error).startswith(MESSAGE):
            return Refused(f"{error}", hint="set `database` to that address", code="moved")
    return error


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise ours(error) from error
