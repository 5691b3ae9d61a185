"""Exhausted descriptors, processes, memory and threads on every way to user code: the run never began.

The real system calls fail here with a chosen error, since a test cannot make the kernel run out of all of them.
`tests/system/test_hand_over.py` uses up the real descriptors and the memory of a worker.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headway import App
from headway.engine.execution import child_main, secrets
from headway.engine.execution.child_process import Child
from headway.engine.execution.exhausted import EXHAUSTED, NoRoom
from headway.engine.execution.outcome import failure_of
from headway.engine.worker import start_pause
from headway.engine.worker.worker import Worker
from headway.model.jobs.job import JobRecord
from headway.model.jobs.outcome import Completed, Failed, FailureKind, NeverBegan
from headway.runtime import worker
from headway.store.jobs import changes as jobs
from tests.engine.test_child import Recorder, work
from tests.support import tasks_for_room
from tests.support.waiting import until

ERRORS: list[BaseException] = [*(OSError(number, os.strerror(number)) for number in sorted(EXHAUSTED)), MemoryError()]
SYSTEM = ERRORS[:-1]
NO_THREAD: list[BaseException] = [RuntimeError("can't start new thread")]
LEAST = 2


class Fault:
    """Makes one function fail with one error while it is on, and counts how often."""

    def __init__(self, patch: pytest.MonkeyPatch, place: Any, name: str, only: Callable[..., bool]) -> None:
        self.error: BaseException | None = None
        self.times = 0
        real = getattr(place, name, None) or getattr(__import__("builtins"), name)

        def called(*args: Any, **named: Any) -> Any:
            if self.error is not None and only(*args):
                self.times += 1
                raise self.error
            return real(*args, **named)

        patch.setattr(place, name, called, raising=False)


def always(*_: object) -> bool:
    return True


def named(prefix: str) -> Callable[..., bool]:
    return lambda thread: str(thread.name).startswith(prefix)


# Each way to fail: the function, the calls of it that fail, the errors, and where work passes it.
FAULTS: dict[str, tuple[Any, str, Callable[..., bool], list[BaseException], tuple[str, ...]]] = {
    "fork": (subprocess, "_fork_exec", always, ERRORS, ("child",)),
    "pipe": (os, "pipe", always, SYSTEM, ("child",)),
    "sockets": (socket, "socketpair", always, SYSTEM, ("child",)),
    "pidfd": (os, "pidfd_open", always, SYSTEM, ("child",)),
    "secret": (secrets, "open", always, ERRORS, ("child", "thread", "async")),
    "loop": (asyncio, "new_event_loop", always, SYSTEM[:1], ("async",)),
    "slot": (threading.Thread, "start", named("headway-slot"), NO_THREAD, ("child", "thread")),
    "loop-thread": (threading.Thread, "start", named("headway-async"), NO_THREAD, ("async",)),
    "deadline": (threading.Thread, "start", named("headway-deadlines"), NO_THREAD, ("child", "thread", "async")),
}
CASES = [(kind, way) for kind, (*_, ways) in FAULTS.items() for way in ways]


@pytest.fixture
def app(database_url: str, tmp_path: Path) -> Iterator[App]:
    secret = tmp_path / "secret"
    secret.write_text("hush-hush")
    with App(database_url, secrets={"TOKEN": f"file:{secret}"}) as app:
        for spec in tasks_for_room.app.registry:
            if spec.name not in app.tasks:
                app.task(spec.name, isolation=None if spec.isolation == "async" else spec.isolation)(spec.function)
        yield app


@pytest.fixture
def busy(app: App, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """A worker that tries again much sooner than it usually does."""
    monkeypatch.setattr(start_pause, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(start_pause, "LONGEST_PAUSE", 0.02)
    made = worker(app, [])
    made.register()
    made.start()
    yield made
    made.drain()
    made.stop()
    made.join(30)
    made.close()


def chain(app: App, job_id: int) -> list[JobRecord]:
    with app.database.read() as tx:
        return jobs.chain(tx, job_id)


@pytest.mark.parametrize(("kind", "way"), CASES, ids=[f"{kind}-{way}" for kind, way in CASES])
def test_an_exhausted_machine_costs_no_attempt(
    app: App, busy: Worker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, way: str
) -> None:
    place, name, only, errors, _ = FAULTS[kind]
    fault = Fault(monkeypatch, place, name, only)
    for number, error in enumerate(errors):
        said = tmp_path / f"said-{number}"
        for runner in busy.pool.slot_runners.values():
            runner.rest()  # its child was warm
        fault.error, fault.times = error, 0
        job = app.tasks[f"room.{way}"].using(retry=0, timeout=60).enqueue(file=str(said), token={"$secret": "TOKEN"})
        until(lambda first=job.id: len(chain(app, first)) > LEAST, f"that {kind} was tried")  # type: ignore[misc]
        assert fault.times >= LEAST
        assert not said.exists()
        fault.error = None
        until(lambda first=job.id: chain(app, first)[-1].status.terminal, "that it ran")  # type: ignore[misc]
        *never, last = chain(app, job.id)
        assert {(one.failure_kind, one.reason, one.exhausted) for one in never} == {
            (FailureKind.INTERRUPTED, "never began", 0)
        }
        for one in never:
            run = app.job(one.id).run
            assert run is not None
            assert (run.error or "").startswith("never began: ")
        assert (last.status.name, last.exhausted) == ("COMPLETED", 0)  # although it may be attempted only once
        assert said.read_text() == "ran\n"
        assert app.job(last.id).result() == len("hush-hush")


def test_a_child_that_no_descriptor_is_left_for_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process was started already when its pidfd cannot be opened: neither it nor a descriptor stays."""
    Child.start().close()  # modules that it needs are imported
    before = sorted(os.listdir("/proc/self/fd"))
    fault = Fault(monkeypatch, os, "pidfd_open", always)
    started: list[int] = []
    real = subprocess.Popen.__init__

    def remembered(self: subprocess.Popen[bytes], *args: Any, **named: Any) -> None:
        real(self, *args, **named)
        started.append(self.pid)

    monkeypatch.setattr(subprocess.Popen, "__init__", remembered)
    fault.error = SYSTEM[0]
    with pytest.raises(OSError, match=os.strerror(SYSTEM[0].errno or 0)):  # type: ignore[attr-defined]
        Child.start()
    assert not os.path.exists(f"/proc/{started[0]}")
    assert sorted(os.listdir("/proc/self/fd")) == before


