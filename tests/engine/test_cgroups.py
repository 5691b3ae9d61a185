"""Control groups: daemons that left session and environment behind are found by the group of their task process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from headway.engine.execution import cgroups, process_tree
from headway.engine.execution.child_process import Child
from headway.engine.execution.context import WorkItem
from headway.model.jobs.outcome import Failed
from tests.engine.test_child import Recorder
from tests.support.deadlines import read_line
from tests.support.waiting import until
from tests.system.test_daemons import read_pids

TASKS = "tests.support.tasks_with_daemons"
DEADLINE = 55.0

# Starts a child and its work, says the child's pid and tag, and waits to be killed.
_WORKER = f"""
import sys, threading
from headway.engine.execution.context import WorkItem
from headway.engine.execution.child_process import Child
from tests.engine.test_child import Recorder
child = Child.start()
work = WorkItem(1, "daemon.leave", 1, 1, {{"fifo": sys.argv[1], "death": "kill"}}, module={TASKS!r})
threading.Thread(target=child.run, args=(work, Recorder())).start()
print(child.pid, child.tag, flush=True)
"""


def allowed() -> bool:
    """Whether this process may divide its group, asked in another way than the product asks: by trying."""
    own = next(line.split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text().splitlines() if line[:1] == "0")
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    places = [fields[1] for fields in mounts if fields[2] == "cgroup2"]
    if own != "/" or not places:
        return False
    try:
        probe = Path(places[0], f"probe-{os.getpid()}")
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return True


@contextmanager
def roster(folder: Path) -> Iterator[tuple[str, int]]:
    """A pipe that every process of the tree holds open."""
    path = folder / "roster"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield str(path), reading
    finally:
        os.close(reading)


def ended(reading: int) -> bool:
    """Whether no process holds the pipe any more. A pipe that is held and empty has nothing to read."""
    try:
        return os.read(reading, 4096) == b""
    except BlockingIOError:
        return False


def test_a_group_is_made_where_the_system_allows_it() -> None:
    child = Child.start()
    try:
        assert cgroups.pids(child.tag) == ({child.pid} if allowed() else set())
        assert child.tag in process_tree.tags_at_work()
    finally:
        child.close()
    assert cgroups.pids(child.tag) == set()
    assert child.tag not in cgroups.tags()


@pytest.mark.parametrize("death", ["exit", "kill", "crash"])
def test_daemons_end_with_a_task_process_that_died(tmp_path: Path, death: str) -> None:
    if not allowed():
        assert not cgroups.enter(process_tree.new_tag(), os.getpid())
        return
    process_tree.libc().prctl(36, 0, 0, 0, 0)  # an earlier command may have made this process a subreaper
    assert not process_tree.is_subreaper()  # so it is the group by which they are found
    child = Child.start()
    with roster(tmp_path) as (path, reading), ThreadPoolExecutor(1) as pool:
        work = WorkItem(1, "daemon.leave", 1, 1, {"fifo": path, "death": death}, module=TASKS)
        outcome = pool.submit(child.run, work, Recorder())
        daemons = read_pids(reading, 2)
        assert {child.pid, *daemons} <= cgroups.pids(child.tag)
        Path(f"{path}.go").touch()
        assert isinstance(outcome.result(DEADLINE), Failed)
        assert ended(reading), f"{daemons} outlived their task"
    assert child.tag not in cgroups.tags()


def test_recovery_finds_daemons_whose_worker_died_too(tmp_path: Path) -> None:
    if not allowed():
        return
    with roster(tmp_path) as (path, reading):
        worker = subprocess.Popen([sys.executable, "-c", _WORKER, path], stdout=subprocess.PIPE, cwd=os.getcwd())
        try:
            assert worker.stdout is not None
            pid, tag = read_line(worker.stdout, "the child", seconds=DEADLINE).decode().split()
            daemons = read_pids(reading, 2)
            os.kill(int(pid), signal.SIGSTOP)  # or it would end them when its parent dies
        finally:
            worker.kill()
            worker.communicate(timeout=DEADLINE)
        os.kill(int(pid), signal.SIGKILL)
        until(lambda: process_tree.start_time(int(pid)) is None, "the end of the task process")
        assert not ended(reading), "the daemons ended by themselves: the test shows nothing"
        assert tag in process_tree.tags_at_work()
        assert set(process_tree.members(tag)) == set(daemons)
        assert process_tree.end_tree(tag, grace=0)
        assert ended(reading)
    assert tag not in process_tree.tags_at_work()
