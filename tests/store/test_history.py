"""The history in lines and the latest failures: right, page by page, and as cheap with many jobs as with few."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import apsw
import pytest

from headway.errors import BadInput, NotFound
from headway.model.jobs.failure_groups import alike
from headway.model.jobs.filter import JobFilter
from headway.model.jobs.outcome import Completed, Failed, FailureKind, Lost, Skipped
from headway.model.jobs.states import State
from headway.store.db import Database, Tx
from headway.store.jobs import history, starts
from headway.store.jobs.history import Record
from headway.store.jobs.starts import EVENTS, WINDOW
from headway.store.paging import Page
from headway.store.postgres.row_security import walled
from headway.store.webhooks import delivery_views
from headway.text import params
from tests.support.life import BROKEN, TASK, Life
from tests.support.tenants import add_tenant

MANY = 30_000
FEW = 2_000  # rows, pages of memory
STEPS = 60_000  # of SQLite's machine; looking at all jobs takes half a million
BEGAN = 1_700_000_000_000_000
SECOND = 1_000_000

# One in a thousand has failed; none of the newest third has.
FILL = """
insert into hw_job (id, tenant_id, bucket_id, status, priority, position, created_at, fence, started_at, finished_at,
  ran, task, params, options, created_by, failure_kind)
select n, 1, 1, s, 0, n * 1048576, at, 1, at, at + 5, 1000 * (n % 900), 'task.' || (n % 7), '{}', '{}', '{}',
  case when s = 7 then 'EXCEPTION' end
from (select n, BEGAN + n * 1000000 as at, case when n % 1000 = 1 and n < MANY * 2 / 3 then 7 else 6 end as s
  from (NUMBERS) g) x;
insert into hw_run (job_id, tenant_id, task, params, worker_id, started_at, status, finished_at, error)
select id, 1, task, params, 1, created_at, status, created_at,
  case when status = 7 then 'ValueError: no file ' || id end from hw_job;
