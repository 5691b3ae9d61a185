"""Leases between real processes: who keeps them, who loses them, and that nobody works on without one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import apsw
import psycopg
import pytest

from headway import Job
from headway.store import worker_views
from tests.support.figures import Figure
from tests.system.support.started import SECONDS, Program, Site, alive, site, until

pytestmark = pytest.mark.alone

LEASE = 3.0
SHORT = {"lease": LEASE, "heartbeat": 0.5}


@pytest.fixture
def here(database_url: str, tmp_path: Path) -> Iterator[Site]:
    with site(database_url, tmp_path) as found:
        yield found


def lost(site: Site, job: Job) -> Job:
    """The job that retries one which was lost as it should be."""
    assert site.await_state(job, "FAILED", "COMPLETED", "CANCELLED") == "FAILED"
    run, row = job.run, job.row
    assert run is not None
    assert (run.error or "").startswith("Scheduler crash recovery")
    assert row.failure_kind == "LOST"
    again = site.await_retry(job)
    assert (again.row.priority, again.row.position) == (row.priority, row.position)
    return again


def test_work_that_holds_the_interpreter_keeps_its_lease(sqlite_url: str, postgres_url: str, tmp_path: Path) -> None:
    """For five leases no thread of the worker runs, while two others look for lost work all the time."""
    with ExitStack() as stack:
        jobs: list[tuple[Site, Job, Program]] = []
        for url, name in ((sqlite_url, "sqlite"), (postgres_url, "postgres")):
            (tmp_path / name).mkdir()
            here = stack.enter_context(site(url, tmp_path / name))
            worker = here.start(**SHORT)
            here.start(**SHORT, slots=0, recovery=0.2)
            job = here.enqueue("holds.async", "held", seconds=round(5 * LEASE))
            here.await_began("held")
            here.start(**SHORT, recovery=0.2)
            jobs.append((here, job, worker))
        for here, job, worker in jobs:
            assert here.await_state(job, "COMPLETED", "FAILED", "CANCELLED") == "COMPLETED"
            assert here.kinds(job) == ["job.created", "job.claimed", "job.completed"]
            assert "worker.gone" not in [kind for _, kind, _ in here.events("worker")]
            assert worker.process.poll() is None
            assert here.findings() == []


def test_a_killed_worker_is_noticed_at_once_on_its_host(here: Site) -> None:
    """Long before its lease of a minute is over."""
    first = here.start()
    jobs = [here.enqueue(f"waits.{kind}", kind) for kind in ("async", "thread", "process")]
    began = [here.await_began(kind) for kind in ("async", "thread", "process")]
    first.kill()
    here.start()
    retries = [lost(here, job) for job in jobs]
    for kind in ("async", "thread", "process"):
        here.go(kind)
    for retry in retries:
        assert here.await_state(retry, "COMPLETED", "FAILED") == "COMPLETED"
        assert retry.row.attempt == 2
    assert alive([int(pid) for _, pid in began]) == []
    assert here.findings() == []


def test_no_retry_begins_before_the_processes_of_the_lost_one_are_gone(here: Site) -> None:
    """The child cannot see that its worker died, for it holds its own interpreter, and ignores signals."""
    first = here.start()
    job = here.enqueue("holds.process", "child", seconds=600)
    here.await_began("child")
    pids = here.pids("child")
    assert len(pids) == 3
    first.kill()
    assert alive(pids[:1]) == pids[:1], "it died with its worker, and nothing is shown"
    here.start()
    retry = lost(here, job)
    assert retry.result(60.0) == [], "the retry began while these were alive"
    assert alive(pids) == []
    assert here.findings() == []


def test_a_zombie_is_given_up_and_its_late_writes_are_refused(here: Site) -> None:
    zombie = here.start(**SHORT)
    job = here.enqueue("writes", "late")
    here.await_began("late")
    until(lambda: here.lines("late.effects"))
    beat = zombie.heartbeat()
    assert beat is not None
    stopped = [zombie.process.pid, beat.pid]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    other = here.start(**SHORT, recovery=0.2)
    retry = lost(here, job)
    here.await_began("late", times=2)
    os.kill(zombie.process.pid, signal.SIGCONT)
    until(lambda: "job.late_write_rejected" in here.kinds(job))
    until(lambda: [f"{job.id}.1", "LeaseLost"] in here.lines("late.ended"))
    os.kill(beat.pid, signal.SIGCONT)
    until(lambda: _begun(here, zombie.process.pid) >= 2)  # it hears that it was given up, and begins anew
    here.go("late")
    assert here.await_state(retry, "COMPLETED", "FAILED") == "COMPLETED"
    assert here.kinds(job).count("job.late_write_rejected") == 1
    assert here.kinds(job).count("job.failed") == 1
    effects = [line for (line,) in here.lines("late.effects")]
    assert set(effects) == {f"{job.id}.1", f"{retry.id}.1"}
    assert effects == sorted(effects, key=lambda line: line != f"{job.id}.1"), "the old work went on beside the new"
    assert other.process.poll() is None
    assert zombie.process.poll() is None
    for program in (zombie, other):
        program.signal(signal.SIGTERM)
        assert program.wait() == 0
    assert here.findings() == []


# Within so many heartbeats the work of a worker that was given up while it was frozen has stopped.
BEATS = 6


@pytest.mark.parametrize("reports", [True, False], ids=["reports", "silent"])
def test_unfenced_work_of_a_frozen_worker_stops_soon_after_it_goes_on(
    here: Site, figure: Figure, reports: bool
) -> None:
    """Worker and heartbeat are frozen together, as in a virtual machine: nothing can end the work meanwhile. It ends
    with its next report, which is refused, with the next renewal, or with its process, which the heartbeat ends."""
    frozen = here.start(**SHORT)
    job = here.enqueue("acts.async", "acts", reports=reports)
    here.await_began("acts")
    beat = frozen.heartbeat()
    assert beat is not None
    pids = [frozen.process.pid, beat.pid]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    other = here.start(**SHORT, recovery=0.2)
    retry = lost(here, job)
    here.await_began("acts", times=2)
    before = stored(here, job)
    went_on = time.monotonic()
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    until(lambda: f"{job.id}.1" in [word for word, _ in here.lines("acts.ended")] or frozen.process.poll() is not None)
    beside = [float(at) - went_on for number, at in here.lines("acts.steps") if int(number) == job.id]
    until(lambda: _begun(here, frozen.process.pid) >= 2 or frozen.process.poll() is not None)
    here.go("acts")
    assert here.await_state(retry, "COMPLETED", "FAILED") == "COMPLETED"
    assert stored(here, job) == before, "a write of the old work was accepted"
    what = "work that reports" if reports else "silent work"
    figure(f"{what} of a worker that was frozen goes on for {max(0.0, *beside):.3f} s beside its retry")
    assert max(beside) < BEATS * SHORT["heartbeat"]
    killed = frozen.process.poll() is not None
    for program, code in ((frozen, -signal.SIGKILL if killed else 0), (other, 0)):
        program.signal(signal.SIGTERM)
        assert program.wait() == code
    assert here.findings() == []


def stored(site: Site, job: Job) -> list[object]:
    """All that a worker writes about a job."""
    texts = [f"select * from {table} where job_id = {job.id}" for table in ("hw_run", "hw_report", "hw_log")]
    with site.app.database.read() as tx:
        return [tx.connection.execute(text).fetchall() for text in texts]  # type: ignore[attr-defined]


def _begun(site: Site, pid: int) -> int:
    """How often a process began as a worker."""
    with site.app.database.read() as tx:
        return sum(one.pid == pid for one in worker_views.workers(tx))


def test_a_worker_that_cannot_renew_stops_its_work_and_lives(here: Site) -> None:
    """The database lets nobody write for longer than a lease. The work ends before the lease does."""
    worker = here.start(**SHORT)
    names = ("async", "thread", "process")
    jobs = [here.enqueue(f"waits.{kind}", kind) for kind in names]
    began = [here.await_began(kind) for kind in names]
    with locked(here):
        until(lambda: here.lines("async.ended") and here.lines("thread.ended"))
        until(lambda: not alive([int(began[2][1])]))
        assert worker.process.poll() is None
    for kind in names:
        here.go(kind)
    for job in jobs:
        retry = lost(here, job)
        assert here.await_state(retry, "COMPLETED", "FAILED") == "COMPLETED"
    assert here.findings() == []


def test_a_worker_that_is_ended_while_it_stands_still_says_so_in_its_record(here: Site) -> None:
    worker = here.start(**SHORT)
    job = here.enqueue("waits.process", "work")
    _, pid = here.await_began("work")
    worker.signal(signal.SIGSTOP)
    assert worker.wait() == -signal.SIGKILL
    until(lambda: [kind for _, kind, _ in here.events("worker")].count("worker.ended") == 1)
    with here.app.database.read() as tx:
        (ended,) = worker_views.workers(tx)
    assert "ended by its heartbeat: its lease was not renewed for" in (ended.note or "")
    assert "its process was stopped" in (ended.note or "")
    assert f"the heartbeat ends worker {ended.id:x}, process {worker.pid}" in worker.log.read_text()
    here.start(**SHORT)
    retry = lost(here, job)
    assert alive([int(pid)]) == []
    here.go("work")
    assert here.await_state(retry, "COMPLETED", "FAILED") == "COMPLETED"
    assert here.findings() == []


def test_a_worker_that_cannot_renew_and_cannot_stop_is_ended(here: Site) -> None:
    worker = here.start(**SHORT)
    job = here.enqueue("holds.async", "held", seconds=600)
    here.await_began("held")
    with locked(here):
        assert worker.wait() == -signal.SIGKILL
        assert here.lines("held.ended") == []
        until(lambda: "the heartbeat ends worker" in worker.log.read_text())
        assert "its lease was not renewed for" in worker.log.read_text()
    here.start(slots=0, **SHORT)
    retry = lost(here, job)
    retry.cancel()
    assert here.findings() == []


@contextmanager
def locked(site: Site) -> Iterator[None]:
    """Keeps everybody from renewing a lease."""
    if site.app.database.dialect == "postgres":
        with psycopg.connect(site.url) as holder:
            holder.execute("select id from hw_worker for update")
            yield
    else:
        writer = apsw.Connection(site.url)
        writer.set_busy_timeout(round(1000 * SECONDS))
        writer.execute("begin immediate")
        try:
            yield
        finally:
            writer.close()
