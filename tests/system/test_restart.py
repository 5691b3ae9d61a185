"""`headway work` starts anew by itself, under the same number, when its work can neither go on nor be stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from headway import Job
from headway.store import worker_views
from tests.support.waiting import until as promptly
from tests.system.support import command_line, program
from tests.system.support.started import Program, Site, alive, site, until
from tests.system.test_leases import locked, lost

pytestmark = pytest.mark.alone

LEASE = 6.0
SOON: dict[str, float] = {"STUCK_AFTER": 0.3, "STOPPING_SECONDS": 0.1}


@pytest.fixture
def here(database_url: str, tmp_path: Path) -> Iterator[Site]:
    with site(database_url, tmp_path) as found:
        yield found


def start(
    here: Site,
    *args: str,
    lease: float = LEASE,
    environment: Mapping[str, str] = MappingProxyType({}),
    constants: Mapping[str, float] = MappingProxyType({}),
) -> Program:
    """`headway work`, or another command, as a user has it."""
    log = here.folder / f"program-{len(list(here.folder.glob('program-*')))}.log"
    command = [*(args or ("work",)), "--app", f"{program.__name__}:app", "--database", here.url]
    settings = {
        "LEASE": f"{lease}s",
        "HEARTBEAT": "0.5s",
        "RECOVERY_INTERVAL": "0.5s",
        "SLOTS": "8",
        "CONCURRENCY__LIMIT": "none",
    }
    ours = {f"HEADWAY_{name}": value for name, value in settings.items()}
    ours["PYTHONPATH"] = os.pathsep.join(sys.path)
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, str(command_line.__file__), json.dumps(dict(constants)), *command],
            env={**os.environ, **ours, **environment},
            cwd=here.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=out,
        )
    started = Program(process, log)
    here.stack.callback(started.end)
    return started


def incarnations(here: Site, worker: Program) -> list[Any]:
    """Those that the process had, the live one last."""
    with here.app.database.read() as tx:
        found = [one for one in worker_views.workers(tx) if one.pid == worker.pid]
    return sorted(found, key=lambda one: one.gone_at is None)


def starts(worker: Program) -> int:
    return worker.log.read_text().count("starts anew")


def ended_in_order(worker: Program) -> None:
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert "headway: stopped" in worker.log.read_text()


def test_a_worker_that_cannot_renew_and_cannot_stop_starts_anew(here: Site) -> None:
    """Async work blocks its loop while the database lets nobody write; another job's processes are deaf to signals."""
    worker = start(here)
    blocks = here.enqueue("blocks.async", "blocks")
    tree = here.enqueue("stubborn.process", "tree")
    here.await_began("blocks")
    until(lambda: len(here.pids("tree")) == 3)
    pids = here.pids("tree")
    beat = worker.heartbeat()
    assert beat is not None
    with locked(here):
        until(lambda: starts(worker) == 1)
        until(lambda: not alive([beat.pid]), 20.0)
        assert worker.process.poll() is None
    retry = lost(here, blocks)
    assert retry.row.attempt == 2
    assert alive(pids) == [], "the job was called lost before its processes were gone"
    lost(here, tree).cancel()
    here.go("blocks")
    assert here.await_state(retry, "COMPLETED", "FAILED") == "COMPLETED"
    assert here.lines("blocks.ended") == [[f"{retry.id}.1", "ended"]], "the old code went on"
    first, second = incarnations(here, worker)
    assert (first.pid, first.gone_at is None, second.gone_at) == (second.pid, False, None)
    gone = [data for number, kind, data in here.events("worker", first.id) if kind == "worker.gone"]
    assert [one["why"] for one in gone] == [f"worker {first.id:x} ended when its process {worker.pid} started anew"]
    until(lambda: "Z" not in {one.status()[:1].upper() for one in worker.tree()[1:]})
    ended_in_order(worker)
    assert here.findings() == []


def test_a_worker_with_nothing_left_but_work_that_does_not_stop_starts_anew(here: Site) -> None:
    """Twice at once is refused: a process that blocks again and again is left to what started it."""
    worker = start(here, lease=600.0, constants=SOON)
    wishes = {"timeout": 0.2, "retry": {"max_attempts": 3, "base_delay": 0}}
    blocks = here.enqueue("blocks.async", "blocks", wishes=wishes)
    retry = here.await_retry(blocks)
    assert (blocks.status, blocks.row.failure_kind) == ("FAILED", "TIMEOUT")
    assert starts(worker) == 1
    until(lambda: [one.gone_at is None for one in incarnations(here, worker)] == [False, True])
    until(lambda: "process started anew: only jobs that ignore" in (incarnations(here, worker)[0].note or ""))
    assert worker.wait() == 70
    assert starts(worker) == 1
    here.go("blocks")
    another = start(here)
    assert here.await_state(here.await_retry(retry), "COMPLETED", "FAILED") == "COMPLETED"
    assert retry.row.failure_kind == "TIMEOUT"
    ended_in_order(another)
    assert here.findings() == []


def test_a_stop_signal_during_a_restart_is_not_lost(here: Site) -> None:
    """It arrives before the new program has set its handlers."""
    worker = start(here, lease=600.0, constants=SOON)
    here.enqueue("blocks.async", "blocks", wishes={"timeout": 0.2, "retry": {"max_attempts": 0}})
    promptly(lambda: starts(worker) == 1)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


def test_a_restart_ends_the_timers_of_the_program_before(here: Site) -> None:
    """A timer survives exec, and its handler does not: the signal would kill the new program."""
    worker = start(here, lease=600.0, constants=SOON, environment={"TEST_SAMPLES": "1"})
    here.enqueue("blocks.async", "blocks", wishes={"timeout": 0.2, "retry": {"max_attempts": 0}})
    until(lambda: [one.gone_at is None for one in incarnations(here, worker)] == [False, True])
    job = here.enqueue("waits.async", "next")
    here.await_began("next")
    here.go("next")
    assert here.await_state(job, "COMPLETED", "FAILED") == "COMPLETED"
    assert worker.process.poll() is None


def test_a_command_line_worker_that_is_stopped_or_holds_the_interpreter_is_killed(here: Site) -> None:
    jobs: list[Job] = []
    workers = []
    for name in ("stopped", "held"):
        worker = start(here)
        jobs.append(
            here.enqueue("waits.process", name) if name == "stopped" else here.enqueue("holds.async", name, seconds=600)
        )
        here.await_began(name)
        workers.append(worker)
        if name == "stopped":
            worker.signal(signal.SIGSTOP)
            assert worker.wait() == -signal.SIGKILL
    (_, worker) = workers
    with locked(here):
        assert worker.wait() == -signal.SIGKILL
    assert [starts(worker) for worker in workers] == [0, 0]
    start(here)
    for name, job in zip(("stopped", "held"), jobs, strict=True):
        here.go(name)
        lost(here, job).cancel()
    assert here.findings() == []


def test_a_burst_ends_and_does_not_start_anew(sqlite_url: str, tmp_path: Path) -> None:
    with site(sqlite_url, tmp_path) as here:
        blocks = here.enqueue("blocks.async", "blocks", wishes={"timeout": 0.2, "retry": 0})
        worker = start(here, "work", "--burst", lease=600.0, constants=SOON)
        assert worker.wait() == 70
        assert starts(worker) == 0
        start(here, lease=600.0)
        assert here.await_state(blocks, "FAILED", "COMPLETED") == "FAILED"
        assert blocks.row.failure_kind == "TIMEOUT"
