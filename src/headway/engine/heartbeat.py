"""The heartbeat: a small process of its own that renews a worker's lease, so that no user code can starve it.

It brings stop requests back, says when the lease cannot be renewed, and ends a worker that does not stop then.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import headway
from headway.engine import processes
from headway.errors import HeadwayError
from headway.store import workers
from headway.store.db import Database, Tx, open_database

# Parts of a lease: when the worker is told to stop its work, and when it is ended if it did not.
TELL, END = 2 / 3, 5 / 6
# Before a heartbeat that died is started again: one that dies at once must not keep a core busy.
RESPAWN_SECONDS = 0.5
# A line has to fit into one write of a pipe, or it might arrive in part.
STOPS_PER_LINE = 50
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(headway.__file__)))
_BOOT = "import sys; sys.path.insert(0, sys.argv.pop()); from headway.engine.heartbeat import main; main()"


class Heartbeat:
    """The worker's side: starts the process, passes on what it says, starts it again if it dies.

    `idle`: nothing is at work before the first beat is heard, so there is no lease to judge until then.
    """

    def __init__(self, wishes: dict[str, Any], hear: Callable[[dict[str, Any]], None], *, idle: bool = False) -> None:
        self.wishes = wishes
        self.hear = hear
        self.idle = idle
        self.renewed = time.monotonic()
        self.closing = threading.Event()
        self.lock = threading.Lock()
        self.process = self._spawn()
        self.thread = threading.Thread(target=self._listen, name="headway-heartbeat", daemon=True)
        self.thread.start()

    def _spawn(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, _ROOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it died at once; whoever listens to it starts the next one
            wishes = {**self.wishes, "renewed": self.renewed, "idle": self.idle}
            process.stdin.write(json.dumps(wishes).encode() + b"\n")
            process.stdin.flush()
        return process

    def _listen(self) -> None:
        while not self.closing.is_set():
            assert self.process.stdout is not None
            for line in self.process.stdout:
                said = json.loads(line)
                if "beat" in said:
                    self.renewed, self.idle = max(self.renewed, said["beat"]), False
                self.hear(said)
            self.process.wait()
            self.closing.wait(RESPAWN_SECONDS)
            with self.lock:
                if not self.closing.is_set():
                    self.process = self._spawn()

    def reassure(self, renewed: float | None = None) -> None:
        """Tells the process that the worker has stopped its work (it need not be ended), or when it renewed itself."""
        self.renewed = max(self.renewed, renewed or 0.0)
        with self.lock:
            if not self.closing.is_set() and self.process.stdin is not None:
                try:
                    self.process.stdin.write(json.dumps(renewed).encode() + b"\n")
                    self.process.stdin.flush()
                except BrokenPipeError:
                    return  # it died; the next one will ask again

    def close(self) -> None:
        with self.lock:
            self.closing.set()
            assert self.process.stdin is not None
            with suppress(BrokenPipeError):  # it died, and what we told it last was never read
                self.process.stdin.close()
        self.process.wait()
        self.thread.join(1.0)
        if self.process.stdout is not None:
            self.process.stdout.close()


class Pulse:
    """The process's side: one beat after the other. A thread listens to the worker and judges the lease meanwhile,
    because a database that does not answer must not hide that the lease runs out."""

    def __init__(self, wishes: dict[str, Any]) -> None:
        self.worker_id: int = wishes["worker_id"]
        self.lease: float = wishes["lease"]
        self.every: float = wishes["heartbeat"]
        self.url: str = wishes["database"]
        self.listen: str | None = wishes["listen"]
        self.parent: int = wishes["pid"]
        self.started_by = os.getppid()
        self.renewed: float = wishes.get("renewed") or time.monotonic()
        self.idle: bool = wishes.get("idle", False)
        self.database: Database | None = None
        self.why = "the database does not answer"
        self.excused = False
        self.told = False

    def live(self) -> None:
        threading.Thread(target=self._watch, name="headway-watch", daemon=True).start()
        while True:
            self.beat()
            time.sleep(min(self.every, self.lease / 24) if self.told else self.every)

    def beat(self) -> None:
        if processes.halted(self.parent):
            self.why = "its process was stopped"
            return  # a worker that does nothing must not keep its claims for ever
        began = time.monotonic()
        try:
            self.database = self.database or open_database(self.url, listen=self.listen)
            alive, stops = self.database.transact("beat", self._beat)
        except HeadwayError as error:
            self.why = str(error)
            return
        if not alive:
            say({"gone": True})
            return
        self.renewed, self.excused, self.told, self.idle = began, False, False, False
        for first in range(0, max(1, len(stops)), STOPS_PER_LINE):
            say({"beat": began, "stops": stops[first : first + STOPS_PER_LINE]})

    def _beat(self, tx: Tx) -> tuple[bool, list[tuple[int, int, str]]]:
        alive = workers.beat(tx, self.worker_id, self.lease)
        return alive, [(job_id, fence, stop.value) for job_id, fence, stop in workers.stop_requests(tx, self.worker_id)]

    def _watch(self) -> None:
        try:
            while self._worker_lives():
                self._judge()
        finally:  # at once: a beat may be waiting for its answer
            os._exit(0)

    def _worker_lives(self) -> bool:
        """Listens for a moment. The end of the pipe is not all: a process that the worker forked may hold it open."""
        ready, _, _ = select.select([sys.stdin.fileno()], [], [], min(self.every, self.lease / 24))
        if ready:
            heard = os.read(sys.stdin.fileno(), 65536)
            if not heard:
                return False
            for line in heard.splitlines():
                self._hear(json.loads(line))
        return os.getppid() == self.started_by

    def _hear(self, renewed: float | None) -> None:
        if renewed is None:
            self.excused = True
        elif renewed > self.renewed:
            self.renewed, self.excused, self.told = renewed, False, False

    def _judge(self) -> None:
        if self.idle:
            return
        silent = time.monotonic() - self.renewed
        if silent > self.lease * TELL and not self.told:
            self.told = True
            say({"late": silent, "why": self.why[:500]})
        if silent > self.lease * END and not self.excused:
            # Also one that is stopped: its children go on with work that others are about to run.
            os.kill(self.parent, signal.SIGKILL)


def say(message: dict[str, Any]) -> None:
    """Never waits: a worker that cannot listen for an hour must not lose its lease because of it.

    What does not fit is said again with the next beat.
    """
    with suppress(BlockingIOError):
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_blocking(sys.stdout.fileno(), False)
    pulse = Pulse(json.loads(_read_line()))
    try:
        pulse.live()
    except BrokenPipeError:
        return  # nobody listens any more
