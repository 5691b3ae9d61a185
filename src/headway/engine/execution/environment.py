"""Saves and restores the environment variables of this process.

Programs that the process starts inherit the C library's table, which `os.putenv` changes without Python's knowledge.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Iterator

from headway.engine.execution import process_tree

_LINUX = sys.platform == "linux"


class Environment:
    """The variables at one moment, except those that are set for each job."""

    def __init__(self, *, without: Collection[str]) -> None:
        self._variables = {name: value for name, value in os.environ.items() if name not in without}
        self._zone = time.tzname
        self._start, self._pointers = _pointers()

    def begin(self) -> None:
        """Notes the table at the start of a job, after its variables were set."""
        if not self._same():
            self._start, self._pointers = _pointers()

    def restore(self) -> None:
        """Restores the variables if one was set or removed since the job began."""
        if not self._same():
            for name in {*_names(), *os.environ} - self._variables.keys():
                os.unsetenv(name)
                os.environ.pop(name, None)
            os.environ.update(self._variables)
        if time.tzname != self._zone:
            time.tzset()

    def _same(self) -> bool:
        if not _LINUX:
            return dict(os.environ) == self._variables
        import ctypes

        # Compares the pointers, which os.environ and os.putenv both change. Comparing the texts takes 20 times longer.
        start = ctypes.c_void_p.in_dll(process_tree.libc(), "environ").value
        return start == self._start and (not start or ctypes.string_at(start, len(self._pointers)) == self._pointers)


def _pointers() -> tuple[int | None, bytes]:
    """Returns the address of C's table of variables, and its bytes with the end mark."""
    if not _LINUX:
        return None, b""
    import ctypes

    start = ctypes.c_void_p.in_dll(process_tree.libc(), "environ").value
    size = ctypes.sizeof(ctypes.c_void_p)
    return start, ctypes.string_at(start, size * (len(list(_raw())) + 1)) if start else b""


def _raw() -> Iterator[bytes]:
    import ctypes

    if not ctypes.c_void_p.in_dll(process_tree.libc(), "environ").value:
        return  # cleared
    table = ctypes.POINTER(ctypes.c_char_p).in_dll(process_tree.libc(), "environ")
    place = 0
    while (entry := table[place]) is not None:
        yield entry
        place += 1


def _names() -> Iterator[str]:
    for entry in _raw() if _LINUX else ():
        name = entry.partition(b"=")[0]
        if name:
            yield os.fsdecode(name)
