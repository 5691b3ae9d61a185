"""The heartbeat: a separate process that renews a worker's lease.

It shares no interpreter with user code, so user code cannot starve it. It reports stop requests to the worker, tells
the worker when the lease cannot be renewed, and kills a worker that does not stop its work then.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Literal

import headway
from headway.engine import restart
from headway.engine.execution import process_tree
from headway.engine.execution.own_variables import for_tasks
from headway.engine.worker.reconciliation import Snapshots
from headway.errors import HeadwayError
from headway.store import workers
from headway.store.db import Database, Tx, open_database

log = logging.getLogger("headway")
# Fractions of a lease without a renewal: the worker is told to stop its work at TELL, and killed at END if it did not.
TELL, END = 2 / 3, 5 / 6
# Time for a worker's process to restart itself: this fraction of a lease, and at most this many seconds.
ANEW, ANEW_SECONDS = 1 / 12, 2.0
# Delay before a dead heartbeat is started again. A heartbeat that dies at once must not keep a core busy.
RESPAWN_SECONDS = 0.5
# A line must fit into one atomic pipe write, or the worker might read a part of it.
STOPS_PER_LINE = 50
# The heartbeat outlives its worker by at most this time, to record why it killed it.
PARTING_SECONDS = 10.0
CLOSING_SECONDS = 10.0
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(headway.__file__)))
_BOOT = "import sys; sys.path.insert(0, sys.argv.pop()); from headway.engine.worker.heartbeat import main; main()"


class Heartbeat:
    """The worker's side: starts the process, restarts it, forwards its messages.

    `idle`: no work runs before the first beat arrives, so the lease is not judged until then. The process inherits no
    addresses and none of `secret`, the variables that secrets come from: it cannot protect them before it runs.
    """

    def __init__(
        self,
        terms: dict[str, Any],
        hear: Callable[[dict[str, Any]], None],
        *,
        idle: bool = False,
        secret: Collection[str] = (),
    ) -> None:
        self.terms = terms
        self.secret = secret
        self.worker_id: int = terms["worker_id"]
        self.hear = hear
        self.idle = idle
        self.renewed = time.monotonic()
        self.closing = threading.Event()
        self.lock = threading.Lock()
        self.process = self._spawn()
        restart.here.beating.add(self)
        self.thread = threading.Thread(target=self._listen, name="headway-heartbeat", daemon=True)
        self.thread.start()

    def _spawn(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, _ROOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=for_tasks(os.environ, self.secret),
        )
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it died at once; `_listen` starts the next one
            known = {"renewed": self.renewed, "idle": self.idle, "restarts": restart.here.allowed}
            terms = {**self.terms, **known}
            process.stdin.write(json.dumps(terms).encode() + b"\n")
            process.stdin.flush()
        return process

    def _listen(self) -> None:
        while not self.closing.is_set():
            assert self.process.stdout is not None
            for line in self.process.stdout:
                message = json.loads(line)
                if "beat" in message:
                    self.renewed, self.idle = max(self.renewed, message["beat"]), False
                self.hear(message)
                if "restart" in message and time.monotonic() - self.renewed > self.terms["lease"] * TELL:
                    restart.here.begin(f"worker {workers.worker_name(self.worker_id)}: {message['restart']}")
            self.process.wait()
            self.closing.wait(RESPAWN_SECONDS)
            self._respawn()

    def _respawn(self) -> None:
        """Tries to start the process until it succeeds.

        Meanwhile the worker renews its own lease.
        """
        while not self.closing.is_set():
            try:
                with self.lock:
                    if not self.closing.is_set():
                        self.process = self._spawn()
                return
            except (OSError, MemoryError) as error:
                log.warning("the heartbeat could not be started again: %s", error)
                self.closing.wait(RESPAWN_SECONDS)

    def reassure(self, renewed: float | None = None) -> None:
        """Tells the process when the worker renewed its own lease.

        None means that the worker's work has stopped. A worker whose work has stopped is not killed.
        """
        self.renewed = max(self.renewed, renewed or 0.0)
        with self.lock:
            if not self.closing.is_set() and self.process.stdin is not None:
                try:
                    self.process.stdin.write(json.dumps(renewed).encode() + b"\n")
                    self.process.stdin.flush()
                except BrokenPipeError:
                    return  # it died; the next heartbeat reports the late lease again

    def part(self, why: str) -> None:
        """Tells the process that the worker's process restarts, without waiting.

        The process then ends, even if a forked process keeps its pipe open.
        """
        stdin = self.process.stdin
        if stdin is not None and not stdin.closed:
            with suppress(BrokenPipeError):
                os.write(stdin.fileno(), json.dumps(why[:500]).encode() + b"\n")

    def close(self) -> None:
        """Ends the process. The end of the pipe would not do: a process that user code forked may hold it open."""
        restart.here.beating.discard(self)
        with self.lock:
            self.closing.set()
            assert self.process.stdin is not None
            with suppress(BrokenPipeError):  # it died before it read our last message
                self.process.stdin.write(b"false\n")
                self.process.stdin.close()
        try:
            self.process.wait(CLOSING_SECONDS)
        except subprocess.TimeoutExpired:  # stopped, or starved: it only renews leases, which end with it
            self.process.kill()
            self.process.wait()
        self.thread.join(1.0)
        if self.process.stdout is not None:
            self.process.stdout.close()


class HeartbeatProcess:
    """The process's side: renews the lease in a loop.

    A second thread listens to the worker and judges the lease: a database that does not answer blocks the loop, and
    the lease may run out meanwhile.
    """

    def __init__(self, terms: dict[str, Any]) -> None:
        self.worker_id: int = terms["worker_id"]
        self.lease: float = terms["lease"]
        self.every: float = terms["heartbeat"]
        self.url: str = terms["database"]
        self.listen: str | None = terms["listen"]
        self.parent: int = terms["pid"]
        self.started_by = os.getppid()
        self.renewed: float = terms.get("renewed") or time.monotonic()
        self.idle: bool = terms.get("idle", False)
        self.database: Database | None = None
        self.why = "the database does not answer"
        self.excused = False
        self.warned = False
        self.ended = False
        self.closed = False
        self.restarts: bool = terms.get("restarts", False)
        # When the worker was asked to restart its process, and the reason it gave when it agreed.
        self.asked: float | None = None
        self.parted: str | None = None
        # This process stays until this time after the worker's end, to record the reason.
        self.parting = 0.0
        self.snapshots = Snapshots()

    def live(self) -> None:
        threading.Thread(target=self._watch, name="headway-watch", daemon=True).start()
        while True:
            self.beat()
            time.sleep(min(self.every, self.lease / 24) if self.warned else self.every)

    def beat(self) -> None:
        if self.ended or self.parted is not None:
            return
        if process_tree.halted(self.parent):
            self.why = "its process was stopped"
            return  # a halted worker must not keep its claims for ever
        began = time.monotonic()
        try:
            self.database = self.database or open_database(self.url, listen=self.listen)
            alive, stops, held = self.database.transact("beat", self._beat)
        except HeadwayError as error:
            self.why = str(error)
            return
        if not alive:
            say({"gone": True})
            return
        self._renew(began)
        self.idle = False
        for first in range(0, max(1, len(stops)), STOPS_PER_LINE):
            say({"beat": began, "stops": stops[first : first + STOPS_PER_LINE]})
        for message in self.snapshots.messages(held, began):
            say(message)

    def _renew(self, at: float) -> None:
        self.renewed, self.excused, self.warned, self.asked = at, False, False, None

    def _beat(self, tx: Tx) -> tuple[bool, list[tuple[int, int, str]], list[tuple[int, int]]]:
        alive = workers.beat(tx, self.worker_id, self.lease)
        stops = [(job_id, fence, stop.value) for job_id, fence, stop in workers.stop_requests(tx, self.worker_id)]
        return alive, stops, workers.held(tx, self.worker_id)

    def _watch(self) -> None:
        try:
            while self._worker_lives():
                self._judge()
            if self.parted is not None:
                self._leave(f"its process started anew: {self.parted}")
            while time.monotonic() < self.parting:
                time.sleep(0.01)
        finally:  # skip the interpreter's shutdown, which would wait for a beat that hangs in the database
            os._exit(0)

    def _worker_lives(self) -> bool:
        """Listens to the worker for a moment; returns False if it has ended or restarts.

        The pipe's end does not suffice as a sign, because a process that the worker forked may hold it open. The parent
        pid is checked too.
        """
        ready, _, _ = select.select([sys.stdin.fileno()], [], [], min(self.every, self.lease / 24))
        if ready:
            heard = os.read(sys.stdin.fileno(), 65536)
            if not heard:
                return False
            for line in heard.splitlines():
                self._hear(json.loads(line))
        return os.getppid() == self.started_by and self.parted is None and not self.closed

    def _hear(self, message: float | str | Literal[False] | None) -> None:
        if message is None:
            self.excused = True
        elif message is False:
            self.closed = True
        elif isinstance(message, str):
            self.parted = message
        elif message > self.renewed:
            self._renew(message)

    def _judge(self) -> None:
        if self.idle:
            return
        silent = time.monotonic() - self.renewed
        if silent > self.lease * TELL and not self.warned:
            self.warned = True
            say({"late": silent, "why": self.why[:500]})
        if silent > self.lease * END and not self.excused and not self.ended:
            why = f"its lease was not renewed for {silent:.0f} s ({self.why}) and its work did not stop"[:500]
            if not self._may_start_anew(why):
                self._end(why)

    def _may_start_anew(self, why: str) -> bool:
        """Asks the worker once to restart its process.

        Returns True while the worker may still answer. A process that is halted, or whose user code holds the
        interpreter, does not answer.
        """
        if not self.restarts or process_tree.halted(self.parent):
            return False
        if self.asked is None:
            self.asked = time.monotonic()
            say({"restart": why})
        return time.monotonic() - self.asked < min(self.lease * ANEW, ANEW_SECONDS)

    def _end(self, why: str) -> None:
        """Kills the worker, even a halted one.

        Its children still do work that other workers will soon claim. Nothing may delay the kill. The log line is
        dropped if stderr is full, and the record is written afterwards.
        """
        self.ended = True
        name = workers.worker_name(self.worker_id)
        complain(f"headway: the heartbeat ends worker {name}, process {self.parent}: {why}\n")
        os.kill(self.parent, signal.SIGKILL)
        self._leave(f"ended by its heartbeat: {why}")

    def _leave(self, why: str) -> None:
        self.parting = time.monotonic() + PARTING_SECONDS
        threading.Thread(target=self.record_end, args=(why,), name="headway-record", daemon=True).start()

    def record_end(self, why: str) -> None:
        """Stores why the worker ended. The worker's process may be gone already."""
        try:
            database = self.database or open_database(self.url, listen=self.listen)
            database.transact("end", lambda tx: workers.record_end(tx, self.worker_id, why))
        except HeadwayError as error:
            complain(f"headway: the end of the worker could not be recorded: {error}\n")
        self.parting = 0.0


def complain(line: str) -> None:
    """Writes a line to stderr, which the worker shares.

    Never waits and never fails: the line is dropped if stderr is a full pipe, or gone.
    """
    with suppress(OSError, ValueError, AttributeError):
        if select.select([], [sys.stderr.fileno()], [], 0)[1]:
            os.write(sys.stderr.fileno(), line.encode())


def say(message: dict[str, Any]) -> None:
    """Sends a message to the worker without waiting.

    A worker that cannot listen for an hour must not lose its lease for that. A message that does not fit into the pipe
    is dropped; the next beat repeats it. If the worker is gone, the watching thread notices and may still have to
    record its end.
    """
    with suppress(BlockingIOError, BrokenPipeError):
        os.write(sys.stdout.fileno(), json.dumps(message).encode() + b"\n")


def _read_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(sys.stdin.fileno(), 1)
        if not byte:
            sys.exit(0)
        line += byte
    return line


def main() -> None:
    process_tree.protect_memory()  # before the address of the database arrives
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_blocking(sys.stdout.fileno(), False)
    HeartbeatProcess(json.loads(_read_line())).live()
