"""Recognises errors of a system that is out of descriptors, processes or memory for the moment.

Work that such an error stops before its user code is entered never began.
"""

from __future__ import annotations

import errno

EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN))


class NoRoom(Exception):
    """Raised when work cannot be prepared because something is exhausted; its user code was not entered."""


def is_exhausted(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in EXHAUSTED)


def check_room(error: BaseException, doing: str) -> None:
    """Raises NoRoom if something is exhausted. `doing` says what was prepared."""
    if is_exhausted(error):
        raise NoRoom(f"{doing}: {str(error) or type(error).__name__}") from error
