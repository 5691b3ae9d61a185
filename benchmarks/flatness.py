"""Flatness: whether a claim costs the same in a large database as in a small one. A case fills a database to a size,
a probe finds a rate in it; small and large take turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.ours import Values, close, drain, enqueue_one_by_one, filled, finish_all, make_ready, set_limit
from benchmarks.tasks import app_at, noop
from headway import App
from headway.engine.client import limits
from headway.engine.client.client import Client
from headway.engine.worker.config import WorkerConfig
from headway.engine.worker.finish import Ended, finish
from headway.engine.worker.lease import new_identity
from headway.engine.worker.worker import Worker
from headway.model.jobs.job import SYSTEM, Claim, NewJob
from headway.model.jobs.outcome import Failed, FailureKind
from headway.model.queue.policies import Concurrency
from headway.store import workers
from headway.store.db import Tx
from headway.store.jobs import views as job_views
from headway.store.queue import claims
from headway.store.queue.lanes import BucketCache

BETTER = 50
CHUNK = 1_000
PROBED = 1_000
KINDS = 200
A_YEAR = 365 * 86_400.0

Fill = Callable[[str, int], None]
Probe = Callable[["Case", str, int], float]


@dataclass(frozen=True, slots=True)
class Case:
    """`fill(url, size)` makes the database, `probe` finds a rate in it and may be called again and again. `free` is
    the part of the jobs that can be claimed."""

    title: str
    fill: Fill
    probe: Probe
    free: float = 1.0
    factor: float = 0.9


# --- filling ------------------------------------------------------------------------------------------------------


def enqueue(client: Client, jobs: Iterator[NewJob] | list[NewJob]) -> None:
    chunk: list[NewJob] = []
    for job in jobs:
        chunk.append(job)
        if len(chunk) == CHUNK:
            client.enqueue_many(chunk)
            chunk = []
    client.enqueue_many(chunk)


def new(app: App, task: str = noop.name, **wishes: object) -> NewJob:
    options = app.registry.get(noop.name).options.text()
    return NewJob(task, "{}", options, **wishes)  # type: ignore[arg-type]


class Elsewhere:
    """A worker on another machine that holds what it took."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.who = workers.Identity(new_identity().id, "elsewhere", "boot", 1, 1)
        self.lanes = BucketCache(app.database)
        self.slots = 100_000
        app.database.transact("register", self._register)

    def _register(self, tx: Tx) -> None:
        workers.register(tx, self.who, SYSTEM, slots=self.slots, tasks=[], lease=A_YEAR)

    def take(self, count: int) -> list[Claim]:
        """Claims the next jobs."""

        def work(tx: Tx) -> list[Claim]:
            tx.run("pin_plans")
            view, _ = claims.lock_and_look(tx, self.lanes, SYSTEM)
            first = self.slots - count
            plan = claims.claim(
                tx,
                view,
                self.lanes,
                worker_id=self.who.id,
                actor=SYSTEM,
                knows=lambda _: True,
                slots=range(first, self.slots),
            )
            return [] if plan is None else plan.claims(tx.run_all(*plan.statements, commit=True))

        return self.app.database.transact("claim", work)

    def fail(self, taken: list[Claim]) -> None:
        """On a target: the jobs go to ERROR and hold it."""
        failed = Failed(FailureKind.EXCEPTION, "on purpose", final=True)
        ended = [Ended(claim, failed) for claim in taken]
        self.app.database.transact("finish", lambda tx: finish(tx, self.who.id, SYSTEM, ended))


def fill_queued(url: str, size: int) -> None:
    """`size` queued jobs."""
    filled(url, noop.name, size).close()


