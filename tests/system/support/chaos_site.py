"""The installation of the chaos run: PostgreSQL, a cable, the pooler, a cable, and the workers and clients on it."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg.conninfo import conninfo_to_dict

from headway import App
from headway.engine.execution import process_tree
from headway.errors import HeadwayError
from tests.support.cable import Cable
from tests.support.pgbouncer import pooler
from tests.support.postgres import postgres_server
from tests.system.support import chaos_client

ROOT = Path(__file__).parents[3]
CLIENTS = 3
CONNECTIONS = 40  # of the pooler, to the server
LEASE = 8.0
SETTINGS = {
    "HEADWAY_SLOTS": "6",
    "HEADWAY_LEASE": f"{LEASE:g}s",
    "HEADWAY_HEARTBEAT": "1s",
    "HEADWAY_RECOVERY_INTERVAL": "1s",
    "HEADWAY_SHUTDOWN_GRACE": "2s",
    "HEADWAY_RETENTION": "none",
    "HEADWAY_CONCURRENCY__LIMIT": "none",
    "HEADWAY_RESOURCES": '{"one": 1, "two": 2}',
}
MARK = "CHAOS_RUN"


@dataclass
class Process:
    """A worker or a client, and how it is started again."""

    name: str
    command: list[str]
    env: dict[str, str]
    folder: Path
    starts: int = 0
    # Tells its process from another with the same number; None: it had ended before it could be asked.
    started: int | None = None
    codes: Counter[int] = field(default_factory=Counter)

    def start(self) -> None:
        if self.starts:
            self._close_pipe()
        self.starts += 1
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command, env=self.env, cwd=self.folder, stdin=subprocess.PIPE, stdout=log, stderr=log
            )
        self.started = process_tree.start_time(self.process.pid)

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(f"{word}\n".encode())
            self.process.stdin.flush()

    def ended(self) -> bool:
        return self.process.poll() is not None

    def close(self) -> None:
        """All of it, frozen or not."""
        for process in tree(self.process.pid):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait(60)
        self._close_pipe()

    def _close_pipe(self) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()


def tree(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    return []


def is_heartbeat(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return "headway.engine.worker.heartbeat" in " ".join(process.cmdline())
    return False


class Installation:
    """Everything under attack. The controller has a connection to the server of its own, past the cables."""

    def __init__(self, folder: Path, stack: ExitStack, *, workers: int) -> None:
        self.folder = folder
        self.stack = stack
        self.wrong: list[str] = []
        self.decided = 0
        self.clients: list[Process] = []
        self.began = time.monotonic()
        self.log = (folder / "faults.log").open("w")
        stack.callback(self.log.close)
        self.ended = threading.Event()
        self.mark = secrets.token_hex(8)
        self._build(workers)

    # --- the installation ---

    def _build(self, workers: int) -> None:
        self.url = self.stack.enter_context(postgres_server())
        parts = conninfo_to_dict(self.url)
        self.data = Path(str(parts["host"]))
        server = str(self.data / ".s.PGSQL.5432")
        self.behind, self.listen = Cable(server), Cable(server)
        database = f"postgres@127.0.0.1:{{port}}/{parts['dbname']}"
        self.app = App(self.url)
        self.stack.callback(self.app.close)
        self.app.database.check()  # makes the schema, before anything is broken
        behind = "postgresql://" + database.format(port=self.behind.port)
        between = self.stack.enter_context(pooler(behind, connections=CONNECTIONS))
        self.front = Cable(("127.0.0.1", between.port))
        for cable in (self.front, self.behind, self.listen):
            self.stack.callback(cable.close)
        self.env = os.environ | SETTINGS
        self.env |= {
            "HEADWAY_DATABASE": "postgresql://" + database.format(port=self.front.port),
            "HEADWAY_LISTEN": "postgresql://" + database.format(port=self.listen.port),
            "CHAOS_LEDGER": str(self.folder / "ledger"),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
            MARK: self.mark,
        }
        (self.folder / "ledger").touch()
        self.workers = [self._process(f"worker-{n}", *self._work()) for n in range(workers)]
        self.workers[0].start()
        self.until(lambda: self.count("select count(*) from hw_worker"), 60.0, "the first worker", vital=True)
        for worker in self.workers[1:]:
            worker.start()
        self.until(lambda: self.count("select count(*) from hw_worker") >= workers, 60.0, "the workers", vital=True)

    @staticmethod
    def _work() -> list[str]:
        return ["-m", "headway", "work", "--app", "tests.system.support.chaos_tasks:app"]

    def _process(self, name: str, *arguments: str) -> Process:
        made = Process(name, [sys.executable, *arguments], self.env, self.folder)
        self.stack.callback(lambda: made.close() if made.starts else None)
        return made

    def start_clients(self, seed: int, per_second: float) -> None:
        for n in range(CLIENTS):
            wishes = {"name": f"c{n}", "rate": per_second / CLIENTS, "seed": seed}
            said = json.dumps({**wishes, "folder": str(self.folder)})
            client = self._process(f"client-{n}", str(chaos_client.__file__), said)
            client.start()
            self.clients.append(client)

    # --- looking ---

    @contextmanager
    def direct(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection of the controller's own, that no fault is meant for."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            yield connection

    def count(self, text: str) -> int:
        try:
            with self.direct() as connection:
                ((count,),) = connection.execute(text).fetchall()
                return int(count)
        except psycopg.OperationalError:
            return -1  # ended by a fault, or the server starts

    def registered(self, worker: Process) -> bool:
        """Whether the worker's process has recorded itself in the database."""
        with self.direct() as connection:
            text = "select count(*) from hw_worker where pid = %s and process_start = %s"
            ((count,),) = connection.execute(text, [worker.process.pid, worker.started]).fetchall()
            return bool(count)

    def until(self, condition: Callable[[], object], seconds: float, what: str, *, vital: bool = False) -> bool:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                assert not vital, f"{what} did not come about: {tail(self.folder / 'worker-0')}"
                self.wrong.append(f"{what} did not come about within {seconds:g} s")
                return False
            time.sleep(0.1)
        return True

    # --- what goes on beside the faults ---

    def keep_workers(self) -> None:
        """Workers that ended are started again, as a service manager does."""
        while not self.ended.wait(0.1):
            for worker in self.workers:
                if worker.ended():
                    worker.codes[worker.process.returncode] += 1
                    self.say(f"{worker.name} ended with {worker.process.returncode} and is started again")
                    worker.start()

    def decide_held(self) -> None:
        """The person: what waits for a decision gets one."""
        text = "select id, status from hw_job where status in (4, 5) or (status = 0 and hold = 1)"
        while not self.ended.wait(0.3):
            with suppress(psycopg.OperationalError, HeadwayError), self.direct() as connection:
                for job_id, status in connection.execute(text).fetchall():
                    job = self.app.job(job_id)
                    job.release() if status == 5 else job.resume()
                    self.decided += 1

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:8.2f} {text}", file=self.log, flush=True)


def tail(path: Path) -> str:
    return path.with_suffix(".log").read_text(errors="replace")[-1500:]
