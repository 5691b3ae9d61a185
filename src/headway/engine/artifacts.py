"""Files a job leaves behind: copied into the artifacts folder under their hash, capped, recorded under the fence."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from headway.errors import BadInput

SIZE_LIMIT = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Stored:
    """A copied file: where it is below the folder, how big, and its hash."""

    path: str
    size: int
    sha256: str


def keep(folder: Path, source: str) -> Stored:
    """Copies a file so that it is on disk under its hash before anything speaks of it."""
    size = os.path.getsize(source)
    if size > SIZE_LIMIT:
        raise BadInput(
            f"{source} is {size >> 20} MiB, the limit for an artifact is {SIZE_LIMIT >> 20} MiB", field="attach"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".part-", delete=False) as copy:
        try:
            with open(source, "rb") as original:
                digest = hashlib.file_digest(original, "sha256").hexdigest()
                original.seek(0)
                shutil.copyfileobj(original, copy)
            copy.flush()
            os.fsync(copy.fileno())
            place = folder / digest[:2] / digest
            place.parent.mkdir(exist_ok=True)
            os.replace(copy.name, place)
        except BaseException:
            Path(copy.name).unlink(missing_ok=True)
            raise
    return Stored(f"{digest[:2]}/{digest}", size, digest)
