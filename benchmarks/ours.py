"""Headway's own contenders. Every function gets the URL of a fresh, empty database, as `App(database=…)` takes it:
a path for SQLite, postgresql://… for PostgreSQL. It fills in what it needs, starts its clock, and returns jobs per
second, or several named values. It runs in a process of its own. What is not built raises NotImplementedError.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

Values = dict[str, float]


def not_built(what: str) -> NoReturn:
    raise NotImplementedError(f"{what} is not built yet")


# Drain: the clock runs from the worker's start to the last durable finish. Enqueue everything before.


def drain_sqlite(url: str, *, jobs: int, slots: int, limit: int | None) -> float:
    """`jobs` async no-ops on one worker with `slots` slots; `limit` is concurrency.limit (None is no limit)."""
    not_built("draining a SQLite file")


def drain_serial_sqlite(url: str, *, jobs: int) -> float:
    """Async no-ops under the default lanes: one job at a time."""
    not_built("draining a SQLite file one job at a time")


def drain_children_sqlite(url: str, *, jobs: int, slots: int = 2) -> float:
    """Plain functions, each slot with its warm child process; the children are warm before the clock starts."""
    not_built("draining a SQLite file with child processes")


def drain_postgres(url: str, *, jobs: int, slots: int, processes: int) -> float | Values:
    """`processes` workers with `slots` slots each (`benchmarks.processes.together` starts them at once).

    With one process also "first" and "last": the rates over the first and the last 2,000 jobs, see
    `benchmarks.raw.rows.edges`. The database is fresh and must not be analysed before.
    """
    not_built("draining PostgreSQL")


# Enqueue: the clock runs over the calls alone; each call returns after its durable commit.


def enqueue_one_by_one(url: str, *, jobs: int) -> float:
    """One caller, one `enqueue` after the other."""
    not_built("enqueue")


def enqueue_concurrent(url: str, *, jobs: int, callers: int = 50) -> float:
    """`callers` threads share `jobs` calls of `enqueue`."""
    not_built("enqueue by many callers")


def enqueue_bulk(url: str, *, jobs: int, batch: int) -> float:
    """`enqueue_many` with `batch` jobs per call."""
    not_built("enqueue_many")


# Latency and cost


def pickup_latency(url: str, *, kind: str, samples: int, silence: float = 0.0) -> Values:
    """From the return of `enqueue` to the handler's first line, on an idle system: {"p50", "p99"} in ms.

    `kind`: "same process", "another process". `silence`: seconds without any work before each sample.
    """
    not_built("a worker that waits")


def idle(url: str, *, seconds: float) -> Values:
    """A worker with nothing to do: {"cpu": % of a core, "memory": MiB of worker and heartbeat together}, and on
    PostgreSQL {"transactions": per second}. `benchmarks.processes` and `benchmarks.postgres.transactions` measure."""
    not_built("a worker that waits")


def memory(url: str, *, jobs: int) -> Values:
    """Draining `jobs` jobs: {"early", "late"} MiB of the worker, after a tenth of the jobs and near the end."""
    not_built("draining a SQLite file")


# Flatness: a case fills a database to a size, a probe finds a rate in it.

Fill = Callable[[str, int], None]
Probe = Callable[[str], float]


@dataclass(frozen=True, slots=True)
class Case:
    """`fill(url, size)` makes the database, `probe(url)` finds a rate in it and may be called again and again."""

    title: str
    fill: Fill
    probe: Probe
    factor: float = 0.9


def fill_queued(url: str, size: int) -> None:
    """`size` queued jobs."""
    not_built("filling a database")


def fill_busy_lane(url: str, size: int) -> None:
    """`size` queued jobs, half of them with a better priority and behind a lane that is full."""
    not_built("filling a database")


def fill_unknown_task(url: str, size: int) -> None:
    """`size` queued jobs, half of them with a better priority and of a task that no worker here knows."""
    not_built("filling a database")


def fill_kinds(url: str, size: int) -> None:
    """2,000 queued jobs of `size` kinds of work; the small one has 1 kind, the large one 200."""
    not_built("filling a database")


def fill_finished(url: str, size: int) -> None:
    """2,000 queued jobs and `size` finished ones with their runs, events and results."""
    not_built("filling a database")


def claim_rate(url: str) -> float:
    """Jobs per second that one worker takes and finishes here, some thousands of them, then topped up again."""
    not_built("claiming")


def enqueue_rate(url: str) -> float:
    """Calls of `enqueue` per second here."""
    not_built("enqueue")


def page_rate(url: str) -> float:
    """Pages of the job list per second here: the first page, and one in the middle."""
    not_built("listing jobs")


CASES: dict[str, Case] = {
    "queued": Case("1M queued", fill_queued, claim_rate),
    "busy-lane": Case("1M queued, 500k better ones behind a busy lane", fill_busy_lane, claim_rate),
    "unknown-task": Case("1M queued, 500k better ones of an unknown task", fill_unknown_task, claim_rate),
    "kinds": Case("200 kinds of work", fill_kinds, claim_rate),
    "finished": Case("1M finished", fill_finished, claim_rate),
    "enqueue": Case("enqueue at 1M jobs", fill_queued, enqueue_rate),
    "pages": Case("list pages at 1M jobs", fill_queued, page_rate, factor=0.5),
}


def flatness(small: str, large: str, *, case: str, sizes: tuple[int, int], rounds: int) -> Values:
    """The case's rate in a small and in a large database, taken in turns: medians, {"small", "large"}."""
    chosen = CASES[case]
    chosen.fill(small, sizes[0])
    chosen.fill(large, sizes[1])
    pairs = [(chosen.probe(small), chosen.probe(large)) for _ in range(rounds)]
    return {"small": statistics.median(s for s, _ in pairs), "large": statistics.median(g for _, g in pairs)}
