"""Workers at bad moments: given up or stopped while they claim, an answer lost while a child is stored."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway import App
from headway.engine import supervisor as supervising
from headway.engine.execution import process_tree
from headway.engine.maintenance.recovery import Recovery
from headway.engine.supervisor import Supervisor
from headway.engine.worker import heartbeat
from headway.engine.worker.config import WorkerConfig
from headway.engine.worker.life import WorkerState
from headway.engine.worker.worker import Worker
from headway.errors import CommitUnknown, Unreachable
from headway.store import workers
from headway.store.db import open_database
from headway.store.postgres import database
from tests.support import tasks_for_worker
from tests.support.gates import Gated
from tests.support.life import TASK, Life
from tests.support.survivors import unkillable
from tests.support.waiting import until

SECONDS = 55.0
LEASE = 9.0


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    one = App(database=database_url)
    for name in ("add", "plain", "dies_beside"):
        one.task(name)(tasks_for_worker.app.tasks[name].function)
    with one:
        yield one


def given_up(app: App, worker: Worker) -> None:
    app.database.transact("give_up", lambda tx: workers.retire(tx, worker.who.id, "silent"))


def test_a_worker_that_was_given_up_claims_nothing(app: App) -> None:
    """Nobody would watch over the lease of such a claim: it would be lost while its work runs."""
    worker = Worker(app.database, app.registry, WorkerConfig())
    app.database.transact("register", worker._register)
    given_up(app, worker)
    job = app.tasks["add"].enqueue(a=1, b=2)
    worker.tick()
    assert job.status == "QUEUED"
    assert not worker.pool.running


def test_a_worker_that_cannot_renew_because_it_was_given_up_ends(app: App) -> None:
    worker = Worker(app.database, app.registry, WorkerConfig())
    app.database.transact("register", worker._register)
    given_up(app, worker)
    worker.lease.renew()
    assert worker.state is WorkerState.LOST
    assert worker.ended.is_set()


def test_what_is_claimed_when_the_end_is_asked_for_is_finished(app: App) -> None:
    """Nothing runs yet when the signal comes, but the claim is under way."""
    claiming, go_on = threading.Event(), threading.Event()
    wishes = WorkerConfig()

    class Slow(Worker):
        def _hand_over(self, fresh: Any) -> None:
            claiming.set()
            assert go_on.wait(SECONDS)
            super()._hand_over(fresh)

    supervisor = Supervisor(
        make_worker=lambda: Slow(app.database, app.registry, wishes), recovery=Recovery(app.database)
    )
    supervisor.start()
    job = app.tasks["add"].enqueue(a=1, b=2)
    assert claiming.wait(SECONDS)
    ending = threading.Thread(target=supervisor.stop)
    ending.start()
    until(lambda: supervisor.worker is not None and supervisor.worker.state is WorkerState.DRAINING)
    ending.join(0.2)
    go_on.set()
    ending.join(SECONDS)
    assert job.status == "COMPLETED"


@pytest.mark.parametrize("where", ["worker", "recovery"])
def test_a_start_that_has_no_room_for_a_thread_goes_on_later(
    app: App, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One part is at work already, and there is one worker, not two."""
    monkeypatch.setattr(supervising, "BACKOFF", 0.01)
    start, refused = threading.Thread.start, [0]

    def cramped(thread: threading.Thread) -> None:
        if thread.name == f"headway-{where}" and refused[0] < 2:
            refused[0] += 1
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", cramped)
    made = Supervisor(
        make_worker=lambda: Worker(app.database, app.registry, WorkerConfig()),
        recovery=Recovery(app.database, interval=3600),
    )
    running = threading.Thread(target=made.run)
    running.start()
    try:
        job = app.tasks["add"].enqueue(a=1, b=2)
        until(lambda: job.row.status.terminal or not running.is_alive())
        assert job.status == "COMPLETED"
        assert refused == [2]
        until(lambda: len(made.started) == 1)
        with app.database.read() as tx:
            assert len(workers.live(tx)) == 1
    finally:
        made.wanted.set()
        running.join(SECONDS)
    assert not running.is_alive()


