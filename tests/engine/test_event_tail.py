"""The tail of the events: every event once and in order, whoever commits when, however slow the reader."""

from __future__ import annotations

import asyncio
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from headway.engine.events.subscription import PAGE, EventFilter
from headway.engine.events.tail import RARELY, Reset, Subscription, Tail
from headway.engine.maintenance.pruner import Pruner
from headway.errors import Unreachable
from headway.model.event import Event
from headway.store import events
from headway.store.db import Database, Row, Tx, open_database
from headway.verify import check
from tests.support.life import Life
from tests.support.pair import Pair, kill
from tests.support.waiting import PATIENCE, at_once, until


@pytest.fixture
def life(database_url: str) -> Iterator[Life]:
    with Life(database_url) as life:
        yield life


@pytest.fixture
def pair(postgres_url: str) -> Iterator[Pair]:
    with Pair(postgres_url) as pair:
        yield pair


def taken(subscription: Subscription) -> list[Event]:
    """All that is there to get now."""
    found: list[Event] = []
    while (more := subscription.get(0)) is not None:
        assert isinstance(more, list), more
        found += more
    return found


def kinds(subscription: Subscription) -> list[tuple[str, int]]:
    return [(event.kind, event.thing_id) for event in taken(subscription)]


def stored(life: Life) -> list[int]:
    return [number for (number,) in life.sql("select id from hw_event order by id")]


def tick_until(tail: Tail, condition: Callable[[], object]) -> None:
    until(lambda: (tail.tick(), condition())[1])


@contextmanager
def running(tail: Tail) -> Iterator[Tail]:
    tail.start()
    try:
        yield tail
    finally:
        tail.stop()
        tail.join(PATIENCE)


# --- the stream ---


def test_events_come_in_order_from_now_on(life: Life) -> None:
    life.enqueue()
    tail = Tail(life.database)
    following = tail.subscribe()
    tail.tick()
    assert following.get(0) is None
    job_id = life.in_state("completed")
    tail.tick()
    assert kinds(following) == [("job.created", job_id), ("job.claimed", job_id), ("job.completed", job_id)]
    assert following.get(0) is None


def test_a_resumed_stream_gets_exactly_the_rest(life: Life) -> None:
    for _ in range(4):
        life.in_state("completed")
    numbers = stored(life)
    tail = Tail(life.database)
    for n, number in enumerate(numbers):
        following = tail.subscribe(number)
        assert [event.id for event in taken(following)] == numbers[n + 1 :]
        following.close()


def test_a_long_past_comes_in_pages_and_ends_in_the_present(life: Life) -> None:
    made = life.client.enqueue_alike(life.new(), ["{}"] * (2 * PAGE + 7))
    tail = Tail(life.database)
    following = tail.subscribe(0)
    first = following.get(0)
    assert isinstance(first, list)
    assert len(first) == PAGE
    late = life.enqueue()  # while it catches up
    tail.tick()
    rest = taken(following)
    assert [event.id for event in (*first, *rest)] == stored(life)
    assert rest[-1].thing_id == late
    assert len(made) == 2 * PAGE + 7


def test_a_filter_that_finds_little_moves_on_through_the_past(life: Life) -> None:
    life.client.enqueue_alike(life.new(), ["{}"] * (2 * PAGE))
    life.in_state("cancelled")
    tail = Tail(life.database)
    following = tail.subscribe(0, EventFilter(None, kinds=["job.cancelled"]))
    pages = []
    while (page := following.get(0)) is not None:
        pages.append(page)
    assert len(pages) > 2
    assert [len(page) for page in pages if not isinstance(page, Reset)][:2] == [0, 0]
    assert sum(len(page) for page in pages if not isinstance(page, Reset)) == 1
    assert following.position == stored(life)[-1]


def test_the_position_moves_with_events_that_are_not_wanted(life: Life) -> None:
    """So that somebody who wants little does not begin far behind when he comes back."""
    tail = Tail(life.database)
    following = tail.subscribe(None, lambda event: False)
    life.enqueue()
    tail.tick()
    assert following.get(0) is None
    assert following.position == stored(life)[-1]


def test_a_client_of_a_process_that_is_ahead_gets_no_event_twice(life: Life) -> None:
    tail = Tail(life.database)
    other = tail.subscribe()
    for _ in range(3):
        life.enqueue()
    seen = stored(life)[-2]
    following = tail.subscribe(seen)  # further than this tail has come
    tail.tick()
    assert [event.id for event in taken(following)] == stored(life)[-1:]
    assert len(taken(other)) == 3


# --- whose events ---


