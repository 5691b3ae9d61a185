"""A job sees a process as new, whatever the job before it in the same slot did to its process."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway import App
from headway.engine.execution.child_process import Child
from headway.engine.execution.context import WorkItem
from headway.model.jobs.outcome import Outcome
from tests.engine.test_child import Recorder, result_of
from tests.support.figures import Figure
from tests.support.tasks_for_dirt import DIRT

TASKS = "tests.support.tasks_for_dirt"
MAKERS = "tests.support.tasks_for_waiting"
# What cannot be taken back without harm: the process ends with the job.
REPLACED = {
    "no_subreaper",
    "audit_hook",
    "closed_input",
    "daemon_thread",
    "descriptor",
    "fork_hook",
    "inherited_descriptor",
    "no_new_privileges",
    "other_output",
    "pending_signal",
    "raw_thread",
    "wakeup_descriptor",
}
# What only a privileged process can take back.
BY_PRIVILEGE = {"hard_limit", "nice", "oom_score", "scheduling"}


class Slot:
    """One place of a worker: a warm child, and a new one when it cannot be used again."""

    def __init__(self) -> None:
        self.child = Child.start()
        self.sink = Recorder()

    def run(self, task: str, **params: object) -> Outcome:
        if not self.child.usable:
            self.child.close()
            self.child = Child.start()
        self.sink = Recorder()
        work = WorkItem(job_id=7, task=task, fence=3, attempt=1, params=params, module=TASKS)
        return self.child.run(work, self.sink, grace=1.0)

    def result(self, task: str, **params: object) -> object:
        return result_of(self.run(task, **params))


@pytest.fixture(scope="module")
def slot() -> Iterator[Slot]:
    slot = Slot()
    yield slot
    slot.child.close()


@pytest.mark.parametrize("kind", sorted(DIRT))
def test_dirt_is_gone_for_the_next_job(slot: Slot, tmp_path: Path, kind: str, figure: Figure) -> None:
    folder = str(tmp_path)
    clean = slot.result("look", kind=kind, folder=folder)
    assert slot.result("soil", kind=kind, folder=folder) != clean, "the task did not make any dirt"
    assert kind in BY_PRIVILEGE or slot.child.usable == (kind not in REPLACED)
    assert slot.result("look", kind=kind, folder=folder) == clean
    figure("kinds of dirt in a task's process, gone for the next job", 1)


def test_there_are_forty_kinds(slot: Slot) -> None:
    assert len(DIRT) >= 40


@pytest.mark.parametrize("task", ["take_all_descriptors", "break_listdir"])
def test_a_task_that_returned_is_completed_although_the_clean_up_fails(slot: Slot, task: str) -> None:
    """The job was recorded FAILED, and with a retry policy its work was done again."""
    assert slot.result(task) == "returned"
    assert slot.result("sleep", seconds=0.0) == "slept"


def test_an_alarm_does_not_kill_the_next_job(slot: Slot, tmp_path: Path) -> None:
    for kind in ("alarm", "dump_later"):
        slot.result("soil", kind=kind, folder=str(tmp_path))
    assert slot.result("sleep", seconds=0.1) == "slept"


def test_all_dirt_at_once(slot: Slot, tmp_path: Path) -> None:
    folder = str(tmp_path)
    clean = {kind: slot.result("look", kind=kind, folder=folder) for kind in sorted(DIRT)}
    slot.run("soil_all", kinds=sorted(DIRT), folder=folder)
    assert {kind: slot.result("look", kind=kind, folder=folder) for kind in sorted(DIRT)} == clean


def test_ordinary_work_keeps_its_child_and_says_nothing(slot: Slot) -> None:
    first = slot.result("clean")
    assert [slot.result("clean") for _ in range(3)] == [first] * 3
    assert slot.sink.logged() == []
    imported = slot.result("lazy_import")
    assert slot.result("lazy_import") == imported, "a module that a job imports stays"
    assert slot.result("clean") == first


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("daemon_thread", "the task left 1 thread running: its process is ended"),
        ("descriptor", "the task left 1 file open ({folder}): its process is ended"),
        ("closed_input", "the task closed or replaced a file of its process: its process is ended"),
        ("nice", None),
        ("umask", None),
    ],
)
def test_the_log_says_what_the_owner_should_know(slot: Slot, tmp_path: Path, kind: str, said: str | None) -> None:
    slot.run("soil", kind=kind, folder=str(tmp_path))
    assert slot.sink.logged("WARNING") == ([said.format(folder=tmp_path)] if said else [])


def test_a_file_left_open_is_unlocked(slot: Slot, tmp_path: Path) -> None:
    slot.run("lock_of_a_file", folder=str(tmp_path))
    with open(tmp_path / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_exit_hooks_run_at_the_end_of_their_job(slot: Slot, tmp_path: Path) -> None:
    first = slot.result("exit_hook", folder=str(tmp_path))
    assert slot.sink.logged() == ["the hook ran"]
    assert (tmp_path / "hooks").read_text() == "ran\n"
    assert slot.result("clean") == first
    slot.result("exit_hook", folder=str(tmp_path), fails=True)
    assert "ValueError: the hook is broken" in slot.sink.logged("WARNING")[0]
    slot.child.close()
    assert (tmp_path / "hooks").read_text() == "ran\n" * 2


def test_a_job_that_enqueues_keeps_its_child(database_url: str) -> None:
    """The database that its app opens is closed with the job, and is not a file left open."""
    child = Child.start(env={**os.environ, "HEADWAY_DATABASE": database_url})
    sink = Recorder()
    made: list[Any] = []
    for word in ("one", "two", "three"):
        work = WorkItem(job_id=7, task="maker", fence=3, attempt=1, params={"word": word}, module=MAKERS)
        made.append(result_of(child.run(work, sink)))
    assert len(set(made)) == 3
    assert child.usable
    assert sink.logged() == []
    child.close()
    with App(database_url) as app:
        assert [app.job(number).status for number in made] == ["QUEUED"] * 3
