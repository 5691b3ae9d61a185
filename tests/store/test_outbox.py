"""When events make deliveries: armed before the first receiver is there, disarmed after the last, and nobody waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headway import fault_points
from headway.engine.maintenance.pruner import Pruner
from headway.errors import Busy
from headway.model.jobs.job import NewJob, Options
from headway.store.db import open_database
from headway.store.migrations import _apply
from headway.store.webhooks import outbox
from tests.support.life import Life, raw_connection
from tests.support.pair import Pair
from tests.support.schedules import Clockwork
from tests.support.waiting import until

URL = "https://hook.example/x"
# The migration from which on missed ticks have an event.
MISSED_TOLD = 14


@pytest.fixture
def pair(postgres_url: str) -> Iterator[Pair]:
    with Pair(postgres_url) as pair:
        yield pair


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    fault_points.arm(None)


def armed(life: Life) -> bool:
    with life.database.read() as tx:
        return bool(tx.run("outbox_armed"))


def told(life: Life) -> list[int]:
    return [job for (job,) in life.sql("select job_id from hw_delivery order by id")]


def hooked(life: Life) -> NewJob:
    new = life.new()
    return new._replace(options=replace(Options.parse(new.options), webhook_url=URL).text())


@contextmanager
def somebody(pair: Pair) -> Iterator[psycopg.Connection[Any]]:
    """Has written an event in a transaction of their own, and thinks."""
    with psycopg.connect(pair.url) as connection:
        columns, row = (
            "tenant_id, thing, thing_id, version, kind, at, actor",
            "1, 'job', 0, 1, 'job.created', 0, 'system'",
        )
        connection.execute(f"insert into hw_event ({columns}) values ({row})")
        yield connection
        connection.rollback()


def go_on(pair: Pair) -> None:
    """Jobs are made and ended, by someone who waits for less than a user would."""
    with Life(pair.url, clock=pair.clock) as other:
        for _ in range(3):
            other.in_state("COMPLETED")


@pytest.mark.parametrize("first", ["webhook", "job"])
def test_no_caller_waits_for_the_first_one_to_be_told(pair: Pair, first: str) -> None:
    def make() -> object:
        return pair.client.webhooks.create(URL) if first == "webhook" else pair.client.enqueue(hooked(pair))

    with somebody(pair) as connection:
        making = pair.waiting(make)
        pair.pool.submit(go_on, pair).result(20)
        assert not making.done()
        connection.commit()
        made = making.result(30)
    job = pair.in_state("COMPLETED") if first == "webhook" else made[0]
    if first == "job":
        pair.in_state("QUEUED")
        pair.client.cancel(job)
    assert told(pair) == [job]


def test_who_never_ends_is_named_and_nothing_is_made(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "PATIENCE", 0.0)
    with somebody(pair), pytest.raises(Busy, match="an open transaction has written an event") as said:
        pair.client.webhooks.create(URL)
    assert said.value.facts["retry_after"] > 0
    assert (pair.client.webhooks.list(), armed(pair)) == ([], False)
    pair.client.webhooks.create(URL)
    assert armed(pair)


def test_the_last_webhook_is_deleted_without_waiting(pair: Pair) -> None:
    pair.client.webhooks.create(URL)
    with somebody(pair):
        pair.client.webhooks.delete(1)
        assert armed(pair)
    Pruner(pair.database, retention=None, artifacts=Path()).tick()
    assert not armed(pair)


def test_a_vacuum_gives_way(pair: Pair) -> None:
    """As PostgreSQL's own does, a second after somebody began to wait."""
    with psycopg.connect(pair.url) as vacuum:
        vacuum.execute("lock table hw_event in share update exclusive mode")
        making = pair.waiting(lambda: pair.client.webhooks.create(URL))
        text = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and now() - query_start > '1.1 s'"
        until(lambda: pair.raw.execute(text).fetchall(), "that it waits long enough")
        vacuum.rollback()
    making.result(30)


def test_an_unneeded_trigger_is_disarmed_by_the_pruner(life: Life) -> None:
    outbox.arm(life.database)
    assert armed(life)
    Pruner(life.database, retention=None, artifacts=Path()).tick()
    assert not armed(life)
    life.client.webhooks.create(URL)
    Pruner(life.database, retention=None, artifacts=Path()).tick()
    assert armed(life)


# A schedule with two ticks that were missed when missed ticks had no event.
BEFORE = """
insert into hw_schedule (id, tenant_id, name, definition, enabled, origin, decided_until, created_at, created_by)
  values (7, 1, 'old', '{"cron":"0 * * * *","steps":[{"task":"sync"}]}', 0, 'api', 9, 1, '{}');
insert into hw_tick (id, tenant_id, schedule_id, nominal_at, until, count, outcome, decided_at)
  values (41, 1, 7, 2, 2, 1, 'MISSED', 8), (42, 1, 7, 3, 3, 1, 'MISSED', 9);
"""


def test_a_migration_gives_an_armed_trigger_its_new_text(empty_url: str) -> None:
    """A database of the version before, with a webhook, learns of missed ticks."""
    database = open_database(empty_url)
    for version in range(1, MISSED_TOLD):
        database.transact("migrate", partial(_apply, version=version))
    outbox.arm(database)
    with raw_connection(empty_url) as raw:
        if database.dialect == "sqlite":
            ((text,),) = raw.execute("select sql from sqlite_schema where name = 'hw_event_outbox'").fetchall()
            raw.execute("drop trigger hw_event_outbox")
            raw.execute(text.replace(", 'schedule.tick.missed'", ""))
        for statement in BEFORE.split(";\n"):
            raw.execute(statement)
    database.close()
    with Life(empty_url) as life:
        assert armed(life)
        assert life.sql("select value from hw_setting where name = 'ticks_without_event'") == [("42",)]
        life.client.webhooks.create(URL, events=["schedule.tick.missed"])
        clockwork = Clockwork(life)
        clockwork.create()
        clockwork.advance("1h")
        assert life.sql("select event from hw_delivery") == [("schedule.tick.missed",)]


@pytest.mark.parametrize("first", ["webhook", "job"])
def test_one_that_is_disarmed_meanwhile_is_armed_again(life: Life, first: str) -> None:
    """The last of others went between the arming and the storing: nothing may be lost for that."""
    left = ["once"]

    def meanwhile(name: str) -> None:
        if name == "arm_outbox.committed" and left:
            left.pop()
            assert outbox.disarm(life.database)

    fault_points.arm(meanwhile)
    if first == "webhook":
        life.client.webhooks.create(URL)
        job = life.in_state("CANCELLED")
    else:
        job = life.client.enqueue(hooked(life))[0]
        life.client.cancel(job)
    assert not left
    assert told(life) == [job]