def test_a_tenant_sees_its_own_events_only(life: Life) -> None:
    life.sql_write("insert into hw_tenant (name, created_at) values ('other', 0)")
    ((other,),) = life.sql("select id from hw_tenant where name = 'other'")
    tail = Tail(life.database)
    ours, theirs, system = (tail.subscribe(0, EventFilter(who)) for who in (life.client.tenant_id, other, None))
    job_id = life.enqueue()
    event = f"({other}, 'job', 4711, 1, 'job.created', 2, 0, '{{}}')"
    life.sql_write(
        f"insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor) values {event}"
    )
    tail.tick()
    assert kinds(ours) == [("job.created", job_id)]
    assert kinds(theirs) == [("job.created", 4711)]
    seen = kinds(system)
    assert ("worker.started", life.worker_id) in seen  # tenant 0
    assert {("job.created", job_id), ("job.created", 4711)} <= set(seen)


def test_kinds_and_things_are_chosen(life: Life) -> None:
    tail = Tail(life.database)
    ends = tail.subscribe(None, EventFilter(None, kinds=["job.completed", "worker.*"]))
    first = life.in_state("completed")
    one = tail.subscribe(0, EventFilter(None, thing="job", thing_id=first))
    life.in_state("completed")
    worker = life.new_worker()
    tail.tick()
    assert [kind for kind, _ in kinds(ends)] == ["job.completed", "job.completed", "worker.started"]
    assert worker
    assert {number for _, number in kinds(one)} == {first}


# --- out of order ---


def test_events_of_a_slow_commit_come_before_later_ones(pair: Pair) -> None:
    one, other = pair.enqueue(), pair.enqueue()
    tail = Tail(pair.database)
    following = tail.subscribe()
    with pair.open_at("cancel:commit", lambda: pair.client.cancel(one)):
        pair.client.interrupt(other)
        for _ in range(5):
            tail.tick()
        assert following.get(0) is None, "the later event was told before the earlier one"
    tick_until(tail, lambda: following.queue)
    assert kinds(following) == [("job.cancelled", one), ("job.held", other)]


def test_events_before_a_gap_do_not_wait(pair: Pair) -> None:
    first, one, other = (pair.enqueue() for _ in range(3))
    tail = Tail(pair.database)
    following = tail.subscribe()
    pair.client.cancel(first)
    with pair.open_at("cancel:commit", lambda: pair.client.cancel(one)):
        pair.client.interrupt(other)
        tail.tick()
        tail.tick()
        assert kinds(following) == [("job.cancelled", first)]


def test_many_transactions_that_end_in_any_order(pair: Pair) -> None:
    """Real transactions, committed in an order that has nothing to do with their numbers; some are rolled back."""
    tail = Tail(pair.database)
    following = tail.subscribe()
    open_ones = [psycopg.connect(pair.url) for _ in range(8)]
    seen: list[int] = []
    for n, connection in enumerate(open_ones):
        connection.execute(insert(n))
    for n in (5, 2, 7, 0, 6, 1, 4, 3):
        open_ones[n].rollback() if n in (2, 4) else open_ones[n].commit()
        tail.tick()
        tail.tick()
        seen += [event.thing_id for event in taken(following)]
    tick_until(tail, lambda: tail.held is None)
    seen += [event.thing_id for event in taken(following)]
    assert seen == [0, 1, 3, 5, 6, 7]
    for connection in open_ones:
        connection.close()


def test_writers_at_once_commit_and_roll_back_as_they_like(pair: Pair) -> None:
    chance = random.Random(7)
    plans = [[chance.random() < 0.8 for _ in range(60)] for _ in range(6)]

    def write(n: int) -> None:
        with psycopg.connect(pair.url) as connection:
            for turn, commits in enumerate(plans[n]):
                connection.execute(insert(1_000 * n + turn))
                connection.commit() if commits else connection.rollback()

    got: list[int] = []
    with running(Tail(pair.database)) as tail:
        following = tail.subscribe()
        before = len(stored(pair))
        at_once([partial(write, n) for n in range(6)])
        last = pair.enqueue()
        while not got or got[-1] != stored(pair)[-1]:
            found = following.get(PATIENCE)
            assert isinstance(found, list), found
            got += [event.id for event in found]
    assert got == stored(pair)[before:]
    assert len(got) == sum(map(sum, plans)) + 1
    assert last


def insert(thing: int) -> str:
    columns = "tenant_id, thing, thing_id, version, kind, at, actor"
    return f"insert into hw_event ({columns}) values (1, 'test', {thing}, 1, 'test.made', 0, '{{}}')"


