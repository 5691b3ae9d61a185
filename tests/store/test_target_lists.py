"""Targets and lanes as people see them: right, complete page by page, and not dearer for a long queue."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headway.errors import BadInput, NotFound
from headway.model.jobs.filter import JobFilter
from headway.model.jobs.outcome import Completed
from headway.model.queue.target import TargetState, TargetView
from headway.store import paging
from headway.store.db import Tx
from headway.store.jobs import reports
from headway.store.jobs import views as job_views
from headway.store.queue import lane_views, lanes, reservations, targets
from tests.support.life import ADA, FINAL, TASK, Life

TENANT = 1


def shown(life: Life, name: str, tenant_id: int = TENANT) -> TargetView:
    with life.database.read() as tx:
        return targets.shown(tx, tenant_id, name)


def names(life: Life, limit: int = 3, **wishes: Any) -> list[str]:
    """All of them, page by page."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        with life.database.read() as tx:
            page = targets.listed(tx, TENANT, limit=limit, cursor=cursor, **wishes)
        found += [one.name for one in page.items]
        cursor = page.next
        if cursor is None:
            return found


def start(life: Life, count: int = 1) -> list[int]:
    return [life.claim(job_id).job_id for job_id in life.pick(count)]


# --- one target ---------------------------------------------------------------------------------------------------


def test_a_target_through_its_days(life: Life) -> None:
    first, second = (life.enqueue(target="desk-1") for _ in range(2))
    life.enqueue(target="desk-1", hold=True)
    assert (shown(life, "desk-1").state, shown(life, "desk-1").waiting) == (TargetState.FREE, 2)
    life.clock.advance(5)
    assert start(life) == [first]
    busy = shown(life, "desk-1")
    assert (busy.state, busy.running, busy.since, busy.waiting) == (TargetState.BUSY, first, life.clock.now(), 1)
    life.clock.advance(5)
    life.end(life.held(first), FINAL)
    failed_at = life.clock.now()
    life.clock.advance(5)
    life.client.pause_target("desk-1", note="dust")
    paused = shown(life, "desk-1")
    assert (paused.state, paused.held_by, paused.since, paused.note) == (
        TargetState.PAUSED,
        first,
        life.clock.now(),
        "dust",
    )
    life.client.resume_target("desk-1")
    held = shown(life, "desk-1")
    assert (held.state, held.held_by, held.since, held.reason) == (TargetState.HELD, first, failed_at, "hopeless")
    life.clock.advance(5)
    life.client.resume(first)
    resumed = shown(life, "desk-1")
    assert (resumed.state, resumed.held_by, resumed.resumed, resumed.since) == (
        TargetState.HELD,
        first,
        True,
        life.clock.now(),
    )
    assert resumed.waiting == 1  # the second; the resumed one has it
    assert start(life, 9) == [first]
    life.end(life.held(first), Completed("1"))
    assert (shown(life, "desk-1").state, life.pick(9)) == (TargetState.FREE, [second])


def test_a_late_write_does_not_change_since_when_it_is_held(life: Life) -> None:
    job_id = life.enqueue(target="desk-1")
    start(life)
    stale = life.held(job_id)
    life.end(stale, FINAL)
    since = shown(life, "desk-1").since
    life.clock.advance(60)
    life.database.transact("late", lambda tx: reports.reject_late(tx, (job_id, stale.fence), life.actor()))
    assert life.events(job_id)[-1] == "job.late_write_rejected"
    assert shown(life, "desk-1").since == since


def test_a_direct_call_has_it(life: Life) -> None:
    life.enqueue(target="desk-1")
    with life.database.read() as tx:
        target_id = lanes.find_target(tx, TENANT, "desk-1")[0]

    def reserve(tx: Tx) -> int:
        tx.run("claim_lock")
        return reservations.add(
            tx, TENANT, lanes=[], target_id=target_id, holder="here", actor=ADA, worker_id=life.worker_id, task=TASK
        )

    number = life.database.transact("reserve", reserve)
    assert (shown(life, "desk-1").state, shown(life, "desk-1").direct) == (TargetState.FREE, None)  # it stands in line
    assert life.pick(9) == []  # grants it
    granted = shown(life, "desk-1")
    assert (granted.state, granted.direct, granted.running, granted.waiting) == (TargetState.BUSY, number, None, 1)


def test_another_tenants_targets_are_not_there(life: Life) -> None:
    life.enqueue(target="desk-1")
    life.client.pause_target("desk-1")
    with pytest.raises(NotFound, match="there is no target 'desk-1'"):
        shown(life, "desk-1", tenant_id=2)
    with life.database.read() as tx:
        assert targets.listed(tx, 2).items == []
        assert targets.blocked(tx, 2) == []
        with pytest.raises(NotFound):
            job_views.list_jobs(tx, 2, JobFilter(target="desk-1"))


# --- lists --------------------------------------------------------------------------------------------------------


def test_pages_by_name(life: Life) -> None:
    made = {f"rig {n:02}" for n in range(20)} | {"Zebra", "é", "a" * 200, "desk-1"}
    for name in made:
        life.enqueue(target=name)
    for limit in (1, 3, 23, 24, 25):
        found = names(life, limit)
        assert (len(found), set(found)) == (len(made), made)
    assert names(life, 5) == names(life, 200)  # one order, however it is cut
    for name in ("rig 03", "rig 17"):
        life.client.pause_target(name)
    assert names(life, 1, states=[TargetState.PAUSED]) == ["rig 03", "rig 17"]
    assert len(names(life, 4, states=[TargetState.FREE])) == len(made) - 2


