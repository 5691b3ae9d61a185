"""Lists of a tenant that owns one row of many, behind the second wall: they cost no more than anybody else's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headway.model.jobs.filter import JobFilter
from headway.model.jobs.states import State
from headway.store import paging
from headway.store.db import Tx
from headway.store.jobs import history, starts
from headway.store.jobs import views as job_views
from headway.store.paging import Page
from headway.store.postgres.row_security import walled
from headway.store.webhooks import delivery_views
from tests.support.life import Life
from tests.support.tenants import add_tenant

BEGAN = 1_700_000_000_000_000
SECOND = 1_000_000
OTHERS = 50_000
CROWD = """
insert into hw_job (id, tenant_id, bucket_id, status, priority, position, created_at, fence, started_at, finished_at,
  task, params, options, created_by)
select n, case n when 1 then {tenant} else 1 end, 1, 6, 0, n, {began} + n * 1000000, 1, {began}, {began},
  'x', '{{}}', '{{}}', '{{}}'
from generate_series(1::bigint, {others}) g(n);
insert into hw_run (job_id, tenant_id, task, params, worker_id, started_at, status, finished_at)
select id, tenant_id, task, params, 1, created_at, status, created_at from hw_job;
insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor, fence)
select tenant_id, 'job', id, 1, 'job.claimed', 3, created_at, '{{}}', 1 from hw_job order by id;
insert into hw_delivery (tenant_id, endpoint_id, event_id, event, max_tries, due_at, created_at)
select tenant_id, 1, id, 'job.run.completed', 1, 0, 0 from hw_job order by id;
analyze
"""


def test_an_owner_of_one_row_reads_no_further_than_others(postgres_life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the wall the rows of others are not there: a walk that ends at the next row would pass all of them."""
    life, other = postgres_life, add_tenant(postgres_life, "other").tenant_id
    life.client.lanes.of(1, "x")
    crowd = CROWD.format(tenant=other, began=BEGAN, others=OTHERS)
    life.database.transact("fill", lambda tx: life.database.execute_script(tx, crowd))
    hour = 3_600 * SECOND
    period = JobFilter(since=BEGAN + 4 * hour, until=BEGAN + 6 * hour)
    failed = JobFilter(frozenset({State.FAILED}), until=period.until)
    reads: dict[str, Callable[[Tx], Page[Any]]] = {
        "history": lambda tx: history.list_records(tx, other),
        "history of a time": lambda tx: history.list_records(tx, other, period),
        "failures": lambda tx: Page(list(history.latest_failures(tx, other).failures)),
        "failed before a time": lambda tx: history.list_records(tx, other, failed),
        "jobs": lambda tx: job_views.list_jobs(tx, other),
        "jobs of a time": lambda tx: job_views.list_jobs(tx, other, period),
        "runs": lambda tx: job_views.list_runs(tx, other),
        "runs before a time": lambda tx: job_views.list_runs(tx, other, JobFilter(until=period.until)),
        "deliveries": lambda tx: delivery_views.page(tx, other, status=None, limit=50, cursor=None),
    }
    behind = walled(life.database, other)
    with behind.read() as tx:
        assert [len(reads[name](tx).items) for name in ("history", "failures")] == [1, 0]
    for place in (starts, history):
        monkeypatch.setattr(place, "EVENTS", 1_000)
    monkeypatch.setattr(paging, "BUDGET", 1_000)
    for name, read in reads.items():
        with behind.read() as tx:
            before = fetched(tx)
            read(tx)
            assert fetched(tx) - before < 10_000, name
            connection: Any = tx.connection  # type: ignore[attr-defined]
            assert connection.execute("select id from hw_job").fetchall() == [(1,)], f"{name}: the wall stands again"


def fetched(tx: Tx) -> int:
    """The rows that this connection has looked at."""
    text = "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint from pg_stat_xact_user_tables"
    ((found,),) = tx.connection.execute(text).fetchall()  # type: ignore[attr-defined]
    return int(found)