def test_a_number_that_was_rolled_back_holds_nobody_up(pair: Pair) -> None:
    tail = Tail(pair.database)
    following = tail.subscribe()
    with psycopg.connect(pair.url) as connection:
        connection.execute(insert(1))
        connection.rollback()
    job_id = pair.enqueue()
    tick_until(tail, lambda: following.queue)
    assert kinds(following) == [("job.created", job_id)]


def test_a_commit_between_the_look_at_writers_and_at_events_is_not_taken_for_a_rollback(pair: Pair) -> None:
    """The writer ends just after the gap was looked at, before anybody asks who could fill it."""
    tail = Tail(pair.database)
    following = tail.subscribe()
    slow = psycopg.connect(pair.url)
    slow.execute(insert(1))
    pair.enqueue()
    asked = events.writers

    def commit_first(tx: Tx) -> frozenset[str]:
        if not slow.closed:
            slow.commit()
            slow.close()
        return asked(tx)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events, "writers", commit_first)
        tail.tick()
    tick_until(tail, lambda: following.queue)
    assert [event.kind for event in taken(following)] == ["test.made", "job.created"]


def test_a_client_that_comes_during_a_transaction_gets_its_events(pair: Pair) -> None:
    """A first look at the newest number alone would begin behind them."""
    one, other = pair.enqueue(), pair.enqueue()
    tail = Tail(pair.database)
    with pair.open_at("cancel:commit", lambda: pair.client.cancel(one)):
        pair.client.interrupt(other)
        following = tail.subscribe()
    tick_until(tail, lambda: tail.frontier == stored(pair)[-1])
    assert ("job.cancelled", one) in kinds(following)


def test_a_foreign_transaction_holds_nobody_up(pair: Pair) -> None:
    """One that writes, but no events."""
    tail = Tail(pair.database)
    following = tail.subscribe()
    with psycopg.connect(pair.url) as foreign, psycopg.connect(pair.url) as other:
        foreign.execute("create table foreign_thing (n integer)")
        other.execute(insert(1))
        other.rollback()
        job_id = pair.enqueue()
        tick_until(tail, lambda: following.queue)
        assert kinds(following) == [("job.created", job_id)]
        foreign.rollback()


def test_a_transaction_that_stays_open_holds_others_up_for_a_bounded_time(pair: Pair) -> None:
    tail = Tail(pair.database, patience=10.0)
    following = tail.subscribe()
    with psycopg.connect(pair.url) as slow:
        slow.execute(insert(1))
        job_id = pair.enqueue()
        tail.tick()
        pair.clock.advance(9)
        tail.tick()
        assert following.get(0) is None
        pair.clock.advance(1)
        tail.tick()
        assert kinds(following) == [("job.created", job_id)]
        # The next gap does not wait for the same transaction again.
        with psycopg.connect(pair.url) as gone:
            gone.execute(insert(2))
            gone.rollback()
        next_id = pair.enqueue()
        for _ in range(3):
            tail.tick()
        assert kinds(following) == [("job.created", next_id)]
        slow.commit()
    tail.tick()
    lost = following.get(0)
    assert isinstance(lost, Reset)
    assert "out of order" in lost.reason
    assert tail.late == []


def test_a_late_transaction_that_is_rolled_back_is_forgotten(pair: Pair) -> None:
    tail = Tail(pair.database, patience=0.0)
    following = tail.subscribe()
    with psycopg.connect(pair.url) as slow:
        slow.execute(insert(1))
        pair.enqueue()
        for _ in range(3):
            tail.tick()
        assert len(tail.late) == 1
        slow.rollback()
    tail.tick()
    assert tail.late == []
    assert len(taken(following)) == 1


# --- history that is gone ---


def test_a_number_that_does_not_exist_is_of_another_database(life: Life) -> None:
    job_id = life.enqueue()
    tail = Tail(life.database)
    following = tail.subscribe(stored(life)[-1] + 1)
    lost = following.get(0)
    assert isinstance(lost, Reset)
    assert "another database" in lost.reason
    assert lost.position == stored(life)[-1]
    life.client.cancel(job_id)
    tail.tick()
    assert kinds(following) == [("job.cancelled", job_id)]  # and it goes on from there


def test_a_past_that_was_pruned_is_said_to_be_gone(life: Life) -> None:
    old = stored(life)[-1]
    life.in_state("completed")
    life.clock.advance("40d")
    job_id = life.enqueue()
    recent = stored(life)[-1]
    life.in_state("completed")
    prune(life, retention=30 * 86400.0)
    tail = Tail(life.database)
    lost = tail.subscribe(old).get(0)
    assert isinstance(lost, Reset)
    assert "pruned" in lost.reason
    assert isinstance(tail.subscribe(0).get(0), Reset)
    following = tail.subscribe(recent)
    assert {number for _, number in kinds(following)} == {job_id + 1}


