"""Lists, the queue and counts: right, complete page by page, and as cheap with many jobs as with few."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from headway.errors import BadInput, NotFound
from headway.model.jobs.filter import JobFilter
from headway.model.jobs.job import Run
from headway.model.jobs.states import State
from headway.store import paging
from headway.store.db import Database, Tx, open_database
from headway.store.jobs import history
from headway.store.jobs import views as job_views
from headway.store.jobs.views import JobView
from headway.store.migrations import migrate
from headway.store.paging import Page
from headway.store.queue import queue_views
from headway.store.statements import blocks, sql_text
from tests.support.life import Life

MANY = 30_000
BEGAN = 1_700_000_000_000_000
SECOND = 1_000_000

FILL = """
insert into hw_bucket (tenant_id, task, lanes) values (1, 'bulk', '[1]');
insert into hw_job (id, tenant_id, bucket_id, status, gate, priority, position, created_at, fence, queued_at,
  finished_at, not_before, task, params, options, created_by, failure_kind)
select n, 1, 1, s, case when s = 2 then 1 else 0 end, cast(n % 3 as smallint), n * 1048576, at, 1,
  case when s = 2 then at end, case when s >= 6 then at + 5 end, case when s = 1 then 1900000000000000 end,
  'task.' || (n % 7), '{}', '{}', '{"type":"user","id":"17","name":"ann"}', case when s = 7 then 'TIMEOUT' end
