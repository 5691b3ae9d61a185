"""A running installation that stands still, or whose wall clock is stepped: nothing is lost, nothing doubled."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from headway import Job
from headway.store import workers
from tests.system.support.started import Program, Site, site, until
from tests.system.test_restart import ended_in_order, start

pytestmark = pytest.mark.alone

STEPPED = Path(__file__).parent / "support" / "stepped"
HOUR, DAY = 3600, 86400
STILL = 3.0
KINDS = ("async", "thread", "process")


@pytest.fixture
def here(database_url: str, tmp_path: Path) -> Iterator[Site]:
    with site(database_url, tmp_path) as found:
        yield found


def stop_all(program: Program) -> list[psutil.Process]:
    """Worker, heartbeat and task processes stand still, as they do when their machine does."""
    stopped: list[psutil.Process] = []
    while fresh := [one for one in program.tree() if one not in stopped]:
        for one in fresh:
            with suppress(psutil.NoSuchProcess):
                one.send_signal(signal.SIGSTOP)
        stopped += fresh
    return stopped


def go_on(stopped: list[psutil.Process]) -> None:
    for one in stopped:
        with suppress(psutil.NoSuchProcess):
            one.send_signal(signal.SIGCONT)


def last_of(here: Site, job: Job) -> Job:
    """The retry of a retry of a job, as far as there are any."""
    while True:
        with here.app.database.read() as tx:
            found = tx.run("any_retry", id=job.id)
        if not found:
            return job
        job = Job(here.app.client, found[0][0])


def completes(here: Site, job: Job) -> Job:
    until(lambda: last_of(here, job).status == "COMPLETED")
    return last_of(here, job)


def beats(here: Site) -> dict[int, int]:
    with here.app.database.read() as tx:
        return {one.identity.id: one.beat for one in workers.live(tx)}


def test_an_installation_that_stood_still_for_longer_than_its_lease_goes_on(here: Site) -> None:
    """Alone: no other process recovered anything meanwhile."""
    worker = start(here, lease=STILL)
    jobs = [here.enqueue(f"waits.{kind}", kind) for kind in KINDS]
    for kind in KINDS:
        here.await_began(kind)
    stopped = stop_all(worker)
    began = time.monotonic()
    until(lambda: time.monotonic() - began > STILL * 1.2)
    go_on(stopped)
    until(lambda: len(beats(here)) == 1)
    for kind in KINDS:
        here.go(kind)
    for job in jobs:
        completes(here, job)
        assert here.kinds(job).count("job.claimed") == 1
    assert worker.process.poll() is None, "no process is left to go on"
    ended_in_order(worker)
    assert here.findings() == []


def test_an_installation_that_stood_still_while_another_process_recovered_starts_anew(here: Site) -> None:
    worker = start(here, lease=STILL)
    job = here.enqueue("writes", "late")
    here.await_began("late")
    until(lambda: here.lines("late.effects"))
    stopped = stop_all(worker)
    other = start(here, lease=STILL)
    here.await_began("late", times=2)
    go_on(stopped)
    until(lambda: len(beats(here)) == 2)  # it begins as a new worker, by exec or after it heard that it was given up
    here.go("late")
    retry = completes(here, job)
    assert (job.row.failure_kind, here.kinds(job).count("job.failed")) == ("LOST", 1)
    effects = [line for (line,) in here.lines("late.effects")]
    assert set(effects) == {f"{job.id}.1", f"{retry.id}.1"}
    assert effects == sorted(effects, key=lambda line: line != f"{job.id}.1"), "the old work went on beside the new"
    for program in (worker, other):
        ended_in_order(program)
    assert here.findings() == []


def test_steps_of_the_wall_clock_lose_nothing_and_double_nothing(database_url: str, tmp_path: Path) -> None:
    """`headway up` with a schedule, and a second worker: both are judged by each other's recovery twice a second. On
    PostgreSQL the time is the server's: the steps of its clients change nothing."""
    clock = tmp_path / "clock"
    clock.write_text("0")
    path = os.pathsep.join([str(STEPPED), *sys.path])
    stepped = {"PYTHONPATH": path, "STEPPED_CLOCK": str(clock), "HEADWAY_PORT": "0"}
    with site(database_url, tmp_path) as here:
        ours = here.app.database.dialect == "sqlite"
        here.app.client.schedules.create("often", {"interval": "1s", "steps": [{"task": "load.async"}]})
        programs = [start(here, "up", lease=STILL, environment=stepped), start(here, lease=STILL, environment=stepped)]
        until(lambda: len(beats(here)) == 2)
        jobs = [here.enqueue(f"waits.{kind}", kind) for kind in KINDS]
        for kind in KINDS:
            here.await_began(kind)
        until(lambda: ticks(here)["FIRED"])  # at least once before the clock steps
        forward = 0
        for off in (2 * HOUR, -2 * HOUR, DAY, 0):
            step(clock, off)
            failing = here.app.tasks["load.async"].using(retry={"max_attempts": 1, "base_delay": 0.05})
            made = failing.enqueue(seconds=0.01, fails=True)
            first = beats(here)
            until(lambda made=made: made.status == "FAILED")  # type: ignore[misc]
            assert completes(here, made).row.attempt == 2
            assert made.row.finished_at is not None
            shift = off if ours else 0
            assert abs(made.row.finished_at / 1e6 - time.time() - shift) < HOUR / 2, "not the time that was expected"
            until(lambda first=first: all(beats(here)[one] >= beat + 3 for one, beat in first.items()))  # type: ignore[misc]
            forward += ours and off > 0
            until(lambda: ticks(here)["COALESCED"] >= forward)  # noqa: B023 (called before the loop goes on)
        for kind in KINDS:
            here.go(kind)
        for job in jobs:
            assert here.await_state(job, "COMPLETED", "FAILED") == "COMPLETED"
            assert here.kinds(job) == ["job.created", "job.claimed", "job.completed"]
        assert "worker.gone" not in [kind for _, kind, _ in here.events("worker")]
        for program in programs:
            ended_in_order(program)
        assert here.findings() == []
        assert ticks(here)["FIRED"] >= 3
        assert ticks(here)["COALESCED"] >= (2 if ours else 0), "the steps forward were not noticed by the scheduler"


def ticks(here: Site) -> Counter[str]:
    """How many rows of the ledger have each outcome."""
    with here.app.database.read() as tx:
        rows = tx.connection.execute("select outcome, count(*) from hw_tick group by 1").fetchall()  # type: ignore[attr-defined]
    return Counter(dict(rows))


def step(clock: Path, seconds: int) -> None:
    """At once: a reader never finds the file empty."""
    fresh = clock.with_suffix(".new")
    fresh.write_text(str(seconds))
    fresh.replace(clock)
