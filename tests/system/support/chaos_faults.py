"""The faults of the chaos run, each a method named after it; which comes when is drawn from a seed."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import psutil
import psycopg

from tests.system.support.chaos_site import LEASE, Installation, Process, is_heartbeat, tree
from tests.system.support.chaos_tasks import BLOCK_TIMEOUT

# A worker replaces one whose loop is blocked after its timeout and its grace.
BLOCKED_SECONDS = BLOCK_TIMEOUT + 8.0
KINDS = (
    "cut",
    "cut_server",
    "cut_listen",
    "freeze",
    "delay",
    "lose_commit",
    "late_commit",
    "kill",
    "term",
    "kill_heartbeat",
    "kill_child",
    "stop",
    "stop_main",
    "stop_heartbeat",
    "stop_pooler",
    "fork",
    "block",
    "terminate",
    "restart",
)


class Faults:
    """Strikes an installation. A fault that lasts is undone by a timer; `last` is when the last one was over."""

    def __init__(self, site: Installation, rng: Random) -> None:
        self.site = site
        self.rng = rng
        self.done: Counter[str] = Counter()
        self.last = 0.0
        self.timers: list[threading.Timer] = []

    def strike_for(self, seconds: float, *, pause: float, without: frozenset[str]) -> None:
        """All kinds in turn, each round in another order, until the time is over; then waits for the last to end."""
        kinds = [kind for kind in KINDS if kind not in without]
        until, left = time.monotonic() + seconds, list[str]()
        while time.monotonic() < until:
            left = left or self.rng.sample(kinds, len(kinds))
            self.strike(left.pop())
            time.sleep(self.rng.uniform(0.5, 1.5) * pause)
        for timer in self.timers:
            timer.join(600)
        self.site.front.lose = self.site.front.hold = 0
        self.site.say("the last fault is over")

    def strike(self, kind: str) -> None:
        getattr(self, f"_{kind}")()
        self.done[kind] += 1
        self.last = max(self.last, time.time())

    def later(self, seconds: float, undo: Callable[[], object], what: str) -> None:
        """Ends a fault after a while; the fault lasts until then."""

        def end() -> None:
            undo()
            self.site.say(f"{what} is over")
            self.last = max(self.last, time.time())

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        self.timers.append(timer)

    def _living(self) -> Process:
        return self.rng.choice([worker for worker in self.site.workers if not worker.ended()] or self.site.workers)

    def _cut(self) -> None:
        self.site.say(
            f"cut: {self.site.front.cut(self.rng, self.rng.choice([0.2, 0.5, 1.0]))} connections to the pooler"
        )

    def _cut_server(self) -> None:
        self.site.say(f"cut: {self.site.behind.cut(self.rng, 0.5)} connections of the pooler to the server")

    def _cut_listen(self) -> None:
        self.site.say(f"cut: {self.site.listen.cut(self.rng)} connections that listen")

    def _freeze(self) -> None:
        cable = self.rng.choice([self.site.front, self.site.behind, self.site.listen])
        seconds = self.rng.choice([0.5, 2.0, 4.0])
        name = {self.site.front: "front", self.site.behind: "server", self.site.listen: "listen"}[cable]
        self.site.say(f"freeze: the {name} cable for {seconds} s")
        cable.freeze()
        self.later(seconds, cable.thaw, "freeze")

    def _delay(self) -> None:
        self.site.front.delay = self.rng.choice([0.02, 0.1])
        self.site.say(f"delay: {self.site.front.delay} s for 2 s")
        self.later(2.0, lambda: setattr(self.site.front, "delay", 0.0), "delay")

    def _lose_commit(self) -> None:
        self.site.front.lose = self.rng.randint(1, 4)
        self.site.say(f"lose: the answers of {self.site.front.lose} commits")

    def _late_commit(self) -> None:
        self.site.front.hold_seconds = self.rng.choice([0.1, 0.5, 2.0])
        self.site.front.hold = self.rng.randint(1, 4)
        self.site.say(f"late: {self.site.front.hold} commits arrive {self.site.front.hold_seconds} s after their cut")

    def _kill(self) -> None:
        worker = self._living()
        self.site.say(f"kill: {worker.name}")
        worker.process.kill()

    def _term(self) -> None:
        worker = self._living()
        self.site.say(f"term: {worker.name}")
        worker.process.terminate()

    def _kill_heartbeat(self) -> None:
        self._signal("kill_heartbeat", is_heartbeat, signal.SIGKILL)

    def _kill_child(self) -> None:
        self._signal("kill_child", lambda process: not is_heartbeat(process), signal.SIGKILL)

    def _signal(self, kind: str, wanted: Callable[[psutil.Process], bool], number: signal.Signals) -> None:
        worker = self._living()
        found = [process for process in tree(worker.process.pid)[1:] if wanted(process)]
        self.site.say(f"{kind}: {worker.name}, {[process.pid for process in found[:1]]}")
        for process in found[:1]:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def _stop(self) -> None:
        """The whole tree of a worker stands still, for less or for more than its lease."""
        worker = self._living()
        self._suspend("stop", worker, tree(worker.process.pid), self.rng.choice([1.0, 3.0, LEASE + 2.0]))

    def _stop_main(self) -> None:
        worker = self._living()
        self._suspend("stop_main", worker, tree(worker.process.pid)[:1], self.rng.choice([1.0, 3.0]))

    def _stop_heartbeat(self) -> None:
        worker = self._living()
        found = [process for process in tree(worker.process.pid)[1:] if is_heartbeat(process)]
        self._suspend("stop_heartbeat", worker, found, self.rng.choice([1.0, 3.0, LEASE + 2.0]))

    def _suspend(self, kind: str, worker: Process, chosen: list[psutil.Process], seconds: float) -> None:
        self.site.say(f"{kind}: {worker.name} (pid {worker.process.pid}) for {seconds} s")
        for process in chosen:
            with suppress(psutil.NoSuchProcess):
                process.suspend()

        def resume() -> None:
            for process in chosen:
                with suppress(psutil.NoSuchProcess):
                    process.resume()

        self.later(seconds, resume, f"{kind} of {worker.name}")

    def _stop_pooler(self) -> None:
        chosen = [process for process in psutil.Process().children(recursive=True) if process.name() == "pgbouncer"]
        assert chosen
        self.site.say("stop_pooler: for 1.5 s")
        for process in chosen:
            process.suspend()
        self.later(1.5, lambda: [process.resume() for process in chosen], "stop_pooler")

    def _fork(self) -> None:
        client = self.rng.choice(self.site.clients)
        self.site.say(f"fork: {client.name}")
        client.tell("fork")

    def _block(self) -> None:
        self.site.say("block: a task that blocks its loop")
        self.rng.choice(self.site.clients).tell("block")
        self.later(BLOCKED_SECONDS, lambda: None, "block")

    def _terminate(self) -> None:
        """Some backends of the server end, as by an administrator."""
        text = (
            "select pg_terminate_backend(pid) from pg_stat_activity where backend_type = 'client backend'"
            " and pid <> pg_backend_pid() and datname = current_database() order by random() limit 6"
        )
        with suppress(psycopg.OperationalError), self.site.direct() as connection:
            self.site.say(f"terminate: {len(connection.execute(text).fetchall())} backends")

    def _restart(self) -> None:
        """The server ends without a word to its clients, and comes back."""
        self.site.say("restart: PostgreSQL, immediately")
        restart(self.site.data)
        self.site.say("restart is over")


def restart(data: Path) -> None:
    """Restarts the server of this folder in immediate mode: no checkpoint, no farewell."""
    program = Path(f"/proc/{(data / 'postmaster.pid').read_text().split()[0]}/exe").resolve()
    subprocess.run(
        [
            str(program.with_name("pg_ctl")),
            "-D",
            str(data),
            "-m",
            "immediate",
            "-w",
            "-l",
            str(data / "log"),
            "restart",
        ],
        user=data.stat().st_uid if os.geteuid() == 0 else None,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        timeout=60,
    )
