"""How long a process waits for SQLite's write lock while others write to the same file: p50, p99 and worst, per round.

    python -m benchmarks.lock_waits FILE [processes [rounds [transactions]]]

Each process commits one small transaction after the other and pauses a moment between two. Printed are the waits for
the lock in milliseconds, and the slowest commit (its sync included).
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from typing import Any

from headway import App
from headway.store.sqlite.database import SqliteDatabase

PAUSE = 0.002
Waits = list[tuple[float, float]]


def one_process(path: str, count: int, gate: Any, answers: Any) -> None:
    app = App(database=path)
    app.task("t")(_nothing)
    app.tasks["t"].enqueue()
    database = app.database
    assert isinstance(database, SqliteDatabase)
    gate.wait(60)
    answers.put([_one(database) for _ in range(count)])
    app.close()


def _nothing() -> None:
    pass


def _one(database: SqliteDatabase) -> tuple[float, float]:
    """Seconds until the lock was there, and seconds of the commit."""
    began = time.perf_counter()
    tx = database.begin("measure")
    got = time.perf_counter()
    try:
        tx.run("bump_version", id=1)
        before = time.perf_counter()
        tx.commit()
        committed = time.perf_counter() - before
    finally:
        database.end(tx)
    time.sleep(PAUSE)
    return got - began, committed


def one_round(path: str, processes: int, count: int) -> Waits:
    context = multiprocessing.get_context("spawn")
    gate, answers = context.Barrier(processes), context.Queue()
    started = [context.Process(target=one_process, args=(path, count, gate, answers)) for _ in range(processes)]
    for process in started:
        process.start()
    waits = [wait for _ in started for wait in answers.get(timeout=300)]
    for process in started:
        process.join()
    return waits


def main(path: str, processes: int = 2, rounds: int = 10, count: int = 500) -> None:
    App(database=path).database.close()
    for number in range(1, rounds + 1):
        waits, commits = zip(*one_round(path, processes, count), strict=True)
        ordered = sorted(1000 * wait for wait in waits)
        p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
        worst = f"worst {ordered[-1]:.1f} ms; slowest commit {1000 * max(commits):.1f} ms"
        print(f"{processes} processes, round {number}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, {worst}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
