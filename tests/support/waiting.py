"""Threads that are to be somewhere before the test goes on: waited for, never slept for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
PATIENCE = 55.0


def until(condition: Callable[[], object], what: str = "the condition") -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come about within {PATIENCE:g} s"
        time.sleep(0.001)


def at_once(calls: Iterable[Callable[[], T]]) -> list[Future[T]]:
    """Runs all of them in threads that start together; returns when all have ended."""
    todo = list(calls)
    line = threading.Barrier(len(todo))

    def run(call: Callable[[], T]) -> T:
        line.wait(PATIENCE)
        return call()

    with ThreadPoolExecutor(len(todo)) as pool:
        return [pool.submit(run, call) for call in todo]
