"""Creating jobs: what is stored, all or nothing, once per key, from many threads, and in a caller's own transaction."""

from __future__ import annotations

import json
import math
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

import headway
from headway.clock import micros
from headway.engine.client.client import Client
from headway.engine.client.group_commit import LEADER
from headway.errors import BadInput, Unreachable, WrongState
from headway.model.jobs.outcome import Completed, StoppedByRequest
from headway.store.db import Tx, open_database
from headway.store.sqlite.database import SqliteDatabase
from headway.testing import FrozenClock
from tests.support.life import ADA, BROKEN, FINAL, HOUR, TASK, Life, raw_connection
from tests.support.waiting import PATIENCE, at_once, until

# --- one job ---


def test_a_new_job_is_queued_with_its_first_event_and_no_run(life: Life) -> None:
    job = life.job(life.enqueue(params='{"topic":"fog"}', priority=5))
    now = life.clock.now()
    assert (job.status.name, job.gate, job.priority, job.fence, job.version, job.attempt) == ("QUEUED", 1, 5, 0, 1, 1)
    assert (job.created_at, job.queued_at, job.started_at, job.finished_at) == (now, now, None, None)
    assert (job.params, job.task, json.loads(job.created_by)["name"]) == ('{"topic":"fog"}', TASK, "ada")
    assert life.events(job.id) == ["job.created"]
    assert life.run_status(job.id) == "no run"
    assert life.sql(f"select actor, status, at from hw_event where thing_id = {job.id}") == [(ADA.text(), 2, now)]


@pytest.mark.parametrize("how", ["delay", "not_before"])
def test_a_later_start_waits_for_its_time_and_not_a_moment_longer(life: Life, how: str) -> None:
    start = life.clock.now() + micros(10)
    job_id = life.enqueue(**{how: micros(10) if how == "delay" else start})
    assert (life.status(job_id), life.job(job_id).not_before, life.pick(9)) == ("SCHEDULED", start, [])
    for early, expected in ((start - 1, "SCHEDULED"), (start, "QUEUED")):
        life.clock.time = early
        life.database.transact("promote", lambda tx: tx.run("promote", actor=ADA.text()))
        assert life.status(job_id) == expected
    assert life.pick(9) == [job_id]
    assert life.job(job_id).queued_at == start
    assert life.events(job_id) == ["job.created", "job.promoted"]


@pytest.mark.parametrize("fields", [{"delay": 0}, {"not_before": 1}])
def test_a_start_that_has_passed_is_no_reason_to_wait(life: Life, fields: dict[str, int]) -> None:
    assert life.status(life.enqueue(**fields)) == "QUEUED"


def test_a_job_on_hold_waits_for_a_person_and_then_for_its_time(life: Life) -> None:
    job_id = life.enqueue(hold=True, delay=micros(10))
    assert (life.status(job_id), life.pick(9)) == ("WAITING", [])
    assert life.client.resume(job_id).status.name == "SCHEDULED"
    life.client.interrupt(job_id)
    life.clock.advance(10)
    assert life.client.resume(job_id).status.name == "QUEUED"


def test_a_job_not_started_by_its_expiry_is_skipped_without_a_run(life: Life) -> None:
    expires_at = life.clock.now() + HOUR
    ids = [life.in_state(state, expires_at=expires_at) for state in ("WAITING", "SCHEDULED", "QUEUED")]
    started = life.in_state("RUNNING", expires_at=expires_at)
    resumed = life.in_state("resumed", expires_at=expires_at)
    life.clock.time = expires_at
    life.database.transact("expire", lambda tx: tx.run("expire", actor=ADA.text()))
    for job_id in ids:
        job = life.job(job_id)
        assert (job.status.name, job.reason, job.finished_at) == ("SKIPPED", "expired", expires_at)
        assert life.run_status(job_id) == "no run"
        assert life.events(job_id)[-1] == "job.skipped"
    assert [life.status(started), life.status(resumed)] == ["RUNNING", "QUEUED"]


