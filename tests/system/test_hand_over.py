"""Claimed work that cannot be started for want of descriptors, memory or processes: it never began, and is free."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from headway import Job
from headway.model.jobs.outcome import NEVER_BEGAN
from headway.store import worker_views
from tests.support.figures import Figure
from tests.system.support.started import Program, Site, site, until

pytestmark = pytest.mark.alone

# Each way to have no room, with the limit that makes it, on a process that runs already. Threads count as processes.
EXHAUSTED = {
    "descriptors": resource.RLIMIT_NOFILE,
    "memory": resource.RLIMIT_AS,
    "processes": resource.RLIMIT_NPROC,
}
# The limit of processes binds every user but root: one that has no others, with root's right to files.
OTHER = ("setpriv", "--reuid=47811", "--clear-groups", "--inh-caps=+dac_override", "--ambient-caps=+dac_override")
AS_USER = OTHER if os.geteuid() == 0 else ()
WISHES: dict[str, dict[str, Any]] = {
    "usual": {},
    "once": {"retry": 0},
    "target": {"target": "one"},
    "target-fail": {"target": "two", "on_error": "fail"},
    "pause": {"retry": 0, "on_shutdown": "pause"},
}
TASKS = {
    "descriptors": ("waits.process", "waits.process"),
    "memory": ("waits.thread",),
    "processes": ("waits.thread", "waits.process"),  # in this order: what ran has left threads that wait for more
}
LEAST = 220 if os.environ.get("HEADWAY_PROOF") else 18
NEVER = "runs that never began for want of descriptors, memory, threads or processes"


@pytest.fixture
def here(database_url: str, tmp_path: Path) -> Iterator[Site]:
    with site(database_url, tmp_path) as found:
        yield found


@contextmanager
def exhausted(program: Program, kind: str) -> Iterator[None]:
    """The process may have no more of it than it has now: descriptors have numbers below the limit, and 0 to 2 are
    taken; its user has one process at least."""
    now = {"descriptors": 3, "memory": psutil.Process(program.pid).memory_info().vms + 2**20, "processes": 1}
    before, _ = resource.getrlimit(EXHAUSTED[kind])  # the program has the limits of this process
    limit(program, kind, now[kind])
    try:
        yield
    finally:
        limit(program, kind, before)


def limit(program: Program, kind: str, soft: int) -> None:
    """Limits a running process, as the user whose it is."""
    if kind == "processes":
        word = "unlimited" if soft == resource.RLIM_INFINITY else soft
        command = [*AS_USER, "prlimit", f"--pid={program.pid}", f"--nproc={word}:"]
        subprocess.run(command, check=True, timeout=60)
    else:
        _, hard = resource.prlimit(program.pid, EXHAUSTED[kind])
        resource.prlimit(program.pid, EXHAUSTED[kind], (soft, hard))


def paused(here: Site) -> str:
    """Why the worker takes no work, as it is recorded."""
    with here.app.database.read() as tx:
        found = worker_views.workers(tx, within=0.0)
    return next((one.note or "" for one in found), "")


def count(here: Site, condition: str) -> int:
    with here.app.database.read() as tx:
        rows = tx.connection.execute(f"select count(*) from hw_job where {condition}").fetchall()  # type: ignore[attr-defined]
    return int(rows[0][0])


def last_of(here: Site, job: Job) -> tuple[Job, int]:
    """The job that the chain ends with when it has come to an end, and how many never began before it."""
    free = 0
    while job.status == "FAILED":
        run, row = job.run, job.row
        assert run is not None
        assert (run.error or "").startswith(NEVER_BEGAN), run.error
        assert (row.failure_kind, row.reason, row.exhausted) == ("INTERRUPTED", NEVER_BEGAN, 0)
        retry = here.await_retry(job)
        assert (retry.row.priority, retry.row.position) == (row.priority, row.position)
        job, free = retry, free + 1
    return job, free


@pytest.mark.parametrize("kind", EXHAUSTED)
def test_work_that_cannot_be_started_is_repeated_and_costs_no_attempt(here: Site, kind: str, figure: Figure) -> None:
    """The worker tries again much sooner than it usually does, so that there is something to count."""
    prefix = AS_USER if kind == "processes" else ()
    worker = here.start_behind(prefix, slots=len(WISHES), FIRST_PAUSE=0.02, LONGEST_PAUSE=0.02)
    until(lambda: here.lines("started") and worker.heartbeat() is not None)  # no thread of its own is wanting
    never = 0
    for number, task in enumerate(TASKS[kind]):
        worker.end_children()
        with exhausted(worker, kind):
            names = [f"{number} {name}" for name in WISHES]
            jobs = [here.enqueue(task, name, wishes=WISHES[name[2:]]) for name in names]
            until(lambda never=never: count(here, f"reason = '{NEVER_BEGAN}'") >= never + LEAST)  # type: ignore[misc]
            until(lambda: "could be started" in paused(here))
            for name in names:
                here.go(name)
        until(lambda: not count(here, "status < 6"))
        for job in jobs:
            end, free = last_of(here, job)
            assert end.status == "COMPLETED"
            never += free
        until(lambda: not paused(here))
        assert all(len(here.lines(f"{name}.began")) == 1 for name in names)
    figure(NEVER, never)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert here.findings() == []


def test_a_task_process_that_dies_while_no_descriptor_is_free_is_a_failure_of_its_own(
    here: Site, figure: Figure
) -> None:
    """Its other processes cannot be looked for meanwhile: it keeps its claim until they can, and nothing is run twice.
    Work that waits for the slot never began, and costs no attempt."""
    worker = here.start(slots=2, FIRST_PAUSE=0.02, LONGEST_PAUSE=0.02)
    until(lambda: here.lines("started") and worker.heartbeat() is not None)
    job = here.enqueue("waits.process", "dies")
    here.await_began("dies")
    with exhausted(worker, "descriptors"):
        worker.end_children()
        other = here.enqueue("waits.process", "waits")
        until(lambda: count(here, f"reason = '{NEVER_BEGAN}'") >= 5)  # in the other slot
        assert job.status == "RUNNING"
        here.go("waits")
    retry = here.await_retry(job)
    run = job.run
    assert run is not None
    assert (run.failure_kind, run.exit_code) == ("EXIT_CODE", -signal.SIGKILL)
    here.go("dies")
    here.await_state(retry, "COMPLETED")
    until(lambda: not count(here, "status < 6"))
    assert (job.row.attempt, retry.row.attempt) == (1, 2)
    end, free = last_of(here, other)
    assert end.status == "COMPLETED"
    assert free >= 5, "more often than it may be attempted"
    figure(NEVER, free)
    assert [len(here.lines(f"{name}.began")) for name in ("dies", "waits")] == [2, 1]
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert here.findings() == []
