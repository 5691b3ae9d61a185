"""Starts real worker processes, looks at what they did, and leaves none of them behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from headway import App, Job
from headway.engine.client import limits
from headway.engine.tasks.task import Task
from headway.model.jobs.job import SYSTEM
from headway.model.queue.policies import Concurrency
from headway.verify import check
from tests.system.support import program

FILE = Path(program.__file__)
SECONDS = 60.0
LOOK = 0.01


def until(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not come about within {seconds:g} s"
        time.sleep(LOOK)


@dataclass
class Program:
    """One process of the program, with its heartbeat and its children."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def tree(self) -> list[psutil.Process]:
        return [psutil.Process(self.pid), *psutil.Process(self.pid).children(recursive=True)]

    def heartbeat(self) -> psutil.Process | None:
        """The process that renews the lease, if it is there."""
        for process in self.tree()[1:]:
            with suppress(psutil.Error):
                if "headway.engine.worker.heartbeat" in " ".join(process.cmdline()):
                    return process
        return None

    def end_children(self) -> None:
        """Kills the warm child processes, and waits until they are gone."""
        below = [one for one in psutil.Process(self.pid).children() if program._alive(one.pid)]
        found = [one for one in below if "headway.engine.execution.child_main" in " ".join(one.cmdline())]
        for process in found:
            process.kill()
        until(lambda: not any(program._alive(process.pid) for process in found))

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def wait(self) -> int:
        return self.process.wait(SECONDS)

    def end(self) -> None:
        """All of it, whatever state it is in."""
        with suppress(psutil.NoSuchProcess):
            for process in reversed(self.tree()):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self.process.wait(60)


class Site:
    """A database, the programs that work on it, and the files their tasks write."""

    def __init__(self, url: str, folder: Path, stack: ExitStack) -> None:
        self.url = url
        self.folder = folder
        self.stack = stack
        self.app = App(url)
        self.tasks: dict[str, Task[..., Any]] = {}
        for spec in program.app.registry:
            if spec.name not in self.app.tasks:
                isolation = None if spec.isolation == "async" else spec.isolation
                self.app.task(spec.name, isolation=isolation)(spec.function)
        self.unlimited()

    def unlimited(self) -> None:
        limits.settle(self.app.database, Concurrency(limit=None), {}, actor=SYSTEM, adopt=True)

    def start(self, **wishes: Any) -> Program:
        """A process of the program. Without slots it only watches over the others."""
        return self.start_behind((), **wishes)

    def start_behind(self, prefix: Sequence[str], **wishes: Any) -> Program:
        """The same, begun by another program that becomes it."""
        wishes = {"lease": 60.0, "heartbeat": 0.5, "grace": 30.0, "recovery": 0.5, "slots": 8, **wishes}
        log = self.folder / f"program-{len(list(self.folder.glob('program-*')))}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*prefix, sys.executable, str(FILE), json.dumps(wishes)],
                env=os.environ | {"HEADWAY_DATABASE": self.url, "PYTHONPATH": os.pathsep.join(sys.path)},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stderr=out,
            )
        started = Program(process, log)
        self.stack.callback(started.end)
        return started

    def enqueue(self, task: str, name: str, *, wishes: dict[str, Any] | None = None, **params: Any) -> Job:
        using = {"retry": {"max_attempts": 3, "base_delay": 0.05}, **(wishes or {})}
        return self.app.tasks[task].using(**using).enqueue(file=str(self.folder / name), **params)

    # --- what the tasks did ---

    def lines(self, name: str) -> list[list[str]]:
        file = self.folder / name
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def await_began(self, name: str, times: int = 1) -> list[str]:
        until(lambda: len(self.lines(f"{name}.began")) >= times)
        return self.lines(f"{name}.began")[times - 1]

    def go(self, name: str) -> None:
        (self.folder / f"{name}.go").touch()

    def pids(self, name: str) -> list[int]:
        return [int(pid) for line in self.lines(f"{name}.pids") for pid in line]

    # --- what was recorded ---

    def await_state(self, job: Job, *states: str) -> str:
        until(lambda: job.status in states)
        return job.status

    def await_retry(self, job: Job) -> Job:
        found: list[Job] = []

        def look() -> bool:
            with self.app.database.read() as tx:
                found[:] = [Job(self.app.client, row[0]) for row in tx.run("any_retry", id=job.id)]
            return bool(found)

        until(look)
        return found[0]

    def events(self, thing: str = "job", thing_id: int | None = None) -> list[tuple[int, str, dict[str, Any]]]:
        """(number of the thing, kind, data) of all events of a kind of thing, in order."""
        text = f"select thing_id, kind, data from hw_event where thing = '{thing}' order by id"
        with self.app.database.read() as tx:
            rows = tx.connection.execute(text).fetchall()  # type: ignore[attr-defined]
        return [(n, kind, json.loads(data or "{}")) for n, kind, data in rows if thing_id in (None, n)]

    def kinds(self, job: Job) -> list[str]:
        return [kind for _, kind, _ in self.events("job", job.id)]

    def findings(self, *, quiet: bool = True) -> list[str]:
        return [f"{f.invariant} {f.thing}: {f.text}" for f in check(self.app.database, quiet=quiet).findings]


def alive(pids: list[int]) -> list[int]:
    """Those that still live; a zombie does not."""
    return [pid for pid in pids if program._alive(pid)]


@contextmanager
def site(url: str, folder: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        here = Site(url, folder, stack)
        stack.callback(here.app.close)
        yield here
