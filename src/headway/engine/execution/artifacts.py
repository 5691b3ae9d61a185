"""Copies the files that a job attaches into the artifacts folder.

The name of each copy is its hash.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from headway.errors import BadInput

SIZE_LIMIT = 512 * 1024 * 1024
PIECE = 1 << 20
# Only the user of the worker may list or read what jobs leave.
PRIVATE = 0o700
_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class Stored:
    """A copied file: its path below the folder, its size and its hash."""

    path: str
    size: int
    sha256: str


def place_of(folder: Path, stored: str) -> Path | None:
    """Returns the file of a stored path; None if the path is not one that `keep` makes.

    The database may be a restored one, and names files that are sent and deleted.
    """
    begin, _, digest = stored.partition("/")
    if len(digest) == 64 and set(digest) <= _HEX and begin == digest[:2]:
        return folder / begin / digest
    return None


def keep(folder: Path, source: str) -> Stored:
    """Copies a file into the folder; raises BadInput if it is too large or no plain file.

    The copy is synced to disk before this returns, so a stored record never names a missing file.
    """
    with _opened(source) as original:
        _refuse_large(source, os.fstat(original.fileno()).st_size)
        folder.mkdir(PRIVATE, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".part-", delete=False) as copy:
            try:
                size, digest = _copy(original, copy, source)  # type: ignore[arg-type]
                copy.flush()
                os.fsync(copy.fileno())
                place = folder / digest[:2] / digest
                place.parent.mkdir(PRIVATE, exist_ok=True)
                os.replace(copy.name, place)
            except BaseException:
                Path(copy.name).unlink(missing_ok=True)
                raise
    return Stored(f"{digest[:2]}/{digest}", size, digest)


def _opened(source: str) -> BinaryIO:
    """Opens a plain file.

    The open file is checked, not its name: another program may replace the file at any time. Without O_NONBLOCK a named
    pipe would keep the worker waiting.
    """
    try:
        number = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise BadInput(
                f"{source} is a symbolic link", hint="attach the file that it points to", field="attach"
            ) from None
        if error.errno in (errno.ENXIO, errno.ENODEV, errno.ENOENT, errno.ENOTDIR):
            raise BadInput(f"there is no file {source} to attach", field="attach") from None
        raise
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise BadInput(f"{source} is not a file: a folder, pipe or device cannot be attached", field="attach")
    return open(number, "rb", buffering=0)


def _copy(original: BinaryIO, copy: BinaryIO, source: str) -> tuple[int, str]:
    """Copies the data once; returns their size and hash. The file may grow meanwhile."""
    size, digest = 0, hashlib.sha256()
    while piece := original.read(PIECE):
        size += len(piece)
        _refuse_large(source, size)
        digest.update(piece)
        copy.write(piece)
    return size, digest.hexdigest()


def _refuse_large(source: str, size: int) -> None:
    if size > SIZE_LIMIT:
        text = f"{source} is {size >> 20} MiB, the limit for an artifact is {SIZE_LIMIT >> 20} MiB"
        raise BadInput(text, field="attach")
