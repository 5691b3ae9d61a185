"""Cancel and interrupt of running work, asked for in another process: it ends, and nothing of it is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.support.program import STUBBORN
from tests.system.support.started import Site, alive, site, until

pytestmark = pytest.mark.alone

KINDS = ("async", "thread", "process")


@pytest.fixture
def here(database_url: str, tmp_path: Path) -> Iterator[Site]:
    with site(database_url, tmp_path) as found:
        yield found


def test_running_work_of_every_kind_is_cancelled_and_interrupted(here: Site) -> None:
    worker = here.start()
    jobs = {f"{verb}-{kind}": here.enqueue(f"waits.{kind}", f"{verb}-{kind}") for verb in "ci" for kind in KINDS}
    command = here.app.tasks["command"].using(retry=0)
    jobs |= {f"{verb}-command": command.enqueue(argv=["sleep", "600"]) for verb in "ci"}
    for name, job in jobs.items():
        if not name.endswith("command"):
            here.await_began(name)
        here.await_state(job, "RUNNING")
    for name, job in jobs.items():
        job.cancel() if name.startswith("c") else job.interrupt()
    for name, job in jobs.items():
        wanted = "CANCELLED" if name.startswith("c") else "PAUSED"
        assert here.await_state(job, "CANCELLED", "PAUSED", "FAILED", "COMPLETED") == wanted, name
        reason = job.row.reason or ""
        assert reason.startswith("cancelled by" if wanted == "CANCELLED" else "interrupted by"), name
        run = job.run
        assert run is not None
        assert (run.status is None) == (wanted == "PAUSED")
        assert run.status is None or (run.error or "").startswith("cancelled by")
    assert all(here.lines(f"{verb}-{kind}.ended") for verb in "ci" for kind in KINDS), (
        "work was recorded as ended early"
    )
    for kind in KINDS:
        job = jobs[f"i-{kind}"]
        here.go(f"i-{kind}")
        job.resume()
        assert here.await_state(job, "COMPLETED", "FAILED") == "COMPLETED"
        assert job.result() == 2, "the fence rises with the second claim"
    jobs["i-command"].cancel()
    assert worker.process.poll() is None
    assert here.findings() == []


def test_a_tree_that_ignores_signals_is_ended_to_the_last_process(here: Site) -> None:
    here.start()
    pids_of_command = here.folder / "command.pids"
    jobs = [
        here.enqueue("stubborn.process", "tree"),
        here.app.tasks["command"].enqueue(argv=["sh", "-c", STUBBORN.format(file=pids_of_command)]),
    ]
    until(lambda: len(here.pids("tree")) == 3 and len(here.pids("command")) == 2)
    pids = here.pids("tree") + here.pids("command")
    assert alive(pids) == pids
    for job in jobs:
        job.cancel()
    for job in jobs:
        assert here.await_state(job, "CANCELLED", "FAILED", "COMPLETED") == "CANCELLED"
    assert alive(pids) == [], "the job ended before its processes did"
    assert here.findings() == []


def test_a_stop_reaches_work_whose_worker_was_just_killed(here: Site) -> None:
    """The request is stored with the job, so it does not matter who is there to hear it."""
    first = here.start()
    cancelled, interrupted = here.enqueue("waits.async", "one"), here.enqueue("waits.process", "two")
    here.await_began("one")
    here.await_began("two")
    first.kill()
    cancelled.cancel()
    interrupted.interrupt()
    here.start(slots=0)
    assert here.await_state(cancelled, "CANCELLED", "FAILED") == "CANCELLED"
    assert here.await_state(interrupted, "PAUSED", "FAILED") == "PAUSED"
    assert here.kinds(cancelled)[-1] == "job.cancelled"
    interrupted.cancel()
    assert here.findings() == []


def test_work_that_blocks_its_loop_is_ended_by_its_timeout_with_its_process(here: Site) -> None:
    """The innocent job beside it costs no attempt, and both run again in the process that comes next."""
    soon = {"STUCK_AFTER": 0.3, "STOPPING_SECONDS": 0.1}
    worker = here.start(**soon)
    beside = here.enqueue("waits.async", "beside", wishes={"retry": 1})
    here.await_began("beside")
    blocks = here.enqueue(
        "blocks.async", "blocks", wishes={"timeout": 0.2, "retry": {"max_attempts": 1, "base_delay": 0}}
    )
    assert worker.wait() == 70
    assert here.lines("blocks.ended") == []
    assert (beside.status, beside.row.failure_kind) == ("FAILED", "INTERRUPTED")
    for name in ("beside", "blocks"):
        here.go(name)
    here.start()
    assert here.await_state(blocks, "FAILED", "COMPLETED") == "FAILED"
    assert blocks.row.failure_kind == "TIMEOUT"
    for job in (beside, blocks):
        assert here.await_state(here.await_retry(job), "COMPLETED", "FAILED") == "COMPLETED"
    assert here.findings() == []
