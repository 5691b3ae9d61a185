"""A task that waits for a job which cannot start before the task ends is told so at once."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from headway import App
from headway.engine.execution.own_job import OwnJob
from headway.errors import JobFailed
from headway.store.jobs import views as job_views
from headway.testing import drain
from headway.verify import check
from tests.support import tasks_for_waiting
from tests.support.cli import running
from tests.support.tasks_for_waiting import app as declared
from tests.support.waiting import until

DEADLINE = 60.0
Worker = Callable[..., AbstractContextManager[object]]


@pytest.fixture
def app(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """As a worker with this database has it; child processes find the database in their environment."""
    monkeypatch.setenv("HEADWAY_DATABASE", database_url)
    declared.close()
    declared.configure(None, {})
    yield declared
    declared.close()
    declared.configure(None, {})


@pytest.fixture
def worker(app: App, database_url: str, tmp_path: Path) -> Worker:
    @contextmanager
    def start(slots: int = 4, **settings: str) -> Iterator[None]:
        module = "tests.support.tasks_for_waiting:app"
        with running("work", "--app", module, "--slots", slots, cwd=tmp_path, database=database_url, **settings):
            yield

    return start


KINDS = ["waits.process", "waits.thread", "waits.async"]


def test_waiting_under_limit_one_fails_at_once_with_the_reason(app: App, worker: Worker) -> None:
    with worker():
        for kind in KINDS:
            check_refused(app, kind)


def check_refused(app: App, kind: str) -> None:
    job = app.enqueue(kind)
    with pytest.raises(JobFailed) as failed:
        job.result(timeout=DEADLINE)
    leaf = job.id + 1
    said = f"WaitsForItself: job {job.id} waits for job {leaf}, which cannot start before job {job.id} has ended"
    assert said in str(failed.value)
    assert "the global lane is full: 1 of 1 run" in str(failed.value)
    assert "ctx.enqueue" in str(failed.value)
    assert app.job(leaf).result(timeout=DEADLINE) == "done", "the job itself is none the worse"


def test_it_is_not_tried_again(app: App) -> None:
    job = app.enqueue("waits.itself")
    drain(app)
    with pytest.raises(JobFailed, match="waits for its own result"):
        job.result(timeout=DEADLINE)
    assert job.status == "FAILED"
    assert job.row.exhausted


def test_a_target_of_its_own_is_a_lane_too(app: App) -> None:
    job = tasks_for_waiting.waits_for_target.using(target="printer").enqueue()
    drain(app)
    assert "job 1 runs on printer" in str(job.row.reason)
    assert job.status == "ERROR"
    job.release()


def test_a_direct_call_behind_its_own_reservation(app: App) -> None:
    with pytest.raises(JobFailed, match="cannot start before reservation 1 has ended"):
        tasks_for_waiting.waits_in_process.call()


def test_waiting_for_another_lane_is_fine(app: App, worker: Worker) -> None:
    with worker(slots=2, HEADWAY_CONCURRENCY__POLICY="per_task"):
        assert app.enqueue("waits.process").result(timeout=DEADLINE) == "done"
        handed = app.enqueue("hands.on", {"word": "next"}).result(timeout=DEADLINE)
        assert app.job(handed).result(timeout=DEADLINE) == "next"


def test_the_only_slot_is_its_own(app: App, worker: Worker) -> None:
    with (
        worker(slots=1, HEADWAY_CONCURRENCY__LIMIT="none"),
        pytest.raises(JobFailed, match="every slot of the workers that know it is taken"),
    ):
        app.enqueue("waits.process").result(timeout=DEADLINE)


def test_ctx_enqueue_hands_on(app: App) -> None:
    job = app.enqueue("hands.on", {"word": "next"})
    drain(app)
    made = app.job(job.result(timeout=DEADLINE))
    assert made.result(timeout=DEADLINE) == "next"
    assert made.row.priority == 5


# --- several jobs that wait for each other ------------------------------------------------------------------------


def test_a_circle_over_two_jobs_is_undone_at_one_of_them(app: App, worker: Worker) -> None:
    """Job 1 has the global lane and waits for job 2 on a target, which waits for a job behind the global lane."""
    with worker():
        job = app.enqueue("waits.for.desk")
        with pytest.raises(JobFailed, match="job 2 is FAILED"):
            job.result(timeout=DEADLINE)
        told = run.error if (run := app.job(2).run) is not None and run.error else ""
        assert app.job(3).result(timeout=DEADLINE) == "done"
    assert "WaitsForItself: job 2 waits for job 3, which cannot end because these jobs wait for each other" in told
    assert "job 1 for job 2, job 2 for job 3" in told
    assert "ctx.enqueue" in told
    assert recorded(app) == []


@pytest.mark.parametrize("kind", ["waits.process", "waits.thread"])
def test_a_lane_full_of_waiting_jobs_is_undone_at_one_of_them(app: App, worker: Worker, kind: str) -> None:
    parents = [app.enqueue(kind) for _ in range(2)]
    with worker(HEADWAY_CONCURRENCY__LIMIT="2"):
        with pytest.raises(JobFailed, match=r"job 1 for job \d, job 2 for job \d\. To end this deadlock, job 2 fails"):
            parents[1].result(timeout=DEADLINE)
        assert parents[0].result(timeout=DEADLINE) == "done", "one of them gives way, the other goes on"
        for leaf in (3, 4):
            assert app.job(leaf).result(timeout=DEADLINE) == "done"
    assert recorded(app) == []
    assert not check(app.database, quiet=True).findings


def test_waits_with_a_timeout_end_by_themselves(app: App, worker: Worker) -> None:
    """As long as one of two waits ends by itself, the other one is not refused."""
    patient, hasty = app.enqueue("waits.process"), app.enqueue("waits.process", {"timeout": 4.0})
    with worker(HEADWAY_CONCURRENCY__LIMIT="2"):
        with pytest.raises(JobFailed, match=r"TimeoutError: job \d is still QUEUED after 4 s"):
            hasty.result(timeout=DEADLINE)
        assert patient.result(timeout=DEADLINE) == "done"


def test_only_a_wait_in_the_tasks_own_thread_holds_the_task_up() -> None:
    own = OwnJob(1, 1, threading.get_ident(), os.getpid())
    assert own.stands_still
    with ThreadPoolExecutor(1) as pool:
        assert not pool.submit(lambda: own.stands_still).result()

    async def in_loop() -> bool:
        return own.stands_still

    assert not asyncio.run(in_loop())


def test_a_wait_of_a_process_that_the_task_forked_does_not_hold_the_task_up() -> None:
    """A fork inherits the number of its thread: such a helper made another job give way that could have gone on."""
    own = OwnJob(1, 1, threading.get_ident(), os.getpid())
    helper = multiprocessing.get_context("fork").Process(target=lambda: os._exit(3 if own.stands_still else 4))
    helper.start()
    helper.join(30)
    assert helper.exitcode == 4


def test_slots_taken_by_waiting_jobs_are_told_and_another_worker_helps(app: App, worker: Worker) -> None:
    parents = [app.enqueue("waits.process") for _ in range(2)]
    free = {"HEADWAY_CONCURRENCY__LIMIT": "none"}
    with worker(slots=2, **free):
        until(lambda: len(recorded(app)) == 2, "both waits")
        (blocker,) = app.job(3).explain().blockers
        assert blocker.kind == "no_worker"
        assert "taken by a job that waits for another one: headway work starts another worker" in blocker.detail
        until(lambda: all("which cannot start: every slot" in logged(app, job.id) for job in parents), "the warnings")
        with worker(slots=1, **free):
            assert [parent.result(timeout=DEADLINE) for parent in parents] == ["done", "done"]


def recorded(app: App) -> list[object]:
    with app.database.read() as tx:
        connection: Any = tx.connection  # type: ignore[attr-defined]
        return list(connection.execute("select job_id from hw_wait order by job_id").fetchall())


def logged(app: App, job_id: int) -> str:
    with app.database.read() as tx:
        return "\n".join(line.message for line in job_views.log_lines(tx, job_id))
