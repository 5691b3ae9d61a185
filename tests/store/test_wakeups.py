"""Who hears that work was made: everybody but the one that has looked already, and nobody twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from headway.engine.worker.finish import Ended, finish
from headway.model.jobs.outcome import Completed
from headway.store.db import Database, Tx
from headway.store.postgres.database import PostgresDatabase
from headway.store.postgres.notifications import PostgresWaiter
from tests.support.life import Life
from tests.support.plans import job_of, make
from tests.support.waiting import until


@pytest.fixture
def two(postgres_url: str) -> Iterator[tuple[PostgresDatabase, PostgresDatabase]]:
    ours, theirs = PostgresDatabase(postgres_url), PostgresDatabase(postgres_url)
    yield ours, theirs
    ours.close()
    theirs.close()


def waiting(database: Database) -> PostgresWaiter:
    """One that hears: whoever begins to listen is nudged once for what was before."""
    waiter = database.waiter()
    assert isinstance(waiter, PostgresWaiter)
    until(waiter.event.is_set, "a listener")
    waiter.event.clear()
    return waiter


def make_work(database: Database, by: PostgresWaiter | None = None) -> None:
    database.transact("work", Tx.wake, by=by)


def test_the_maker_of_work_is_not_woken_by_it(two: tuple[PostgresDatabase, PostgresDatabase]) -> None:
    ours, theirs = two
    maker, far = waiting(ours), waiting(theirs)
    beside = ours.waiter()
    assert isinstance(beside, PostgresWaiter)
    make_work(ours, by=maker)
    assert (maker.event.is_set(), beside.event.is_set()) == (False, True)
    until(far.event.is_set, "the other process")
    make_work(ours)
    assert maker.event.is_set()


def test_a_commit_stands_where_no_thread_can_be_started_to_tell_of_it(
    two: tuple[PostgresDatabase, PostgresDatabase], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that was told of a failure after its commit would not know what it holds."""
    ours, theirs = two
    far, start = waiting(theirs), threading.Thread.start

    def cramped(thread: threading.Thread) -> None:
        if thread.name == "headway-notify":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as cramping:
        cramping.setattr(threading.Thread, "start", cramped)
        make_work(ours)
    make_work(ours)
    until(far.event.is_set, "the other process")


def test_our_own_notification_wakes_nobody_again(two: tuple[PostgresDatabase, PostgresDatabase]) -> None:
    ours, theirs = two
    near = waiting(ours)
    assert ours.listener is not None
    hear, heard = ours.listener.hear, [""]

    def listen(by: str) -> None:
        near.event.clear()
        hear(by)
        heard.append(by if near.event.is_set() else "")

    ours.listener.hear = listen  # type: ignore[method-assign]
    make_work(ours)
    until(lambda: len(heard) == 2, "our own word")
    make_work(theirs)
    until(lambda: len(heard) == 3, "theirs")
    assert heard == ["", "", theirs.mark]


# --- what a turn lets go, and takes itself ---


def woken_by_a_turn(life: Life, waiter: PostgresWaiter, *stages: str) -> bool:
    """Whether a turn that ends the first step of a group, and claims one job, wakes others."""
    first = life.claim(job_of(life, make(life, *stages), "a"))
    waiter.event.clear()

    def turn(tx: Tx) -> None:
        assert finish(tx, life.worker_id, life.actor(), [Ended(first, Completed())]) == []
        assert len(life.claim_in(tx, [next(life.slots)])) == 1

    life.database.transact("turn", turn)
    return waiter.event.is_set()


def test_no_worker_is_woken_for_a_step_that_its_releaser_takes(postgres_url: str) -> None:
    with Life(postgres_url) as life:
        life.set_limit(None)
        waiter = waiting(life.database)
        assert not woken_by_a_turn(life, waiter, "a", "b", "c")
        assert woken_by_a_turn(life, waiter, "a", "b c")
