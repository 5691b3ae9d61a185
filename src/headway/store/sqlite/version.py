"""Refuses versions of SQLite that can corrupt a database."""

from __future__ import annotations

import apsw

from headway.errors import Refused

# SQLite versions that can corrupt a WAL database on a reset (fixed in 3.51.3).
AFFECTED = ((3, 7, 0), (3, 51, 2))


def refuse_affected(version: tuple[int, int, int]) -> None:
    if AFFECTED[0] <= version <= AFFECTED[1]:
        text = ".".join(map(str, version))
        raise Refused(f"SQLite {text} can corrupt a database in WAL mode", hint="install apsw 3.51.3 or newer")


def lib_version() -> tuple[int, int, int]:
    """Returns the version of the loaded library, not of the one apsw was built with."""
    major, minor, patch, *_ = map(int, apsw.sqlite_lib_version().split("."))
    return major, minor, patch
