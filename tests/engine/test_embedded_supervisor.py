"""Workers inside another program: one that is lost or stuck is replaced, and the program is never ended for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from headway import App, Job
from headway.engine import supervisor as supervising
from headway.engine.maintenance.recovery import Recovery
from headway.engine.supervisor import MOST_SET_ASIDE, EmbeddedSupervisor
from headway.engine.worker import execution_pool
from headway.engine.worker import worker as worker_module
from headway.engine.worker.config import WorkerConfig
from headway.engine.worker.worker import Worker
from headway.errors import Unreachable
from headway.runtime import settle
from headway.store import workers
from headway.store.db import open_database
from headway.verify import check
from tests.support.waiting import PATIENCE, until

# Longer than the test: a heartbeat ends its process, here that of the tests, when the work of a lost worker goes on.
LEASE = 3600.0


class Gate:
    """Jobs that ignore stop requests until the test lets them go."""

    def __init__(self) -> None:
        self.began: set[int] = set()
        self.open: dict[int, threading.Event] = {}

    def hold(self, number: int) -> int:
        self.began.add(number)
        assert self.open.setdefault(number, threading.Event()).wait(PATIENCE)
        return number

    def let_go(self, number: int) -> None:
        self.open.setdefault(number, threading.Event()).set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    for number in gate.began:
        gate.let_go(number)


@pytest.fixture
def app(database_url: str, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    monkeypatch.setattr(supervising, "SELDOM", 0.02)
    monkeypatch.setattr(supervising, "STOP_GRACE", 0.1)
    monkeypatch.setattr(supervising, "BACKOFF", 0.02)
    monkeypatch.setattr(EmbeddedSupervisor, "grace_for_kills", 0.1)
    monkeypatch.setattr(execution_pool, "STUCK_AFTER", 0.05)
    monkeypatch.setattr(worker_module, "STOPPING_SECONDS", 0.02)
    with App(database_url, concurrency={"limit": "none"}) as app:
        app.task("deaf", isolation="thread", retry={"max_attempts": 1, "base_delay": 0})(gate.hold)

        @app.task("add")
        async def add(a: int, b: int) -> int:
            return a + b

        list(settle(app, ["worker"]))
        yield app


@contextmanager
def embedded(app: App, make: type[Worker] = Worker, *, lease: float = LEASE) -> Iterator[EmbeddedSupervisor]:
    made = EmbeddedSupervisor(
        make_worker=lambda: make(app.database, app.registry, WorkerConfig(slots=2, lease=lease, heartbeat=0.1)),
        recovery=Recovery(app.database, interval=3600),
        grace=0.1,
    )
    made.start()
    try:
        yield made
    finally:
        if not made.wanted.is_set():
            made.stop()


def begin(app: App, gate: Gate, number: int) -> Job:
    job = app.tasks["deaf"].enqueue(number=number)
    until(lambda: number in gate.began)
    return job


def get_stuck(app: App, gate: Gate, made: EmbeddedSupervisor, number: int) -> Job:
    """A job that was cancelled and goes on: its worker is set aside."""
    before = len(made.set_aside)
    job = begin(app, gate, number)
    job.cancel()
    until(lambda: len(made.set_aside) == before + 1, "the worker is set aside")
    return job


def run_one(app: App) -> Job:
    job = app.tasks["add"].enqueue(a=1, b=2)
    until(lambda: job.row.status.terminal)
    assert job.status == "COMPLETED"
    return job


def live(app: App) -> int:
    with app.database.read() as tx:
        return len(workers.live(tx))


def retry_of(app: App, job: Job) -> int:
    with app.database.read() as tx:
        return int(tx.run("any_retry", id=job.id)[0][0])


def give_up(app: App, worker: Worker) -> None:
    app.database.transact("give_up", lambda tx: workers.retire(tx, worker.who.id, "silent"))


def test_a_worker_with_work_that_does_not_stop_is_set_aside_and_replaced(app: App, gate: Gate) -> None:
    with embedded(app) as made:
        stuck = get_stuck(app, gate, made, 1)
        run_one(app)
        assert (stuck.status, stuck.row.reason) == ("RUNNING", "not stopping")
        assert live(app) == 2
        gate.let_go(1)
        until(lambda: stuck.status == "COMPLETED")
        until(lambda: made.set_aside == [] and live(app) == 1, "the worker that was set aside is closed")
        run_one(app)
    assert live(app) == 0
    assert check(app.database, quiet=True).findings == []


def test_the_number_of_workers_set_aside_is_limited(app: App, gate: Gate) -> None:
    """The last of them is not replaced until the work of another has ended."""
    with embedded(app) as made:
        stuck = [get_stuck(app, gate, made, number) for number in range(MOST_SET_ASIDE)]
        waiting = app.tasks["add"].enqueue(a=1, b=2)
        until(lambda: made.worker is None)
        assert live(app) == MOST_SET_ASIDE
        assert waiting.status == "QUEUED"
        gate.let_go(1)
        until(lambda: waiting.status == "COMPLETED", "another worker has started")
        assert stuck[1].status == "COMPLETED"
        assert [stuck[0].status, stuck[2].status] == ["RUNNING", "RUNNING"]
        assert live(app) == MOST_SET_ASIDE
        gate.let_go(0)
        gate.let_go(2)
        until(lambda: made.set_aside == [])
    assert check(app.database, quiet=True).findings == []


def test_a_lost_worker_with_work_that_does_not_stop_is_closed_when_it_has_ended(app: App, gate: Gate) -> None:
    """Otherwise three of them would leave the program without a worker for ever."""
    with embedded(app) as made:
        job = begin(app, gate, 1)
        assert made.worker is not None
        give_up(app, made.worker)
        until(lambda: len(made.set_aside) == 1)
        run_one(app)
        made.recovery.safely()
        assert (job.status, job.row.failure_kind) == ("FAILED", "LOST")
        gate.let_go(1)
        until(lambda: made.set_aside == [], "the lost worker is closed")
        until(lambda: app.job(retry_of(app, job)).status == "COMPLETED")
    assert live(app) == 0
    assert check(app.database, quiet=True).findings == []


def test_a_worker_given_up_in_an_outage_is_replaced(app: App) -> None:
    """The database takes no write for a while, and in that time another process gives the worker up."""

    class Refused(Worker):
        tries = 0

        def register(self) -> None:
            Refused.tries += 1
            if Refused.tries in (2, 3):
                raise Unreachable("the database is starting up")
            if Refused.tries == 4:
                raise RuntimeError("can't start new thread")
            if Refused.tries == 5:
                raise ValueError("an error that the supervisor does not know")
            super().register()

    with embedded(app, Refused) as made, closing(open_database(app.database.url)) as other:
        run_one(app)
        worker = made.worker
        assert worker is not None
        with other.transaction("give_up") as tx:  # on SQLite the lock of the whole file
            if other.dialect == "postgres":
                tx.connection.execute("lock table hw_worker in access exclusive mode")  # type: ignore[attr-defined]
            assert workers.retire(tx, worker.who.id, "silent")
            until(lambda: time.monotonic() - worker.lease.renewed > 0.5, "no renewal gets through")
        run_one(app)
        assert Refused.tries == 6
        assert made.worker is not None
        assert made.worker is not worker
        assert (live(app), made.set_aside) == (1, [])
    assert live(app) == 0
    assert check(app.database, quiet=True).findings == []


def test_work_that_outlives_the_lifespan_keeps_its_claim(app: App, gate: Gate) -> None:
    """The program may go on, and the work with it: a retry elsewhere would run beside it."""
    with embedded(app) as made:
        aside = get_stuck(app, gate, made, 1)
        running = begin(app, gate, 2)
        made.stop()
        assert [aside.status, running.status] == ["RUNNING", "RUNNING"]
        kept = [worker for worker in (*made.set_aside, made.worker) if worker is not None]
        assert [sorted(worker.at_work) for worker in kept] == [[aside.id], [running.id]]
        for worker in kept:
            beaten = worker.lease.renewed
            until(lambda lease=worker.lease, beaten=beaten: lease.renewed > beaten, "the lease is renewed")  # type: ignore[misc]
        gate.let_go(1)
        gate.let_go(2)
        for worker in kept:
            until(lambda worker=worker: not worker.at_work)  # type: ignore[misc]
            worker.close()
