"""Temporary directories in memory where the machine has room for it, on disk elsewhere."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MEMORY = Path("/dev/shm")
_ROOM = 1 << 30  # containers often give /dev/shm 64 MiB, too little for a database server


def scratch_root() -> Path:
    if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(_MEMORY).free >= _ROOM:
        return _MEMORY
    return Path(tempfile.gettempdir())


@contextmanager
def scratch_directory(*, root: Path | None = None) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="headway-", dir=root or scratch_root()))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def fresh_path(root: Path) -> str:
    """Returns the path of a database that does not exist yet, in a directory of its own below `root`.

    A fixed name in the session's directory would meet the file of an earlier test, because a module fixture is made
    again when the same process comes back to the module.
    """
    return str(Path(tempfile.mkdtemp(dir=root)) / "headway.db")
