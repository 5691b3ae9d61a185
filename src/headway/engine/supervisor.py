"""Starts the parts of a process, and ends them in order on a signal."""

from __future__ import annotations

import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from headway import forks
from headway.engine import restart
from headway.engine.execution.deadlines import NO_ROOM
from headway.engine.execution.running import STOP_GRACE
from headway.engine.loop import BACKOFF, Loop
from headway.engine.maintenance.recovery import Recovery
from headway.engine.worker.worker import Worker
from headway.errors import Unreachable
from headway.store.workers import worker_name

log = logging.getLogger("headway")
LOOK_SECONDS = 0.05
# Poll interval without a burst. A signal wakes at once, and replacing a lost worker can wait this long.
SELDOM = 0.5
# For the other parts, which end at once. Only the deliverer waits for answers (deliverer.FAREWELL).
FAREWELL = 5.0
# Exit code after a move or a newer migration, as for a refused start against such a database.
MOVED = 4
# Each of them holds threads, a heartbeat and the lanes of its jobs, so their number is limited.
MOST_SET_ASIDE = 3


class Flag:
    """A flag that a signal handler sets.

    The handler may interrupt the waiting thread itself; an Event would then deadlock on its own lock.
    """

    def __init__(self) -> None:
        self.up = False
        self.end, self.begin = os.pipe()

    def set(self) -> None:
        if not self.up:  # once: a pipe that is full would block the handler
            self.up = True
            os.write(self.begin, b".")

    def is_set(self) -> bool:
        return self.up

    def wait(self, seconds: float) -> bool:
        if not self.up:
            waiting = select.poll()  # select() takes no descriptor above 1023
            waiting.register(self.end, select.POLLIN)
            waiting.poll(seconds * 1000)
        return self.up