def test_jobs_that_wait_for_a_person(life: Life) -> None:
    for name in ("c", "b", "a"):
        life.enqueue(target=name)
    life.in_state("PAUSED")  # on no target
    for job_id in start(life, 2):
        life.end(life.held(job_id), FINAL)
    life.client.pause_target("c", note="dust")
    with life.database.read() as tx:
        found = [(one.name, one.state.value, one.held_by, one.note) for one in targets.blocked(tx, TENANT)]
    assert found == [("b", "held", 2, None), ("c", "paused", 1, "dust")]


def test_a_cursor_of_another_list_is_refused(life: Life) -> None:
    life.enqueue(target="desk-1")
    with life.database.read() as tx:
        for cursor in (paging.make_cursor(99), "what", ""):
            with pytest.raises(BadInput, match="cursor"):
                targets.listed(tx, TENANT, cursor=cursor)
        with pytest.raises(BadInput, match="limit must be from 1 to 200"):
            targets.listed(tx, TENANT, limit=0)


def test_names_of_targets_come_with_their_jobs(life: Life) -> None:
    ids = [life.enqueue(target=name) for name in ("b", "a", None, "b")]
    with life.database.read() as tx:
        found = {one.job.id: one.target for one in job_views.list_jobs(tx, TENANT).items}
        on_b = [one.job.id for one in job_views.list_jobs(tx, TENANT, JobFilter(target="b")).items]
    assert found == dict(zip(ids, ("b", "a", None, "b"), strict=True))
    assert on_b == [ids[3], ids[0]]


# --- lanes --------------------------------------------------------------------------------------------------------


def test_lanes_with_what_is_on_them(life: Life) -> None:
    life.client.lanes.defined = {"ollama": 1, "remote": 2}
    for wanted in (("ollama",), ("ollama", "remote"), ("remote",), ()):
        life.enqueue(resources=wanted)
    life.enqueue(resources=("remote",), hold=True)
    life.set_limit(3)
    assert start(life, 9) == [1, 3, 4]
    with life.database.read() as tx:
        found = {one.name: (one.kind, one.limit, one.running, one.waiting) for one in lane_views.listed(tx, TENANT)}
        others = {one.name: (one.running, one.waiting) for one in lane_views.listed(tx, 2)}
    assert found == {
        "global": ("policy", 3, 3, 1),
        "ollama": ("resource", 1, 1, 1),
        "remote": ("resource", 2, 1, 1),
    }
    # What occupies a shared lane is everybody's business, who waits for it is not.
    assert others == {"global": (3, 0), "ollama": (1, 0), "remote": (1, 0)}


# --- cost ---------------------------------------------------------------------------------------------------------

MANY = 30_000
FILL = """
insert into hw_job (id, tenant_id, bucket_id, target_id, status, gate, priority, position, created_at, queued_at, task,
  params, options, created_by)
select 1000 + n, 1, 1 + n % 2, case when n % 2 = 0 then 1 end, 2, n % 2, 0, n * 1048576, 1, 1, 'task', '{}', '{}', '{}'
from (NUMBERS) g
"""
NUMBERS = {
    "sqlite": "with recursive g(n) as (select 1 union all select n + 1 from g where n < {count}) select n from g",
    "postgres": "select generate_series(1::bigint, {count}) as n",
}
BY_INDEX = {
    "target_holders": "hw_job_target_hold",
    "waiting_on_targets": "hw_job_target",
    "blocked_targets": "hw_job_held",
    "running_per_bucket": "hw_job_slot",
    "ready_per_bucket": "hw_job_ready",
}
PARAMS = {"tenant_id": 1, "after": "", "limit": 51, "most": 20_000, "now": 1, "ids": json.dumps([1, 2, 3])}


@pytest.fixture(scope="module")
def crowded(shared_life: Life) -> Life:
    """Half of many jobs queued on one target, half on none."""
    life = shared_life
    for target in ("crowded", "quiet", None):
        life.client.cancel(life.enqueue(target=target))
    numbers = NUMBERS[life.database.dialect].format(count=2 * MANY)

    def work(tx: Tx) -> None:
        life.database.execute_script(tx, FILL.replace("NUMBERS", numbers))

    life.database.transact("fill", work)
    return life


def test_no_more_is_counted_than_a_page_may_cost(crowded: Life) -> None:
    one = shown(crowded, "crowded")
    assert (one.waiting, one.at_least) == (paging.BUDGET, True)
    with crowded.database.read() as tx:
        page = targets.listed(tx, TENANT)
        (lane,) = lane_views.listed(tx, TENANT)
    assert [(one.name, one.waiting, one.at_least) for one in page.items] == [
        ("crowded", paging.BUDGET // 2, True),
        ("quiet", 0, False),
    ]
    assert (lane.at_least, lane.waiting < MANY) == (True, True)


@pytest.mark.parametrize("name", [*BY_INDEX, "targets_after", "targets_by_id"])
def test_everything_is_found_by_an_index(crowded: Life, name: str) -> None:
    database: Any = crowded.database
    with database.read() as tx:
        tx.run("pin_plans")
        (text,) = database.texts[name]
        if database.dialect == "sqlite":
            plan = [row[3] for row in tx.connection.execute(f"explain query plan {text}", PARAMS)]
        else:
            plan = [row[0] for row in tx.connection.execute(f"explain {text}", PARAMS).fetchall()]
    told = "\n".join(plan)
    bare = [line for line in plan if "INDEX" not in line]
    assert not [line for line in bare if line.startswith("SCAN hw_") or "Seq Scan" in line], told
    assert BY_INDEX.get(name, "") in told
