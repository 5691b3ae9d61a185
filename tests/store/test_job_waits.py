"""Claims that wait for the end of a job, in the database: recorded under the fence, and read as long as they count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headway.errors import NotFound
from headway.model.explain.deadlock import WaitKey, knot
from headway.model.groups.group import NewGroup
from headway.model.jobs.outcome import Completed
from headway.store.db import Tx
from headway.store.queue import queue_views, waits
from tests.support.life import FINAL, HOUR, Life
from tests.support.plans import member


def record(life: Life, job_id: int, awaited_id: int) -> bool:
    claim = (job_id, life.job(job_id).fence)
    return life.database.transact("record_wait", lambda tx: waits.record(tx, claim, awaited_id))


def gives_way(life: Life) -> list[WaitKey]:
    """The claims that have to give way."""
    with life.database.read() as tx:
        found, limits = waits.read(tx, {life.worker_id})
    return [wait.key for wait in found if knot(wait.key, found, limits)]


@pytest.fixture
def full(life: Life) -> Callable[..., tuple[int, int, int, int]]:
    """Two parents that fill the global lane, and the jobs behind it that they wait for."""

    def make(parent: dict[str, Any] | None = None, child: dict[str, Any] | None = None) -> tuple[int, int, int, int]:
        life.set_limit(2)
        first, second = (life.in_state("RUNNING", **(parent or {})) for _ in range(2))
        behind = [life.enqueue(**(child or {})) for _ in range(2)]
        assert record(life, first, behind[0])
        assert record(life, second, behind[1])
        return first, second, behind[0], behind[1]

    return make


Full = Callable[..., tuple[int, int, int, int]]


def test_a_lane_full_of_waiting_jobs_is_a_knot(life: Life, full: Full) -> None:
    _, second, *_ = full()
    assert gives_way(life) == [(second, 1)]


def test_a_circle_over_targets_and_the_global_lane(life: Life) -> None:
    first = life.in_state("RUNNING")
    second = life.in_state("RUNNING", target="printer")
    behind = life.enqueue()
    record(life, second, behind)
    assert gives_way(life) == []
    record(life, first, second)
    assert gives_way(life) == [(second, 1)]
    life.end(life.held(second), FINAL)
    assert gives_way(life) == []


def test_a_circle_over_two_targets(life: Life) -> None:
    first, second = (life.in_state("RUNNING", target=name) for name in ("printer", "scanner"))
    record(life, first, life.enqueue(target="scanner"))
    record(life, second, life.enqueue(target="printer"))
    assert gives_way(life) == [(second, 1)]


def test_a_circle_over_the_limit_of_a_tenant(life: Life) -> None:
    life.set_limit(None)
    life.client.tenants.edit("default", {"max_running": 2})
    first, second = (life.in_state("RUNNING") for _ in range(2))
    for job_id in (first, second):
        record(life, job_id, life.enqueue())
    assert gives_way(life) == [(second, 1)]
    life.client.tenants.edit("default", {"max_running": None})
    assert gives_way(life) == []


def test_a_direct_call_in_the_circle_gives_way(life: Life) -> None:
    with life.database.read() as tx:
        ((lane_id, _, _),) = tx.run("lane_by_name", tenant_id=0, kind="policy", name="global")
    life.sql_write(
        "insert into hw_reservation (tenant_id, lanes, worker_id, holder, task, created_at, granted_at, created_by)"
        f" values ({life.client.tenant_id}, '[{lane_id}]', {life.worker_id}, 'ada', 't', 1, 1, '{{}}')"
    )
    runs = life.in_state("RUNNING", target="printer")
    record(life, runs, life.enqueue())
    assert life.database.transact("record_wait", lambda tx: waits.record(tx, (0, 1), runs))
    assert gives_way(life) == [(0, 1)]
    life.sql_write("update hw_reservation set status = 'RELEASED', finished_at = 2")
    assert gives_way(life) == []
    assert not life.database.transact("record_wait", lambda tx: waits.record(tx, (0, 1), runs))


# --- both sides of the rule ---------------------------------------------------------------------------------------


def drain(life: Life, *_: int) -> None:
    life.sql_write(f"update hw_worker set state = 'draining' where id = {life.worker_id}")


def finish_first(life: Life, first: int, *_: int) -> None:
    assert life.end(life.held(first), Completed())


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda life, *_: life.set_limit(3), id="a limit was raised"),
        pytest.param(lambda life, *_: life.set_limit(None), id="a limit was taken away"),
        pytest.param(lambda life, *_: life.set_limit(0), id="a person closed the lane"),
        pytest.param(lambda life, _, second, *__: life.client.cancel(second), id="one is being cancelled"),
        pytest.param(lambda life, first, *_: life.client.interrupt(first), id="one is being interrupted"),
        pytest.param(finish_first, id="one has ended"),
        pytest.param(lambda life, _, __, behind, ___: life.client.cancel(behind), id="what one waits for has ended"),
        pytest.param(
            lambda life, _, __, behind, ___: life.client.interrupt(behind), id="what one waits for is on hold"
        ),
        pytest.param(lambda life, _, __, behind, ___: life.claim(behind), id="what one waits for runs"),
        pytest.param(drain, id="their worker shuts down"),
        pytest.param(lambda life, *_: life.clock.advance(61), id="their worker has lost its lease"),
    ],
)
def test_what_lets_them_go_on_is_no_knot(life: Life, full: Full, change: Callable[..., object]) -> None:
    found = full()
    assert gives_way(life)
    change(life, *found)
    assert gives_way(life) == []


@pytest.mark.parametrize(
    ("parent", "child"),
    [({"timeout": 60.0}, {}), ({}, {"expires_at": 2**62}), ({}, {"delay": HOUR}), ({}, {"target": "printer"})],
    ids=["they have a timeout", "the jobs expire", "the jobs wait for a time", "the jobs need another lane"],
)
def test_waits_that_end_by_themselves_are_no_knot(
    life: Life, full: Full, parent: dict[str, Any], child: dict[str, Any]
) -> None:
    full(parent, child)
    assert gives_way(life) == []


def test_a_person_resolves_the_job_that_one_waits_for(life: Life) -> None:
    held = life.in_state("PAUSED", target="printer")
    record(life, life.in_state("RUNNING"), held)
    assert gives_way(life) == []
    life.client.resolve(held, 1)
    assert gives_way(life) == []


def test_workers_whose_process_is_gone_do_not_count(life: Life, full: Full) -> None:
    full()
    with life.database.read() as tx:
        assert waits.read(tx, set()) == ([], {})


def test_a_member_joins_its_stage_on_the_full_lane(life: Life) -> None:
    """The lane's limit is 1, and a further member of a stage that runs there may join it."""
    group = life.client.groups.create(
        NewGroup("g", "parallel", "stop", (member(life, 0, "a"), member(life, 0, "b"), member(life, 0, "c")))
    )
    a, b, c = (job_id for (job_id,) in life.sql(f"select id from hw_job where group_id = {group} order by id"))
    for job_id, other in ((a, b), (b, c)):
        life.claim(job_id)
        record(life, job_id, other)
    assert gives_way(life) == []