def test_an_expired_job_is_not_claimed_even_before_it_is_marked(life: Life) -> None:
    job_id = life.enqueue(expires_at=life.clock.now() + HOUR)
    life.clock.time += HOUR
    before = life.everything()
    assert life.take(job_id) == []
    assert life.everything() == before


# --- order ---


def test_the_order_is_priority_then_position(life: Life) -> None:
    life.set_limit(None)
    ids = [life.enqueue(priority=priority) for priority in (0, 100, 5, 0, 100, 5)]
    assert life.pick(9) == [ids[1], ids[4], ids[2], ids[5], ids[0], ids[3]]
    positions = [life.job(job_id).position for job_id in ids]
    assert positions == sorted(positions)
    assert len(set(positions)) == len(positions)


def test_a_job_whose_priority_changes_goes_to_the_end_of_the_new_one(life: Life) -> None:
    life.set_limit(None)
    first, second, third = (life.enqueue(priority=priority) for priority in (5, 0, 5))
    life.client.edit(second, priority=5)
    assert life.pick(9) == [first, third, second]
    life.client.edit(first, priority=5)  # it has it already: nothing moves
    assert life.pick(9) == [first, third, second]


def test_tasks_are_merged_in_one_order(life: Life) -> None:
    life.set_limit(None)
    ids = [life.enqueue(task=f"task.{n % 3}", priority=n % 2) for n in range(40)]
    expected = sorted(ids, key=lambda job_id: (-(ids.index(job_id) % 2), job_id))
    assert life.pick(40) == expected
    assert life.pick(7) == expected[:7]


# --- many ---


def test_many_are_stored_in_order_in_one_transaction(life: Life) -> None:
    life.set_limit(None)
    new = [life.new(params=json.dumps({"n": n}), priority=n // 10) for n in range(25)]
    answers = life.client.enqueue_many(new)
    assert all(created for _, created in answers)
    params = [json.loads(life.job(job_id).params)["n"] for job_id, _ in answers]
    assert params == list(range(25))
    assert life.client.enqueue_many([]) == []
    if life.database.dialect == "postgres":
        assert len(life.sql("select distinct xmin::text from hw_job")) == 1


def test_many_are_stored_all_or_none(life: Life) -> None:
    before = life.everything()
    bad = life.new()._replace(priority=101)  # past the check at the edge: the schema refuses it
    with pytest.raises(Exception, match=r"(?i)check"):
        life.client.enqueue_many([life.new(), life.new(priority=1), bad])
    assert life.everything() == before
    assert life.client.enqueue(life.new())[1]


def test_the_same_key_twice_in_one_call_is_one_job(life: Life) -> None:
    answers = life.client.enqueue_many([life.new(key="a"), life.new(), life.new(key="a"), life.new(key="b")])
    assert [created for _, created in answers] == [True, True, False, True]
    assert answers[0][0] == answers[2][0]
    assert len(life.sql("select id from hw_job")) == 3
    life.check_versions()


# --- keys ---


def test_a_key_is_held_by_the_whole_chain(life: Life) -> None:
    """It is free only when the last retry has ended, however that ends."""
    first = life.enqueue(key="fog", retry=1)

    def holder() -> tuple[int, bool]:
        return life.client.enqueue(life.new(key="fog"))

    assert holder() == (first, False)
    claim = life.claim(first)
    assert holder() == (first, False)
    assert life.end(claim, BROKEN)
    retry, created = holder()
    assert (retry > first, created) == (True, False)
    assert life.job(retry).retry_of == first
    life.clock.advance(10)
    life.database.transact("promote", lambda tx: tx.run("promote", actor=ADA.text()))
    claim = life.claim(retry)
    life.client.interrupt(retry)
    assert life.end(claim, StoppedByRequest())
    assert holder() == (retry, False)  # PAUSED
    life.client.resume(retry)
    assert life.run(retry, BROKEN).exhausted
    fresh, created = holder()
    assert created
    assert fresh not in (first, retry)
    life.run(fresh, Completed())
    assert holder()[1]


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "SKIPPED", "expired", "CANCELLED", "stopped"])
def test_a_key_is_free_when_its_job_has_ended(shared_life: Life, state: str) -> None:
    ended = shared_life.in_state(state, key=f"key of {state}")
    fresh, created = shared_life.client.enqueue(shared_life.new(key=f"key of {state}"))
    assert created
    assert fresh != ended


