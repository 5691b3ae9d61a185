"""Tasks that block the event loop they share with innocent ones: their timeout and their cancel hold all the same."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator

import pytest

from headway import App, Job
from headway.engine.worker import execution_pool
from headway.engine.worker import worker as worker_module
from headway.engine.worker.config import WorkerConfig
from headway.engine.worker.worker import Worker
from headway.runtime import settle
from headway.verify import check
from tests.support.figures import Figure
from tests.support.waiting import PATIENCE, until

ROUNDS = 500 if os.environ.get("HEADWAY_PROOF") else 25
INNOCENT = 3


class Block:
    """A task that holds its loop until the test lets go, and innocent ones that would act as soon as they may."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.go = threading.Event()
        self.waiting = 0
        self.acted: list[str] = []

    async def blocks(self, kind: str) -> str:
        if kind == "callback":
            asyncio.get_running_loop().call_soon(self._hold)
            await asyncio.sleep(3600)
        elif kind == "task":
            await asyncio.create_task(self._hold_later())
        else:
            self._hold()
        await asyncio.sleep(0)
        self.acted.append("blocked")
        return "it came back"

    async def _hold_later(self) -> None:
        self._hold()

    def _hold(self) -> None:
        self.began.set()
        assert self.go.wait(PATIENCE)

    async def next(self) -> None:
        self.acted.append("next")

    async def innocent(self) -> None:
        self.waiting += 1
        while True:
            await asyncio.sleep(0.001)
            if self.began.is_set():
                self.acted.append("innocent")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution_pool, "STUCK_AFTER", 0.05)
    monkeypatch.setattr(execution_pool, "BLOCKED_AFTER", 0.2)
    monkeypatch.setattr(worker_module, "STOPPING_SECONDS", 0.02)


@pytest.fixture
def app(database_url: str, quick: None) -> Iterator[App]:
    with App(database_url, concurrency={"limit": "none"}) as one:
        list(settle(one, ["worker"]))
        yield one


