"""A real worker in this process, on both databases: how work is run, reported, stopped and ended."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headway import App, Job
from headway.engine.client import limits
from headway.engine.execution.async_runner import AsyncRunner
from headway.engine.execution.running import Running
from headway.engine.worker.claim_reload import ClaimReload
from headway.engine.worker.claim_start import ClaimStart
from headway.engine.worker.claim_strategy import ClaimStrategy
from headway.engine.worker.config import WorkerConfig
from headway.engine.worker.execution_pool import ExecutionPool
from headway.engine.worker.lease import Lease
from headway.engine.worker.life import MOVERS, MOVES, WorkerLife, WorkerState
from headway.engine.worker.report_buffer import ReportBuffer
from headway.engine.worker.stale_claims import StaleClaims
from headway.engine.worker.start_pause import StartPause
from headway.engine.worker.stuck import StuckWatch
from headway.engine.worker.threads import WRITERS
from headway.engine.worker.turn import Turn
from headway.engine.worker.worker import Worker
from headway.errors import CommitUnknown, JobFailed, Unreachable
from headway.model.jobs.job import SYSTEM, Options
from headway.model.jobs.outcome import FailureKind, NeverBegan
from headway.model.queue.policies import Concurrency
from headway.store.db import Tx
from headway.store.jobs import changes as jobs
from headway.store.jobs import views as job_views
from headway.verify import check
from tests.support import tasks_for_worker
from tests.support.waiting import until

SECONDS = 55.0


@pytest.fixture
def app(database_url: str, tmp_path: Path) -> Iterator[App]:
    app = App(database=database_url, artifacts=str(tmp_path / "artifacts"))
    for spec in tasks_for_worker.app.registry:
        if spec.name not in app.tasks:
            isolation = None if spec.isolation == "async" else spec.isolation
            app.task(spec.name, isolation=isolation, retry=spec.options.retry)(spec.function)
    yield app
    app.close()


@contextmanager
def at_work(app: App, **wishes: Any) -> Iterator[Worker]:
    worker = Worker(app.database, app.registry, WorkerConfig(artifacts=app.settings.artifacts, **wishes))
    worker.register()
    worker.start()
    try:
        yield worker
    finally:
        worker.drain()
        worker.interrupt_all("the test is over", grace=0.0)
        until(lambda: not worker.pool.running or worker.state is WorkerState.STUCK)
        worker.stop()
        worker.join(SECONDS)
        worker.close()


def test_each_attribute_is_assigned_by_the_threads_that_the_table_names(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    unlimited(app)
    found: dict[str, set[str]] = {}
    kinds = (Worker, Lease, ExecutionPool, ClaimStrategy, StartPause, ReportBuffer)
    for kind in (*kinds, WorkerLife, ClaimReload, ClaimStart, StaleClaims, StuckWatch):
        monkeypatch.setattr(kind, "__setattr__", lambda thing, name, value: _assign(found, thing, name, value))
    moves, move = set[tuple[WorkerState, str]](), WorkerLife.move

    def recorded(life: WorkerLife, to: WorkerState) -> bool:
        moves.add((to, _thread()))
        return move(life, to)

    monkeypatch.setattr(WorkerLife, "move", recorded)
    with at_work(app, heartbeat=0.05) as worker:
        file = tmp_path / "out"
        file.write_text("out")
        done = [enqueue(app, "report", file=str(file)), enqueue(app, "report.async"), enqueue(app, "fails")]
        waits = enqueue(app, "wait.async")
        until(lambda: all(job.status in ("COMPLETED", "FAILED") for job in done) and waits.status == "RUNNING")
        waits.cancel()
        until(lambda: worker.finished == 4)
        worker.lease.renew()
        assert not worker.has_claimable_work()
    wrong = {name: threads for name, threads in found.items() if threads - WRITERS.get(name, {"worker"})}
    assert not wrong
    assert moves == {(WorkerState.DRAINING, "caller")}
    assert all(thread in MOVERS[to] for to, thread in moves)
    assert {"ReportBuffer.due_at", "Lease.renewed", "ExecutionPool.free", "ClaimStrategy.due"} <= found.keys()
    assert "heartbeat" in found["Lease.renewed"]
    assert "work" in found["ReportBuffer.due_at"]


def _assign(found: dict[str, set[str]], thing: object, name: str, value: object) -> None:
    object.__setattr__(thing, name, value)
    if sys._getframe(2).f_code.co_name != "__init__":
        found.setdefault(f"{type(thing).__name__}.{name}", set()).add(_thread())


def _thread() -> str:
    kinds = {"headway-worker": "worker", "headway-heartbeat": "heartbeat", "MainThread": "caller"}
    return kinds.get(threading.current_thread().name, "work")


# Row: from. Column: to.
LIFE = """
         LIVE DRAINING LOST STALLED STUCK
