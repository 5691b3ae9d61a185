"""The recovery scenarios, one test each on both databases; each ends with a second round that changes nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from headway import fault_points
from headway.engine.client import limits
from headway.engine.execution import process_tree
from headway.engine.maintenance.recovery import Recovery
from headway.model.jobs.job import SYSTEM, Claim, JobRecord
from headway.model.jobs.outcome import Completed, FailureKind
from headway.model.jobs.retry import RetryPolicy
from headway.model.jobs.states import State
from headway.model.queue.policies import Concurrency
from headway.store import workers
from headway.store.jobs import changes as jobs
from headway.verify import check
from tests.support.life import BROKEN, Life, raw_connection
from tests.support.survivors import left_behind, unkillable
from tests.support.waiting import until


@pytest.fixture
def life(database_url: str) -> Iterator[Life]:
    with Life(database_url) as life:
        unlimited(life)
        yield life


def unlimited(life: Life) -> None:
    limits.settle(life.database, Concurrency(limit=None), {}, actor=SYSTEM, adopt=True)


@pytest.fixture(scope="module")
def dead_pid() -> int:
    """The number of a process that was there and is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(60)
    return process.pid


class Crash(Exception):
    """Stands for the end of the process at a fault point: whatever it had not committed is undone."""


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    fault_points.arm(None)


def arm(name: str) -> None:
    def act(point: str) -> None:
        if point == name:
            raise Crash(point)

    fault_points.arm(act)


def worker_here(life: Life, pid: int, *, lease: float = 60.0) -> int:
    """A worker of this host and boot, as the process with that number."""
    who = workers.Identity(life.new_worker() + 10_000, *Recovery(life.database).here, pid, 1)
    life.database.transact(
        "register", lambda tx: workers.register(tx, who, life.actor(who.id), slots=9, tasks=[], lease=lease)
    )
    return who.id


def recover(life: Life) -> Recovery:
    """A restart: a process that has seen nothing looks once."""
    recovery = Recovery(life.database)
    recovery.tick()
    return recovery


def assert_settled(life: Life) -> None:
    """Nothing is left to do, and the history is in order."""
    before = life.everything()
    assert recover(life).recovered == 0
    assert life.everything() == before
    life.check_versions()


def findings(life: Life) -> list[str]:
    return [finding.text for finding in check(life.database).findings]


def retry_of(life: Life, job_id: int) -> JobRecord:
    with life.database.read() as tx:
        found = jobs.automatic_retry(tx, job_id)
    assert found is not None
    return found


def error_of(life: Life, job_id: int) -> str:
    with life.database.read() as tx:
        run = jobs.run_of(tx, job_id)
    assert run is not None
    return run.error or ""


# --- scenario 1: a crash during execution ---


def test_scenario_1_a_crash_during_execution(life: Life, dead_pid: int) -> None:
    job_id = life.enqueue()
    life.claim(job_id, worker_id=worker_here(life, dead_pid))
    recover(life)
    job = life.job(job_id)
    assert (job.status, job.failure_kind, life.run_status(job_id)) == (State.FAILED, FailureKind.LOST, State.FAILED)
    assert error_of(life, job_id).startswith("Scheduler crash recovery")
    retry = retry_of(life, job_id)
    assert (retry.status, retry.retry_of, retry.position) == (State.SCHEDULED, job_id, job.position)
    assert_settled(life)
    assert findings(life) == []


def test_scenario_1_a_run_that_is_missing_is_made(life: Life, database_url: str, dead_pid: int) -> None:
    job_id = life.enqueue()
    life.claim(job_id, worker_id=worker_here(life, dead_pid))
    damage(database_url, f"delete from hw_run where job_id = {job_id}")
    recover(life)
    assert (life.status(job_id), life.run_status(job_id)) == ("FAILED", State.FAILED)
    assert retry_of(life, job_id).status is State.SCHEDULED
    assert_settled(life)


def test_scenario_1_a_run_that_has_ended_ends_its_job(life: Life, database_url: str, dead_pid: int) -> None:
    job_id = life.enqueue()
    life.claim(job_id, worker_id=worker_here(life, dead_pid))
    damage(database_url, f"update hw_run set status = 6, finished_at = started_at where job_id = {job_id}")
    recover(life)
    assert (life.status(job_id), life.run_status(job_id)) == ("COMPLETED", State.COMPLETED)
    assert len(life.sql("select id from hw_job")) == 1
    assert_settled(life)


def damage(url: str, statement: str) -> None:
    """What no transaction of ours leaves behind."""
    with raw_connection(url) as connection:
        for text in ("update hw_pruning set active = 1", statement, "update hw_pruning set active = 0"):
            connection.execute(text)


# --- scenario 3: a crash while the retry is made ---