insert into hw_event (tenant_id, thing, thing_id, version, kind, status, at, actor, fence)
select 1, 'job', id, v, case when v = 2 then 'job.claimed' else 'job.other' end, 3, created_at, '{}', 1
from hw_job cross join (select 1 as v union all select 2 union all select 3 union all select 4) x order by id, v;
"""
NUMBERS = {
    "sqlite": "with recursive g(n) as (select 1 union all select n + 1 from g where n < {count}) select n from g",
    "postgres": "select generate_series(1::bigint, {count}) as n",
}
FAILED = [n for n in range(MANY, 0, -1) if n % 1000 == 1 and n < MANY * 2 // 3]


@pytest.fixture(scope="module")
def full(shared_life: Life) -> Database:
    """Many jobs that ended, in a database that nobody has analysed."""
    database = shared_life.database
    shared_life.client.lanes.of(1, "task.0")
    numbers = NUMBERS[database.dialect].format(count=MANY)
    text = FILL.replace("BEGAN", str(BEGAN)).replace("MANY", str(MANY)).replace("NUMBERS", numbers)

    def work(tx: Tx) -> None:
        for statement in text.split(";\n"):
            if statement.strip():
                database.execute_script(tx, statement)

    database.transact("fill", work)
    return database


def page(database: Database, cursor: str | None = None, limit: int = 50, **filters: Any) -> Page[Record]:
    with database.read() as tx:
        return history.list_records(tx, 1, JobFilter(**filters), limit, cursor)


def every(database: Database, **filters: Any) -> list[int]:
    found: list[int] = []
    cursor: str | None = None
    while True:
        one = page(database, cursor, 200, **filters)
        found += [record.job_id for record in one.items]
        cursor = one.next
        if cursor is None:
            return found


# --- right --------------------------------------------------------------------------------------------------------


def test_a_line_tells_how_a_job_ended(life: Life) -> None:
    done = life.run(life.enqueue(target="desk-1"), Completed("1")).id
    failed = life.run(life.enqueue(retry=0), Failed(FailureKind.EXIT_CODE, "boom\nand more", exit_code=3)).id
    skipped = life.run(life.enqueue(), Skipped("nothing new")).id
    cancelled, held, running = life.in_state("stopped"), life.in_state("ERROR"), life.in_state("RUNNING")
    life.in_state("QUEUED")
    found = {record.job_id: record for record in page(life.database).items}
    states = {number: record.status.name for number, record in found.items()}
    assert states == {
        **{done: "COMPLETED", failed: "FAILED", skipped: "SKIPPED"},
        **{cancelled: "CANCELLED", held: "ERROR", running: "RUNNING"},
    }
    assert (found[done].target, found[done].error, found[done].headline) == ("desk-1", None, None)
    assert (found[failed].exit_code, found[failed].failure_kind) == (3, "EXIT_CODE")
    assert (found[failed].error, found[failed].headline) == ("boom\nand more", "boom")
    assert found[skipped].error == "nothing new"
    assert found[running].finished_at is None
    for state in ("COMPLETED", "FAILED", "SKIPPED", "CANCELLED", "RUNNING", "ERROR"):
        wanted = [number for number, name in states.items() if name == state]
        assert every(life.database, statuses=frozenset({State[state]})) == sorted(wanted, reverse=True), state
    assert every(life.database, target="desk-1") == [done]
    assert every(life.database, failure_kind="EXIT_CODE") == every(life.database, q="BOOM") == [failed]
    assert every(life.database, task="other") == []
    with pytest.raises(NotFound, match="nowhere"):
        page(life.database, target="nowhere")


def test_pages_are_complete_and_newest_first(full: Database) -> None:
    assert every(full) == list(range(MANY, 0, -1))
    assert every(full, statuses=frozenset({State.FAILED})) == FAILED
    assert every(full, since=BEGAN + 100 * SECOND, until=BEGAN + 110 * SECOND) == list(range(109, 99, -1))
    short = page(full, q="no file 1001")
    assert (short.items, short.next is not None) == ([], True), f"nothing among the newest {EVENTS} events, it says so"
    assert [record.job_id for record in page(full, short.next, q="no file 1001").items] == [1_001]


def test_the_latest_failures(full: Database) -> None:
    with full.read() as tx:
        found, complete = history.latest_failures(tx, 1, 15)
        assert history.latest_failures(tx, 2).failures == []
    assert not complete
    assert [one.job_id for one in found] == FAILED[:15]
    assert found[0].error == f"ValueError: no file {FAILED[0]}"
    assert [(one.text, one.count) for one in alike(found)] == [("ValueError: no file <n>", 15)]


def test_no_visitor_sees_rows_of_another_tenant(life: Life) -> None:
    other = add_tenant(life, "other").tenant_id
    life.run(life.enqueue(retry=0), BROKEN)
    for database in (life.database, walled(life.database, other)):
        with database.read() as tx:
            assert history.list_records(tx, other).items == []
            assert history.latest_failures(tx, other).failures == []
    with walled(life.database, 1).read() as tx:
        assert len(history.latest_failures(tx, 1).failures) == len(history.list_records(tx, 1).items) == 1


def test_runs_come_in_the_order_in_which_they_began(life: Life) -> None:
    """Also of an old job that had to wait, and of one that was resumed after another had begun."""

    def run(job_id: int) -> int:
        life.clock.advance(1)
        return life.run(job_id, BROKEN).id

    old, resumed = life.enqueue(retry=0), life.in_state("PAUSED", retry=0)
    later = [run(life.enqueue(retry=0)) for _ in range(3)]
    life.client.resume(resumed)
    run(resumed)
    run(old)
    expected = [old, *reversed(later), resumed]
    failed = frozenset({State.FAILED})
    for filters in ({}, {"statuses": failed}, {"q": "broken"}, {"statuses": failed, "q": "broken"}):
        assert every(life.database, **filters) == expected, filters
        shown: list[int] = []
        cursor: str | None = None
        while not shown or cursor is not None:
            one = page(life.database, cursor, 1, **filters)
            shown += [record.job_id for record in one.items]
            cursor = one.next
        assert shown == expected, filters


def test_a_cursor_of_another_list_is_refused(life: Life) -> None:
    for _ in range(3):
        life.run(life.enqueue(retry=0), BROKEN)
    failed: dict[str, Any] = {"statuses": frozenset({State.FAILED})}
    by_event, by_job = page(life.database, limit=1).next, page(life.database, limit=1, **failed).next
    assert by_event == page(life.database, limit=1, task=TASK).next
    nothing: dict[str, Any] = {}
    refused: list[tuple[str | None, dict[str, Any]]] = [(by_job, nothing), (by_event, failed)]
    for number in ("-1", "", "1_0", "+1", " 1", str(1 << 63), "0" * 20 + "9" * 30, "9" * 5_000):
        refused += [(cursor_of("event", number), nothing), (cursor_of("jobs", *[number] * 4), failed)]
    for cursor, filters in (*refused, ("x", nothing), ("ä", nothing)):
        with pytest.raises(BadInput, match="cursor"):
            page(life.database, cursor, **filters)


def cursor_of(*parts: str) -> str:
    """As somebody might make one up."""
    return base64.urlsafe_b64encode(":".join(parts).encode()).decode().rstrip("=")


def test_many_of_few_are_read_in_windows(full: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts, "WINDOW", 6)
    assert len(FAILED) < WINDOW
    assert every(full, statuses=frozenset({State.FAILED})) == FAILED


@pytest.mark.parametrize("state", [State.FAILED, State.ERROR])
def test_what_comes_and_goes_between_pages_moves_nothing(
    life: Life, monkeypatch: pytest.MonkeyPatch, state: State
) -> None:
    """The older half of the jobs began last, so that a window cut anew would take in, or give away, what is shown."""
    monkeypatch.setattr(starts, "WINDOW", 4)
    one, two, *window = (life.enqueue(retry=0, on_lost="hold") for _ in range(6))
    outcome = BROKEN if state is State.FAILED else Lost("the worker is gone")
    for job_id in (*reversed(window), two, one):
        life.clock.advance(1)
        life.run(job_id, outcome)
    wanted: dict[str, Any] = {"statuses": frozenset({state})}
    assert every(life.database, **wanted) == [*window, one, two]
    shown: list[int] = []
    cursor: str | None = None
    while not shown or cursor is not None:
        found = page(life.database, cursor, 1, **wanted)
        shown += [record.job_id for record in found.items]
        cursor = found.next
        if len(shown) == 1:
            for _ in range(2):
                life.run(life.enqueue(retry=0, on_lost="hold"), outcome)
        if state is State.ERROR and len(shown) == 2:
            life.client.resolve(window[2], None)
    assert shown == [*window[:2], *(window[2:] if state is State.FAILED else window[3:]), one, two]


def test_a_window_that_became_fuller_is_shown_whole(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts, "WINDOW", 2)
    old, *late, new = (life.enqueue(retry=0) for _ in range(7))
    for job_id in (old, late[0], new):
        life.clock.advance(1)
        life.run(job_id, BROKEN)
    wanted: dict[str, Any] = {"statuses": frozenset({State.FAILED})}
    first = page(life.database, None, 1, **wanted)
    for job_id in late[1:]:
        life.run(job_id, BROKEN)
    shown, cursor = [record.job_id for record in first.items], first.next
    while cursor is not None:
        found = page(life.database, cursor, 1, **wanted)
        shown += [record.job_id for record in found.items]
        cursor = found.next
    assert shown[0] == new
    assert {late[0], old} < set(shown)
    assert len(shown) == len(set(shown))


def test_few_of_long_ago_are_found_at_once(full: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """What began before a time is not looked for among what was made after it."""
    monkeypatch.setattr(starts, "WINDOW", 4)
    monkeypatch.setattr(starts, "BUDGET", 8)
    found = page(full, statuses=frozenset({State.FAILED}), until=BEGAN + 1_500 * SECOND)
    assert [record.job_id for record in found.items] == [1_001, 1]


def test_params_are_shown_in_part_and_searched(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    (one, other) = (life.enqueue(params=json.dumps({"topic": topic})) for topic in ("Fog", "x" * 5_000))
    life.run(one, Completed("1"))
    life.run(other, Completed("1"))
    found = {record.job_id: record for record in page(life.database).items}
    assert found[one].given == "topic: Fog"
    assert len(found[other].params) == params.LOOKED_AT + 1
    assert every(life.database, q="fog") == [one]
    monkeypatch.setattr(params, "LOOKED_AT", 50)
    assert {len(record.params) for record in page(life.database).items} == {len(found[one].params), 51}


def test_failures_that_came_right_are_told(life: Life) -> None:
    """By a retry, by a retry of a retry, by hand, or after a resume. Held ones are failures too."""
    chain = life.run(life.enqueue(retry=0), BROKEN).id
    second = life.client.retry(chain).id
    life.run(second, BROKEN)
    third = life.client.retry(second).id
    life.run(third, Completed("1"))
    hopeless = life.run(life.enqueue(retry=0), BROKEN).id
    again = life.client.retry(hopeless).id
    resolved, resumed, held = (life.in_state("ERROR") for _ in range(3))
    life.client.resolve(resolved, None)
    life.client.resume(resumed)
    life.run(resumed, Completed("1"))
    with life.database.read() as tx:
        found = {one.job_id: one for one in history.latest_failures(tx, 1).failures}
    assert {number: one.solved for number, one in found.items()} == {
        **{chain: True, second: True, hopeless: False},
        **{resolved: True, resumed: True, held: False},
    }
    assert again not in found
    assert (found[held].kind, "the worker is gone" in found[held].error) == ("LOST", True)
    assert sum(group.solved for group in alike(found.values())) == 4


def test_what_waits_for_a_decision_is_among_the_failures_however_old(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved, held, failed = life.in_state("ERROR"), life.in_state("ERROR"), life.in_state("FAILED")
    life.client.resolve(resolved, None)
    for _ in range(3):
        life.in_state("COMPLETED")

    def latest() -> history.LatestFailures:
        with life.database.read() as tx:
            return history.latest_failures(tx, 1)

    everything = latest()
    assert ([one.job_id for one in everything.failures], everything.complete) == ([failed, held, resolved], True)
    monkeypatch.setattr(history, "EVENTS", 5)
    lately = latest()
    assert ([one.job_id for one in lately.failures], lately.complete) == ([failed, held], False)
    assert lately.failures == everything.failures[:2]


# --- cost ---------------------------------------------------------------------------------------------------------

PARAMS: dict[str, object] = {
    **{
        "tenant_id": 1,
        "limit": 2_000,
        "before": 1 << 62,
        "floor": 4 * MANY - 1_000,
        "now": 1,
        "mask": 1023,
        "looked_at": 500,
    },
    **{"since": 0, "until": 1 << 62, "ids": "[1,1001,2001]", "id": MANY},
    **dict.fromkeys(("task", "failure_kind", "q", "target_id", "group_id", "schedule_id", "exhausted", "stopping")),
}
# The index that leads to the jobs; the others are found by their number.
LEADS = {
    **{
        "latest_failures": "hw_job_failed",
        "standing_errors": "hw_job_held",
        "pick_records": None,
        "tries_after": "hw_job_retries",
    },
    **dict.fromkeys(("walk_begun", "event_before", "event_from", "begun_of", "latest_errors")),
}


@pytest.mark.parametrize("behind", [False, True], ids=["plain", "walled"])
@pytest.mark.parametrize("analysed", [False, True], ids=["new", "analysed"])
def test_the_cost_does_not_grow_with_what_ended(full: Database, analysed: bool, behind: bool) -> None:
    if analysed:
        with full.transaction("analyze") as tx:
            tx.connection.execute("analyze")  # type: ignore[attr-defined]
    for name, index in LEADS.items():
        check(walled(full, 1) if behind else full, name, index)


def test_the_guard_can_fail(full: Database) -> None:
    """A way to the failed that looks at every run is found out."""
    text = "select job_id from hw_run where tenant_id = 1 and status = 7 order by job_id desc limit 2000"
    with pytest.raises(AssertionError, match="failed runs"):
        check(full, "failed runs", None, text)


def check(database: Database, name: str, index: str | None, text: str | None = None) -> None:
    with database.read() as tx:
        tx.run("pin_plans")
        texts: dict[str, list[str]] = tx.texts  # type: ignore[attr-defined]
        connection: Any = tx.connection  # type: ignore[attr-defined]
        look = _sqlite if database.dialect == "sqlite" else _postgres
        work, plan = look(connection, text or texts[name][0])
    assert work < (STEPS if database.dialect == "sqlite" else FEW), (name, work, plan)
    assert index is None or index in plan, (name, plan)


def _sqlite(connection: apsw.Connection, text: str) -> tuple[int, str]:
    steps: list[int] = []
    plan = "; ".join(row[3] for row in connection.execute(f"explain query plan {text}", PARAMS))
    connection.trace_v2(
        apsw.SQLITE_TRACE_PROFILE, lambda event: steps.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])
    )
    try:
        connection.execute(text, PARAMS).fetchall()
    finally:
        connection.trace_v2(0, None)
    return max(steps), plan


def _postgres(connection: Any, text: str) -> tuple[int, str]:
    """The rows looked at."""
    ((plan,),) = connection.execute(f"explain (analyze, timing off, format json) {text}", PARAMS).fetchall()
    steps = list(_nodes(plan[0]["Plan"]))
    looked = sum((one["Actual Rows"] + one.get("Rows Removed by Filter", 0)) * one["Actual Loops"] for one in steps)
    return int(looked), str(plan)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", []):
        yield from _nodes(part)


# --- deliveries ---------------------------------------------------------------------------------------------------


def test_the_log_of_deliveries_is_filtered_and_bounded(life: Life) -> None:
    hooks = [life.client.webhooks.create(f"https://{n}.example/hook") for n in range(3)]
    for _ in range(4):
        life.in_state("COMPLETED")
    failed = life.in_state("FAILED")
    client = life.client.webhooks
    first = client.deliveries(webhook=hooks[0].id, event="job.run.completed", limit=3)
    rest = client.deliveries(webhook=hooks[0].id, event="job.run.completed", limit=3, cursor=first.next)
    assert [one.event for one in (*first.items, *rest.items)] == ["job.run.completed"] * 4
    assert client.deliveries(webhook=hooks[0].id, status="DELIVERED").items == []
    about = client.deliveries(job=failed, event="job.run.failed").items
    assert {one.endpoint_id for one in about} == {hook.id for hook in hooks}
    with life.database.read() as tx:
        latest = delivery_views.latest(tx, [hook.id for hook in hooks], 2)
        assert delivery_views.latest(tx, [], 2) == {}
    assert {number: len(found) for number, found in latest.items()} == {hook.id: 2 for hook in hooks}
    assert all(found[0].id > found[1].id for found in latest.values())
