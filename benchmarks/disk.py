"""A folder for the benchmarks' files. It must be on a disk: on a tmpfs a durable commit costs nothing."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})


def filesystem(path: Path) -> str:
    """The type of the filesystem that holds `path`, or "unknown" where /proc does not tell."""
    mounts = Path("/proc/self/mounts")
    if not mounts.exists():
        return "unknown"
    target = path.resolve()
    best, kind = Path("/"), "unknown"
    for line in mounts.read_text().splitlines():
        _, where, fstype, *_ = line.split(" ")
        mount = Path(where.replace("\\040", " "))
        if target.is_relative_to(mount) and len(mount.parts) >= len(best.parts):
            best, kind = mount, fstype
    return kind


def choose() -> tuple[Path, str]:
    """A parent for the files and its filesystem: TMPDIR, else the current folder, the first that is not in memory."""
    candidates = [Path(os.environ.get("TMPDIR") or tempfile.gettempdir()), Path.cwd()]
    for candidate in candidates:
        if (kind := filesystem(candidate)) not in IN_MEMORY:
            return candidate, kind
    return candidates[0], filesystem(candidates[0])
