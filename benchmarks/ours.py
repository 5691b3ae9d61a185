"""Headway's own contenders. Every function gets the URL of a fresh, empty database, as `App(database=…)` takes it:
a path for SQLite, postgresql://… for PostgreSQL. It fills in what it needs, starts its clock, and returns jobs per
second, or several named values. It runs in a process of its own. A missing feature raises NotImplementedError.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks.postgres import transactions
from benchmarks.processes import Gate, beside, cost, memory_mib, together
from benchmarks.raw.rows import edges
from benchmarks.tasks import app_at, noop, plain, stamp
from headway import App
from headway.engine.client import limits
from headway.engine.maintenance.recovery import Recovery
from headway.engine.supervisor import Supervisor
from headway.engine.worker.config import WorkerConfig
from headway.engine.worker.worker import Worker
from headway.model.jobs.job import SYSTEM
from headway.model.queue.policies import Concurrency
from headway.store.queue import claim_snapshot

Values = dict[str, float]
LOOK_SECONDS = 0.005


def set_limit(app: App, limit: int | None) -> None:
    limits.settle(app.database, Concurrency(limit=limit), {}, actor=SYSTEM, adopt=True)


def filled(url: str, task: str, jobs: int, limit: int | None = None) -> App:
    """An app on a database with `jobs` queued jobs of a task."""
    app = app_at(url)
    set_limit(app, limit)
    for start in range(0, jobs, 1000):
        app.tasks[task].enqueue_many([{}] * min(1000, jobs - start))
    return app


def make_ready(worker: Worker) -> None:
    """Registered, and its heartbeat up: it claims nothing before, and no clock of ours shall run meanwhile."""
    worker.register()
    while not worker.lease.beating.is_set():
        time.sleep(LOOK_SECONDS)


def finish_all(worker: Worker, jobs: int) -> list[tuple[float, int]]:
    """Runs a registered worker until it has finished so many jobs; when it had finished how many."""
    seen = [(time.monotonic(), 0)]
    done = 0
    worker.start()
    while done < jobs:
        time.sleep(LOOK_SECONDS)
        if worker.finished > done:
            seen.append((time.monotonic(), worker.finished - done))
            done = worker.finished
    return seen


def close(worker: Worker, app: App) -> None:
    worker.drain()
    while worker.busy():
        time.sleep(LOOK_SECONDS)
    worker.stop()
    worker.join(10.0)
    worker.close()
    app.close()


def drain(app: App, jobs: int, slots: int) -> tuple[float, list[tuple[float, int]]]:
    worker = Worker(app.database, app.registry, WorkerConfig(slots=slots))
    make_ready(worker)
    seen = finish_all(worker, jobs)
    close(worker, app)
    return jobs / (seen[-1][0] - seen[0][0]), seen


# Drain: the clock runs from the worker's start to the last durable finish. Enqueue everything before.


def drain_sqlite(url: str, *, jobs: int, slots: int, limit: int | None) -> float:
    """`jobs` async no-ops on one worker with `slots` slots; `limit` is concurrency.limit (None is no limit)."""
    return drain(filled(url, noop.name, jobs, limit), jobs, slots)[0]


def drain_serial_sqlite(url: str, *, jobs: int) -> float:
    """Async no-ops under the default lanes: one job at a time."""
    return drain(filled(url, noop.name, jobs, limit=1), jobs, 4)[0]


def drain_children_sqlite(url: str, *, jobs: int, slots: int = 2) -> float:
    """Plain functions, each slot with its warm child process; the children are warm before the clock starts."""
    app = app_at(url)
    set_limit(app, None)
    worker = Worker(app.database, app.registry, WorkerConfig(slots=slots))
    make_ready(worker)
    app.tasks[plain.name].enqueue_many([{}] * slots)
    finish_all(worker, slots)
    app.client.pause_queue()
    for start in range(0, jobs, 1000):
        app.tasks[plain.name].enqueue_many([{}] * min(1000, jobs - start))
    began = time.monotonic()
    app.client.resume_queue()
    while worker.finished < jobs + slots:
        time.sleep(LOOK_SECONDS)
    rate = jobs / (time.monotonic() - began)
    close(worker, app)
    return rate


def drain_postgres(url: str, *, jobs: int, slots: int, processes: int) -> float | Values:
    """`processes` workers with `slots` slots each. The database is fresh and must not be analysed before."""
    app = filled(url, noop.name, jobs)
    if processes == 1:
        rate, seen = drain(app, jobs, slots)
        return {"rate": rate, **edges(seen)}
    app.close()
    return _together(url, jobs, slots, processes)


def _together(url: str, jobs: int, slots: int, count: int) -> float:
    done, seconds = together(drain_share, [(url, slots, jobs)] * count)
    if done != jobs:
        raise RuntimeError(f"{done} of {jobs} jobs were finished")
    return jobs / seconds


def drain_share(gate: Gate, url: str, slots: int, jobs: int) -> int:
    """One of several workers: begins when all do, ends when everything is finished."""
    app = app_at(url)
    worker = Worker(app.database, app.registry, WorkerConfig(slots=slots))
    make_ready(worker)
    gate.wait()
    worker.start()
    while not _all_finished(app, worker, jobs):
        time.sleep(LOOK_SECONDS)
    done = worker.finished
    threading.Thread(target=close, args=(worker, app), daemon=True).start()
    return done


def _all_finished(app: App, worker: Worker, jobs: int) -> bool:
    """Asks the database only when this worker has nothing left to do itself."""
    if worker.pool.running or worker.pool.ended_work:
        return False
    with app.database.read() as tx:
        view = claim_snapshot.look(tx)
        return not view.ready and not view.running


# Enqueue: the clock runs over the calls alone; each call returns after its durable commit.


def enqueue_one_by_one(url: str, *, jobs: int) -> float:
    """One caller, one `enqueue` after the other."""
    task = app_at(url).tasks[noop.name]
    task.enqueue()
    began = time.monotonic()
    for _ in range(jobs):
        task.enqueue()
    return jobs / (time.monotonic() - began)


def enqueue_concurrent(url: str, *, jobs: int, callers: int = 50) -> float:
    """`callers` threads share `jobs` calls of `enqueue`."""
    task = app_at(url).tasks[noop.name]
    task.enqueue()
    gate = threading.Barrier(callers + 1)

    def call(count: int) -> None:
        gate.wait()
        for _ in range(count):
            task.enqueue()

    with ThreadPoolExecutor(callers) as pool:
        calls = [pool.submit(call, jobs // callers) for _ in range(callers)]
        gate.wait()
        began = time.monotonic()
        for one in calls:
            one.result()
        return jobs // callers * callers / (time.monotonic() - began)


def enqueue_bulk(url: str, *, jobs: int, batch: int) -> float:
    """`enqueue_many` with `batch` jobs per call."""
    task = app_at(url).tasks[noop.name]
    task.enqueue()
    began = time.monotonic()
    for _ in range(0, jobs, batch):
        task.enqueue_many([{}] * batch)
    return jobs / (time.monotonic() - began)


# Latency and cost


def pickup_latency(url: str, *, kind: str, samples: int, silence: float = 0.0) -> Values:
    """From the return of `enqueue` to the handler's first line, on an idle system: {"p50", "p99"} in ms.

    `kind`: "same process", "another process". `silence`: seconds without any work before each sample.
    """
    app = app_at(url)
    if kind == "same process":
        worker = Worker(app.database, app.registry, WorkerConfig())
        make_ready(worker)
        worker.start()
        waits = _samples(app, samples, silence)
        close(worker, app)
    else:
        with beside(serve, (url,)):
            waits = _samples(app, samples, silence)
        app.close()
    ordered = sorted(waits)
    return {"p50": ordered[len(ordered) // 2], "p99": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]}


def _samples(app: App, samples: int, silence: float) -> list[float]:
    task = app.tasks[stamp.name]
    task.enqueue().result(timeout=30)
    waits = []
    for _ in range(samples):
        time.sleep(silence or 0.02)
        job = task.enqueue()
        asked = time.time()
        waits.append(max(0.0, (job.result(timeout=60) - asked) * 1000))
    return waits


def serve(url: str) -> None:
    """A worker in a process of its own, until it is ended."""
    app = app_at(url)
    wishes = WorkerConfig()
    supervisor = Supervisor(
        make_worker=lambda: Worker(app.database, app.registry, wishes), recovery=Recovery(app.database)
    )
    supervisor.handle_signals()
    supervisor.run()
    app.close()


def idle(url: str, *, seconds: float) -> Values:
    """A worker with nothing to do: {"cpu": % of a core, "memory": MiB of worker and heartbeat together}, and on
    PostgreSQL {"transactions": per second}."""
    app_at(url).database.close()
    with beside(serve, (url,)) as pid:
        # A server tells of its transactions up to ten seconds late: those of the start are not to be counted.
        time.sleep(12.0 if url.startswith("postgres") and seconds > 5 else 2.0)
        before = transactions(url) if url.startswith("postgres") else 0.0
        values = cost(pid, seconds)
        if url.startswith("postgres"):
            values["transactions"] = (transactions(url) - before) / seconds
    return values


def memory(url: str, *, jobs: int) -> Values:
    """Draining `jobs` jobs: {"early", "late"} MiB of the worker, after a tenth of the jobs and near the end."""
    app = filled(url, noop.name, jobs)
    worker = Worker(app.database, app.registry, WorkerConfig(slots=200))
    make_ready(worker)
    worker.start()
    marks = {}
    for name, part in (("early", 0.1), ("late", 0.95)):
        while worker.finished < jobs * part:
            time.sleep(LOOK_SECONDS)
        marks[name] = memory_mib(os.getpid())
    close(worker, app)
    return marks
