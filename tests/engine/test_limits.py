"""The limit of the global lane: who may write it, and what the history says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from headway.engine.client.limits import Difference, SettledLimits, lives, living, settle
from headway.engine.worker.lease import new_identity
from headway.model.jobs.job import Actor
from headway.model.queue.policies import Concurrency
from headway.store import worker_views, workers
from headway.store.db import Database, open_database
from headway.store.migrations import migrate
from headway.verify import check

ADA = Actor("user", "1", "ada")


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = open_database(database_url)
    migrate(opened)
    yield opened
    opened.close()


def register(database: Database, who: workers.Identity, lease: float = 60.0) -> None:
    database.transact("register", lambda tx: workers.register(tx, who, ADA, slots=1, tasks=["t"], lease=lease))


def limit(stored: int | None, wished: int | None) -> Difference:
    return Difference("the limit of global", stored, wished)


def test_without_other_workers_the_settings_are_written(database: Database) -> None:
    assert settle(database, Concurrency(limit=1), {}, actor=ADA) == SettledLimits()
    assert settle(database, Concurrency(limit=3), {}, actor=ADA) == SettledLimits(changed=(limit(1, 3),))
    assert settle(database, Concurrency(limit=3), {}, actor=ADA) == SettledLimits()
    assert settle(database, Concurrency(limit=None), {}, actor=ADA) == SettledLimits(changed=(limit(3, None),))
    with database.read() as tx:
        events = tx.run("events_of", thing="lane", thing_id=1, after=0, limit=9)
    assert [(row[1], row[4], row[9]) for row in events] == [
        ("lane.changed", 2, '{"lane": "global", "capacity": 3}'),
        ("lane.changed", 3, '{"lane": "global", "capacity": null}'),
    ]
    assert check(database).findings == []


def test_beside_a_living_worker_the_database_wins(database: Database) -> None:
    register(database, new_identity())
    wished = Concurrency(limit=3)
    assert settle(database, wished, {}, actor=ADA) == SettledLimits(refused=(limit(1, 3),))
    assert settle(database, wished, {}, actor=ADA, adopt=True) == SettledLimits(changed=(limit(1, 3),))


def test_living_workers(database: Database) -> None:
    here = new_identity()
    register(database, here)
    register(database, replace(here, id=3, pid=1, process_start=1))  # on this machine, and its process is gone
    register(database, replace(here, id=5, host="elsewhere", pid=1))  # one cannot look there: its lease counts
    register(database, replace(here, id=7, host="elsewhere"), lease=-1.0)
    with database.read() as tx:
        assert sorted(worker.id for worker in living(tx)) == sorted([here.id, 5])
    database.transact("retire", lambda tx: workers.retire(tx, 5, "ended", actor=ADA))
    with database.read() as tx:
        assert [worker.id for worker in living(tx)] == [here.id]
        assert not any(lives(worker) for worker in worker_views.workers(tx) if worker.id != here.id)