# --- rows ---------------------------------------------------------------------------------------------------------


def test_a_wait_is_recorded_under_the_fence_and_once(life: Life) -> None:
    job_id, other, third = life.in_state("RUNNING"), life.enqueue(), life.enqueue()
    for awaited in (other, third):
        assert record(life, job_id, awaited)
    assert life.sql("select job_id, fence, awaited_id from hw_wait") == [(job_id, 1, third)]

    def late(tx: Tx) -> bool:
        return waits.record(tx, (job_id, 7), other)

    assert not life.database.transact("record_wait", late)
    life.database.transact("forget_wait", lambda tx: waits.forget(tx, (job_id, 1)))
    assert life.sql("select count(*) from hw_wait") == [(0,)]
    life.end(life.held(job_id), Completed())
    assert not record(life, job_id, other)


def test_a_row_that_was_left_behind_is_pruned_with_its_job(life: Life) -> None:
    job_id, other = life.in_state("RUNNING"), life.enqueue()
    record(life, job_id, other)
    life.end(life.held(job_id), Completed())
    with life.database.read() as tx:
        assert waits.jobs(tx) == set()
    life.sql_write("update hw_pruning set active = 1")
    life.database.transact("prune", lambda tx: tx.run("prune", ids=f"[{job_id}]"))
    assert life.sql("select count(*) from hw_wait") == [(0,)]
    with pytest.raises(NotFound):
        life.job(job_id)


# --- slots --------------------------------------------------------------------------------------------------------


def test_explain_says_that_waiting_jobs_have_all_slots(life: Life) -> None:
    life.set_limit(None)
    life.sql_write(f"update hw_worker set slots = 2 where id = {life.worker_id}")
    first, second = (life.in_state("RUNNING") for _ in range(2))
    behind = life.enqueue()

    def blockers() -> list[tuple[str, str]]:
        with life.database.read() as tx:
            found = queue_views.explain(tx, life.client.tenant_id, behind).blockers
        return [(blocker.kind, blocker.detail) for blocker in found]

    record(life, first, behind)
    assert blockers() == [("no_worker", "every slot of the workers that know it is taken")]
    record(life, second, behind)
    (found,) = blockers()
    assert found[0] == "no_worker"
    assert "taken by a job that waits for another one: headway work starts another worker" in found[1]
    assert gives_way(life) == [], "another worker may start at any time"
