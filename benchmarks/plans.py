"""Work in stages and what starts it: how fast one step follows another, what a wide group costs, and what happens when
very many schedules are due at once. The contenders, and the rows of the table they stand in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise

from benchmarks.frame import Contender, Goal, Line, Measurement, Store, at_most, times
from benchmarks.ours import LOOK_SECONDS, Values, close, drain, filled, finish_all, make_ready, set_limit
from benchmarks.processes import beside
from benchmarks.tasks import app_at, noop, other_stamp, stamp
from headway import App
from headway.clock import SECOND
from headway.engine.maintenance.recovery import Recovery
from headway.engine.scheduler.scheduler import Scheduler
from headway.engine.supervisor import Supervisor
from headway.engine.tasks.plan import Started
from headway.engine.worker.config import WorkerConfig
from headway.engine.worker.worker import Worker
from headway.model.jobs.job import SYSTEM
from headway.model.schedules.definition import Definition
from headway.model.schedules.ticks import next_due
from headway.store.db import Tx
from headway.store.schedules import schedules

STORES: tuple[tuple[str, Store], ...] = (("SQLite", "sqlite"), ("PostgreSQL", "postgres"))
PATIENCE = 120.0
STEPS = 100  # of one execution
CHUNK = 500


def serve(url: str, tasks: list[str] | None = None, slots: int = 4) -> None:
    """A worker in a process of its own, until it is ended."""
    app = app_at(url)
    wishes = WorkerConfig(slots=slots, tasks=tasks)
    supervisor = Supervisor(
        make_worker=lambda: Worker(app.database, app.registry, wishes), recovery=Recovery(app.database)
    )
    supervisor.handle_signals()
    supervisor.run()
    app.close()


@contextmanager
def working(app: App) -> Iterator[None]:
    """A worker in this process."""
    worker = Worker(app.database, app.registry, WorkerConfig())
    make_ready(worker)
    worker.start()
    try:
        yield
    finally:
        worker.drain()
        while worker.busy():
            time.sleep(LOOK_SECONDS)
        worker.stop()
        worker.join(10.0)
        worker.close()


# --- from step to step --------------------------------------------------------------------------------------------


def step_latency(url: str, *, kind: str, samples: int) -> Values:
    """From one step's only line to the next one's, in executions of many steps: {"p50", "p99"} in ms. With "another
    process" every step runs in the other one of two workers, which the end of the step before has to wake."""
    app = app_at(url)
    set_limit(app, 1)
    tasks = [stamp.name, stamp.name if kind == "same process" else other_stamp.name]
    steps = [{"index": n, "name": str(n), "task": tasks[n % 2]} for n in range(min(STEPS, samples + 1))]
    schedule = app.client.schedules.create("steps", {"interval": "1d", "steps": steps})
    with ExitStack() as stack:
        if kind == "same process":
            stack.enter_context(working(app))
        else:
            for task in tasks:
                stack.enter_context(beside(serve, (url, [task])))
        waits: list[float] = []
        while len(waits) < samples:
            waits += _gaps(app, schedule.id)
    app.close()
    ordered = sorted(waits)
    return {"p50": ordered[len(ordered) // 2], "p99": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]}


def _gaps(app: App, schedule_id: int) -> list[float]:
    """The first gap is left out: the workers may still be starting."""
    done = Started(app.client, app.client.schedules.run(schedule_id))
    done.wait(PATIENCE)
    when = [at for _, at in sorted(done.results.items(), key=lambda one: int(one[0]))]
    return [max(0.0, (after - before) * 1000) for before, after in pairwise(when)][1:]


# --- a wide group -------------------------------------------------------------------------------------------------


def wide_group(url: str, *, jobs: int, slots: int) -> Values:
    """A parallel group of so many steps: {"create": ms, "rate": steps a second from the start of the worker to the
    group's conclusion}."""
    app = app_at(url)
    set_limit(app, None)
    began = time.monotonic()
    made = app.group([app.tasks[noop.name].step() for _ in range(jobs)], mode="parallel").start()
    created = time.monotonic()
    worker = Worker(app.database, app.registry, WorkerConfig(slots=slots))
    make_ready(worker)
    seen = finish_all(worker, jobs)
    if made.status != "COMPLETED":  # its last step ended it
        raise RuntimeError(f"all steps have ended and the group is {made.status}")
    rate = jobs / (seen[-1][0] - seen[0][0])
    close(worker, app)
    return {"create": (created - began) * 1000, "rate": rate}


def single_jobs(url: str, *, jobs: int, slots: int) -> float:
    """As many jobs of no group."""
    return drain(filled(url, noop.name, jobs), jobs, slots)[0]


# --- many schedules at once ---------------------------------------------------------------------------------------


def due_at_once(url: str, *, jobs: int) -> Values:
    """So many schedules, due within the same minute, while a worker in another process is at work:
    {"seconds": until all have fired, "rate": fired a second, "p50", "p99": pickup of other jobs meanwhile, in ms}."""
    app = app_at(url)
    set_limit(app, None)
    app.tasks[stamp.name].enqueue()
    _add_schedules(app, jobs)
    scheduler = Scheduler(app.client)
    with beside(serve, (url, None, 10)):
        app.tasks[stamp.name].enqueue().result(timeout=60)
        began = time.monotonic()
        scheduler.start()
        waits = list(_pickups_until(app, jobs))
        seconds = time.monotonic() - began
        scheduler.stop()
        scheduler.join(10.0)
    _check_ledger(app, jobs)
    app.close()
    waits.sort()
    marks = {"p50": waits[len(waits) // 2], "p99": waits[min(len(waits) - 1, len(waits) * 99 // 100)]}
    return {"seconds": seconds, "rate": jobs / seconds, **marks}


def _add_schedules(app: App, count: int) -> None:
    """Made a minute ago, due at moments of that minute: past the verb, which would take a commit for each."""
    client = app.client
    client.schedules.check({"interval": "1d", "steps": [{"task": noop.name}]})
    now = app.database.clock.now() - 60 * SECOND
    definitions = [
        Definition(times=(now + (n + 1) * 50 * SECOND // count,), steps=_ONE_STEP, jitter=0.0) for n in range(count)
    ]

    def add(tx: Tx, start: int) -> None:
        for n, definition in enumerate(definitions[start : start + CHUNK], start):
            made = schedules.insert(
                tx,
                client.tenant_id,
                name=f"schedule {n}",
                definition=definition.text(),
                templates="{}",
                enabled=True,
                origin="api",
                now=now,
                actor=SYSTEM,
                author=SYSTEM.text(),
            )
            made = schedules.set_next(tx, made, next_due(definition, now, made.id, now))
            schedules.record(tx, made, "created", SYSTEM, version=1)

    for start in range(0, count, CHUNK):
        app.database.transact("fill", add, start)


_ONE_STEP = Definition.parse({"interval": "1d", "steps": [{"task": noop.name}]}).steps


def _pickups_until(app: App, count: int) -> Iterator[float]:
    """Other jobs go before the executions; how long each waited, until every schedule has fired."""
    task = app.tasks[stamp.name].using(priority=9)
    deadline = time.monotonic() + PATIENCE
    while True:
        job = task.enqueue()
        asked = time.time()
        yield max(0.0, (job.result(timeout=PATIENCE) - asked) * 1000)
        fired = _ask(app, "select count(*) from hw_tick")[0][0]
        if fired >= count:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{fired} of {count} schedules fired within {PATIENCE:g} s")
        time.sleep(0.02)


def _check_ledger(app: App, count: int) -> None:
    """Each fired once, and in the order of their times."""
    nominal = [row[0] for row in _ask(app, "select nominal_at from hw_tick where outcome = 'FIRED' order by id")]
    if len(nominal) != count:
        raise RuntimeError(f"{len(nominal)} of {count} schedules fired")
    if nominal != sorted(nominal):
        raise RuntimeError("the schedules did not fire in the order of their times")


def _ask(app: App, text: str) -> list[tuple[int, ...]]:
    with app.database.read() as tx:
        found: list[tuple[int, ...]] = tx.connection.execute(text).fetchall()  # type: ignore[attr-defined]
    return found


# --- the rows of the table ----------------------------------------------------------------------------------------


PLACES: tuple[tuple[str, str, Store], ...] = (
    ("same process, SQLite", "same process", "sqlite"),
    ("same process, PostgreSQL", "same process", "postgres"),
    ("another process, one SQLite file", "another process", "sqlite"),
    ("another process, PostgreSQL", "another process", "postgres"),
)


def steps() -> Measurement:
    return Measurement(
        "steps",
        "from one step of an execution to the next, 500 samples",
        tuple(
            Contender(title, "ours", store, step_latency, {"kind": kind, "samples": 500}, {"samples": 2}, limit=180)
            for title, kind, store in PLACES
        ),
        tuple(
            Line(title, title, goals=(at_most(title, "p50", 5, "ms"),), values=("p50", "p99"), unit=" ms")
            for title, _, _ in PLACES
        ),
    )


def wide() -> Measurement:
    """A group is to cost little more than its jobs."""
    quick = {"jobs": 40}
    return Measurement(
        "wide-group",
        "a parallel group of 1,000 steps: create, run, conclude",
        tuple(
            Contender(f"{kind}, {title}", "ours", store, function, {"jobs": 1_000, "slots": 50}, quick, limit=180)
            for title, store in STORES
            for kind, function in (("group", wide_group), ("jobs", single_jobs))
        ),
        tuple(
            line
            for title, _ in STORES
            for line in (
                Line(f"run and conclude, {title}", f"group, {title}", goals=(_as_fast_as_jobs(title),)),
                Line(f"create, {title}", f"group, {title}", values=("create",), unit=" ms"),
            )
        ),
    )


def _as_fast_as_jobs(title: str) -> Goal:
    return times(f"group, {title}", f"jobs, {title}", 0.7, name="1,000 single jobs")


def due() -> Measurement:
    return Measurement(
        "due-at-once",
        "10,000 schedules due in the same minute, beside a worker",
        tuple(
            Contender(title, "ours", store, due_at_once, {"jobs": 10_000}, {"jobs": 40}, limit=240)
            for title, store in STORES
        ),
        tuple(
            line
            for title, _ in STORES
            for line in (
                Line(
                    f"all fired, {title}",
                    title,
                    goals=(at_most(title, "seconds", 60, "s"),),
                    values=("seconds",),
                    unit=" s",
                ),
                Line(f"fired, {title}", title),
                Line(
                    f"pickup of other jobs meanwhile, {title}",
                    title,
                    goals=(at_most(title, "p50", 50, "ms"), at_most(title, "p99", 200, "ms")),
                    values=("p50", "p99"),
                    unit=" ms",
                ),
            )
        ),
    )


ALL: tuple[Measurement, ...] = (steps(), wide(), due())