def fill_busy_lane(url: str, size: int) -> None:
    """Half of the jobs with a better priority and behind a lane that is full."""
    app = app_at(url, kinds=1)
    policy = Concurrency(policy="per_task", limit=100_000, limits=(("kind.0", 1),))
    limits.settle(app.database, policy, {}, actor=SYSTEM, adopt=True)
    enqueue(app.client, [new(app, "kind.0", priority=BETTER)])
    assert len(Elsewhere(app).take(1)) == 1
    enqueue(app.client, (new(app, "kind.0", priority=BETTER) for _ in range(size // 2)))
    enqueue(app.client, (new(app) for _ in range(size // 2)))
    app.close()


def fill_full_resource(url: str, size: int) -> None:
    """Half of the jobs with a better priority and in need of a resource that is taken."""
    app = app_at(url)
    limits.settle(app.database, Concurrency(limit=None), {"gpu": 1}, actor=SYSTEM, adopt=True)
    enqueue(app.client, [new(app, priority=BETTER, resources=("gpu",))])
    assert len(Elsewhere(app).take(1)) == 1
    enqueue(app.client, (new(app, priority=BETTER, resources=("gpu",)) for _ in range(size // 2)))
    enqueue(app.client, (new(app) for _ in range(size // 2)))
    app.close()


def fill_held_targets(url: str, size: int) -> None:
    """Half of the jobs with a better priority and on ten targets that failed jobs hold."""
    app = app_at(url)
    set_limit(app, None)
    held = [f"held-{n}" for n in range(10)]
    _hold(app, held)
    enqueue(app.client, (new(app, priority=BETTER, target=held[n % 10]) for n in range(size // 2)))
    enqueue(app.client, (new(app) for _ in range(size // 2)))
    app.close()


def _hold(app: App, targets: list[str]) -> None:
    elsewhere = Elsewhere(app)
    for start in range(0, len(targets), CHUNK):
        part = targets[start : start + CHUNK]
        enqueue(app.client, [new(app, priority=99, target=target) for target in part])
        taken = elsewhere.take(len(part))
        assert len(taken) == len(part)
        elsewhere.fail(taken)


def fill_targets(url: str, size: int) -> None:
    """Jobs over many targets, half of them held by failed jobs; the held ones have the better jobs."""
    app = app_at(url)
    set_limit(app, None)
    count = 10_000 if size > 100_000 else max(4, size * 4 // 10)
    held = [f"held-{n}" for n in range(count // 2)]
    free = [f"free-{n}" for n in range(count // 2)]
    _hold(app, held)
    for names, priority in ((held, BETTER), (free, 0)):
        enqueue(app.client, (new(app, priority=priority, target=names[n % len(names)]) for n in range(size // 2)))
    app.close()


def fill_paused_tenant(url: str, size: int) -> None:
    """Half of the jobs with a better priority and of another tenant, whose queue is paused."""
    app = app_at(url)
    set_limit(app, None)
    with app.database.transaction("fill") as tx:
        app.database.execute_script(tx, "insert into hw_tenant (name, created_at) values ('other', 0)")
    other = Client(app.database, app.registry, actor=SYSTEM, tenant="other")
    other.pause_queue()
    enqueue(other, (new(app, priority=BETTER) for _ in range(size // 2)))
    enqueue(app.client, (new(app) for _ in range(size // 2)))
    app.close()


def fill_unknown_task(url: str, size: int) -> None:
    """Half of the jobs with a better priority and of a task that no worker here knows."""
    app = app_at(url)
    set_limit(app, None)
    enqueue(app.client, (new(app, "elsewhere", priority=BETTER) for _ in range(size // 2)))
    enqueue(app.client, (new(app) for _ in range(size // 2)))
    app.close()


def fill_kinds(url: str, size: int) -> None:
    """Queued jobs of `size` kinds of work; the small one has 1 kind, the large one 200."""
    app = app_at(url, kinds=size)
    set_limit(app, None)
    for kind in range(size):
        app.tasks[f"kind.{kind}"].enqueue_many([{}] * (20_000 // size))
    app.close()


def fill_finished(url: str, size: int) -> None:
    """2,000 queued jobs and `size` finished ones with their runs, events and results."""
    app = filled(url, noop.name, size)
    drain(app, size, 200)
    filled(url, noop.name, 2_000).close()


def settle(url: str) -> None:
    """On PostgreSQL, what comes in its time, and to a small table sooner: a claim walks past what was taken since the
    last vacuum. No checkpoint: after one, every page of a large table is written whole when it is first touched."""
    if url.startswith("postgresql://"):
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("vacuum (index_cleanup on) hw_job, hw_run, hw_event, hw_touched")


# --- probing ------------------------------------------------------------------------------------------------------


def claim_rate(case: Case, url: str, size: int) -> float:
    """Jobs per second that one worker takes and finishes here, then topped up again."""
    settle(url)
    app = app_at(url, kinds=KINDS)
    worker = Worker(app.database, app.registry, WorkerConfig(slots=50))
    make_ready(worker)
    seen = finish_all(worker, min(PROBED, int(case.free * size) // 2 or 1))
    rate = worker.finished / (seen[-1][0] - seen[0][0])
    done = worker.finished
    close(worker, app)
    top_up(url, done)
    return rate


def kinds_rate(case: Case, url: str, size: int) -> float:
    return claim_rate(case, url, 20_000)


def top_up(url: str, jobs: int) -> None:
    """As many jobs of the same kinds, at the end of the queue."""
    app = app_at(url, kinds=KINDS)
    with app.database.read() as tx:
        found = tx.run("all_buckets")
    kinds = [task for _, _, task, *_ in found if task.startswith("kind.") and len(found) > 2]
    if all(on_target for *_, on_target in found):
        spread = 400 if jobs > 100 else 2
        enqueue(app.client, (new(app, target=f"free-{n % spread}") for n in range(jobs)))
    else:
        for task in kinds or [noop.name]:
            app.tasks[task].enqueue_many([{}] * (jobs // max(1, len(kinds)) + 1))
    app.close()


def enqueue_rate(case: Case, url: str, size: int) -> float:
    """Calls of `enqueue` per second here."""
    return enqueue_one_by_one(url, jobs=PROBED)


def bulk_rate(case: Case, url: str, size: int) -> float:
    """Jobs per second enqueued here on targets that are known, 1,000 at a time, each on another target."""
    settle(url)
    app = app_at(url)
    names = [f"free-{n}" for n in range(400 if size > CHUNK else 4)]
    jobs = [new(app, target=names[n % len(names)]) for n in range(CHUNK if size > CHUNK else 10)]
    app.client.enqueue_many(jobs[: len(names)])
    began = time.monotonic()
    for _ in range(5):
        app.client.enqueue_many(jobs)
    rate = 5 * len(jobs) / (time.monotonic() - began)
    app.close()
    return rate


def page_rate(case: Case, url: str, size: int) -> float:
    """Pages of the job list per second here: the first page, and the one after it."""
    app = app_at(url)
    rounds = 50
    began = time.monotonic()
    for _ in range(rounds):
        with app.database.read() as tx:
            page = job_views.list_jobs(tx, 1, limit=50)
            job_views.list_jobs(tx, 1, limit=50, cursor=page.next)
    app.close()
    return 2 * rounds / (time.monotonic() - began)


CASES: dict[str, Case] = {
    "queued": Case("1M queued", fill_queued, claim_rate),
    "busy-lane": Case("1M queued, 500k better ones behind a busy lane", fill_busy_lane, claim_rate, 0.5),
    "held-targets": Case("1M queued, 500k better ones on held targets", fill_held_targets, claim_rate, 0.5),
    "full-resource": Case("1M queued, 500k better ones need a full resource", fill_full_resource, claim_rate, 0.5),
    "paused-tenant": Case("1M queued, 500k better ones of a paused tenant", fill_paused_tenant, claim_rate, 0.5),
    "unknown-task": Case("1M queued, 500k better ones of an unknown task", fill_unknown_task, claim_rate, 0.5),
    "targets": Case("1M over 10k targets, half of them held", fill_targets, claim_rate, 0.5),
    "kinds": Case("200 kinds of work", fill_kinds, kinds_rate),
    "finished": Case("1M finished", fill_finished, claim_rate),
    "enqueue": Case("enqueue at 1M jobs", fill_queued, enqueue_rate),
    "bulk-targets": Case("bulk enqueue over 10k targets at 1M jobs", fill_targets, bulk_rate),
    "pages": Case("list pages at 1M jobs", fill_queued, page_rate, factor=0.5),
}


def flatness(small: str, large: str, *, case: str, sizes: tuple[int, int], rounds: int) -> Values:
    """The case's rate in a small and in a large database, taken in turns: medians, {"small", "large"}."""
    chosen = CASES[case]
    chosen.fill(small, sizes[0])
    chosen.fill(large, sizes[1])
    # The first pair, with all that the filling left to do, is not counted.
    _, *pairs = [
        (chosen.probe(chosen, small, sizes[0]), chosen.probe(chosen, large, sizes[1])) for _ in range(rounds + 1)
    ]
    return {
        "small": statistics.median(one for one, _ in pairs),
        "large": statistics.median(two for _, two in pairs),
    }
