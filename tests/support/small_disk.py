"""A small disk that a test fills to the last byte and frees again."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MIB = 1 << 20
SIZE = 192 * MIB


class SmallDisk:
    """Named in HEADWAY_TEST_SMALL_DISK (an empty file system of its own), or mounted in memory, which needs root."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ballast = path / "ballast"

    def fill(self) -> None:
        with self.ballast.open("ab", buffering=0) as file:
            for size in (MIB, 4096, 1):
                try:
                    while True:
                        file.write(b"\0" * size)
                except OSError as error:
                    if error.errno != 28:
                        raise

    def free(self) -> None:
        self.ballast.unlink(missing_ok=True)

    @contextmanager
    def full(self) -> Iterator[None]:
        self.fill()
        try:
            yield
        finally:
            self.free()


@contextmanager
def small_disk() -> Iterator[SmallDisk]:
    if named := os.environ.get("HEADWAY_TEST_SMALL_DISK"):
        yield SmallDisk(Path(named))
        return
    if os.geteuid() != 0:
        text = "mount one of 200 MiB that you may write, and name it in HEADWAY_TEST_SMALL_DISK"
        raise RuntimeError(f"a small file system can only be made as root: {text}")
    with tempfile.TemporaryDirectory(prefix="headway-disk-") as folder:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=0755", "tmpfs", folder]
        subprocess.run(mount, check=True, capture_output=True, timeout=30)
        try:
            yield SmallDisk(Path(folder))
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True, capture_output=True, timeout=30)