@pytest.mark.parametrize(
    "state", ["WAITING", "SCHEDULED", "QUEUED", "resumed", "RUNNING", "PAUSED", "ERROR", "retried"]
)
def test_a_key_is_taken_while_its_chain_lives(shared_life: Life, state: str) -> None:
    shared_life.in_state(state, key=f"live {state}")
    assert not shared_life.client.enqueue(shared_life.new(key=f"live {state}"))[1]


def test_keys_are_apart_per_task(shared_life: Life) -> None:
    ids = [shared_life.client.enqueue(shared_life.new(key="same", task=f"key.{n}")) for n in range(2)]
    assert [created for _, created in ids] == [True, True]


def test_a_retry_by_hand_takes_the_key_again_unless_somebody_has_it(life: Life) -> None:
    failed = life.run(life.enqueue(key="fog"), FINAL).id
    other = life.enqueue(key="fog")
    before = life.everything()
    with pytest.raises(WrongState, match=f"taken by job {other}"):
        life.client.retry(failed)
    assert life.everything() == before
    life.client.cancel(other)
    again = life.client.retry(failed)
    assert (again.key, life.client.enqueue(life.new(key="fog"))) == ("fog", (again.id, False))


def test_one_key_from_many_connections_at_once_is_one_job(life: Life) -> None:
    databases = [open_database(life.url, clock=life.clock) for _ in range(4)]
    clients = [Client(database, life.client.registry, actor=ADA) for database in databases]
    try:
        calls = [lambda c=c, k=k: c.enqueue(life.new(key=f"key {k}")) for k in range(5) for c in clients]
        answers = [answer.result() for answer in at_once(calls)]
    finally:
        for database in databases:
            database.close()
    assert len({job_id for job_id, _ in answers}) == 5
    assert sum(created for _, created in answers) == 5
    assert life.sql("select count(*), count(distinct key) from hw_job") == [(5, 5)]
    life.check_versions()


# --- params ---


def test_params_are_frozen_by_the_first_claim(life: Life) -> None:
    job_id = life.enqueue(params='{"n":1}')
    assert life.client.edit(job_id, params={"n": 2}).params == '{"n":2}'
    claim = life.claim(job_id)
    assert claim.params == '{"n":2}'
    for step in (
        lambda: life.client.interrupt(job_id),
        lambda: life.end(claim, StoppedByRequest()),
        lambda: life.client.resume(job_id),
    ):
        with pytest.raises(WrongState, match=r"^Cannot modify params after dispatch$") as refusal:
            life.client.edit(job_id, params={"n": 3})
        assert refusal.value.code == "params_frozen"
        step()
    assert life.sql(f"select params from hw_run where job_id = {job_id}") == [('{"n":2}',)]


def test_not_even_raw_sql_changes_dispatched_params(life: Life) -> None:
    waiting, running = life.in_state("QUEUED"), life.in_state("RUNNING")
    with raw_connection(life.url) as raw:
        raw.execute(f"update hw_job set params = '[]' where id = {waiting}")
        with pytest.raises(Exception, match="Cannot modify params after dispatch"):
            raw.execute(f"update hw_job set params = '[]' where id = {running}")
    assert [life.job(waiting).params, life.job(running).params] == ["[]", '{"n":1}']


@pytest.fixture
def app(database_url: str) -> Any:
    with headway.App(database=database_url, clock=FrozenClock()) as app:
        app.task("note", isolation="thread")(lambda text="", n=0, more=None: None)
        yield app


