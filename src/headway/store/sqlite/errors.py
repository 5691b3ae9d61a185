"""Translates errors of apsw."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from headway.errors import Refused, Unreachable
from headway.store.db import FileUnusable
from headway.store.sqlite import busy
from headway.store.transfer.seal import MESSAGE


def ours(error: apsw.Error, path: str | None = None) -> Exception:
    """Returns the driver's error as a HeadwayError with a remedy.

    A programming error is returned unchanged. With the path of the file, it names the process that holds its lock.
    """
    match error:
        case apsw.BusyError():
            return _locked(busy.write_lock_holder(path) if path is not None else None)
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


def _locked(holder: busy.Holder | None) -> Unreachable:
    subject, hint = "another process", "end it or try again"
    if holder is not None and holder.pid == os.getpid():
        subject, hint = "another connection of this process", "end its transaction or try again"
    elif holder is not None:
        subject = f"process {holder.pid} ({holder.name})"
        if holder.halted:
            subject += ", which a signal has stopped,"
            hint = f"continue it with `kill -CONT {holder.pid}`, or end it"
    return Unreachable(f"{subject} has kept the database locked for {busy.BUSY_SECONDS:.0f} s", hint=hint)


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise ours(error) from error