def test_a_lost_answer_while_a_child_is_stored_costs_no_attempt(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(app.database, app.registry, WorkerConfig(slots=1))
    transact, lost = app.database.transact, threading.Event()

    def unsure(label: str, work: Any, *args: Any, **wishes: Any) -> Any:
        answer = transact(label, work, *args, **wishes)
        if label == "adopt" and not lost.is_set():
            lost.set()
            raise CommitUnknown("the answer was lost")
        return answer

    monkeypatch.setattr(app.database, "transact", unsure)
    worker.register()
    worker.start()
    try:
        job = app.tasks["plain"].enqueue(word="once")
        until(lambda: job.row.status.terminal)
        assert job.status == "COMPLETED"
        assert lost.is_set()
    finally:
        worker.drain()
        worker.stop()
        worker.join(SECONDS)
        worker.close()


def test_nothing_is_claimed_before_the_heartbeat_is_up(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work that holds the interpreter from its first moment loses a lease that nobody renews yet. On a busy machine
    the heartbeat may take longer to start than a short lease lasts: the worker renews it, and others leave it alone."""
    up = tmp_path / "up"
    slow = f"import os, time\nwhile not os.path.exists({str(up)!r}): time.sleep(0.01)\n"
    monkeypatch.setattr(heartbeat, "_BOOT", slow + heartbeat._BOOT)
    worker = Worker(app.database, app.registry, WorkerConfig(slots=1, lease=LEASE, heartbeat=0.5))
    recovery = Recovery(app.database)
    worker.register()
    worker.start()
    try:
        job = app.tasks["plain"].enqueue(word="later")
        began = time.monotonic()
        until(lambda: recovery.tick() and time.monotonic() - began > LEASE + 0.5)
        assert job.status == "QUEUED"
        up.touch()
        until(lambda: job.row.status.terminal)
        assert job.status == "COMPLETED"
        with app.database.read() as tx:
            assert workers.lives(tx, worker.who.id)
    finally:
        up.touch()
        worker.drain()
        worker.stop()
        worker.join(SECONDS)
        worker.close()


def test_a_stalled_holder_of_the_claim_lock_does_not_stop_the_others(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is frozen, or cut off, in the middle of a claim: its transaction ends without it."""
    monkeypatch.setattr(database, "IDLE_SECONDS", 3)
    frozen = Gated(postgres_url)
    with Life(postgres_url, database=open_database(postgres_url)) as life:
        job_id = life.enqueue()
        gate = frozen.gate("turn:take")
        app = App(database=postgres_url)
        app.task(TASK)(tasks_for_worker.add.function)
        stalled = Worker(frozen, app.registry, WorkerConfig())
        frozen.transact("register", stalled._register)
        turn = threading.Thread(target=stalled.safely)
        turn.start()
        assert gate.reached.wait(SECONDS)
        picked: list[int] = []
        other = threading.Thread(target=lambda: picked.extend(life.pick(1)), daemon=True)
        other.start()
        other.join(0.8 * SECONDS)
        gate.open.set()
        turn.join(SECONDS)
        frozen.close()
    assert picked == [job_id]


def test_work_that_waits_for_a_database_to_begin_can_be_stopped(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a worker whose work has all stopped would not know it, and would be ended for it."""
    worker = Worker(app.database, app.registry, WorkerConfig(slots=1))
    transact, waiting = app.database.transact, threading.Event()

    def away(label: str, work: Any, *args: Any, **wishes: Any) -> Any:
        if label == "adopt":
            waiting.set()
            raise Unreachable("the database is away")
        return transact(label, work, *args, **wishes)

    monkeypatch.setattr(app.database, "transact", away)
    worker.register()
    worker.start()
    try:
        first = app.tasks["plain"].enqueue(word="first")
        assert waiting.wait(SECONDS)
        worker.lease.abandon("the worker could not renew its lease")
        until(lambda: first.status == "FAILED")
        assert (first.row.failure_kind, first.row.reason) == ("INTERRUPTED", "never began")
        monkeypatch.undo()
        second = app.tasks["plain"].enqueue(word="second")
        until(lambda: second.row.status.terminal)
        with app.database.read() as tx:
            stored = [pid for _, _, pid, *_ in tx.run("processes_of", worker_id=worker.who.id)]
        assert stored == [second.result()["pid"]], "user code ran in a process that nobody had stored"
    finally:
        worker.drain()
        worker.stop()
        worker.join(SECONDS)
        worker.close()


def reported(app: App, job_id: int) -> bool:
    with app.database.read() as tx:
        return bool(tx.run("read_report", job_id=job_id))


def test_a_worker_that_was_given_up_is_not_replaced_while_its_work_goes_on(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may run that work by now: a process that cannot stop it ends itself."""

    class Left(Exception):
        pass

    def leave(*_: object) -> None:
        raise Left

    app.task("deaf")(tasks_for_worker.deaf.function)
    supervisor = Supervisor(
        make_worker=lambda: Worker(app.database, app.registry, WorkerConfig(heartbeat=0.1)),
        recovery=Recovery(app.database, interval=3600),
    )
    monkeypatch.setattr(supervisor, "_leave", leave)
    supervisor.start()
    worker = supervisor.worker
    assert worker is not None
    job = app.tasks["deaf"].enqueue()
    until(lambda: reported(app, job.id))  # asked any earlier, it would be stopped before it begins
    given_up(app, worker)
    until(worker.ended.is_set)
    with pytest.raises(Left):
        supervisor._replace(worker)
    supervisor.recovery.stop()
    worker.close()


def test_a_job_whose_processes_cannot_be_ended_is_held_and_never_retried(app: App) -> None:
    """Its processes may still act. They are ended when they can be, after the end of the worker."""
    worker = Worker(app.database, app.registry, WorkerConfig(slots=1))
    worker.register()
    worker.start()
    try:
        with unkillable():
            job = app.tasks["dies_beside"].enqueue()
            until(lambda: job.status == "ERROR")
        assert job.row.failure_kind == "LOST"
        assert "its processes could not be ended" in (job.row.reason or "")
        with app.database.read() as tx:
            assert tx.run("any_retry", id=job.id) == []
            ((left, *_),) = tx.run("processes_of", worker_id=worker.who.id)
        assert process_tree.members(left) != []
        assert app.tasks["plain"].enqueue(word="next").result(SECONDS)["word"] == "next"
    finally:
        worker.drain()
        worker.stop()
        worker.join(SECONDS)
        worker.close()
    recovery = Recovery(app.database)
    until(lambda: recovery.tick() and process_tree.members(left) == [])
    assert job.status == "ERROR"
