"""The end of a worker by a real signal: what runs may finish within the grace, the rest is interrupted."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.store import worker_views
from tests.system.support.started import Site, alive, site, until

pytestmark = pytest.mark.alone

KINDS = ("async", "thread", "process")


@pytest.fixture
def here(database_url: str, tmp_path: Path) -> Iterator[Site]:
    with site(database_url, tmp_path) as found:
        yield found


def state_of_worker(here: Site) -> str:
    with here.app.database.read() as tx:
        (worker,) = worker_views.workers(tx)
    return worker.state


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_running_work_finishes_within_the_grace_and_nothing_more_is_claimed(here: Site, number: signal.Signals) -> None:
    worker = here.start(slots=3)
    running = [here.enqueue(f"waits.{kind}", kind) for kind in KINDS]
    for kind in KINDS:
        here.await_began(kind)
    waiting = here.enqueue("waits.async", "later")
    worker.signal(number)
    until(lambda: state_of_worker(here) == "draining")  # before that, a slot that gets free is filled
    for kind in KINDS:
        here.go(kind)
    assert worker.wait() == 0
    assert [job.status for job in running] == ["COMPLETED"] * 3
    assert waiting.status == "QUEUED"
    assert [data for _, kind, data in here.events("worker") if kind == "worker.gone"] == [{"why": "shut down"}]
    here.go("later")
    here.start()
    assert here.await_state(waiting, "COMPLETED") == "COMPLETED"
    assert here.findings() == []


def test_unfinished_work_is_interrupted_and_retried_at_once(here: Site) -> None:
    worker = here.start(grace=0.2)
    jobs = {kind: here.enqueue(f"waits.{kind}", kind, wishes={"retry": 1}) for kind in KINDS}
    for kind in KINDS:
        here.await_began(kind)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    retries = {}
    for kind, job in jobs.items():
        run, row = job.run, job.row
        assert run is not None
        assert (row.status.name, row.failure_kind) == ("FAILED", "INTERRUPTED")
        assert "shut down" in (run.error or "")
        retries[kind] = here.await_retry(job)
        assert retries[kind].status == "QUEUED", "it waits for nothing"
        assert retries[kind].row.position == row.position
    # Again: an interrupted try is not paid for, so one automatic retry is enough for any number of them.
    worker = here.start(grace=0.2)
    for kind in KINDS:
        here.await_began(kind, times=2)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    last = [here.await_retry(job) for job in retries.values()]
    for kind in KINDS:
        here.go(kind)
    here.start()
    for job in last:
        assert here.await_state(job, "COMPLETED", "FAILED") == "COMPLETED"
        assert job.row.attempt == 3
    assert here.findings() == []


def test_work_without_retries_is_paused_and_can_be_resumed(here: Site) -> None:
    worker = here.start(grace=0.2)
    wishes: dict[str, dict[str, Any]]
    wishes = {"none": {"retry": 0}, "pause": {"on_shutdown": "pause"}, "resume": {"on_shutdown": "resume"}}
    jobs = {name: here.enqueue("waits.async", name, wishes=wish) for name, wish in wishes.items()}
    for name in jobs:
        here.await_began(name)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    for name in ("none", "pause"):
        row, run = jobs[name].row, jobs[name].run
        assert (row.status.name, row.reason) == ("PAUSED", "shutdown")
        assert run is not None
        assert run.status is None, "the run of a paused job stays open"
    assert jobs["resume"].status == "QUEUED"
    assert here.kinds(jobs["resume"])[-2:] == ["job.paused", "job.resumed"]
    for name in jobs:
        here.go(name)
    here.start()
    assert jobs["resume"].result(60.0) == 2, "the same job, under a higher fence"
    for name in ("none", "pause"):
        jobs[name].resume()
        assert jobs[name].result(60.0) == 2
    assert here.findings() == []


def test_a_second_signal_ends_the_grace(here: Site) -> None:
    worker = here.start(grace=3600.0)
    jobs = [here.enqueue(f"waits.{kind}", kind) for kind in KINDS]
    began = [int(here.await_began(kind)[1]) for kind in KINDS]
    worker.signal(signal.SIGTERM)
    until(lambda: here.lines("signals"))
    assert [job.status for job in jobs] == ["RUNNING"] * 3
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert [job.row.failure_kind for job in jobs] == ["INTERRUPTED"] * 3
    assert alive(began) == []
    for job in jobs:
        here.await_retry(job).cancel()
    assert here.findings() == []


def test_a_tree_that_ignores_signals_does_not_outlive_its_worker(here: Site) -> None:
    worker = here.start(grace=0.2)
    job = here.enqueue("stubborn.process", "tree", wishes={"retry": 0})
    here.await_began("tree")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert (job.status, job.row.reason) == ("PAUSED", "shutdown")
    assert alive(here.pids("tree")) == []
    job.cancel()
    assert here.findings() == []