LIVE     -    yes      yes  yes     -
DRAINING -    -        yes  yes     -
LOST     -    -        -    yes     -
STALLED  -    -        -    -       yes
STUCK    -    -        -    yes     -
"""


def test_a_worker_moves_between_its_states_as_the_table_says_and_refuses_the_rest():
    head, *lines = (line.split() for line in LIFE.strip().splitlines())
    assert {state.name for state in WorkerState} == set(head) == {name for name, *_ in lines}
    for origin, *cells in lines:
        for target, cell in zip(head, cells, strict=True):
            life = WorkerLife()
            life.state = WorkerState[origin]
            assert life.move(WorkerState[target]) is (cell == "yes"), (origin, target)
            assert life.state.name == (target if cell == "yes" else origin)
            assert life.claims is (life.state is WorkerState.LIVE)
    assert {to for targets in MOVES.values() for to in targets} == MOVERS.keys()


def unlimited(app: App) -> None:
    limits.settle(app.database, Concurrency(limit=None), {}, actor=SYSTEM, adopt=True)


def enqueue(app: App, task: str, /, **params: Any) -> Job:
    return app.tasks[task].enqueue(**params)


def events(app: App, job: Job) -> list[str]:
    with app.database.read() as tx:
        return [event.kind for event in job_views.events(tx, job.id)]


def report_of(app: App, job: Job) -> tuple[Any, ...]:
    with app.database.read() as tx:
        return tx.run("read_report", job_id=job.id)[0]


def has_checkpoint(app: App, job: Job) -> bool:
    with app.database.read() as tx:
        return bool(tx.run("read_report", job_id=job.id))


def log_of(app: App, job: Job) -> list[str]:
    with app.database.read() as tx:
        chunks = tx.run("read_log", job_id=job.id, after=0, limit=100)
    return [line[2] for _, _, text in chunks for line in json.loads(text)]


def test_async_plain_and_threaded_work_end_with_their_results(app: App):
    with at_work(app) as worker:
        assert enqueue(app, "add", a=2, b=3).result(SECONDS) == 5
        first = enqueue(app, "plain", word="x").result(SECONDS)
        assert first["word"] == "x"
        assert first["pid"] != os.getpid()
        assert enqueue(app, "plain", word="y").result(SECONDS)["pid"] == first["pid"], "the child was not kept warm"
        assert enqueue(app, "threaded").result(SECONDS).startswith("headway-slot-")
    assert worker.finished == 4
    assert not check(app.database, quiet=True).findings


def test_jobs_are_claimed_in_queue_order_one_at_a_time(app: App, tmp_path: Path):
    file = tmp_path / "order"
    for n, priority in enumerate((0, 5, 5, 9)):
        app.tasks["append"].using(priority=priority).enqueue(file=str(file), line=f"{priority}.{n}")
    with at_work(app, slots=4) as worker:
        until(lambda: worker.finished == 4)
    assert file.read_text().split() == ["9.3", "5.1", "5.2", "0.0"]
    assert not check(app.database, quiet=True).findings


def test_reports_are_stored_before_the_end(app: App, tmp_path: Path):
    source = tmp_path / "source.txt"
    source.write_text("hello")
    with at_work(app):
        job = enqueue(app, "report", file=str(source))
        assert job.result(SECONDS) == 1
    done, total, label, spent, checkpoint, _ = report_of(app, job)
    assert (done, total, label) == (3, 3, "part")
    assert json.loads(spent) == {"tokens": 30}
    assert json.loads(checkpoint) == {"part": 3}
    assert log_of(app, job) == ["part 0", "part 1", "part 2"]
    run = job.run
    assert run is not None
    assert json.loads(run.artifacts or "") == ["out.txt"]
    with app.database.read() as tx:
        ((name, size, sha256, path, _),) = tx.run("artifacts", job_id=job.id)
    assert (name, size) == ("out.txt", 5)
    assert (Path(app.settings.artifacts) / path).read_text() == "hello"
    assert path.endswith(sha256)


def test_async_work_reports_too(app: App):
    with at_work(app):
        job = enqueue(app, "report.async")
        assert job.result(SECONDS) == 1
    assert report_of(app, job)[0] == 3
    assert log_of(app, job) == ["part 0", "part 1", "part 2"]


def test_a_retry_gets_the_last_checkpoint(app: App):
    with at_work(app):
        job = enqueue(app, "from_checkpoint")
        assert job.result(SECONDS) == {"at": 7}
    with app.database.read() as tx:
        assert [one.status.name for one in jobs.chain(tx, job.id)] == ["FAILED", "COMPLETED"]


@pytest.mark.parametrize("task", ["wait.async", "wait.child", "wait.thread"])
def test_cancel_ends_running_work(app: App, task: str):
    with at_work(app):
        job = enqueue(app, task)
        until(lambda: job.status == "RUNNING")
        job.cancel()
        until(lambda: job.status == "CANCELLED")
    run = job.run
    assert run is not None
    assert run.status is not None
    assert run.status.name == "FAILED"
    assert (run.error or "").startswith("cancelled by ")
    assert not check(app.database, quiet=True).findings


@pytest.mark.parametrize("task", ["wait.async", "wait.child"])
def test_interrupt_pauses_and_resume_runs_the_same_job_again(app: App, task: str):
    with at_work(app):
        job = enqueue(app, task)
        until(lambda: job.status == "RUNNING")
        job.interrupt()
        until(lambda: job.status == "PAUSED")
        assert (job.row.reason or "").startswith("interrupted by ")
        assert job.run is not None
        assert job.run.finished_at is None
        job.resume()
        until(lambda: job.status == "RUNNING")
        assert job.row.fence == 2
        job.interrupt()
        until(lambda: job.status == "PAUSED")
        job.resolve({"by": "hand"})
        assert job.result(SECONDS) == {"by": "hand"}
    assert not check(app.database, quiet=True).findings


@pytest.mark.parametrize("task", ["wait.async", "wait.child", "wait.thread"])
def test_timeout_fails_the_job(app: App, task: str):
    with at_work(app):
        job = app.tasks[task].using(timeout="0.2s", retry=0).enqueue()
        with pytest.raises(JobFailed, match=r"ran longer than"):
            job.result(SECONDS)
    assert job.row.failure_kind is FailureKind.TIMEOUT


def test_budget_stops_the_job_and_names_the_meter(app: App):
    with at_work(app):
        job = app.tasks["report.async"].using(budget={"tokens": 15}).enqueue()
        with pytest.raises(JobFailed, match="budget for tokens used up: 20 of 15"):
            job.result(SECONDS)
    assert job.row.failure_kind is FailureKind.BUDGET
    assert job.row.exhausted == 1
    with app.database.read() as tx:
        assert jobs.spent(tx, job.id) == {"tokens": 20}


def test_how_a_task_may_end_itself(app: App):
    with at_work(app):
        retry, fail, skip = (enqueue(app, f"raises.{how}") for how in ("retry", "fail", "skip"))
        until(lambda: all(job.status in ("FAILED", "SKIPPED") for job in (retry, fail, skip)))
    assert skip.status == "SKIPPED"
    assert skip.row.reason == "nothing new"
    assert fail.row.exhausted == 1
    with app.database.read() as tx:
        waiting = jobs.automatic_retry(tx, retry.id)
    assert waiting is not None
    assert waiting.status.name == "SCHEDULED"
    assert (waiting.not_before or 0) - waiting.created_at == 3600 * 1_000_000


def test_work_that_stops_unasked_has_failed(app: App):
    with at_work(app):
        job = enqueue(app, "cancels_itself")
        with pytest.raises(JobFailed, match="without a stop request"):
            job.result(SECONDS)


def test_a_crash_of_the_child_ends_the_job_and_not_the_worker(app: App):
    with at_work(app):
        job = enqueue(app, "segfault")
        with pytest.raises(JobFailed):
            job.result(SECONDS)
        assert job.row.failure_kind is FailureKind.EXIT_CODE
        assert job.run is not None
        assert job.run.exit_code == -11
        assert enqueue(app, "plain", word="still here").result(SECONDS)["word"] == "still here"


def test_work_that_does_not_stop_keeps_its_claim(app: App, monkeypatch: pytest.MonkeyPatch):
    # The bound is ten seconds in real life; what happens beyond it is the same after none.
    monkeypatch.setattr("headway.engine.worker.execution_pool.STUCK_AFTER", 0.0)
    unlimited(app)
    with at_work(app) as worker:
        job = enqueue(app, "deaf")
        until(lambda: has_checkpoint(app, job))  # asked any earlier, it would be stopped before it begins
        job.cancel()
        until(lambda: job.row.reason == "not stopping")
        assert job.status == "RUNNING"
        later = enqueue(app, "add", a=1, b=1)
        worker.tick()
        assert later.status == "QUEUED", "a stuck worker took new work"
        until(lambda: worker.only_stuck_left)
        worker.pool.running.clear()  # its process would end here; this one goes on with other tests
    assert "job.not_stopping" in events(app, job)


def test_many_jobs_share_commits(app: App):
    unlimited(app)
    app.tasks["add"].enqueue_many([{"a": n, "b": n} for n in range(300)])
    with at_work(app, slots=100) as worker:
        turns = 0
        write = worker._write

        def counted(*args: Any) -> Any:
            nonlocal turns
            turns += 1
            return write(*args)

        worker._write = counted  # type: ignore[method-assign,assignment]
        until(lambda: worker.finished == 300)
    assert turns < 100
    assert not check(app.database, quiet=True).findings


def test_a_lost_commit_answer_is_read_back(app: App):
    """The commit lands, its answer does not: the worker must neither lose its claims nor run them twice."""
    worker = Worker(app.database, app.registry, WorkerConfig(artifacts=app.settings.artifacts))
    worker.database.transact("register", worker._register)
    job = enqueue(app, "add", a=1, b=2)
    write = worker._write

    def lose_the_answer(tx: Tx, *args: Any) -> Any:
        write(tx, *args)
        if not tx.committed:
            tx.commit()
        raise CommitUnknown("the answer was lost")

    worker._write = lose_the_answer  # type: ignore[method-assign,assignment]
    with pytest.raises(CommitUnknown):
        worker.tick()
    assert job.status == "RUNNING"
    worker._write = write  # type: ignore[method-assign]
    worker._read_back()  # as the next turn would: it finds its claim and runs it
    until(lambda: bool(worker.pool.ended_work))
    worker._write = lose_the_answer  # type: ignore[method-assign,assignment]
    with pytest.raises(CommitUnknown):
        worker.tick()
    assert job.status == "COMPLETED"
    worker._write = write  # type: ignore[method-assign]
    worker.tick()
    assert not worker.pool.running
    assert sorted(worker.pool.free) == [0, 1, 2, 3]
    assert events(app, job) == ["job.created", "job.claimed", "job.completed"]
    assert not check(app.database, quiet=True).findings
    worker.close()


def test_only_the_named_tasks_are_served(app: App):
    other = enqueue(app, "add", a=1, b=1)
    with at_work(app, tasks=("pla*",)):
        assert enqueue(app, "plain", word="x").result(SECONDS)["word"] == "x"
        assert other.status == "QUEUED"


def test_a_scheduled_job_starts_while_the_worker_is_busy(app: App):
    """A worker that never goes idle must still see what becomes due."""
    unlimited(app)
    with at_work(app, slots=2) as worker:
        late = app.tasks["add"].using(priority=100, delay="0.3s").enqueue(a=1, b=1)

        def busy() -> bool:
            if worker.claimed - worker.finished < 50:
                app.tasks["add"].enqueue_many([{"a": 1, "b": 1}] * 50)
            return late.status == "COMPLETED"

        until(busy)


def test_an_expired_job_is_skipped_without_a_run(app: App):
    job = app.tasks["add"].using(expires_at="2020-01-01T00:00:00Z").enqueue(a=1, b=1)
    with at_work(app):
        until(lambda: job.status == "SKIPPED")
    assert job.row.reason == "expired"
    assert job.run is None


def test_one_end_that_cannot_be_recorded_does_not_hold_up_the_others(app: App):
    unlimited(app)
    worker = Worker(app.database, app.registry, WorkerConfig(artifacts=app.settings.artifacts))
    worker.database.transact("register", worker._register)
    poisoned, *fine = (enqueue(app, "fails") for _ in range(3))
    write = worker._write

    def refuse_one(tx: Tx, turn: Turn) -> Any:
        if any(end.claim.job_id == poisoned.id for end in turn.ended):
            raise RuntimeError("nobody foresaw this")
        return write(tx, turn)

    worker._write = refuse_one  # type: ignore[method-assign]
    worker.tick()
    until(lambda: len(worker.pool.ended_work) == 3)
    with pytest.raises(RuntimeError):
        worker.tick()
    until(lambda: worker.safely() >= 0 and all(job.status == "FAILED" for job in fine))
    assert poisoned.status == "RUNNING"
    worker._write = write  # type: ignore[method-assign]
    worker.tick()
    assert poisoned.status == "FAILED"
    worker.close()


def test_claims_that_could_not_be_handed_over_are_read_back(app: App, monkeypatch: pytest.MonkeyPatch):
    """The claim is committed and the database goes away before the work begins: it must begin later."""
    worker = Worker(app.database, app.registry, WorkerConfig(artifacts=app.settings.artifacts))
    worker.database.transact("register", worker._register)
    job = enqueue(app, "add", a=1, b=2)

    def away(*_: Any) -> Any:
        raise Unreachable("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr("headway.engine.worker.claim_start.carried_by", away)
        with pytest.raises(Unreachable):
            worker.tick()
    assert job.status == "RUNNING"
    assert not worker.pool.running
    until(lambda: worker.safely() >= 0 and job.status == "COMPLETED")
    assert not check(app.database, quiet=True).findings
    worker.close()


def test_a_checkpoint_waits_while_the_database_is_away(app: App):
    with at_work(app) as worker:
        transact, refused = app.database.transact, 0

        def away_at_first(label: str, work: Any, *args: Any, **more: Any) -> Any:
            nonlocal refused
            if label == "checkpoint" and refused < 2:
                refused += 1
                raise Unreachable("the database is away")
            return transact(label, work, *args, **more)

        worker.database.transact = away_at_first  # type: ignore[method-assign, assignment]
        job = enqueue(app, "report.async")
        assert job.result(SECONDS) == 1
        assert refused == 2
        worker.database.transact = transact  # type: ignore[method-assign]


def test_a_caller_by_name_gets_the_options_of_the_task(app: App, database_url: str):
    app.task("far", isolation="thread", retry={"max_attempts": 1, "base_delay": "5s"}, timeout="7s", priority=9)(_far)
    app.task("near", isolation="thread")(_far)
    with at_work(app):
        other = App(database=database_url, retry={"max_attempts": 2})
        job = other.enqueue("far", {"n": 1})
        options = Options.parse(job.row.options)
        assert (options.timeout, options.retry.max_attempts, options.retry.base_delay) == (7.0, 1, 5.0)
        assert job.row.priority == 9
        near = other.enqueue("near", {"n": 1})
        assert Options.parse(near.row.options).retry.max_attempts == 2, "its own settings say this"
        other.close()


def _far(n: int) -> int:
    return n


def test_a_nudge_brings_a_stop_request_and_the_next_job(app: App):
    """With one job at work and room for another: also where nothing is read before the claim."""
    unlimited(app)
    worker = Worker(app.database, app.registry, WorkerConfig(artifacts=app.settings.artifacts))
    worker.database.transact("register", worker._register)
    stopped, following = enqueue(app, "wait.async"), None
    worker.tick()
    until(lambda: stopped.status == "RUNNING")
    following = enqueue(app, "fails")
    app.client.cancel(stopped.id)
    worker.strategy.woken = True
    worker.tick()
    assert worker.pool.running[stopped.id].asked_at is not None
    assert worker.claimed == 2
    until(lambda: worker.safely() >= 0 and (stopped.status, following.status) == ("CANCELLED", "FAILED"))
    worker.close()


def test_async_work_that_is_stopped_while_its_task_is_made_ends(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    start = AsyncRunner.start

    def asked_first(self: AsyncRunner, batch: list[Running]) -> None:
        for running in batch:
            running.asked_at = time.monotonic()  # the first half of `request_stop`: the loop's thread comes in between
        start(self, batch)

    monkeypatch.setattr(AsyncRunner, "start", asked_first)
    with at_work(app):
        job = enqueue(app, "wait.async")
        until(lambda: job.status not in ("QUEUED", "RUNNING"))


def test_work_that_cannot_be_started_ends_the_warm_processes_of_free_slots(app: App, monkeypatch: pytest.MonkeyPatch):
    """They may hold the very descriptors that it lacks."""
    unlimited(app)
    with at_work(app, slots=2) as worker:
        assert enqueue(app, "plain", word="warm").result(timeout=SECONDS)
        (runner,) = [runner for runner in worker.pool.slot_runners.values() if runner.child is not None]
        monkeypatch.setattr(worker.pool, "start_in_loop", lambda batch: worker.pool.on_ended([never(batch[0])]))
        job = enqueue(app, "add", a=1, b=2)
        until(lambda: runner.child is None)
        monkeypatch.undo()
        until(lambda: job.row.status.terminal)
        assert enqueue(app, "plain", word="again").result(timeout=SECONDS)


def never(running: Running) -> tuple[Running, NeverBegan]:
    return running, NeverBegan("no descriptor is free")
