"""huey, on SQLite with synchronous=FULL and on PostgreSQL through its peewee storage. Results are stored."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

NEEDS = ("huey",)
NEEDS_POSTGRES = ("huey", "peewee", "psycopg")


def noop(n: int) -> int:
    return n


def sqlite(url: str, *, fsync: bool = True) -> Any:
    from huey import SqliteHuey

    return known(SqliteHuey("bench", filename=url, fsync=fsync))


def postgres(url: str) -> Any:
    from huey.contrib.sql_huey import SqlHuey
    from peewee import PostgresqlDatabase

    return known(SqlHuey("bench", database=PostgresqlDatabase(url, prefer_psycopg3=True)))


def known(huey: Any) -> Any:
    """The same instance, with the task registered; the task itself stays at hand as `huey.noop`."""
    huey.noop = huey.task()(noop)
    return huey


def enqueue(huey: Any, jobs: int) -> float:
    start = time.monotonic()
    for n in range(jobs):
        huey.noop(n)
    return jobs / (time.monotonic() - start)


def drain(huey: Any, *, jobs: int, workers: int, worker_type: str) -> float:
    """Run a consumer until every job has a result. Its log is quiet, its scheduler idle, its polling short."""
    logging.getLogger("huey").setLevel(logging.ERROR)
    consumer = huey.create_consumer(
        workers=workers, worker_type=worker_type, periodic=False, initial_delay=0.001, check_worker_health=False
    )
    wait = until_results if worker_type == "process" else until_completed(huey, jobs)
    start = time.monotonic()
    consumer.start()
    end = wait(huey, jobs)
    consumer.stop(graceful=True)
    return jobs / (end - start)


def until_completed(huey: Any, jobs: int) -> Callable[[Any, int], float]:
    """Counts in this process: the signal comes after the result was stored."""
    from huey.signals import SIGNAL_COMPLETE

    lock, done, count = threading.Lock(), threading.Event(), 0

    def completed(signal: str, task: Any) -> None:
        nonlocal count
        with lock:
            count += 1
            if count == jobs:
                done.set()

    huey.signal(SIGNAL_COMPLETE)(completed)

    def wait(huey: Any, jobs: int) -> float:
        done.wait()
        return time.monotonic()

    return wait


def until_results(huey: Any, jobs: int) -> float:
    """Asks the result store, where the workers are other processes."""
    while huey.result_count() < jobs:
        time.sleep(0.02)
    return time.monotonic()


def drain_sqlite(url: str, *, jobs: int, workers: int = 1, worker_type: str = "thread") -> float:
    filler = sqlite(url, fsync=False)
    enqueue(filler, jobs)
    filler.storage.close()
    return drain(sqlite(url), jobs=jobs, workers=workers, worker_type=worker_type)


def drain_postgres(url: str, *, jobs: int, workers: int = 1, worker_type: str = "thread") -> float:
    huey = postgres(url)
    enqueue(huey, jobs)
    huey.storage.close()
    return drain(huey, jobs=jobs, workers=workers, worker_type=worker_type)


def enqueue_one_by_one_sqlite(url: str, *, jobs: int) -> float:
    return enqueue(sqlite(url), jobs)


def enqueue_one_by_one_postgres(url: str, *, jobs: int) -> float:
    return enqueue(postgres(url), jobs)