# --- the first import of a task -----------------------------------------------------------------------------------


def test_an_import_without_a_descriptor_never_began(tmp_path: Path) -> None:
    """The real limit of a child that waits for work: it has no descriptor for the file of the task."""
    (tmp_path / "wants_room.py").write_text(
        "from headway import App\napp = App()\n@app.task('late')\ndef late() -> int:\n    return 7\n"
    )
    sink = Recorder()
    child = Child.start(sys_path=[str(tmp_path), *sys.path])
    try:
        assert child.run(work("nothing"), sink) == Completed()
        limit = resource.prlimit(child.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(child.pid, resource.RLIMIT_NOFILE, (3, limit[1]))
        outcome = child.run(work("late", module="wants_room"), sink)
        assert isinstance(outcome, NeverBegan), outcome
        assert "Too many open files" in outcome.why
        assert not child.usable, "an earlier job may have used up what it lacks"
    finally:
        child.close()


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: getattr(error, "errno", None) or type(error).__name__)
def test_an_import_that_is_exhausted_never_began(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(child_main, "load_task", fails)
    with pytest.raises(NoRoom) as caught:
        child_main._load("some.module", "task")
    assert isinstance(failure_of(caught.value), NeverBegan)


@pytest.mark.parametrize("raised", ["OSError(24, 'Too many open files')", "MemoryError()"])
def test_a_module_that_uses_everything_up_itself_has_failed(tmp_path: Path, raised: str) -> None:
    """Its code had begun: repeated for ever, it would keep the worker from all other work."""
    (tmp_path / "greedy_module.py").write_text(f"raise {raised}\n")
    child = Child.start(sys_path=[str(tmp_path), *sys.path])
    try:
        outcome = child.run(work("any", module="greedy_module"), Recorder())
        assert isinstance(outcome, Failed)
        assert outcome.kind is FailureKind.UNKNOWN_TASK
    finally:
        child.close()


def test_other_errors_of_a_secret_are_the_jobs(app: App, busy: Worker, tmp_path: Path) -> None:
    """A file that is missing or closed to the worker stays so: the job fails, and is not repeated for ever."""
    (tmp_path / "secret").unlink()
    job = app.tasks["room.thread"].using(retry=0).enqueue(file=str(tmp_path / "said"), token={"$secret": "TOKEN"})
    until(lambda: job.row.status.terminal, "that it failed")
    assert (job.row.failure_kind, errno.ENOENT in EXHAUSTED) == (FailureKind.BAD_PARAMS, False)
