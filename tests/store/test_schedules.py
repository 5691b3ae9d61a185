"""Schedules in the database: the search for what is due goes by its index, however many schedules there are."""

from __future__ import annotations

import json
import re

import pytest

from headway.engine.scheduler.scheduler import BATCH
from headway.store.postgres.database import PostgresDatabase
from headway.store.postgres.transaction import PostgresTx
from headway.store.sqlite.database import SqliteDatabase
from headway.store.sqlite.transaction import SqliteTx
from tests.support.life import Life
from tests.support.schedules import Clockwork

MANY = 20_000
FILL = """
insert into hw_schedule (tenant_id, name, definition, enabled, origin, decided_until, next_at, created_at, created_by)
select 1, 's' || n, '{{}}', 1, 'api', 0, {now} + n, 0, '{{}}' from {series}
"""
GROUPS = """
insert into hw_group (tenant_id, kind, name, mode, on_failure, status, stage, stages, schedule_id, reason, created_at,
  finished_at, created_by)
select 1, 'execution', 'x', 'staged', 'stop', 'COMPLETED', 0, 1, 1 + n % 50, 'manual', n, n, '{{}}' from {series}
"""
SERIES = {
    "postgres": f"generate_series(1, {MANY}) as s(n)",
    "sqlite": f"(with recursive s(n) as (select 1 union all select n + 1 from s where n < {MANY}) select n from s) s",
}
# Each statement of a round, with the index that must find its rows.
ROUND: dict[str, tuple[dict[str, object], str | None]] = {
    "next_schedule": ({}, "hw_schedule_due"),
    "due_schedules": ({"limit": BATCH}, "hw_schedule_due"),
    "lock_due_schedules": ({"ids": json.dumps(list(range(1, 26)))}, None),
    "active_groups": ({"schedule_id": 1}, "hw_group_active"),
    "active_stages": ({"ids": json.dumps(list(range(1, 26)))}, "hw_group_active"),
    "decide_schedules": ({"rows": json.dumps([(1, 1, 0, 1, 2, None)])}, None),
    "fired_between": ({"schedule_id": 1, "since": 0, "until": 9}, "hw_tick"),
    "ticks_before": ({"schedule_id": 1, "before": 9, "limit": 5}, "hw_tick_ledger"),
    "schedules_after": ({"tenant_id": 1, "after": "s5", "limit": 9}, "hw_schedule_name"),
    "schedule_by_name": ({"tenant_id": 1, "name": "s5"}, "hw_schedule_name"),
    "last_switch": ({"id": 1}, "hw_event"),
}
# Run in the transaction that fires, which keeps the planner on its indexes.
PINNED = ("lock_due_schedules", "active_stages", "decide_schedules")


@pytest.fixture
def crowd(life: Life) -> Life:
    """Many schedules, all of which are due later, and many executions that have ended."""
    with life.database.transaction("fill") as tx:
        for text in (FILL, GROUPS):
            filled = text.format(now=life.clock.now(), series=SERIES[life.database.dialect])
            tx.connection.execute(filled)  # type: ignore[attr-defined]
    return life


@pytest.mark.parametrize("name", ROUND)
def test_a_round_reads_by_its_indexes(crowd: Life, name: str) -> None:
    params, index = ROUND[name]
    plan = _plan(crowd, name, params)
    assert index is None or index in plan, plan
    assert index is not None or re.search("hw_schedule_pkey|INTEGER PRIMARY KEY", plan), plan
    assert not re.search(r"Seq Scan on hw_(schedule|group|tick|event)|SCAN (s|g|t|hw_\w+)(?! USING)", plan), plan


@pytest.mark.parametrize("name", [name for name, (_, index) in ROUND.items() if index])
def test_a_plan_made_while_there_is_nothing_stays_good(life: Life, name: str) -> None:
    """A prepared statement keeps its first plan for a long time."""
    params, index = ROUND[name]
    plan = _plan(life, name, params)
    assert index is not None
    assert index in plan, plan


def _plan(life: Life, name: str, params: dict[str, object]) -> str:
    database = life.database
    with database.transaction("explain") as tx:
        if name in PINNED:
            tx.run("pin_plans")
        if isinstance(database, SqliteDatabase):
            assert isinstance(tx, SqliteTx)
            (text,) = database.texts[name]
            rows = tx.connection.execute("explain query plan " + text, {**params, "now": 1}).fetchall()
            return "\n".join(str(row[3]) for row in rows)
        assert isinstance(database, PostgresDatabase)
        assert isinstance(tx, PostgresTx)
        (text,) = database.texts[name]
        rows = tx.connection.execute("explain " + text.removesuffix(";"), {**params, "now": 1}).fetchall()
        return "\n".join(str(row[0]) for row in rows)


def test_twenty_thousand_sleeping_schedules_cost_a_round_nothing(crowd: Life) -> None:
    clockwork = Clockwork(crowd)
    made = clockwork.create("awake", times=["2026-01-01T00:00:00.000001Z"])
    assert clockwork.scheduler.tick() < 1e-5
    crowd.clock.time += 1
    with crowd.database.transaction("tamper") as tx:
        tx.connection.execute("update hw_schedule set next_at = null where name = 's1'")  # type: ignore[attr-defined]
    assert clockwork.scheduler.tick() == 0.0
    assert clockwork.ticks(made.id) == [(0, 1, "FIRED")]
