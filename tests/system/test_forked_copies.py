"""Processes that thread and async tasks fork: they hold up no end, and go on with none of the worker's work."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.support.started import Site, alive, site, until

pytestmark = pytest.mark.alone


@pytest.fixture
def here(database_url: str, tmp_path: Path) -> Iterator[Site]:
    with site(database_url, tmp_path) as found:
        yield found


def test_a_worker_ends_although_a_process_that_its_task_forked_lives(here: Site) -> None:
    """The process holds the heartbeat's pipe open."""
    worker = here.start()
    job = here.enqueue("forks.thread", "left", returns=False)
    assert here.await_state(job, "COMPLETED", "FAILED") == "COMPLETED"
    pids = here.pids("left")
    try:
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert alive(pids) == pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    assert here.findings() == []


def test_a_copy_goes_on_with_no_work_of_the_worker(here: Site) -> None:
    worker = here.start()
    innocent = here.enqueue("tells.async", "innocent")
    until(lambda: len(here.lines("innocent.steps")) > 2)
    jobs = [here.enqueue("forks.async", f"async{n}") for n in range(3)]
    jobs += [here.enqueue("forks.thread", f"thread{n}", returns=True) for n in range(3)]
    for job in jobs:
        assert here.await_state(job, "COMPLETED", "FAILED") == "COMPLETED"
    pids = [pid for n in range(3) for kind in ("async", "thread") for pid in here.pids(f"{kind}{n}")]
    assert len(pids) == 6
    until(lambda: alive(pids) == [])
    here.go("innocent")
    assert here.await_state(innocent, "COMPLETED", "FAILED") == "COMPLETED"
    steps = here.lines("innocent.steps")
    assert {int(pid) for _, pid in steps} == {worker.pid}
    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
    assert [here.lines(f"async{n}.steps") for n in range(3)] == [[[str(worker.pid)]]] * 3
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert here.findings() == []