def test_scenario_3_failure_and_retry_are_one_transaction(life: Life) -> None:
    job_id = life.enqueue()
    claim = life.claim(job_id)
    arm("finish.before_commit")
    with pytest.raises(Crash):
        life.end(claim, BROKEN)
    fault_points.arm(None)
    assert (life.status(job_id), life.run_status(job_id)) == ("RUNNING", None)
    assert life.sql("select count(*) from hw_job") == [(1,)]
    assert life.end(claim, BROKEN)
    assert (life.status(job_id), retry_of(life, job_id).status) == ("FAILED", State.SCHEDULED)


def test_scenario_3_a_failure_without_a_decision_gets_one(
    life: Life, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    undecided = life.in_state("retried")
    damage(database_url, f"delete from hw_job where retry_of = {undecided}")
    last = life.in_state("failed")
    recover(life)
    retry = retry_of(life, undecided)
    assert retry.status is State.SCHEDULED
    text = f"recovery: job {undecided} had failed without a decision; job {retry.id} retries it"
    assert caplog.messages == [text]
    assert life.sql(f"select count(*) from hw_job where retry_of = {last}") == [(0,)]
    assert_settled(life)


def test_scenario_3_beyond_its_attempts_the_decision_is_that_there_is_none(
    life: Life, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    job_id = life.in_state("failed")
    with raw_connection(database_url) as connection:
        connection.execute(
            f"update hw_job set exhausted = 0, options = replace(options, ':3', ':0') where id = {job_id}"
        )
    recover(life)
    assert (life.job(job_id).exhausted, life.events(job_id)[-1]) == (1, "job.exhausted")
    assert f"recovery: job {job_id} had failed without a decision; it is not retried" in caplog.messages
    assert_settled(life)


@pytest.mark.parametrize("most", [10, 0])
def test_the_log_says_which_lost_jobs_are_retried(
    life: Life, dead_pid: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("headway.engine.maintenance.recovery.MOST_LISTED", most)
    unlimited(life)
    again, once = life.enqueue(), life.enqueue(on_lost="fail")
    worker_id = worker_here(life, dead_pid)
    life.take(again, once, worker_id=worker_id)
    recover(life)
    told = [message for message in caplog.messages if "are now" in message or "is now" in message]
    if most:
        assert len(told) == 2
        assert told[0].endswith(f"was lost; job {retry_of(life, again).id} retries it")
        assert told[1].endswith("was lost; it is not retried")
    else:
        assert told == ["recovery: the workers of 2 jobs were lost; the jobs are now 2 FAILED; 1 of them are retried"]


# --- scenario 4: a crash while the run is made ---


def test_scenario_4_a_claim_is_whole_or_not_there(life: Life) -> None:
    job_id = life.enqueue()
    arm("claim.before_commit")
    with pytest.raises(Crash):
        life.claim(job_id)
    fault_points.arm(None)
    assert (life.status(job_id), life.run_status(job_id), life.job(job_id).fence) == ("QUEUED", "no run", 0)
    assert life.claim(job_id).fence == 1


# --- scenario 5: several running jobs ---


def test_scenario_5_every_running_job_is_settled_and_the_order_is_kept(life: Life, dead_pid: int) -> None:
    first, second, *waiting = (life.enqueue(retry=1, on_shutdown=None) for _ in range(5))
    worker_id = worker_here(life, dead_pid)
    for job_id in (first, second):
        life.claim(job_id, worker_id=worker_id)
    assert recover(life).recovered == 2
    retries = [retry_of(life, job_id).id for job_id in (first, second)]
    life.clock.advance("10s")
    life.database.transact("promote", lambda tx: tx.run("promote", actor=life.actor().text()))
    assert life.pick(9) == [*retries, *waiting]
    assert_settled(life)
    assert findings(life) == []


def test_scenario_5_without_a_delay_the_order_is_that_of_the_source_document(life: Life, dead_pid: int) -> None:
    at_once = RetryPolicy(1, base_delay=0.0, jitter=0.0)
    first, second, *waiting = (life.enqueue(retry=at_once) for _ in range(5))
    worker_id = worker_here(life, dead_pid)
    for job_id in (first, second):
        life.claim(job_id, worker_id=worker_id)
    recover(life)
    assert life.pick(9) == [*(retry_of(life, job_id).id for job_id in (first, second)), *waiting]
    assert_settled(life)
    assert findings(life) == []


# --- scenario 6: a crash inside recovery ---


@pytest.mark.parametrize("point", ["give_up", "recover"])
@pytest.mark.parametrize("moment", ["begun", "before_commit", "committed"])
def test_scenario_6_a_crash_inside_recovery_and_a_restart_reach_the_same(
    life: Life, dead_pid: int, point: str, moment: str
) -> None:
    ids = [life.enqueue(), life.enqueue()]
    worker_id = worker_here(life, dead_pid)
    for job_id in ids:
        life.claim(job_id, worker_id=worker_id)
    arm(f"{point}.{moment}")
    for _ in range(2):
        with pytest.raises(Crash):
            recover(life)
        if moment == "committed":
            break  # what is committed does not come again
    fault_points.arm(None)
    recover(life)
    assert [life.status(job_id) for job_id in ids] == ["FAILED", "FAILED"]
    assert life.sql("select retry_of, count(*) from hw_job where retry_of is not null group by 1 order by 1") == [
        (job_id, 1) for job_id in ids
    ]
    assert_settled(life)
    assert findings(life) == []


# --- who is lost, and who is not ---


def test_the_queue_survives_a_restart(life: Life, database_url: str) -> None:
    ids = [life.enqueue(priority=priority) for priority in (1, 5, 3)]
    life.client.move(ids[0], to="front")
    order = life.pick(9)
    with Life(database_url, clock=life.clock) as again:
        recover(again)
        assert again.pick(9) == order == [ids[0], ids[1], ids[2]]


def test_a_second_instance_never_touches_live_jobs(life: Life) -> None:
    here = worker_here(life, 1)  # this one's number is taken, but by a process that began at another time
    alive, elsewhere = life.new_worker(), life.new_worker()
    claims: list[Claim] = [life.claim(life.enqueue(), worker_id=worker_id) for worker_id in (alive, elsewhere, here)]
    life.clock.advance("59s")
    recovery = Recovery(life.database)
    for _ in range(3):
        recovery.tick()
    assert [life.status(claim.job_id) for claim in claims] == ["RUNNING", "RUNNING", "FAILED"]


def test_a_lease_that_has_ended_is_not_enough(life: Life) -> None:
    """The clock may have been stepped: who judges must have seen the silence itself."""
    claim = life.claim(life.enqueue())
    life.clock.advance("1d")
    recovery = Recovery(life.database)
    for _ in range(3):
        recovery.tick()
    assert life.status(claim.job_id) == "RUNNING"


def test_a_silent_worker_is_given_up_after_a_lease_and_never_comes_back(life: Life) -> None:
    who = workers.Identity(77, "elsewhere", "boot", 1, 1)
    life.database.transact(
        "register", lambda tx: workers.register(tx, who, life.actor(77), slots=1, tasks=[], lease=0.05)
    )
    claim = life.claim(life.enqueue(), worker_id=77)
    life.clock.advance("1s")
    recovery = Recovery(life.database)
    until(lambda: recovery.tick() and recovery.recovered == 1, "the loss")
    assert life.status(claim.job_id) == "FAILED"
    assert not life.database.transact("beat", lambda tx: workers.beat(tx, 77, 60.0))
    assert not life.end(claim, Completed("1"), worker_id=77)
    assert_settled(life)


def test_a_worker_of_another_boot_is_not_judged_by_its_number(life: Life, dead_pid: int) -> None:
    who = workers.Identity(78, process_tree.host(), "another boot", dead_pid, 1)
    life.database.transact(
        "register", lambda tx: workers.register(tx, who, life.actor(78), slots=1, tasks=[], lease=60.0)
    )
    claim = life.claim(life.enqueue(), worker_id=78)
    recover(life)
    assert life.status(claim.job_id) == "RUNNING"


def test_a_job_whose_processes_cannot_be_ended_is_held_and_never_retried(life: Life, dead_pid: int) -> None:
    worker_id = worker_here(life, dead_pid)
    job_id = life.enqueue(on_lost="retry")
    life.claim(job_id, worker_id=worker_id)
    with left_behind() as (tag, process):
        started = process_tree.start_time(process.pid) or 0
        life.database.transact(
            "adopt",
            lambda tx: workers.adopt(tx, worker_id, slot=0, tag=tag, pid=process.pid, process_start=started),
        )
        with unkillable():
            for _ in range(2):
                recover(life)
                job = life.job(job_id)
                assert (job.status, job.failure_kind) == (State.ERROR, FailureKind.LOST)
                assert "its processes could not be ended" in (job.reason or "")
                assert process.poll() is None
        assert life.sql("select tag from hw_process") == [(tag,)], "a later round could not find them"
        recover(life)
        until(lambda: process.poll() is not None)
    assert life.sql("select tag from hw_process") == []
    assert life.status(job_id) == "ERROR"
    assert life.sql("select id from hw_job where retry_of is not null") == []
    assert_settled(life)
    assert findings(life) == []


@pytest.mark.parametrize(("on_lost", "status", "retries"), [("hold", "ERROR", 0), ("fail", "FAILED", 0)])
def test_a_job_that_must_not_run_twice_is_not_retried(
    life: Life, dead_pid: int, on_lost: str, status: str, retries: int
) -> None:
    job_id = life.enqueue(on_lost=on_lost)
    life.claim(job_id, worker_id=worker_here(life, dead_pid))
    recover(life)
    assert life.status(job_id) == status
    assert life.sql("select count(*) from hw_job where retry_of is not null") == [(retries,)]
    assert_settled(life)
    assert findings(life) == []