def test_a_blocked_loop_ends_the_innocent_unpaid_and_the_blocker_as_it_was_asked(app: App, figure: Figure) -> None:
    block = Block()
    app.task("blocks", retry=0)(block.blocks)
    app.task("innocent", retry=1)(block.innocent)
    for number in range(ROUNDS):
        one_round(
            app, block, ("here", "task", "callback")[number % 3], ("timeout", "cancel", "bystander")[number // 3 % 3]
        )
    assert check(app.database, quiet=True).findings == []
    figure(f"event loops blocked by a task, with {INNOCENT} innocent jobs beside each", ROUNDS)


def one_round(app: App, block: Block, kind: str, why: str) -> None:
    block.began.clear()
    block.go.clear()
    block.acted.clear()
    block.waiting = 0
    worker = started(app)
    innocent = [app.tasks["innocent"].enqueue() for _ in range(INNOCENT)]
    until(lambda: block.waiting == INNOCENT)
    blocker = app.tasks["blocks"].using(timeout=0.1 if why == "timeout" else None).enqueue(kind=kind)
    assert block.began.wait(PATIENCE)
    if why == "cancel":
        blocker.cancel()
    elif why == "bystander":  # nobody asked the one that blocks the loop to stop
        innocent[0].cancel()
    until(lambda: worker.only_stuck_left, f"{kind} {why}: only the blocker is left")
    for job in innocent:
        expected = "CANCELLED" if why == "bystander" and job is innocent[0] else "FAILED"
        assert (job.status, job.row.failure_kind) == (expected, "INTERRUPTED")
        if expected == "FAILED":
            assert "blocked by job" in ((job.run and job.run.error) or "")
            retry = app.job(job_after(app, job))
            assert retry.status == "QUEUED"
            retry.cancel()
    assert blocker.status == "RUNNING", "its code may still act"
    assert blocker.row.reason == "not stopping"
    before = list(block.acted)
    block.go.set()
    until(lambda: not worker.pool.running)
    assert block.acted == before, "user code went on in a loop that had been given up"
    ends = {
        "timeout": ("FAILED", "TIMEOUT"),
        "cancel": ("CANCELLED", "INTERRUPTED"),
        "bystander": ("FAILED", "EXCEPTION"),
    }
    assert (blocker.status, blocker.row.failure_kind) == ends[why]
    end(worker)


@pytest.mark.parametrize("why", ["timeout", "cancel"])
def test_a_blocked_loop_under_limit_1_holds_the_queue_up_no_longer_than_its_code(
    database_url: str, why: str, quick: None
) -> None:
    """The only place is taken by the job that blocks: nothing runs beside it, and the next worker goes on after it."""
    block = Block()
    with App(database_url, concurrency={"limit": 1}) as app:
        list(settle(app, ["worker"]))
        app.task("blocks", retry=0)(block.blocks)
        app.task("next")(block.next)
        first = started(app)
        blocker = app.tasks["blocks"].using(timeout=0.1 if why == "timeout" else None).enqueue(kind="here")
        waiting = app.tasks["next"].enqueue()
        assert block.began.wait(PATIENCE)
        if why == "cancel":
            blocker.cancel()
        until(lambda: first.only_stuck_left, "the worker knows that it is stuck")
        assert (blocker.status, blocker.row.reason, waiting.status) == ("RUNNING", "not stopping", "QUEUED")
        second = started(app)
        until(lambda: second.quiet_for() is not None)
        assert waiting.status == "QUEUED", "the code of the first one may still act"
        block.go.set()
        until(lambda: waiting.status == "COMPLETED")
        assert (blocker.status, blocker.row.failure_kind) == {
            "timeout": ("FAILED", "TIMEOUT"),
            "cancel": ("CANCELLED", "INTERRUPTED"),
        }[why]
        assert block.acted == ["next"]
        for worker in (first, second):
            end(worker)
        assert check(app.database, quiet=True).findings == []


def started(app: App) -> Worker:
    worker = Worker(app.database, app.registry, WorkerConfig(slots=8))
    app.database.transact("register", worker._register)
    worker.start()
    return worker


def end(worker: Worker) -> None:
    worker.stop()
    worker.join(PATIENCE)
    worker.close()


def test_work_that_a_blocked_loop_never_came_to_is_repeated(app: App) -> None:
    """Claimed while the loop is blocked already: it waits behind the blocker, and the loop is given up before it."""
    block = Block()
    app.task("blocks", retry=0)(block.blocks)
    app.task("innocent", retry=1)(block.innocent)
    worker = started(app)
    blocker = app.tasks["blocks"].enqueue(kind="here")
    assert block.began.wait(PATIENCE)
    late = app.tasks["innocent"].enqueue()
    until(lambda: late.status == "RUNNING")
    blocker.cancel()
    until(lambda: worker.only_stuck_left, "only the blocker is left")
    assert (late.status, late.row.failure_kind) == ("FAILED", "INTERRUPTED")
    assert app.job(job_after(app, late)).cancel().status == "CANCELLED"
    block.go.set()
    until(lambda: not worker.pool.running)
    assert block.waiting == 0
    end(worker)
    assert check(app.database, quiet=True).findings == []


def job_after(app: App, job: Job) -> int:
    with app.database.read() as tx:
        return int(tx.run("any_retry", id=job.id)[0][0])


def test_work_that_blocks_the_loop_for_a_while_and_comes_back_is_left_alone(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It overslept its timeout, and is ended for that; what shares its loop goes on."""
    monkeypatch.setattr(execution_pool, "STUCK_AFTER", 30.0)
    monkeypatch.setattr(execution_pool, "BLOCKED_AFTER", 30.0)
    done = threading.Event()

    @app.task("sleeps", retry=0, timeout=0.05)
    async def sleeps() -> None:
        time.sleep(0.3)
        await asyncio.sleep(3600)

    @app.task("waits")
    async def waits() -> str:
        while not done.is_set():
            await asyncio.sleep(0.01)
        return "done"

    worker = Worker(app.database, app.registry, WorkerConfig(slots=4))
    app.database.transact("register", worker._register)
    worker.start()
    beside, late = app.tasks["waits"].enqueue(), app.tasks["sleeps"].enqueue()
    until(lambda: late.status == "FAILED")
    assert late.row.failure_kind == "TIMEOUT"
    done.set()
    until(lambda: beside.status == "COMPLETED")
    end(worker)
