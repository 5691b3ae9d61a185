"""Instructions per job on SQLite, ours beside the raw limit, counted by valgrind: they do not depend on what else the
machine does. `python -m benchmarks.instructions drain 200` (or `kinds 50`, `enqueue 1000`): jobs a turn or a call."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from benchmarks import ours
from benchmarks.raw import sqlite as raw
from benchmarks.raw.rows import params
from benchmarks.tasks import app_at, noop
from headway import App
from headway.engine.worker.config import WorkerConfig
from headway.engine.worker.worker import Worker
from headway.store.sqlite import transaction, waiter

ROUNDS = 10  # measured; one more comes before them
KINDS = 200
LEASE, HEARTBEAT = 600.0, 100.0  # all is fifty times slower here
waiter.WOKEN_WITHIN *= 50
transaction.LATE_COMMIT *= 50


def count(on: bool) -> None:
    command = ["callgrind_control", "-i", "on" if on else "off", str(os.getpid())]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


class Counted(Worker):
    """A worker whose turns are counted from the second one on."""

    counting = False

    def tick(self) -> float:
        if self.finished and not self.counting:
            self.counting = True
            count(on=True)
        return super().tick()


def drain(path: str, batch: int) -> None:
    _drain(ours.filled(path, noop.name, (ROUNDS + 2) * batch), batch)


def drain_kinds(path: str, batch: int) -> None:
    """The drain of as many jobs, spread over KINDS kinds of work."""
    app = app_at(path, kinds=KINDS)
    ours.set_limit(app, None)
    for kind in range(KINDS):
        app.tasks[f"kind.{kind}"].enqueue_many([{}] * -(-(ROUNDS + 2) * batch // KINDS))
    _drain(app, batch)


def _drain(app: App, batch: int) -> None:
    worker = Counted(app.database, app.registry, WorkerConfig(slots=batch, lease=LEASE, heartbeat=HEARTBEAT))
    worker.register()
    worker.start()
    while worker.finished < (ROUNDS + 1) * batch:
        time.sleep(ours.LOOK_SECONDS)
    count(on=False)
    ours.close(worker, app)


def drain_raw(path: str, batch: int) -> None:
    connection = raw.create(path, (ROUNDS + 2) * batch)
    claimed: list[tuple[int, int]] = []
    for turn in range(ROUNDS + 2):
        if turn == 2:
            count(on=True)
        connection.execute("begin immediate")
        if claimed:
            raw.finish(connection, claimed)
        claimed = raw.claim(connection, batch)
        connection.execute("commit")
    count(on=False)


def enqueue(path: str, batch: int) -> None:
    task = app_at(path).tasks[noop.name]
    _rounds(lambda: task.enqueue_many([{}] * batch))


def enqueue_raw(path: str, batch: int) -> None:
    connection, rows = raw.create(path), params(batch)
    _rounds(lambda: raw.insert(connection, rows))


def _rounds(call: Callable[[], object]) -> None:
    call()
    count(on=True)
    for _ in range(ROUNDS):
        call()
    count(on=False)


CONTENDERS = {
    "drain": {"ours": drain, "raw": drain_raw},
    "kinds": {"ours": drain_kinds},
    "enqueue": {"ours": enqueue, "raw": enqueue_raw},
}


def by_library(report: Path) -> Counter[str]:
    """The cost of each library's own instructions, from callgrind's file."""
    names: dict[str, str] = {}
    found: Counter[str] = Counter()
    library, of_a_call = "", False
    for line in report.read_text().splitlines():
        if match := re.match(r"c?ob=\((\d+)\)(?: (.*))?", line):
            names.setdefault(match[1], (match[2] or "").rpartition("/")[2])
            library = names[match[1]] if line.startswith("ob=") else library
        elif line.startswith("calls="):
            of_a_call = True  # the next line has the cost of what was called, which is counted where it is
        elif match := re.match(r"[+\-*\d]\S* (\d+)$", line):
            found[library] += 0 if of_a_call else int(match[1])
            of_a_call = False
    return found


def measure(what: str, who: str, batch: int) -> None:
    with tempfile.TemporaryDirectory(prefix="headway-instructions-") as folder:
        report = Path(folder, "callgrind.out")
        options = ["--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={report}", "-q"]
        inside = [sys.executable, "-m", "benchmarks.instructions", what, str(batch), who, str(Path(folder, "x.db"))]
        subprocess.run(["valgrind", *options, *inside], check=True, stdout=subprocess.DEVNULL)
        found = by_library(report)
    jobs = ROUNDS * batch
    parts = ", ".join(f"{name} {cost // jobs:,}" for name, cost in found.most_common(4))
    print(f"{what}, {batch} at once, {who}: {found.total() // jobs:,} instructions a job ({parts})")


def main() -> None:
    what, batch, *inside = sys.argv[1:]
    if inside:
        who, path = inside
        CONTENDERS[what][who](path, int(batch))
        return
    for who in CONTENDERS[what]:
        measure(what, who, int(batch))


if __name__ == "__main__":
    main()