BAD = [
    ({"text": "a\x00b"}, "params.text", "NUL"),
    ({"text": "\ud800"}, "params.text", "surrogate"),
    ({"more": {"x": math.nan}}, "params.more.x", "NaN"),
    ({"more": [math.inf]}, r"params.more[0]", "infinite"),
    ({"n": 2**63}, "params.n", "64 bits"),
    ({"more": {1: 2}}, "params.more", "keys are text"),
    ({"more": b"raw"}, "params.more", "base64"),
    ({"text": "x" * 300_000}, "params", "limit"),
]


@pytest.mark.parametrize(("params", "field", "words"), BAD)
def test_values_a_database_cannot_return_are_refused_at_the_edge(app: Any, params: Any, field: str, words: str) -> None:
    for call in (
        lambda: app.tasks["note"].enqueue(**params),
        lambda: app.tasks["note"].enqueue_many([{}, params]),
        lambda: app.enqueue("note", params),
    ):
        with pytest.raises(BadInput, match=words) as refusal:
            call()
        assert refusal.value.field == field
    with app.database.read() as tx:
        assert tx.connection.execute("select count(*) from hw_job").fetchall() == [(0,)]


GOOD = [
    "",
    "a\nb\t\x1f\x7f",
    "é" * 9,
    "\U0001f600",
    "%s %(x)s %%",
    ":now ?1 $1",
    "'; drop table hw_job; --",
    "\\u0000",
    '"',
]


def test_allowed_values_come_back_as_they_were(app: Any) -> None:
    values = [{"text": text, "n": -(2**63), "more": {text: [1.5e-300, None, True, 2**63 - 1]}} for text in GOOD]
    jobs = app.tasks["note"].enqueue_many(values)
    jobs += [app.tasks["note"].using(key=f"k{n}").enqueue(**value) for n, value in enumerate(values)]
    assert [json.loads(job.row.params) for job in jobs] == values * 2


# --- threads on SQLite: one commit for many ---