def prune(life: Life, *, retention: float) -> None:
    pruner = Pruner(life.database, retention=retention, artifacts=Path("."))
    assert pruner.prune(life.clock.now() - int(retention * 1e6)) > 0


def test_the_past_is_whole_while_nothing_was_pruned(life: Life) -> None:
    life.in_state("completed")
    life.clock.advance("400d")
    assert taken(Tail(life.database).subscribe(0))


def test_the_newest_events_go_while_somebody_follows(life: Life) -> None:
    tail = Tail(life.database)
    following = tail.subscribe()
    life.in_state("completed")
    tail.tick()
    assert len(taken(following)) == 3
    life.clock.advance("40d")
    prune(life, retention=30 * 86400.0)
    job_id = life.enqueue()
    tick_until(tail, lambda: len(following.queue) > 1)
    assert kinds(following) == [("history.pruned", 0), ("job.created", job_id)]


def test_numbers_are_not_given_again_when_the_newest_events_were_pruned(life: Life) -> None:
    """SQLite would: who comes back with one of them would take what is new for what it knows."""
    first = stored(life)[-1]
    for round in range(1, 4):
        tail = Tail(life.database)
        life.in_state("completed")
        known = stored(life)[-3:]
        life.clock.advance("40d")
        prune(life, retention=30 * 86400.0)
        pruned = stored(life)[-1]
        assert pruned > known[-1]
        assert life.sql("select version from hw_event where thing = 'history'") == [(round,)]
        job_id = life.enqueue()
        for number in (first, *known):
            assert isinstance(tail.subscribe(number).get(0), Reset), number
        assert kinds(tail.subscribe(pruned)) == [("job.created", job_id)]
        life.client.cancel(job_id)
    assert not check(life.database).findings


def test_an_older_copy_of_the_database_takes_the_place_of_this_one(life: Life) -> None:
    """The newest events are gone, and nothing says so: what comes next must be told all the same."""
    tail = Tail(life.database)
    following = tail.subscribe()
    life.in_state("completed")
    tail.tick()
    assert len(taken(following)) == 3
    life.sql_write("update hw_pruning set active = 1")
    life.sql_write("delete from hw_event where thing = 'job'")
    life.sql_write("update hw_pruning set active = 0")
    tail.tick()
    assert isinstance(following.get(0), Reset)
    job_id = life.enqueue()
    tick_until(tail, lambda: following.queue)
    assert kinds(following) == [("job.created", job_id)]


# --- readers ---


def test_a_slow_reader_costs_bounded_memory_and_misses_nothing(life: Life) -> None:
    tail = Tail(life.database)
    slow, quick = tail.subscribe(room=10), tail.subscribe(room=10)
    before = len(stored(life))
    got: list[int] = []
    for _ in range(8):
        life.client.enqueue_alike(life.new(), ["{}"] * 7)
        tail.tick()
        assert len(slow.queue) <= 10
        got += [event.id for event in taken(quick)]
    assert got == stored(life)[before:]
    assert [event.id for event in taken(slow)] == stored(life)[before:]
    job_id = life.enqueue()
    tail.tick()
    assert slow.live
    assert kinds(slow) == kinds(quick) == [("job.created", job_id)]


def test_a_reader_that_fails_fails_alone(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    def fails(event: Event) -> bool:
        raise ValueError("a filter of my own")

    def unwilling() -> None:
        raise RuntimeError("the event loop is closed")

    tail = Tail(life.database)
    tail.subscribe(None, fails)
    tail.subscribe(None, on_ready=unwilling)
    following = tail.subscribe()
    job_id = life.enqueue()
    tail.tick()
    assert kinds(following) == [("job.created", job_id)]
    assert "a subscriber failed" in caplog.text


def test_no_listener_and_no_poll(life: Life) -> None:
    tail = Tail(life.database)
    following = tail.subscribe()
    following.close()
    with statements(life.database) as seen:
        assert tail.tick() == 60.0
    assert seen == []
    assert following.get(PATIENCE) is None


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    """What is asked of the database meanwhile."""
    seen: list[str] = []
    begin = database.begin_read

    def begin_and_note() -> Tx:
        tx = begin()
        run = tx.run

        def noted(name: str, /, **params: object) -> list[Row]:
            seen.append(name)
            return run(name, **params)

        tx.run = noted  # type: ignore[method-assign]
        return tx

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "begin_read", begin_and_note)
        yield seen


