"""Waiting for a pipe, a process or a thread with a deadline, and a failure that says what did not come."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Overdue
from typing import IO, AnyStr, TypeVar

T = TypeVar("T")
PATIENCE = 60.0


def within(call: Callable[[], T], what: str, *, seconds: float = PATIENCE) -> T:
    """What a call that may block for ever returns, or a failure after the deadline.

    The call goes on in a thread of its own; the end of the process it listens to ends it."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except (OSError, ValueError) as error:  # the pipe was closed
            answer.set_exception(error)

    threading.Thread(target=run, name=f"within-{what}", daemon=True).start()
    try:
        return answer.result(seconds)
    except Overdue:
        if answer.done():
            raise
        raise AssertionError(f"{what} did not come within {seconds:g} s") from None


def read_line(stream: IO[AnyStr] | None, what: str = "a line", *, seconds: float = PATIENCE) -> AnyStr:
    """The next line of a pipe; empty at its end."""
    assert stream is not None
    return within(stream.readline, what, seconds=seconds)


def read_all(stream: IO[AnyStr] | None, what: str = "the end of a pipe", *, seconds: float = PATIENCE) -> AnyStr:
    """The rest of a pipe."""
    assert stream is not None
    return within(stream.read, what, seconds=seconds)


def join(*threads: threading.Thread, seconds: float = PATIENCE) -> None:
    """Waits for the end of threads."""
    for thread in threads:
        thread.join(seconds)
        assert not thread.is_alive(), f"the thread {thread.name} did not end within {seconds:g} s"
