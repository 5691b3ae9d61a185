"""More lost claims than one transaction settles: one round settles all of them, whatever stands in front."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest

from headway import App
from headway.engine.client import limits
from headway.engine.execution import process_tree
from headway.engine.maintenance.recovery import BATCH, Recovery
from headway.model.jobs.job import SYSTEM
from headway.model.queue.policies import Concurrency
from headway.store import workers
from headway.store.db import Database, open_database
from headway.verify import check
from tests.support import committed, tasks_for_worker
from tests.support.figures import Figure
from tests.support.waiting import at_once
from tests.system.support.record import dump

PROOF = bool(os.environ.get("HEADWAY_PROOF"))
MANY = 10_000 if PROOF else 600
# Two leases and a recovery interval, by default.
BOUND = 150.0
NO_PROCESS = 2**22 - 1


@contextmanager
def serving(url: str) -> Iterator[App]:
    app = App(database=url)
    app.task("add")(tasks_for_worker.add.function)
    limits.settle(app.database, Concurrency(limit=None), {}, actor=SYSTEM, adopt=True)
    with app:
        yield app


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with serving(database_url) as app:
        yield app


def lose(app: App, count: int, *, worker_id: int = 77) -> list[int]:
    """So many jobs of a worker of this host whose process is gone."""
    ids = [job.id for job in app.tasks["add"].enqueue_many([{"a": 1, "b": n} for n in range(count)])]
    who = workers.Identity(worker_id, process_tree.host(), process_tree.boot_id(), NO_PROCESS, 1)
    app.database.transact(
        "register", lambda tx: workers.register(tx, who, SYSTEM, slots=count, tasks=["add"], lease=60.0)
    )
    for first in range(0, count, 500):
        part = ids[first : first + 500]
        slots = range(first, first + len(part))
        app.database.transact("turn", committed.take, worker_id, SYSTEM, part, slots)
    return ids


def running(database: Database) -> int:
    with database.read() as tx:
        return len(tx.run("orphans", worker_id=-1, slot=-1, limit=MANY))


def test_one_round_settles_them_all(app: App, figure: Figure) -> None:
    lose(app, MANY)
    recovery, began = Recovery(app.database), time.monotonic()
    recovery.tick()
    took = time.monotonic() - began
    figure(f"{app.database.dialect}: {recovery.recovered} lost claims settled in {took:.1f} s")
    assert recovery.recovered == MANY
    assert took < BOUND
    assert not running(app.database)
    assert not check(app.database).findings
    before = dump(app.database)
    again = Recovery(app.database)
    again.tick()
    assert again.recovered == 0
    assert dump(app.database) == before


def test_one_look_finds_the_processes_of_all_of_them(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at all processes takes tens of milliseconds: one for each of thousands would take longer than a lease."""
    lose(app, BATCH)
    tag, ended = process_tree.new_tag(), process_tree.end_tree
    looks: list[str] = []

    def end_tree(tag: str, **how: Any) -> bool:
        looks.append(tag)
        return ended(tag, **how)

    monkeypatch.setattr(process_tree, "end_tree", end_tree)
    with subprocess.Popen(["sleep", "600"], env={**os.environ, process_tree.TAG: tag}) as left:
        for slot, one in enumerate([*(process_tree.new_tag() for _ in range(BATCH - 1)), tag]):
            adopt = partial(workers.adopt, worker_id=77, slot=slot, tag=one, pid=left.pid, process_start=1)
            app.database.transact("adopt", adopt)
        recovery = Recovery(app.database)
        recovery.tick()
        assert left.wait(30.0) == -signal.SIGKILL
    assert looks == [tag]
    assert recovery.recovered == BATCH
    with app.database.read() as tx:
        assert not tx.run("processes_of", worker_id=77)


def test_two_recoverers_settle_each_claim_once(app: App, database_url: str) -> None:
    lose(app, 4 * BATCH)
    both = [Recovery(open_database(database_url)) for _ in range(2)]
    for ended in at_once([recovery.tick for recovery in both]):
        ended.result()
    for recovery in both:
        recovery.database.close()
    Recovery(app.database).tick()  # what one of them had in hand when the other came by
    assert sum(recovery.recovered for recovery in both) <= 4 * BATCH
    assert not running(app.database)
    assert not check(app.database).findings


def test_claims_that_cannot_be_settled_do_not_hide_the_others(postgres_url: str) -> None:
    """Another process has the first batches in hand, for longer than a round."""
    with serving(postgres_url) as app:
        ids = lose(app, 3 * BATCH)
        with psycopg.connect(postgres_url) as other:
            other.execute("select 1 from hw_job where id = any(%s) for update", [ids[: 2 * BATCH]])
            recovery = Recovery(app.database)
            recovery.tick()
            assert recovery.recovered == BATCH
        recovery.tick()
        assert recovery.recovered == 3 * BATCH
        assert not check(app.database).findings