def test_a_quiet_stream_is_looked_at_once_a_second(life: Life) -> None:
    tail = Tail(life.database)
    tail.subscribe()
    delays = [tail.tick() for _ in range(12)]
    assert delays[-1] == RARELY == 1.0
    with statements(life.database) as seen:
        tail.tick()
    assert len(seen) <= 2


def test_it_works_from_an_event_loop(life: Life) -> None:
    async def follow() -> list[Event]:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        following = tail.subscribe(on_ready=lambda: loop.call_soon_threadsafe(ready.set))
        await asyncio.to_thread(life.enqueue)
        await asyncio.wait_for(ready.wait(), PATIENCE)
        found = await asyncio.to_thread(following.get, 0)
        following.close()
        assert isinstance(found, list)
        return found

    with running(Tail(life.database)) as tail:
        assert [event.kind for event in asyncio.run(follow())] == ["job.created"]


def test_stopping_ends_every_wait(life: Life) -> None:
    told = threading.Event()
    with running(Tail(life.database)) as tail:
        following = tail.subscribe()
        tail.subscribe(on_ready=told.set)
        waiting = threading.Thread(target=following.get, args=(PATIENCE,))
        waiting.start()
    waiting.join(PATIENCE / 2)
    assert not waiting.is_alive()
    assert told.is_set()
    assert following.closed


# --- the database goes away ---


def test_it_goes_on_where_it_was_when_postgresql_ends_its_connections(pair: Pair) -> None:
    tail = Tail(pair.database)
    following = tail.subscribe()
    first = pair.enqueue()
    tail.tick()
    kill(pair, where="true")
    second = pair.enqueue()
    tick_until(tail, lambda: len(following.queue) == 2)
    assert kinds(following) == [("job.created", first), ("job.created", second)]


def test_it_goes_on_where_it_was_when_the_database_was_unreachable(
    life: Life, caplog: pytest.LogCaptureFixture
) -> None:
    tail = Tail(life.database)
    following = tail.subscribe()
    job_id = life.enqueue()

    def gone() -> Any:
        raise Unreachable("the database file is locked")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(life.database, "begin_read", gone)
        assert tail.safely() == 2.0
        with pytest.raises(Unreachable):
            tail.subscribe()
    tail.safely()
    assert kinds(following) == [("job.created", job_id)]
    assert "the database is back" in caplog.text


def test_it_goes_on_when_a_sqlite_file_was_locked(sqlite_url: str) -> None:
    with Life(sqlite_url) as life, running(Tail(life.database)) as tail:
        following = tail.subscribe()
        other = apsw.Connection(sqlite_url)
        other.execute("begin exclusive")
        other.execute("rollback")
        other.close()
        job_id = life.enqueue()
        found = following.get(PATIENCE)
        assert isinstance(found, list)
        assert [event.thing_id for event in found] == [job_id]


# --- how soon ---


@pytest.mark.parametrize("what", ["here", "elsewhere"])
def test_an_event_is_told_soon_after_its_commit(database_url: str, what: str) -> None:
    """From the end of the commit to the subscriber, in this process and from another one's commits."""
    delays = []
    with Life(database_url) as life, open_life(database_url) as elsewhere, running(Tail(life.database)) as tail:
        following = tail.subscribe()
        for _ in range(15):
            (life if what == "here" else elsewhere).enqueue()
            committed = time.monotonic()
            assert following.get(PATIENCE)
            delays.append(time.monotonic() - committed)
            until(lambda: time.monotonic() - tail.looked > 0.06)
    p50 = statistics.median(delays)
    print(f"\n{what}: p50 {p50 * 1000:.1f} ms, most {max(delays) * 1000:.1f} ms")
    assert p50 < 0.5


@contextmanager
def open_life(url: str) -> Iterator[Life]:
    """A second program on the same database."""
    with Life(url, database=open_database(url)) as life:
        yield life


def test_a_commit_that_makes_no_work_is_told_soon_too(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim wakes no worker, but whoever watches."""
    job_id = life.enqueue()
    monkeypatch.setattr("headway.engine.events.tail.SOON", 3 * PATIENCE)  # it does not look by itself
    monkeypatch.setattr("headway.engine.events.tail.RARELY", 3 * PATIENCE)
    with running(Tail(life.database)) as tail:
        following = tail.subscribe()
        until(lambda: tail.pace == 3 * PATIENCE)
        life.claim(job_id)
        found = following.get(PATIENCE)
    assert isinstance(found, list)
    assert [event.kind for event in found] == ["job.claimed"]
