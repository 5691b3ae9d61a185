"""A limit for every test: a test that hangs fails with its name, and a process that hangs for good ends with it.

At the limit a signal raises in the main thread, so that fixtures clean up and the session goes on. Where the main
thread does not hear it (C code runs there, or the clean-up hangs as well) the process ends; xdist reports the test."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

LIMIT = 600.0
ALONE_LIMIT = 1_800.0
PROOF_LIMIT = 12 * 3_600.0
LAST_WORDS = 60.0  # for the clean-up after the limit, and for the threads that are left at the end
SIGNAL = signal.SIGRTMIN + 7


class Overdue(BaseException):
    """Raised in a test that reached its limit. No `except Exception` of the test keeps it."""


class Watchdog:
    """Watches one test at a time."""

    def __init__(self) -> None:
        self.stderr = os.dup(2)
        self.name = ""
        self.limit = 0.0
        signal.signal(SIGNAL, self._on_signal)

    @contextmanager
    def watch(self, name: str, limit: float) -> Iterator[None]:
        self.name, self.limit = name, limit
        timer = threading.Timer(limit, self._bark, [name, limit])
        timer.daemon = True
        timer.start()
        faulthandler.dump_traceback_later(limit + _last_words(), exit=True, file=self.stderr)
        try:
            yield
        finally:
            timer.cancel()
            self.name = ""
            faulthandler.cancel_dump_traceback_later()

    def stand_down(self) -> None:
        """A debugger takes as long as it takes."""
        self.name = ""
        faulthandler.cancel_dump_traceback_later()

    def end_of_session(self) -> None:
        """Threads that are left may keep the interpreter from ending."""
        faulthandler.dump_traceback_later(_last_words(), exit=True, file=self.stderr)

    def _bark(self, name: str, limit: float) -> None:
        if self.name != name:
            return
        os.write(self.stderr, f"\n{name} did not end within {limit:g} s\n".encode())
        faulthandler.dump_traceback(self.stderr, all_threads=True)
        signal.pthread_kill(threading.main_thread().ident or 0, SIGNAL)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.name:
            raise Overdue(f"{self.name} did not end within {self.limit:g} s")
        return None


def limit_of(item: pytest.Item) -> float:
    if named := os.environ.get("HEADWAY_TEST_LIMIT"):
        return float(named)
    if os.environ.get("HEADWAY_PROOF"):
        return PROOF_LIMIT
    return ALONE_LIMIT if item.get_closest_marker("alone") else LIMIT


def _last_words() -> float:
    return min(LAST_WORDS, float(os.environ.get("HEADWAY_TEST_LIMIT", LAST_WORDS)))


class WatchdogPlugin:
    """The hooks by which pytest tells the watchdog what it does."""

    def __init__(self) -> None:
        self.watchdog = Watchdog()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        with self.watchdog.watch(item.nodeid, limit_of(item)):
            return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_enter_pdb(self) -> None:
        self.watchdog.stand_down()

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        self.watchdog.end_of_session()
