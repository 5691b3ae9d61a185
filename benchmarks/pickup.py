"""From a job's commit in one process to its first line in another, on one SQLite file; and what late ones waited for.

    python -m benchmarks.pickup FILE [processes [rounds [jobs]]]

Half of the processes enqueue, half work. A job's wait begins when its commit can be seen. For each job that waited for
more than 10 ms, the long waits of all processes meanwhile are printed: for the lock, a commit, a checkpoint, asleep.
"""

from __future__ import annotations

import functools
import multiprocessing
import sys
import threading
import time
from collections import Counter
from typing import Any

from benchmarks.ours import close, make_ready, set_limit
from headway import App
from headway.engine.worker.config import WorkerConfig
from headway.engine.worker.worker import Worker
from headway.store.sqlite.busy import Patience
from headway.store.sqlite.checkpoints import Checkpoints
from headway.store.sqlite.database import SqliteDatabase
from headway.store.sqlite.files import Files
from headway.store.sqlite.transaction import SqliteTx
from headway.store.sqlite.waiter import SqliteWaiter

PAUSE = 0.01
LATE = 0.010
LONG = 0.004
Span = tuple[str, float, float]

spans: list[Span] = []
begun: dict[str, float] = {}
seen = 0.0


async def begin(name: str) -> None:
    begun[name] = time.monotonic()


def app_of(path: str) -> App:
    app = App(database=path)
    app.task("begin")(begin)
    return app


def timed(kind: type, method: str, name: str) -> None:
    """Notes every long call of a method."""
    inner = getattr(kind, method)

    @functools.wraps(inner)
    def outer(*arguments: Any, **named: Any) -> Any:
        began = time.monotonic()
        try:
            return inner(*arguments, **named)
        finally:
            ended = time.monotonic()
            if ended - began > LONG:
                spans.append((f"{name} ({threading.current_thread().name})", began, ended))

    setattr(kind, method, outer)


def watch() -> None:
    timed(SqliteDatabase, "_begin", "lock")
    timed(SqliteTx, "_commit", "commit")
    timed(SqliteWaiter, "wait", "asleep")
    timed(Patience, "__call__", "pause")
    timed(Files, "tell", "tell")
    timed(Files, "refuse_other", "files")
    timed(Worker, "tick", "turn")
    timed(Checkpoints, "checkpoint", "checkpoint")
    inner = Checkpoints.hear_commit

    def hear(checkpoints: Checkpoints, *arguments: Any) -> int:
        global seen
        seen = time.monotonic()
        return inner(checkpoints, *arguments)

    Checkpoints.hear_commit = hear  # type: ignore[method-assign]


def enqueue(path: str, who: str, count: int, gate: Any, answers: Any, over: Any) -> None:
    watch()
    app = app_of(path)
    task = app.tasks["begin"]
    task.enqueue(name=f"{who} warm")
    gate.wait(120)
    made = {}
    for number in range(count):
        time.sleep(PAUSE)
        job = task.enqueue(name=f"{who} {number}")
        made[f"{who} {number}"] = seen
        job.result(timeout=60)
    over.wait(120)
    answers.put((who, made, spans))
    app.close()


def work(path: str, who: str, count: int, gate: Any, answers: Any, over: Any) -> None:
    watch()
    app = app_of(path)
    worker = Worker(app.database, app.registry, WorkerConfig())
    make_ready(worker)
    worker.start()
    gate.wait(120)
    over.wait(120)
    time.sleep(6.0 if len(begun) == 0 else 1.0)
    answers.put((who, begun, spans))
    close(worker, app)


def one_round(path: str, processes: int, jobs: int) -> tuple[list[float], list[str]]:
    context = multiprocessing.get_context("spawn")
    gate, over, answers = context.Barrier(processes), context.Barrier(processes), context.Queue()
    half = processes // 2
    roles = [(enqueue, f"enqueuer {n}") for n in range(half)] + [(work, f"worker {n}") for n in range(processes - half)]
    started = [
        context.Process(daemon=True, target=role, args=(path, who, jobs // half, gate, answers, over))
        for role, who in roles
    ]
    for process in started:
        process.start()
    told = {who: (times, long) for who, times, long in (answers.get(timeout=300) for _ in started)}
    for process in started:
        process.join()
    made = {name: at for who in told if who.startswith("enq") for name, at in told[who][0].items()}
    first = {name: at for who in told if who.startswith("work") for name, at in told[who][0].items()}
    waits = {name: first[name] - at for name, at in made.items() if name in first}
    lines = [f"   never begun: {name}" for name in made.keys() - first.keys()]
    for name, wait in sorted(waits.items(), key=lambda item: -item[1]):
        if wait > LATE:
            lines.append(f"   {1000 * wait:.1f} ms: {name}: {why(made[name], first[name], told)}")
    return [max(0.0, wait) for wait in waits.values()], lines


def why(made: float, first: float, told: dict[str, Any]) -> str:
    """The long waits of all processes between two moments."""
    found: Counter[str] = Counter()
    for who, (_, long) in told.items():
        for name, began, ended in long:
            if (part := min(first, ended) - max(made, began)) > LONG / 2:
                found[f"{who} {name}"] += round(1000 * part)
    return ", ".join(f"{name} {part} ms" for name, part in found.most_common(6)) or "no long wait: the scheduler"


def main(path: str, processes: int = 2, rounds: int = 10, jobs: int = 500) -> None:
    app = app_of(path)
    set_limit(app, None)
    app.close()
    for number in range(1, rounds + 1):
        waits, late = one_round(path, processes, jobs)
        ordered = [1000 * wait for wait in sorted(waits)]
        p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
        print(f"{processes} processes, round {number}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, worst {ordered[-1]:.1f} ms")
        print("\n".join(late[:12]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
