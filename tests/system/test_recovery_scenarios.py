"""The recovery scenarios, each along its timeline: state before the crash, a real kill -9, recovery, state after it.

In every one of them recovery is run again and changes nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway import App, Job
from headway.engine.client import limits
from headway.engine.maintenance.recovery import Recovery
from headway.model.jobs.job import SYSTEM
from headway.model.queue.policies import Concurrency
from headway.store.jobs import changes as jobs
from headway.testing import drain
from headway.verify import check
from tests.system.support import dies
from tests.system.support.record import dump

SECONDS = 60.0


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    app = App(database_url)
    dies.declare(app)
    yield app
    app.close()


def crash(app: App, point: str, act: str = "work", *, count: int = 1) -> None:
    """Another process works (or recovers) and dies at a point."""
    url = app.settings.database
    ended = subprocess.run(
        [sys.executable, str(Path(dies.__file__)), url, act],
        env=os.environ | {"HEADWAY_TEST_FAULT": f"{count}:{point}", "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr


def restart(app: App) -> None:
    """What every process does at its start. Twice: the second time changes nothing."""
    Recovery(app.database).tick()
    once = dump(app.database)
    Recovery(app.database).tick()
    assert dump(app.database) == once
    assert "RUNNING" not in states(app).values(), "a ghost"


def jobs_of(app: App) -> list[Job]:
    return [Job(app.client, row["id"]) for row in sorted(dump(app.database)["hw_job"], key=lambda row: row["id"])]


def states(app: App) -> dict[int, str]:
    return {job.id: job.status for job in jobs_of(app)}


def retry_of(app: App, job: Job) -> Job:
    found = [one for one in jobs_of(app) if one.row.retry_of == job.id]
    assert len(found) == 1
    return found[0]


def assert_lost(app: App, job: Job) -> Job:
    """The job FAILED by the crash; the one that takes its place."""
    row, run = job.row, job.run
    assert (row.status.name, row.failure_kind) == ("FAILED", "LOST")
    assert run is not None
    assert run.status is not None
    assert run.status.name == "FAILED"
    assert (run.error or "").startswith("Scheduler crash recovery")
    retry = retry_of(app, job)
    assert retry.status == "QUEUED"
    assert (retry.row.priority, retry.row.position, retry.row.params) == (row.priority, row.position, row.params)
    return retry


def findings(app: App) -> list[str]:
    return [f"{f.invariant} {f.thing}: {f.text}" for f in check(app.database, quiet=True).findings]


def order(app: App) -> list[int]:
    """The queue as it stands."""
    rows = [row for row in dump(app.database)["hw_job"] if row["status"] == 2]
    rows.sort(key=lambda row: (-row["priority"], row["position"], row["created_at"], row["id"]))
    return [row["id"] for row in rows]


def hurt(app: App, *texts: str) -> None:
    """Damage, done where our own code never does it."""

    def write(tx: Any) -> None:
        for text in texts:
            tx.connection.execute(text)

    app.database.transact("hurt", write)


# --- 1: crash during job execution --------------------------------------------------------------------------------


def test_1_a_job_that_ran_when_its_worker_crashed_fails_and_is_retried(app: App) -> None:
    first = app.tasks["fine"].enqueue(n=1)
    crash(app, "claim.handed_over")
    assert first.status == "RUNNING"
    run = first.run
    assert run is not None
    assert run.status is None
    restart(app)
    second = assert_lost(app, first)
    assert drain(app) == 1
    assert second.status == "COMPLETED"
    assert findings(app) == []


def test_1_without_a_run_the_run_is_made_and_closed(app: App) -> None:
    first = app.tasks["fine"].enqueue(n=1)
    crash(app, "claim.handed_over")
    hurt(
        app,
        "update hw_pruning set active = 1",
        f"delete from hw_run where job_id = {first.id}",
        "update hw_pruning set active = 0",
    )
    restart(app)
    assert_lost(app, first)


def test_1_a_run_that_had_ended_is_believed(app: App) -> None:
    """Crash after completion: the job follows its run, and nothing is run again."""
    first = app.tasks["fine"].enqueue(n=1)
    crash(app, "claim.handed_over")
    ((now,),) = _ask(app, "time")
    hurt(app, f"update hw_run set status = 6, finished_at = {now} where job_id = {first.id}")
    restart(app)
    assert first.status == "COMPLETED"
    assert first.row.finished_at is not None
    assert drain(app) == 0
    assert findings(app) == []


def _ask(app: App, name: str) -> list[tuple[Any, ...]]:
    with app.database.read() as tx:
        return tx.run(name)


# --- 2: crash during a direct call's reservation ------------------------------------------------------------------


def held(app: App) -> list[tuple[str, str | None, bool]]:
    """Every reservation: its status, its outcome, and whether it was let in."""
    rows = sorted(dump(app.database)["hw_reservation"], key=lambda row: row["id"])
    return [(row["status"], row["outcome"], row["granted_at"] is not None) for row in rows]


def test_2_a_reservation_that_waits_expires_with_its_process_and_the_queue_goes_on(app: App) -> None:
    made = [app.tasks["fine"].enqueue(n=n) for n in range(3)]
    crash(app, "reserve.committed", "call")
    assert list(states(app).values()) == ["RUNNING", "QUEUED", "QUEUED"]
    assert held(app) == [("ACTIVE", None, False)]
    assert drain(app) == 0, "a job was claimed on a reserved lane"
    restart(app)
    assert held(app) == [("EXPIRED", "ABANDONED", False)]
    wanted = [assert_lost(app, made[0]).id, made[1].id, made[2].id]
    assert order(app) == wanted, "the queue was stopped, not changed"
    assert drain(app) == 3
    assert _claimed(app)[1:] == wanted
    assert app.direct("fine", {"n": 8}) == 8, "the client may try again"
    assert held(app)[1] == ("RELEASED", "COMPLETED", True)
    assert findings(app) == []


@pytest.mark.parametrize(
    "point", ["reserve.committed", "release_reservation.begun", "release_reservation.before_commit"]
)
def test_2_a_direct_call_that_ran_when_its_process_crashed_is_not_run_again(app: App, point: str) -> None:
    waits = app.tasks["fine"].enqueue(n=1)
    crash(app, point, "direct")
    assert held(app) == [("ACTIVE", None, True)]
    assert drain(app) == 0, "a job was claimed on a reserved lane"
    restart(app)
    assert held(app) == [("EXPIRED", "ABANDONED", True)]
    assert drain(app) == 1
    assert waits.status == "COMPLETED"
    assert findings(app) == []


def test_2_a_reservation_that_was_not_committed_never_was(app: App) -> None:
    waits = app.tasks["fine"].enqueue(n=1)
    crash(app, "reserve.before_commit", "direct")
    assert held(app) == []
    assert drain(app) == 1
    assert waits.status == "COMPLETED"


def test_2_a_crash_while_it_expires_and_a_restart_reach_the_same(app: App) -> None:
    app.tasks["fine"].enqueue(n=0)
    crash(app, "reserve.committed", "call")
    crash(app, "expire_reservations.before_commit", "recover")
    assert held(app) == [("ACTIVE", None, False)]
    crash(app, "expire_reservations.committed", "recover")
    assert held(app) == [("EXPIRED", "ABANDONED", False)]
    restart(app)
    assert drain(app) == 1
    assert findings(app) == []


# --- 3: crash during retry job creation ---------------------------------------------------------------------------


def test_3_a_crash_before_the_failure_is_stored_stores_neither_failure_nor_retry(app: App) -> None:
    """The retry is made in the transaction of the failure: there is no moment between the two."""
    first = app.tasks["fails"].enqueue(times=1)
    crash(app, "turn.before_commit", count=2)
    assert states(app) == {first.id: "RUNNING"}
    restart(app)
    second = assert_lost(app, first)
    drain(app)
    assert second.status == "COMPLETED"
    assert findings(app) == []


def test_3_a_crash_after_it_leaves_both(app: App) -> None:
    first = app.tasks["fails"].enqueue(times=1)
    crash(app, "turn.committed", count=2)
    assert list(states(app).values()) in (["FAILED", "QUEUED"], ["FAILED", "RUNNING"])
    restart(app)
    drain(app)
    assert first.status == "FAILED"
    assert retry_of(app, first).status in ("COMPLETED", "FAILED")
    assert findings(app) == []


def test_3_a_failure_without_its_retry_gets_it(app: App) -> None:
    """As another program, or damage, may leave it: FAILED, eligible, and no job that retries it."""
    first = app.tasks["fails"].enqueue(times=1)
    drain(app, limit=1)
    second = retry_of(app, first)
    _forget(app, second)
    assert states(app) == {first.id: "FAILED"}
    restart(app)
    third = retry_of(app, first)
    assert (third.row.retry_auto, third.row.position, third.row.attempt) == (1, first.row.position, 2)
    drain(app)
    assert third.status == "COMPLETED"


def test_3_a_chain_that_used_up_its_attempts_is_marked_and_not_retried(app: App) -> None:
    first = app.tasks["fails"].using(retry={"max_attempts": 1, "base_delay": 0}).enqueue(times=9)
    drain(app)
    last = retry_of(app, first)
    hurt(app, f"update hw_job set exhausted = 0 where id = {last.id}")
    restart(app)
    assert states(app) == {first.id: "FAILED", last.id: "FAILED"}
    assert last.row.exhausted == 1
    assert findings(app) == []


def _forget(app: App, job: Job) -> None:
    hurt(
        app,
        "update hw_pruning set active = 1",
        f"delete from hw_event where thing = 'job' and thing_id = {job.id}",
        f"delete from hw_job where id = {job.id}",
        "update hw_pruning set active = 0",
    )


# --- 4: crash during run creation ---------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["turn.begun", "turn.before_commit"])
def test_4_a_claim_that_was_not_committed_never_was(app: App, point: str) -> None:
    first = app.tasks["fine"].enqueue(n=1)
    crash(app, point)
    row = first.row
    assert (row.status.name, row.fence, row.started_at, row.worker_id) == ("QUEUED", 0, None, None)
    assert first.run is None
    restart(app)
    assert first.status == "QUEUED"
    assert drain(app) == 1
    assert (first.status, first.row.fence) == ("COMPLETED", 1)
    assert findings(app) == []


# --- 5: crash with several running jobs ---------------------------------------------------------------------------


def test_5_several_running_jobs_are_each_retried_in_their_place(app: App) -> None:
    limits.settle(app.database, Concurrency(limit=2), {}, actor=SYSTEM, adopt=True)
    made = [app.tasks["fine"].enqueue(n=n) for n in range(5)]
    crash(app, "claim.handed_over")
    assert list(states(app).values()) == ["RUNNING", "RUNNING", "QUEUED", "QUEUED", "QUEUED"]
    restart(app)
    retries = [assert_lost(app, job) for job in made[:2]]
    wanted = [job.id for job in (*retries, *made[2:])]
    assert order(app) == wanted
    limits.settle(app.database, Concurrency(limit=1), {}, actor=SYSTEM, adopt=True)
    assert drain(app) == 5
    assert _claimed(app)[2:] == wanted, "normal dispatch, one at a time, in order"
    assert findings(app) == []


def _claimed(app: App) -> list[int]:
    events = [row for row in dump(app.database)["hw_event"] if row["kind"] == "job.claimed"]
    return [row["thing_id"] for row in sorted(events, key=lambda row: row["id"])]


# --- 6: rapid restart ---------------------------------------------------------------------------------------------

POINTS = ("give_up.before_commit", "give_up.committed", "recover.begun", "recover.before_commit", "recover.committed")


def test_6_recovery_that_crashes_again_and_again_reaches_the_same_state(app: App) -> None:
    limits.settle(app.database, Concurrency(limit=2), {}, actor=SYSTEM, adopt=True)
    made = [app.tasks["fine"].enqueue(n=n) for n in range(3)]
    crash(app, "claim.handed_over")
    for point in POINTS:
        crash(app, point, "recover")
    assert sorted(states(app).values()) == ["FAILED", "QUEUED", "QUEUED", "RUNNING"], "half of it was done"
    restart(app)
    retries = [assert_lost(app, job) for job in made[:2]]
    assert order(app) == [*(job.id for job in retries), made[2].id]
    assert len(states(app)) == 5, "one retry for each, however often recovery was tried"
    with app.database.read() as tx:
        assert [len(jobs.chain(tx, job.id)) for job in made] == [2, 2, 1]
    assert drain(app) == 3
    assert findings(app) == []
