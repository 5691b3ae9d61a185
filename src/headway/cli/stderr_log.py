"""The log of a serving process on stderr, in which a repeated error takes one line a minute."""

from __future__ import annotations

import logging
import select
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from headway.cli.output import visible

SECONDS = 60.0
# A pipe whose reader takes nothing for this long loses lines; waiting would stop the process.
FULL_SECONDS = 1.0
# Different messages that are remembered. A flood of more kinds is passed on.
KINDS = 1_000
Key = tuple[str, int, str, type[BaseException] | None]
# Libraries whose errors belong to the server.
LOGGERS = ("uvicorn", "asyncio")


@dataclass(slots=True)
class Repeated:
    """A message that was logged at `since`, and was left out `count` times from then on."""

    since: float
    record: logging.LogRecord
    count: int = 0


class RepeatsOnceAMinute(logging.StreamHandler[TextIO]):
    """Writes an error once a minute, then the number of its repetitions.

    An attacker can cause some errors as often as they like; the log must not fill the disk.
    """

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self.clock = clock
        # By first appearance, so that the expired ones come first.
        self.seen: dict[Key, Repeated] = {}
        self.dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        now = self.clock()
        self._write_counts(now - SECONDS)
        if record.levelno >= logging.WARNING:
            key = _key(record)
            if (seen := self.seen.get(key)) is not None:
                seen.count += 1
                return
            if len(self.seen) < KINDS:
                self.seen[key] = Repeated(now, record)
        self._write(record)

    def _write(self, record: logging.LogRecord) -> None:
        if not writable(self.stream):
            self.dropped += 1
            return
        if self.dropped:
            text = f"{self.dropped} lines of this log were dropped, because its reader had stopped"
            self.dropped = 0
            super().emit(logging.LogRecord("headway", logging.WARNING, "", 0, text, None, None))
        super().emit(record)

    def _write_counts(self, before: float) -> None:
        """Forgets messages from before this time, and writes how often they were left out."""
        while self.seen:
            key, oldest = next(iter(self.seen.items()))
            if oldest.since > before:
                return
            del self.seen[key]
            if oldest.count:
                times = "once more" if oldest.count == 1 else f"{oldest.count} times more"
                text = f"{times} within {SECONDS:g} s: {oldest.record.getMessage()}"
                self._write(logging.LogRecord(key[0], key[1], "", 0, text, None, None))

    def close(self) -> None:
        self._write_counts(float("inf"))
        super().close()


def writable(stream: TextIO, seconds: float = FULL_SECONDS) -> bool:
    """Returns False if the stream is a full pipe, and stays full for so long."""
    try:
        return bool(select.select([], [stream.fileno()], [], seconds)[1])
    except (OSError, ValueError):  # not a file of the system: writing to it tells
        return True


def _key(record: logging.LogRecord) -> Key:
    kind = record.exc_info[0] if record.exc_info else None
    return record.name, record.levelno, record.getMessage(), kind


class VisibleFormatter(logging.Formatter):
    """Escapes the control characters of names and errors in a message."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def log_to_stderr() -> None:
    """Sends the log of this process to stderr."""
    handler = RepeatsOnceAMinute(sys.stderr)
    handler.setFormatter(VisibleFormatter("%(asctime)s %(message)s", "%H:%M:%S"))
    for name, level in (("headway", logging.INFO), *((name, logging.WARNING) for name in LOGGERS)):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(level)
        logger.propagate = False
