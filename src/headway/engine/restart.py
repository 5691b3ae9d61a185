"""Restarts the process of `headway work` or `headway up` by exec, with its pid.

Exec ends every thread, also user code that ignores stop requests, and closes the pipes that task processes and
heartbeats watch.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet

from headway.engine.execution import process_tree
from headway.store.workers import Identity

log = logging.getLogger("headway")
VARIABLE = "HEADWAY_RESTARTED"
# Share of a lease. A process that would restart again within this time exits instead.
APART = 1 / 2
# Limit on the ids passed on during an outage, in which no recovery can drop them.
MOST_REPLACED = 64
# Time and interval in which a new program reaps ended processes of the one before it.
REAP_SECONDS, REAP_EVERY = 30.0, 0.5


class Beating(Protocol):
    """The heartbeat of one incarnation of this process."""

    worker_id: int

    def part(self, why: str) -> None:
        """Tells the heartbeat process that the incarnation is over."""


class Restart:
    """Restart state of this process. Without `allow` it never restarts."""

    def __init__(self) -> None:
        self.pid = 0
        self.lease = 0.0
        self.stopping: Callable[[], bool] = lambda: True
        self.beating: WeakSet[Beating] = WeakSet()
        self.environment: Mapping[str, str] = {}
        self.folder: str | None = None
        # Worker ids of earlier programs of this process, and the time when the last of them ended.
        self.before: tuple[int, ...] = ()
        self.last: float | None = None
        self.lock = threading.Lock()

    def take_over(self) -> None:
        """Reads the state of the previous program, and saves environment and folder."""
        ended, _, numbers = os.environ.pop(VARIABLE, "").partition(":")
        if ended:
            with suppress(ValueError):  # set by another program: ignored
                self.before = tuple(int(number, 16) for number in numbers.split(",") if number)
                self.last = float(ended)
        self.environment = dict(os.environ)
        with suppress(OSError):
            self.folder = os.getcwd()
        if self.last is not None:
            threading.Thread(target=self._reap, name="headway-reap", daemon=True).start()

    def allow(self, *, lease: float, stopping: Callable[[], bool]) -> None:
        """Permits this process to restart, unless it is about to end."""
        self.pid, self.lease, self.stopping = os.getpid(), lease, stopping

    @property
    def allowed(self) -> bool:
        """True if `allow` was called in this process; a forked child may not restart."""
        return self.pid == os.getpid() and bool(sys.executable)

    @property
    def possible(self) -> bool:
        return self.allowed and not self.stopping() and not self._too_soon()

    def _too_soon(self) -> bool:
        return self.last is not None and time.monotonic() - self.last < self.lease * APART

    def replaced(self, who: Identity) -> bool:
        """True if the worker was an incarnation of this process before it restarted."""
        if who.id not in self.before:
            return False
        pid = os.getpid()
        return (who.pid, who.process_start) == (pid, process_tree.start_time(pid))

    def begin(self, why: str) -> None:
        """Restarts the process. Returns if that is not possible now."""
        with self.lock:
            if not self.possible:
                return
            log.error("%s: process %d starts anew", why, self.pid)
            beating = list(self.beating)
            for heartbeat in beating:
                heartbeat.part(why)
            try:
                self._exec(heartbeat.worker_id for heartbeat in beating)
            except OSError as error:
                log.error("%s cannot be started (%s): exiting with code 70", sys.executable, error)
                os._exit(70)

    def _exec(self, numbers: Iterable[int]) -> None:
        ended = [*self.before, *numbers][-MOST_REPLACED:]
        state = f"{time.monotonic()}:{','.join(f'{number:x}' for number in ended)}"
        with suppress(OSError):  # a folder that is gone: the program may not need it
            os.chdir(self.folder or ".")
        for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
            signal.setitimer(timer, 0)  # exec keeps a timer, but not the code that set it
        # Exec keeps blocked signals: a stop signal stays pending until the new program handles it (`forks.own_signal`).
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        if self.stopping():  # a signal that this program has handled since: the new one must stop too
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**self.environment, VARIABLE: state})

    @staticmethod
    def _reap() -> None:
        """Reaps heartbeats and task processes of the previous program.

        They are children of this process.
        """
        deadline = time.monotonic() + REAP_SECONDS
        while time.monotonic() < deadline:
            process_tree.reap_orphans()
            time.sleep(REAP_EVERY)


here = Restart()
