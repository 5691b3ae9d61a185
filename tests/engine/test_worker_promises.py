"""Promises about workers, on both databases: limits over all of them, a heartbeat nothing starves, a graceful end."""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headway import App
from headway.engine.client import limits
from headway.engine.maintenance.recovery import Recovery
from headway.engine.supervisor import Supervisor
from headway.engine.worker.config import WorkerConfig
from headway.engine.worker.heartbeat import Heartbeat
from headway.engine.worker.life import WorkerState
from headway.engine.worker.worker import Worker
from headway.model.jobs.job import SYSTEM, Claim
from headway.model.jobs.outcome import Completed
from headway.model.queue.policies import Concurrency
from headway.testing import isolated
from headway.verify import check
from tests.support.life import Life
from tests.support.waiting import at_once, until

SECONDS = 55.0
app = App(database="never-opened.db")
begun = threading.Event()
gate = threading.Event()


@app.task("until.told")
async def until_told() -> str:
    begun.set()
    await asyncio.to_thread(gate.wait)
    return "done"


@app.task("for.ever", retry={"max_attempts": 1, "base_delay": "1h"})
async def for_ever() -> None:
    begun.set()
    await asyncio.Event().wait()


@app.task("never")
async def never() -> None:
    raise AssertionError("claimed after the end was asked for")


@pytest.fixture
def here(database_url: str, tmp_path: Path) -> Iterator[App]:
    begun.clear()
    gate.clear()
    with isolated(app, database_url) as one:
        yield one
        gate.set()
        assert check(one.database).findings == []


@pytest.fixture
def life(database_url: str) -> Iterator[Life]:
    with Life(database_url) as life:
        yield life


# --- limits and claims ---


def claim_some(life: Life, worker_id: int, count: int) -> list[Claim]:
    return life.database.transact("claim", lambda tx: life.claim_in(tx, range(count), worker_id))


def test_one_limit_holds_over_all_workers_and_each_job_is_claimed_once(life: Life) -> None:
    limits.settle(life.database, Concurrency(limit=3), {}, actor=SYSTEM, adopt=True)
    ids = [life.enqueue() for _ in range(9)]
    owners = [life.new_worker() for _ in range(6)]
    seen: list[int] = []
    while len(seen) < len(ids):
        taken = [
            (owner, claim)
            for owner, future in zip(owners, at_once([lambda w=w: claim_some(life, w, 2) for w in owners]), strict=True)  # type: ignore[misc]
            for claim in future.result()
        ]
        assert len(taken) == 3
        seen += [claim.job_id for _, claim in taken]
        for owner, claim in taken:
            assert life.end(claim, Completed("1"), worker_id=owner)
    assert sorted(seen) == ids
    assert check(life.database, quiet=True).findings == []


def test_a_claim_never_clears_a_stop_request(life: Life) -> None:
    job_id = life.enqueue()
    claim = life.claim(job_id)
    life.client.cancel(job_id)
    assert claim_some(life, life.new_worker(), 1) == []
    assert life.end(claim, Completed("1"))
    assert life.status(job_id) == "COMPLETED"


# --- the heartbeat ---


@contextmanager
def beating(life: Life, heard: list[dict[str, Any]]) -> Iterator[None]:
    wishes = {"worker_id": life.worker_id, "lease": 60.0, "heartbeat": 0.02, "database": life.url}
    heartbeat = Heartbeat({**wishes, "listen": None, "pid": 0}, heard.append)
    try:
        yield
    finally:
        heartbeat.close()


def beats(life: Life) -> int:
    return int(life.sql(f"select beat from hw_worker where id = {life.worker_id}")[0][0])


def test_the_lease_is_renewed_while_user_code_holds_the_interpreter(life: Life) -> None:
    heard: list[dict[str, Any]] = []
    with beating(life, heard):
        until(lambda: beats(life) > 0, "the first beat")
        made = 0
        for seconds in (0.5, 2.0, 10.0):  # longer only where the machine is too busy for three beats
            before = beats(life)
            ctypes.PyDLL(None).usleep(int(seconds * 1e6))  # PyDLL: no other thread of this process runs meanwhile
            if (made := beats(life) - before) >= 3:
                break
        assert made >= 3


def test_renewal_brings_stop_requests(life: Life) -> None:
    heard: list[dict[str, Any]] = []
    claim = life.claim(life.enqueue())
    with beating(life, heard):
        life.client.cancel(claim.job_id)
        wanted = [claim.job_id, claim.fence, "cancel"]
        until(lambda: any(wanted in said.get("stops", ()) for said in heard), "the stop request")


def test_a_worker_that_was_given_up_hears_so(life: Life) -> None:
    heard: list[dict[str, Any]] = []
    life.database.transact("give_up", lambda tx: tx.run("retire_worker", id=life.worker_id))
    with beating(life, heard):
        until(lambda: any(said.get("gone") for said in heard), "the bad news")
    assert beats(life) == 0


# --- the end ---


@contextmanager
def supervised(one: App, *, grace: float) -> Iterator[tuple[Supervisor, threading.Thread]]:
    wishes = WorkerConfig(slots=1, artifacts=one.settings.artifacts)
    supervisor = Supervisor(
        make_worker=lambda: Worker(one.database, one.registry, wishes), recovery=Recovery(one.database), grace=grace
    )
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    try:
        yield supervisor, thread
    finally:
        supervisor.on_signal()
        supervisor.on_signal()
        gate.set()
        thread.join(SECONDS)


def test_on_shutdown_running_jobs_finish_and_no_others_begin(here: App) -> None:
    job = until_told.enqueue()
    with supervised(here, grace=SECONDS) as (supervisor, thread):
        assert begun.wait(SECONDS)
        after = never.enqueue()
        supervisor.on_signal()
        until(lambda: supervisor.worker is not None and supervisor.worker.state is WorkerState.DRAINING)
        gate.set()
        thread.join(SECONDS)
    assert (job.status, job.result()) == ("COMPLETED", "done")
    assert after.status == "QUEUED"


def test_when_the_grace_is_over_the_rest_is_interrupted_and_retried_for_free(here: App) -> None:
    job = for_ever.enqueue()
    with supervised(here, grace=0.0) as (supervisor, thread):
        assert begun.wait(SECONDS)
        supervisor.on_signal()
        thread.join(SECONDS)
    kind = job.row.failure_kind
    assert (job.status, kind and kind.value, job.row.exhausted) == ("FAILED", "INTERRUPTED", 0)
    retry = here.job(job.id + 1)
    assert (retry.status, retry.row.retry_of) == ("QUEUED", job.id)


def test_without_retries_it_is_paused_instead(here: App) -> None:
    job = for_ever.using(retry=0).enqueue()
    with supervised(here, grace=0.0) as (supervisor, thread):
        assert begun.wait(SECONDS)
        supervisor.on_signal()
        thread.join(SECONDS)
    assert (job.status, job.row.reason) == ("PAUSED", "shutdown")


def test_a_second_signal_ends_the_grace(here: App) -> None:
    job = for_ever.using(on_shutdown="resume").enqueue()
    with supervised(here, grace=3600.0) as (supervisor, thread):
        assert begun.wait(SECONDS)
        supervisor.on_signal()
        supervisor.on_signal()
        thread.join(SECONDS)
    assert (job.status, job.row.fence, job.run is not None) == ("QUEUED", 1, True)
