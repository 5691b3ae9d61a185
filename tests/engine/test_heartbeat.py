"""The heartbeat on its own: it judges a lease also while the database does not answer, and ends with its worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import apsw
import psycopg
import pytest

from headway.engine.execution import process_tree
from tests.support.deadlines import read_line
from tests.support.life import Life
from tests.support.waiting import until

LEASE = 7.5  # from being told to being ended a sixth of it passes: more than a busy machine needs
# A worker that does nothing but listen; `stops`: it says that it has stopped its work; `forks`: it leaves a process;
# `idle`: it has no work before the first beat, however long the heartbeat takes to start.
WORKER = """
import json, os, sys, time
from headway.engine.worker.heartbeat import Heartbeat
def hear(said):
    print(json.dumps(said), flush=True)
    if "late" in said and "stops" in sys.argv:
        heartbeat.reassure()
heartbeat = Heartbeat({**json.loads(sys.argv[1]), "pid": os.getpid()}, hear, idle="idle" in sys.argv)
print(json.dumps({"heartbeat": heartbeat.process.pid}), flush=True)
if "forks" in sys.argv and os.fork() == 0:
    os.close(1)
    time.sleep(60)
    os._exit(0)
for line in sys.stdin:
    heartbeat.reassure(time.monotonic())
"""


@pytest.fixture
def life(database_url: str) -> Iterator[Life]:
    with Life(database_url) as one:
        yield one


@contextmanager
def worker(life: Life, *wishes: str) -> Iterator[subprocess.Popen[str]]:
    facts = {"worker_id": life.worker_id, "lease": LEASE, "heartbeat": 0.2, "database": life.url, "listen": None}
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, json.dumps(facts), *wishes],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)


@contextmanager
def silent(life: Life) -> Iterator[None]:
    """The database takes what the heartbeat sends, and does not answer."""
    if life.database.dialect == "sqlite":
        connection = apsw.Connection(life.url)
        connection.execute("begin immediate")
        yield
        connection.close()
    else:
        with psycopg.connect(life.url) as other:
            other.execute("select 1 from hw_worker for update")
            yield


def hears(process: subprocess.Popen[str], what: str) -> Any:
    while line := read_line(process.stdout, f"word of {what}"):
        if what in (said := json.loads(line)):
            return said[what]
    raise AssertionError(f"the worker ended and never heard of {what}")


def test_a_database_that_does_not_answer_does_not_hide_that_the_lease_runs_out(life: Life) -> None:
    with worker(life, "stops", "idle") as process:
        beat = hears(process, "beat")
        with silent(life):
            assert hears(process, "late") < LEASE
            assert time.monotonic() - beat < LEASE
            until(lambda: time.monotonic() - beat > LEASE)
            assert process.poll() is None, "it had stopped its work and was ended nevertheless"
        assert hears(process, "beat") > beat


def test_a_worker_that_does_not_stop_is_ended_within_its_lease(life: Life) -> None:
    with worker(life, "idle") as process:
        beat = hears(process, "beat")
        with silent(life):
            assert process.wait(30) == -signal.SIGKILL
            assert time.monotonic() - beat < LEASE + 1.0


def test_a_worker_without_work_is_not_ended_because_the_first_beat_is_late(life: Life) -> None:
    with silent(life), worker(life, "idle") as process:
        hears(process, "heartbeat")
        started = time.monotonic()
        until(lambda: time.monotonic() - started > LEASE + 1.0)
        assert process.poll() is None
    with worker(life, "idle") as process:
        hears(process, "beat")
        with silent(life):
            assert process.wait(30) == -signal.SIGKILL, "from the first beat on it is judged like any other"


def test_a_lease_that_the_worker_renewed_itself_is_judged_anew(life: Life) -> None:
    """Late once, renewed by the worker, late again: the worker hears of it both times."""
    with worker(life, "idle") as process:
        hears(process, "beat")
        with silent(life):
            hears(process, "late")
            assert process.stdin is not None
            process.stdin.write("renew\n")
            process.stdin.flush()
            assert hears(process, "late") < LEASE


def test_the_heartbeat_ends_with_its_worker_though_another_process_holds_its_pipe(life: Life) -> None:
    with worker(life, "forks", "idle") as process:
        pid = hears(process, "heartbeat")
        hears(process, "beat")
        process.kill()
        process.wait(60)
        until(lambda: process_tree.start_time(pid) is None, "the end of the heartbeat")
