"""A terminal of 80 by 24 for one program, and what it showed there."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.cli import PATIENCE, PROGRAM, environment, with_database

_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07|\x1b[@-_]")


class Terminal:
    def __init__(self, process: subprocess.Popen[bytes], fd: int) -> None:
        self.process = process
        self.fd = fd
        self.raw = ""
        # A character of several bytes may come in two parts.
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def text(self) -> str:
        """Everything it showed, without what moves the cursor or colours."""
        return _ESCAPE.sub("", self.raw).replace("\r", "")

    @property
    def lines(self) -> list[str]:
        """Every line it wrote, those that were overwritten too."""
        return _ESCAPE.sub("", self.raw).replace("\r", "\n").splitlines()

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def until(self, word: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while word not in self.text:
            assert time.monotonic() < deadline, self.text
            assert self._read(deadline), f"it ended without {word!r}: {self.text}"

    def ended(self) -> int:
        """Its exit code, once it has shown everything."""
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline):
            pass
        return self.process.wait(PATIENCE)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self.fd], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # how Linux says that the other end is closed
            return False
        self.raw += self.decoder.decode(data)
        return bool(data)


@contextmanager
def terminal(*args: object, cwd: Path, database: str | None = None, **more: str) -> Iterator[Terminal]:
    """A command with a terminal as its input and output, in a session of its own, so that Ctrl-C reaches it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    settings = environment(TERM="xterm-256color", **more)
    del settings["COLUMNS"]
    process = subprocess.Popen(
        [*PROGRAM, *with_database([str(arg) for arg in args], database)],
        cwd=cwd,
        env=settings,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(60)
        os.close(ours)
