"""Starts the moving parts of a process, ends them in order on a signal, and gives running work its grace."""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from headway.engine.loop import BACKOFF, Loop
from headway.engine.recovery import Recovery
from headway.engine.run import STOP_GRACE
from headway.engine.worker import Worker
from headway.errors import Unreachable

log = logging.getLogger("headway")
LOOK_SECONDS = 0.05
# Where nobody waits for the end of a burst: a signal wakes at once, and a worker that was given up can wait for this.
SELDOM = 0.5
# For the other parts, all of which end at once but the deliverer, which waits for answers (deliverer.FAREWELL).
FAREWELL = 5.0
# Refused, as a start against a database that was moved is.
MOVED = 4


class Flag:
    """Set by a signal handler, which may interrupt whoever waits for it: an Event would wait for its own lock then."""

    def __init__(self) -> None:
        self.up = False
        self.end, self.begin = os.pipe()

    def set(self) -> None:
        self.up = True
        os.write(self.begin, b".")

    def is_set(self) -> bool:
        return self.up

    def wait(self, seconds: float) -> bool:
        if not self.up:
            select.select([self.end], [], [], seconds)
        return self.up


class Part(Protocol):
    """Something with a life of its own beside the worker: a loop, a server."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def join(self, seconds: float | None = None) -> None: ...


class Supervisor:
    """One worker (or none) beside the loops every process has."""

    def __init__(
        self,
        *,
        make_worker: Callable[[], Worker] | None,
        recovery: Recovery,
        loops: Sequence[Part] = (),
        grace: float = 30.0,
    ) -> None:
        self.make_worker = make_worker
        self.worker: Worker | None = None
        self.recovery = recovery
        self.loops = loops
        self.grace = grace
        self.signals = 0
        self.wanted = Flag()

    def start(self) -> None:
        """Recovery comes first: what an earlier crash left is settled before anything new is claimed."""
        self.recovery.safely()
        self._start_worker()
        self.recovery.start()
        for loop in self.loops:
            loop.start()

    def _start_worker(self) -> None:
        if self.make_worker is not None:
            self.worker = self.make_worker()
            self.worker.register()
            self.recovery.own = self.worker.renew
            self.worker.start()

    def on_signal(self, *_: object) -> None:
        """The first signal asks for an end, the second ends the grace."""
        self.signals += 1
        self.wanted.set()

    def handle_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.on_signal)

    def run(self, *, until_idle: bool = False) -> int:
        """Until a signal comes (or, in a burst, until there is nothing left to do)."""
        self.start()
        while not self.wanted.wait(LOOK_SECONDS if until_idle else SELDOM):
            if self._moved():  # a part has said where to
                self.stop()
                return MOVED
            worker = self.worker
            if worker is None:
                continue
            if worker.only_stuck_left:
                log.error("work that does not stop is all that is left: this process ends itself")
                self._leave_at_once(worker)
            if worker.ended.is_set():
                log.warning("the worker was given up by others: starting a new one")
                self._replace(worker)
            if until_idle and self._idle(worker):
                break
        return self.stop()

    def _moved(self) -> bool:
        """Whether the data of this process are in another database now."""
        return any(isinstance(part, Loop) and part.moved for part in (self.worker, self.recovery, *self.loops))

    def _idle(self, worker: Worker) -> bool:
        """Nothing runs, nothing can be claimed, and no earlier crash left anything."""
        if worker.busy() or worker.ended_work or worker.claimed != worker.finished:
            return False
        self.recovery.safely()
        try:
            return not worker.busy() and worker.due is None and not worker.finds_work()
        except Unreachable:
            return False

    def _replace(self, worker: Worker) -> None:
        worker.join(self.grace)
        if not self._all_stopped(worker):
            log.error("work of a worker that was given up does not stop: this process ends itself")
            self._leave_at_once(worker)
        worker.running.clear()
        worker.close()
        while not self.wanted.is_set():
            try:
                return self._start_worker()
            except Unreachable as error:
                log.warning("cannot start a new worker: %s", error)
                self.wanted.wait(BACKOFF)

    @staticmethod
    def _all_stopped(worker: Worker) -> bool:
        """Whether nothing of it is left: its jobs may be run by others already."""
        deadline = time.monotonic() + STOP_GRACE
        while worker.at_work and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        return not worker.at_work

    def _leave_at_once(self, worker: Worker) -> None:
        for runner in worker.slot_runners.values():
            runner.close()
        os._exit(70)

    def stop(self) -> int:
        """Stop claiming, let running jobs finish within the grace, interrupt the rest, record everything."""
        worker = self.worker
        if worker is not None:
            worker.drain()
            self._await(worker, self.grace, until_second_signal=True)
            if worker.running:
                log.warning("the shutdown grace is over: interrupting what still runs: %s", sorted(worker.running))
                worker.interrupt_all("the worker shut down before the job could finish")
                self._await(worker, self.grace_for_kills, until_second_signal=False)
            worker.stop()
            worker.join(5.0)
            worker.close()
        parts = (self.recovery, *self.loops)
        for part in parts:
            part.stop()
        for part in parts:  # they use the database, which is closed next
            part.join(FAREWELL)
        return 0

    grace_for_kills = 20.0

    def _await(self, worker: Worker, seconds: float, *, until_second_signal: bool) -> None:
        deadline = time.monotonic() + seconds
        while worker.busy() and time.monotonic() < deadline:
            if until_second_signal and self.signals > 1:
                return
            time.sleep(0.01)