class Counting(SqliteDatabase):
    """Counts its writing transactions, and fails as often as it is told to."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.begun = 0
        self.failures = 0

    def begin(self, label: str) -> Any:
        if self.failures:
            self.failures -= 1
            raise Unreachable("the disk is full")
        tx = super().begin(label)
        self.begun += 1
        return tx


@pytest.fixture
def crowd(sqlite_url: str) -> Any:
    with Life(sqlite_url, database=Counting(sqlite_url)) as life:
        life.enqueue()  # the bucket is known, so that only enqueues are counted
        yield life


def enqueue_behind_a_writer(crowd: Life, count: int) -> list[Any]:
    """`count` threads enqueue while somebody else has the writer, and all of them wait when he lets it go."""
    writer = crowd.database.begin("busy")
    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(crowd.enqueue, params=json.dumps({"n": n})) for n in range(count)]
        until(lambda: len(crowd.client.intake.shared.waiting) == count - 1, "that all but the first wait")
        crowd.database.end(writer)
    return futures


def test_fifty_threads_on_sqlite_share_commits_and_each_job_is_stored_once(crowd: Life) -> None:
    database = crowd.database
    assert isinstance(database, Counting)
    before = database.begun
    ids = [future.result() for future in enqueue_behind_a_writer(crowd, 50)]
    assert database.begun - before <= 3  # who keeps the writer busy, the first job, all the others
    assert len(set(ids)) == 50
    stored = crowd.sql("select id, position, params from hw_job where id > 1 order by position")
    assert [row[0] for row in stored] == sorted(ids)
    assert {json.loads(row[2])["n"]: row[0] for row in stored} == dict(enumerate(ids))
    crowd.check_versions()


def test_when_a_shared_commit_fails_all_who_shared_it_hear_so_and_the_next_ones_get_through(crowd: Life) -> None:
    database = crowd.database
    assert isinstance(database, Counting)
    writer = database.begin("busy")
    with ThreadPoolExecutor(9) as pool:
        futures = [pool.submit(crowd.enqueue) for _ in range(9)]
        until(lambda: len(crowd.client.intake.shared.waiting) == 8, "that all but the first wait")
        database.failures = 1
        database.end(writer)
    first, *others = sorted(futures, key=lambda future: future.exception() is not None)
    assert first.result()
    for future in others:
        with pytest.raises(Unreachable, match="disk is full"):
            future.result()
    assert crowd.sql("select count(*) from hw_job") == [(2,)]
    assert [future.result() > 0 for future in enqueue_behind_a_writer(crowd, 5)] == [True] * 5


@pytest.mark.parametrize("chosen", [False, True])
def test_an_interrupted_waiter_keeps_no_other_waiting(crowd: Life, chosen: bool) -> None:
    """Ctrl-C reaches the main thread among those that share commits, before or after it was its turn to lead."""
    stored: list[int] = []

    def thread() -> threading.Thread:
        started = threading.Thread(target=lambda: stored.append(crowd.enqueue()), daemon=True)
        started.start()
        return started

    def interrupt() -> None:
        until(lambda: len(crowd.client.intake.shared.waiting) == 1, "that the main thread waits")
        if chosen:
            crowd.client.intake.shared.lead[LEADER] = next(iter(crowd.client.intake.shared.waiting))
        signal.pthread_kill(main, signal.SIGINT)

    main = threading.main_thread().ident or 0
    writer = crowd.database.begin("busy")
    first = thread()
    until(lambda: crowd.client.intake.shared.leader and not crowd.client.intake.shared.waiting, "that somebody leads")
    helper = threading.Thread(target=interrupt, daemon=True)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        crowd.enqueue()
    second = thread()
    crowd.database.end(writer)
    for one in (first, second, helper):
        one.join(PATIENCE)
    assert len(stored) == 2
    assert crowd.sql("select count(*) from hw_job") == [(3,)]
    assert crowd.enqueue() > 0


def test_one_callers_mistake_is_no_other_callers(crowd: Life) -> None:
    writer = crowd.database.begin("busy")
    with ThreadPoolExecutor(9) as pool:
        good = [pool.submit(crowd.enqueue) for _ in range(6)]
        bad = [pool.submit(crowd.enqueue, resources=("nobody made this",)) for _ in range(3)]
        until(lambda: len(crowd.client.intake.shared.waiting) == 8, "that all but the first wait")
        crowd.database.end(writer)
    assert len({future.result() for future in good}) == 6
    for future in bad:
        with pytest.raises(BadInput, match="no resource is named"):
            future.result()
    assert crowd.sql("select count(*) from hw_job where id > 1") == [(6,)]


def test_a_limit_refuses_those_who_exceed_it(crowd: Life) -> None:
    crowd.client.tenants.edit("default", {"max_queued": 4})
    writer = crowd.database.begin("busy")
    with ThreadPoolExecutor(9) as pool:
        futures = [pool.submit(crowd.enqueue) for _ in range(9)]
        until(lambda: len(crowd.client.intake.shared.waiting) == 8, "that all but the first wait")
        crowd.database.end(writer)
    refused = [future.exception() for future in futures if future.exception() is not None]
    assert len(refused) == 6  # one job was there before
    assert all("4" in str(error) for error in refused)


def test_keys_and_plain_jobs_share_commits_too(crowd: Life) -> None:
    writer = crowd.database.begin("busy")
    with ThreadPoolExecutor(12) as pool:
        futures = [pool.submit(crowd.client.enqueue, crowd.new(key=f"k{n % 3}" if n % 2 else None)) for n in range(12)]
        until(lambda: len(crowd.client.intake.shared.waiting) == 11, "that all but the first wait")
        crowd.database.end(writer)
    answers = [future.result() for future in futures]
    assert sum(created for _, created in answers) == 6 + 3
    assert crowd.sql("select count(*) from hw_job where id > 1") == [(9,)]


def test_fifty_threads_without_any_order_store_fifty_jobs(life: Life) -> None:
    calls = [lambda n=n: life.enqueue(params=json.dumps({"n": n})) for n in range(50)]
    ids = [future.result() for future in at_once(calls)]
    assert len(set(ids)) == 50
    assert {json.loads(text)["n"] for (text,) in life.sql("select params from hw_job")} == set(range(50))
    life.check_versions()


# --- in the caller's own transaction, on PostgreSQL ---


@pytest.mark.parametrize("row_factory", [None, dict_row])
def test_a_callers_own_transaction_decides_whether_the_job_exists(postgres_url: str, row_factory: Any) -> None:
    options = {"row_factory": row_factory} if row_factory else {}
    with headway.App(database=postgres_url) as app, psycopg.connect(postgres_url, **options) as connection:
        task = app.task("note", isolation="thread")(lambda n=0: None)
        connection.execute("create table mine (n integer)")
        job = task.using(connection=connection, priority=3).enqueue(n=1)
        with pytest.raises(headway.errors.NotFound):
            _ = job.status
        connection.execute("insert into mine values (1)")
        connection.commit()
        assert (job.status, job.row.priority) == ("QUEUED", 3)
        jobs = task.using(connection=connection).enqueue_many([{"n": 2}, {"n": 3}])
        connection.rollback()
        for gone in jobs:
            with pytest.raises(headway.errors.NotFound):
                _ = gone.status
        kept = task.using(connection=connection, delay=60).enqueue_many([{"n": 4}, {"n": 5}])
        connection.commit()
        assert [json.loads(job.row.params)["n"] for job in kept] == [4, 5]
        assert kept[0].status == "SCHEDULED"


def test_a_caller_whose_transaction_has_failed_is_told_and_keeps_it(postgres_url: str) -> None:
    with headway.App(database=postgres_url) as app, psycopg.connect(postgres_url) as connection:
        task = app.task("note", isolation="thread")(lambda n=0: None)
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("select * from nothing")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            task.using(connection=connection).enqueue(n=1)
        connection.rollback()
        task.using(connection=connection).enqueue(n=1)
        connection.commit()


def test_a_connection_goes_with_postgresql_and_without_key(app: Any) -> None:
    task = app.tasks["note"]
    with pytest.raises(BadInput) as refusal:
        task.using(connection=object()).enqueue()
    assert refusal.value.field == "connection"
    assert ("psycopg" in str(refusal.value)) == (app.database.dialect == "postgres")
    with pytest.raises(BadInput) as refusal:
        task.using(connection=object(), key="k").enqueue()
    assert refusal.value.field == "key"


def test_enqueues_do_not_wait_for_each_other_on_postgresql(postgres_life: Life) -> None:
    """One that is not committed yet holds nothing that another needs."""
    life = postgres_life
    life.enqueue()
    with ThreadPoolExecutor(1) as pool, life.database.transaction("slow") as slow:
        inserted = life.client.intake.insert(
            slow, life.client.tenant_id, [(life.new(), 1, None), (life.new(key="a"), 1, None)]
        )
        assert all(created for _, created in inserted)
        other = pool.submit(life.client.enqueue_many, [life.new(), life.new(key="b")])
        assert [created for _, created in other.result(PATIENCE)] == [True, True]
    assert life.sql("select count(*) from hw_job") == [(5,)]


def test_the_store_is_the_seam_for_both(life: Life) -> None:
    """A job that a transaction made is undone with it."""

    def work(tx: Tx) -> None:
        life.client.intake.insert(tx, life.client.tenant_id, [(life.new(), bucket, None)])
        raise BadInput("no")

    bucket = life.job(life.enqueue()).bucket_id
    before = life.everything()
    with pytest.raises(BadInput):
        life.database.transact("doomed", work)
    assert life.everything() == before