class Part(Protocol):
    """A loop or a server that runs beside the worker."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def join(self, seconds: float | None = None) -> None: ...


@runtime_checkable
class DrainingPart(Part, Protocol):
    """A part whose running work gets the shutdown grace, like jobs."""

    def drain(self) -> None: ...

    def busy(self) -> bool: ...


def stop_signals() -> tuple[signal.Signals, ...]:
    """Returns the signals that end this process: SIGTERM, and SIGINT unless ignored.

    A shell ignores SIGINT for a program that a script starts in the background, because Ctrl-C is meant for the script.
    """
    interrupts = signal.getsignal(signal.SIGINT) != signal.SIG_IGN
    return (signal.SIGTERM, signal.SIGINT) if interrupts else (signal.SIGTERM,)


class Supervisor:
    """Runs one worker (or none) and the loops of every process."""

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
        self.started: list[Part] = []

    def start(self) -> None:
        """Starts recovery, the worker and the other parts.

        Recovery runs first, so that the claims of a crash are settled before new ones. A second call continues where
        the first one failed.
        """
        if self.worker is None:
            self.recovery.safely()
            self._start_worker()
        for part in (self.recovery, *self.loops)[len(self.started) :]:
            part.start()
            self.started.append(part)

    def _start_worker(self) -> None:
        if self.make_worker is not None:
            worker = self.make_worker()
            try:
                worker.register()
                worker.start()
            except BaseException:
                worker.close()  # it may have been registered: deregister it
                raise
            self.worker = worker
            self.recovery.own = worker.lease.renew

    def _start_patiently(self) -> None:
        """Starts; retries while the database is unreachable or no thread can start."""
        while not self.wanted.is_set():
            try:
                return self.start()
            # Not OSError: an address that is in use stays in use.
            except (Unreachable, MemoryError, RuntimeError) as error:
                log.warning("cannot start: %s; trying again every %g s", error, BACKOFF)
                self.wanted.wait(BACKOFF)

    def on_signal(self, *_: object) -> None:
        """Asks for the end; a second signal ends the grace."""
        self.signals += 1
        self.wanted.set()

    def handle_signals(self) -> None:
        for number in stop_signals():
            forks.own_signal(number, self.on_signal)

    def run(self, *, until_idle: bool = False) -> int:
        """Runs until a signal arrives or, in a burst, until no work is left.

        Returns the exit code.
        """
        self._start_patiently()
        while not self.wanted.wait(LOOK_SECONDS if until_idle else SELDOM):
            if self._moved():  # that part has logged the reason and the remedy
                self.stop()
                return MOVED
            self.look()
            if until_idle and self.worker is not None and self._idle(self.worker):
                break
        return self.stop()

    def look(self) -> None:
        """Replaces a worker that was lost, or that has only unstoppable jobs left."""
        worker = self.worker
        if worker is None or worker.moved:
            return
        if worker.only_stuck_left:
            self._leave(worker, "only jobs that ignore stop requests are left")
        elif worker.ended.is_set():
            log.warning("another process recovered this worker as lost: starting a new one")
            self._replace(worker)

    def _moved(self) -> bool:
        """True if the data moved to another database, or have a newer schema."""
        return any(isinstance(part, Loop) and part.moved for part in (self.worker, self.recovery, *self.loops))

    def _idle(self, worker: Worker) -> bool:
        """True if nothing runs, nothing can be claimed, and recovery has nothing left."""
        if worker.busy() or worker.pool.ended_work or worker.claimed != worker.finished:
            return False
        self.recovery.safely()
        try:
            return not worker.busy() and worker.strategy.due is None and not worker.has_claimable_work()
        except Unreachable:
            return False

    def _replace(self, worker: Worker) -> None:
        worker.join(self.grace)
        if not self._all_stopped(worker):
            self._leave(worker, "jobs of a lost worker ignore stop requests")
            return
        self.worker = None  # before anything may fail: a worker is closed once
        worker.pool.running.clear()
        worker.close()
        self._start_another()

    def _start_another(self) -> None:
        while not self.wanted.is_set():
            try:
                return self._start_worker()
            except (Unreachable, *NO_ROOM) as error:
                log.warning("cannot start a new worker: %s", error)
                self.wanted.wait(BACKOFF)

    @staticmethod
    def _all_stopped(worker: Worker) -> bool:
        """True if all work of the worker has stopped; its jobs may already run elsewhere."""
        deadline = time.monotonic() + STOP_GRACE
        while worker.at_work and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        return not worker.at_work

    def _leave(self, worker: Worker, why: str) -> None:
        """Restarts this program, or exits, to end threads that ignore stop requests.

        Recovery then settles their claims.
        """
        for runner in worker.pool.slot_runners.values():
            runner.close()
        restart.here.begin(why)
        log.error("%s: exiting with code 70", why)
        os._exit(70)

    def stop(self) -> int:
        """Takes no more work, and lets running jobs and direct calls finish within the grace.

        The rest is interrupted and recorded.
        """
        worker = self.worker
        draining = [part for part in self.loops if isinstance(part, DrainingPart)]
        working: list[Worker | DrainingPart] = [*draining] if worker is None else [*draining, worker]
        for working_part in working:
            working_part.drain()
        self._await(working, self.grace, until_second_signal=True)
        if worker is not None:
            if worker.pool.running:
                log.warning("the shutdown grace is over: interrupting jobs %s", sorted(worker.pool.running))
                worker.interrupt_all("the worker shut down before the job could finish")
                self._await([worker], self.grace_for_kills, until_second_signal=False)
            self._end(worker)
        parts = (self.recovery, *self.loops)
        for part in parts:
            part.stop()
        for part in parts:  # they use the database, which is closed next
            part.join(FAREWELL)
        return 0

    grace_for_kills = 20.0

    def _end(self, worker: Worker) -> None:
        worker.stop()
        worker.join(FAREWELL)
        worker.close()

    def _await(self, parts: Sequence[Worker | DrainingPart], seconds: float, *, until_second_signal: bool) -> None:
        deadline = time.monotonic() + seconds
        while any(part.busy() for part in parts) and time.monotonic() < deadline:
            if until_second_signal and self.signals > 1:
                return
            time.sleep(0.01)


class EmbeddedSupervisor(Supervisor):
    """A supervisor inside another program's process, which it must not end.

    It watches from a thread of its own.
    """

    def __init__(
        self,
        *,
        make_worker: Callable[[], Worker] | None,
        recovery: Recovery,
        loops: Sequence[Part] = (),
        grace: float = 30.0,
    ) -> None:
        super().__init__(make_worker=make_worker, recovery=recovery, loops=loops, grace=grace)
        # Workers with jobs that ignore stop requests. They keep their claims and are closed when those jobs have ended.
        self.set_aside: list[Worker] = []
        self.thread = threading.Thread(target=self._watch, name="headway-supervisor", daemon=True)

    def start(self) -> None:
        super().start()
        self.thread.start()

    def _watch(self) -> None:
        while not self.wanted.wait(SELDOM) and not self._moved():
            try:
                self.look()
                self._close_ended()
                if self.worker is None and self.make_worker is not None and len(self.set_aside) < MOST_SET_ASIDE:
                    self._start_another()
            except Exception:
                log.exception("the supervisor could not check its worker, and will try again")

    def _leave(self, worker: Worker, why: str) -> None:
        """Sets the worker aside with the jobs it cannot stop. The watch starts another one.

        The supervisor must not end the process of another program.
        """
        log.error("%s: worker %s keeps them", why, worker_name(worker.who.id))
        self.worker = None
        self.set_aside.append(worker)
        if len(self.set_aside) >= MOST_SET_ASIDE:
            log.error("%d workers are stuck: no further worker is started in this process", len(self.set_aside))

    def _close_ended(self) -> None:
        """Closes the workers that were set aside and whose jobs have ended."""
        for worker in list(self.set_aside):
            if worker.ended.is_set() and not worker.at_work:
                worker.pool.ended_work.clear()  # a lost worker: recovery has settled these claims
                worker.pool.running.clear()
            if not worker.at_work and not worker.pool.ended_work and not worker.busy():
                self.set_aside.remove(worker)
                self._end(worker)

    def stop(self) -> int:
        self.wanted.set()
        if self.thread.is_alive():
            self.thread.join(FAREWELL)
        code = super().stop()
        self._close_ended()
        for worker in self.set_aside:
            self._end(worker)
        return code

    def _end(self, worker: Worker) -> None:
        """Ends a worker. If its work goes on, its heartbeat goes on too, until this process ends.

        Without the lease, recovery would retry that work beside itself.
        """
        if not worker.at_work:
            return super()._end(worker)
        name, jobs = worker_name(worker.who.id), sorted(worker.at_work)
        log.error("worker %s keeps jobs %s, which ignore stop requests, until this process ends", name, jobs)
        worker.stop()
        worker.join(FAREWELL)