from (
  select n, BEGAN + n * 1000000 as at, case when n > QUEUED then 2 when n % 100 = 1 then 7
    when n % 1000 = 0 then 4 when n % 5000 = 2 then 1 else 6 end as s from (NUMBERS) g
) x;
insert into hw_run (job_id, tenant_id, task, params, worker_id, started_at, status, finished_at)
select id, 1, task, params, 1, created_at, case when status = 7 then 7 else 6 end, created_at
from hw_job where status >= 6;
"""
NUMBERS = {
    "sqlite": "with recursive g(n) as (select 1 union all select n + 1 from g where n < {count}) select n from g",
    "postgres": "select generate_series(1::bigint, {count}) as n",
}


def fill(database: Database, count: int) -> None:
    """Many jobs: mostly COMPLETED, the newest tenth QUEUED, some FAILED, PAUSED and SCHEDULED in between."""
    numbers = NUMBERS[database.dialect].format(count=count)
    text = FILL.replace("BEGAN", str(BEGAN)).replace("QUEUED", str(count * 9 // 10)).replace("NUMBERS", numbers)

    def work(tx: Tx) -> None:
        for statement in text.split(";\n"):
            if statement.strip():
                database.execute_script(tx, statement)

    database.transact("fill", work)


@pytest.fixture
def empty(database_url: str) -> Iterator[Database]:
    database = open_database(database_url)
    migrate(database)
    yield database
    database.close()


@pytest.fixture
def full(empty: Database) -> Database:
    fill(empty, MANY)
    return empty


def page(database: Database, *, cursor: str | None = None, limit: int = 50, **filters: Any) -> Page[JobView]:
    with database.read() as tx:
        return job_views.list_jobs(tx, 1, JobFilter(**filters), limit, cursor)


def every(database: Database, **filters: Any) -> list[int]:
    """All numbers a filter finds, page by page."""
    found: list[int] = []
    cursor: str | None = None
    while True:
        one = page(database, cursor=cursor, limit=200, **filters)
        found += [view.job.id for view in one.items]
        cursor = one.next
        if cursor is None:
            return found


def test_pages_are_complete_and_newest_first(full: Database) -> None:
    assert every(full) == list(range(MANY, 0, -1))


@pytest.mark.parametrize("status", list(State), ids=lambda state: state.name)
def test_pages_of_one_state(full: Database, status: State) -> None:
    queued = MANY * 9 // 10

    def state(n: int) -> State:
        if n > queued:
            return State.QUEUED
        if n % 100 == 1:
            return State.FAILED
        return State.PAUSED if n % 1000 == 0 else State.SCHEDULED if n % 5000 == 2 else State.COMPLETED

    expected = [n for n in range(MANY, 0, -1) if state(n) is status]
    assert every(full, statuses=frozenset({status})) == expected


def test_several_states_are_merged_in_order(full: Database) -> None:
    some = every(full, statuses=frozenset({State.FAILED, State.PAUSED}))
    assert some == [n for n in range(MANY * 9 // 10, 0, -1) if n % 100 == 1 or n % 1000 == 0]
    mixed = every(full, statuses=frozenset({State.FAILED, State.SCHEDULED}))
    assert mixed == [n for n in range(MANY * 9 // 10, 0, -1) if n % 100 == 1 or n % 5000 == 2]


def test_filters(full: Database) -> None:
    assert every(full, task="task.3") == [n for n in range(MANY, 0, -1) if n % 7 == 3]
    assert every(full, failure_kind="TIMEOUT") == [n for n in range(MANY * 9 // 10, 0, -1) if n % 100 == 1]
    since, until = BEGAN + 1_000 * SECOND, BEGAN + 1_010 * SECOND
    assert every(full, since=since, until=until) == list(range(1_009, 999, -1))
    assert every(full, created_by="ann", since=BEGAN + (MANY - 5) * SECOND) == list(range(MANY, MANY - 6, -1))
    assert every(full, created_by="17", since=BEGAN + MANY * SECOND) == [MANY]
    assert every(full, created_by="an_") == every(full, created_by="1") == every(full, created_by='ann"') == []
    assert every(full, q="TASK.5", since=BEGAN + (MANY - 6) * SECOND) == [
        n for n in range(MANY, MANY - 7, -1) if n % 7 == 5
    ]
    assert every(full, q="task_5") == []


def test_a_short_page_says_where_to_go_on(full: Database) -> None:
    one = page(full, task="no.such.task")
    assert (one.items, one.next) == ([], paging.make_cursor(MANY - paging.BUDGET + 1))
    assert page(full, task="no.such.task", cursor=one.next) == Page([])


def test_bad_cursors_and_limits(empty: Database) -> None:
    for cursor in ("", "x", "aWQ6LTE", "aWQ6MS4w", "eA", "ä", "id:1"):
        with pytest.raises(BadInput, match="cursor"):
            page(empty, cursor=cursor)
    for limit in (0, 201, -1):
        with pytest.raises(BadInput, match="limit"):
            page(empty, limit=limit)


def test_runs(full: Database) -> None:
    with full.read() as tx:
        failed = job_views.list_runs(tx, 1, JobFilter(frozenset({State.FAILED})), 3)
        more = job_views.list_runs(tx, 1, JobFilter(frozenset({State.FAILED})), 3, failed.next)
        newest = job_views.list_runs(tx, 1, JobFilter(since=BEGAN, until=BEGAN + 500 * SECOND), 2)
    assert [run.job_id for run in failed.items + more.items] == [26_901, 26_801, 26_701, 26_601, 26_501, 26_401]
    assert [run.job_id for run in newest.items] == [499, 498]


def test_the_queue_in_claim_order(full: Database) -> None:
    with full.read() as tx:
        found = queue_views.queue(tx, 1, 50)
    jobs = [one.view.job for one in found]
    assert [(-job.priority, job.position) for job in jobs] == sorted((-job.priority, job.position) for job in jobs)
    ranked = [(one.view.rank, one.view.job.status) for one in found]
    assert [rank for rank, status in ranked if status is State.QUEUED] == list(
        range(1, sum(r is not None for r, _ in ranked) + 1)
    )
    assert all(rank is None for rank, status in ranked if status is State.SCHEDULED)
    assert {one.blockers[0].kind for one in found if one.view.job.status is State.QUEUED} == {"no_worker"}


def test_counts(full: Database) -> None:
    with full.read() as tx:
        counts = job_views.counts(tx, 1, since=BEGAN + 26_000 * SECOND)
    assert (counts.by_status["QUEUED"], counts.by_status["PAUSED"], counts.by_status["FAILED"]) == (3_000, 27, 10)
    assert counts.longest_wait is not None
    assert counts.longest_wait[0] == 27_001
    assert not counts.at_least


def test_another_tenant_sees_nothing(full: Database) -> None:
    with full.read() as tx:
        assert job_views.list_jobs(tx, 2).items == []
        assert job_views.list_runs(tx, 2).items == []
        assert queue_views.queue(tx, 2) == []
        with pytest.raises(NotFound):
            job_views.view(tx, 2, 1)


def test_a_page_of_failed_runs_looks_at_no_more_than_its_budget(full: Database) -> None:
    """No index leads to them: a page that found few says where to go on, instead of looking at every run."""

    def failed(cursor: str | None = None) -> Page[Run]:
        with full.read() as tx:
            return job_views.list_runs(tx, 1, JobFilter(frozenset({State.FAILED}), task="task.5"), 200, cursor)

    first = failed()
    assert first.next is not None
    assert 0 < len(first.items) < 200
    rest = failed(first.next)
    assert rest.next is None
    expected = [n for n in range(MANY * 9 // 10, 0, -1) if n % 100 == 1 and n % 7 == 5]
    assert [run.job_id for run in (*first.items, *rest.items)] == expected


def test_running_jobs_with_a_stop_request_are_a_filter(life: Life) -> None:
    running, stopping = life.in_state("running"), life.in_state("cancelling")
    with life.database.read() as tx:
        wanted = JobFilter.from_query({"status": ["CancellationRequested"]})
        assert [view.job.id for view in job_views.list_jobs(tx, 1, wanted).items] == [stopping]
        assert [one.job_id for one in history.list_records(tx, 1, wanted).items] == [stopping]
        both = job_views.list_jobs(tx, 1, JobFilter(frozenset({State.RUNNING}))).items
    assert [view.job.id for view in both] == [stopping, running]


# --- cost ---------------------------------------------------------------------------------------------------------

PARAMS = {
    **{"tenant_id": 1, "before": 1 << 62, "floor": 0, "limit": 51, "most": 20_000, "status": 4, "mask": 1023},
    **{"since": 0, "until": 1 << 62, "id": 500, "job_id": 7, "thing": "job", "thing_id": 7, "after": 0, "now": 1},
    **{"priority": 0, "position": 5_000, "created_at": 1},
    **{"within": 3_600_000_000, "ids": json.dumps(list(range(100, 150))), "group_id": 7, "schedule_id": 7},
    **{"story": "story.generate", "research": "research.run"},
    **dict.fromkeys(("task", "key", "failure_kind", "by_name", "by_id", "q", "target_id", "exhausted", "stopping")),
}
# As many rows as there are lanes and workers, or, by the row number itself, as are asked for.
SMALL = {"lanes", "shown_workers", "touched_targets"}


def names(dialect: str) -> list[str]:
    other = {"sqlite": "_postgres", "postgres": "_sqlite"}[dialect]
    return [name for name in blocks(sql_text("jobs", "views.sql")) if not name.endswith((other, f"found_{dialect}"))]


def test_every_statement_uses_an_index_made_for_it(full: Database) -> None:
    for name in set(names(full.dialect)) - SMALL:
        plan = _plan(full, name)
        whole = (line for line in plan if "INDEX" not in line)
        scans = [line for line in whole if line.startswith("SCAN hw_") or "Seq Scan" in line]
        if name == "last_job":  # by the row number itself, and only one
            continue
        assert scans == [], (name, plan)


def _plan(database: Database, name: str) -> list[str]:
    with database.read() as tx:
        tx.run("pin_plans")
        (text,) = database.texts[name]  # type: ignore[attr-defined]
        connection: Any = tx.connection  # type: ignore[attr-defined]
        if database.dialect == "sqlite":
            return [row[3] for row in connection.execute(f"explain query plan {text}", PARAMS)]
        return [row[0] for row in connection.execute(f"explain {text}", PARAMS).fetchall()]


def test_a_page_of_the_newest_looks_at_no_more_than_it_shows(postgres_url: str) -> None:
    """Counted by PostgreSQL itself: pages of memory touched, about one for each row where nothing is vacuumed yet."""
    with closing(open_database(postgres_url)) as database:
        migrate(database)
        fill(database, MANY)
        for name in (
            "walk_jobs",
            "walk_failed",
            "walk_held",
            "walk_runs",
            "queue_jobs",
            "queue_order",
            "queue_rest",
            "queue_below",
            "queue_places",
            "queue_places_after",
            "line",
            "past_runs",
            "tenants_in_line",
        ):
            assert _buffers(database, name) < 2 * 51, name


def _buffers(database: Database, name: str) -> int:
    with database.read() as tx:
        tx.run("pin_plans")
        (text,) = database.texts[name]  # type: ignore[attr-defined]
        connection: Any = tx.connection  # type: ignore[attr-defined]
        explain = f"explain (analyze, buffers, format json) {text}"
        ((plan,),) = connection.execute(explain, PARAMS).fetchall()
    top = plan[0]["Plan"]
    return int(top["Shared Hit Blocks"]) + int(top["Shared Read Blocks"])
