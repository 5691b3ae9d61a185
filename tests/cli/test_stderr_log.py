"""The log of a server: a repeated error takes one line a minute, with a count."""

from __future__ import annotations

import io
import logging

from headway.cli.stderr_log import KINDS, RepeatsOnceAMinute


def record(text: str, level: int = logging.WARNING, error: BaseException | None = None) -> logging.LogRecord:
    info = None if error is None else (type(error), error, None)
    return logging.LogRecord("headway", level, "", 0, text, None, info)


def test_repeated_errors_are_counted_and_written_once_a_minute() -> None:
    now, written = [0.0], io.StringIO()
    handler = RepeatsOnceAMinute(written, clock=lambda: now[0])
    for _ in range(1_000):
        handler.handle(record("out of descriptors", error=OSError()))
    handler.handle(record("something else"))
    handler.handle(record("started", logging.INFO))
    handler.handle(record("started", logging.INFO))
    assert written.getvalue().splitlines() == [
        "out of descriptors",
        "OSError",
        "something else",
        "started",
        "started",
    ]
    now[0] = 60.0
    handler.handle(record("out of descriptors", error=OSError()))
    assert written.getvalue().splitlines()[5:] == [
        "999 times more within 60 s: out of descriptors",
        "out of descriptors",
        "OSError",
    ]
    handler.handle(record("out of descriptors", error=OSError()))
    handler.close()
    assert written.getvalue().splitlines()[8:] == ["once more within 60 s: out of descriptors"]


def test_the_memory_of_repeated_errors_is_bounded() -> None:
    handler = RepeatsOnceAMinute(io.StringIO(), clock=lambda: 0.0)
    for n in range(2 * KINDS):
        handler.handle(record(f"error {n}"))
    assert len(handler.seen) == KINDS
