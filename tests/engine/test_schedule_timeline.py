"""The "Nightly HR Sync" of the source document, point by point of its timeline, on both databases: a schedule with six
steps at four indices, fired by the scheduler and driven to its end by a worker whose turns are taken one by one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway import Context, Fail
from headway.clock import SECOND
from headway.engine.scheduler.scheduler import Scheduler
from headway.store.groups import views as group_views
from headway.verify import check
from tests.system.support.world import PATIENCE, Hand, World

IMPORT, SYNC = "HR System - Full Import", "HR System - Full Sync"
AD, LDAP = "AD - Export", "LDAP - Export"
AD_BACK, LDAP_BACK = "AD - Confirming Import", "LDAP - Confirming Import"
STAGES = [[IMPORT], [SYNC], [AD, LDAP], [AD_BACK, LDAP_BACK]]
NIGHTLY = {
    "cron": "30 2 * * *",
    "timezone": "Europe/Berlin",
    "steps": [
        {"index": 0, "name": IMPORT, "task": "hr.import"},
        {"index": 1, "name": SYNC, "task": "hr.sync", "params": {"people": {"$result": IMPORT}}},
        {"index": 2, "name": AD, "task": "export", "params": {"system": "AD"}},
        {"index": 2, "name": LDAP, "task": "export", "params": {"system": "LDAP"}},
        {"index": 3, "name": AD_BACK, "task": "confirm", "params": {"exported": {"$result": AD}}},
        {"index": 3, "name": LDAP_BACK, "task": "confirm", "params": {"exported": {"$result": LDAP}}},
    ],
}
Happening = tuple[str, str]  # what happened, and to which step


class Night:
    """The system, the schedule and the worker; `happened` reads what was recorded since it was last asked."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.gates = {system: threading.Event() for system in ("AD", "LDAP")}
        self.broken = False
        self.declare()
        self.schedule = world.app.client.schedules.create("Nightly HR Sync", NIGHTLY)
        self.scheduler = Scheduler(world.app.client)
        self.worker = Hand(world)
        self.worker.register()
        self.seen = 0

    def declare(self) -> None:
        task, world = self.world.app.task, self.world

        @task("hr.import", retry=0)
        async def hr_import() -> list[str]:
            return ["ada", "bob"]

        @task("hr.sync", retry=0)
        async def hr_sync(people: list[str]) -> int:
            if self.broken:
                raise Fail("the directory is locked")
            return len(people)

        @task("export", isolation="thread", retry=0)
        def export(ctx: Context, system: str) -> str:
            world.began.release()
            assert self.gates[system].wait(PATIENCE)
            return f"{ctx.results[SYNC]} people to {system}"

        @task("confirm", isolation="thread", retry=0)
        def confirm(exported: str) -> str:
            return f"confirmed: {exported}"

    def reach_the_hour(self) -> None:
        self.world.reach(self.world.app.client.schedules.get(self.schedule.id).next_at or 0)
        while self.scheduler.tick() == 0.0:
            pass

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        with self.world.database.read() as tx:
            found: list[tuple[Any, ...]] = tx.connection.execute(text).fetchall()  # type: ignore[attr-defined]
        return found

    def happened(self) -> list[Happening]:
        text = (
            "select e.id, e.kind, coalesce(j.step, '') from hw_event e left join hw_job j on j.id = e.thing_id and "
            f"e.thing = 'job' where e.id > {self.seen} and e.thing in ('job', 'execution') order by e.id"
        )
        found = self.sql(text)
        self.seen = max((row[0] for row in found), default=self.seen)
        return [(kind, step) for _, kind, step in found]

    def view(self, execution_id: int | None = None) -> group_views.GroupView:
        wanted = execution_id or self.sql("select max(id) from hw_group")[0][0]
        with self.world.database.read() as tx:
            return group_views.group_view(tx, self.world.app.client.tenant_id, wanted)

    def states(self) -> dict[str, str]:
        return {step.step: step.status.name for step in self.view().steps}


@pytest.fixture
def night(database_url: str, tmp_path: Path) -> Iterator[Night]:
    world = World(database_url, tmp_path, say=lambda _: None)
    night = Night(world)
    yield night
    for gate in night.gates.values():
        gate.set()
    night.worker.run_dry()
    night.worker.close()
    findings = check(world.database, quiet=True, settle=0.0).findings
    world.close()
    assert not findings


def of(kind: str, stage: int) -> list[Happening]:
    return [(kind, step) for step in STAGES[stage]]


def test_the_timeline_of_the_source_document(night: Night) -> None:
    worker = night.worker
    night.happened()

    # 1. The scheduler creates an execution and queues all six tasks: index 0 as QUEUED, the others WAITING.
    night.reach_the_hour()
    assert night.happened() == [
        *(("job.created", step) for stage in STAGES for step in stage),
        ("execution.created", ""),
    ]
    assert night.states() == {
        step: "QUEUED" if n == 0 else "WAITING" for n, stage in enumerate(STAGES) for step in stage
    }
    execution = night.view().group
    assert (execution.kind, execution.status, execution.stage, execution.stages) == ("execution", "IN_PROGRESS", 0, 4)
    assert (execution.schedule_id, execution.reason) == (night.schedule.id, "tick")
    assert night.sql("select outcome, execution_id, nominal_at from hw_tick") == [
        ("FIRED", execution.id, execution.nominal_at)
    ]

    # 2. The worker picks up the task of index 0 and executes the full import.
    worker.turn()
    assert night.happened() == of("job.claimed", 0)

    # 3., 4. It completes, index 1 is queued, and the worker picks it up: one transaction, no time in between.
    worker.turn()
    assert sorted(night.happened()) == sorted(
        [*of("job.completed", 0), *of("job.released", 1), ("execution.advanced", ""), *of("job.claimed", 1)]
    )
    assert transactions(night, IMPORT, SYNC) == 1
    assert night.view().group.stage == 1

    # 5., 6. The full sync completes, both tasks of index 2 are queued, and the worker dispatches both in parallel,
    # although the lane has a limit of one.
    worker.tick()
    assert sorted(night.happened()) == sorted(
        [*of("job.completed", 1), *of("job.released", 2), ("execution.advanced", ""), *of("job.claimed", 2)]
    )
    night.world.await_began(2)
    assert [night.states()[step] for step in (AD, LDAP)] == ["RUNNING", "RUNNING"]

    # 7. The first export completes: one remains, so nothing advances.
    night.gates["AD"].set()
    worker.settle(leaving=1)
    worker.tick()
    assert night.happened() == [("job.completed", AD)]
    assert [night.states()[step] for step in (AD, LDAP, AD_BACK, LDAP_BACK)] == [
        "COMPLETED",
        "RUNNING",
        "WAITING",
        "WAITING",
    ]
    assert night.view().group.stage == 2

    # 8., 9. The second export completes, index 3 is queued, and the worker dispatches both confirming imports.
    night.gates["LDAP"].set()
    worker.settle()
    worker.tick()
    assert sorted(night.happened()) == sorted(
        [("job.completed", LDAP), *of("job.released", 3), ("execution.advanced", ""), *of("job.claimed", 3)]
    )

    # 10., 11. Both complete, there are no more steps, the execution is COMPLETED.
    worker.settle()
    worker.tick()
    assert sorted(night.happened()) == sorted([*of("job.completed", 3), ("execution.finished", "")])
    assert night.happened() == []
    execution = night.view().group
    assert (execution.status, execution.error) == ("COMPLETED", None)
    assert execution.finished_at is not None
    results = dict(night.sql("select j.step, s.body from hw_result s join hw_job j on j.id = s.job_id"))
    assert json.loads(results[LDAP_BACK]) == "confirmed: 2 people to LDAP"


def transactions(night: Night, ended: str, begun: str) -> int:
    """How many instants the end of one step and the claim of the next took: the clock steps with every transaction."""
    text = (
        "select count(distinct e.at) from hw_event e join hw_job j on j.id = e.thing_id and e.thing = 'job' where "
        f"(j.step = '{ended}' and e.kind = 'job.completed') or (j.step = '{begun}' and e.kind = 'job.claimed')"
    )
    return int(night.sql(text)[0][0])


def test_it_fires_at_half_past_two_in_berlin(night: Night) -> None:
    night.reach_the_hour()
    nominal = night.view().group.nominal_at
    assert nominal is not None
    assert (nominal // SECOND) % 86_400 == 1.5 * 3600  # winter: 01:30 UTC
    assert night.world.app.client.schedules.get(night.schedule.id).next_at == nominal + 86_400 * SECOND
    for gate in night.gates.values():
        gate.set()


def test_a_night_that_is_not_over_is_not_overtaken(night: Night) -> None:
    night.reach_the_hour()
    night.worker.tick()
    night.reach_the_hour()
    assert [row[0] for row in night.sql("select outcome from hw_tick order by nominal_at")] == ["FIRED", "SKIPPED"]
    assert night.sql("select count(*) from hw_group") == [(1,)]


def test_a_strict_step_that_fails_ends_the_execution_and_cancels_the_rest(night: Night) -> None:
    night.broken = True
    night.reach_the_hour()
    night.worker.run_dry()
    execution = night.view().group
    assert (execution.status, execution.error) == ("FAILED", f"step {SYNC}: the directory is locked")
    assert night.states() == {
        IMPORT: "COMPLETED",
        SYNC: "FAILED",
        **dict.fromkeys((AD, LDAP, AD_BACK, LDAP_BACK), "CANCELLED"),
    }


def test_a_failed_night_is_retried_from_where_it_failed(night: Night) -> None:
    night.broken = True
    night.reach_the_hour()
    night.worker.run_dry()
    failed = night.view().group.id
    night.broken = False
    for gate in night.gates.values():
        gate.set()
    again = night.world.app.client.groups.retry(failed, "execution")
    night.worker.run_dry()
    seen = night.view(again)
    assert (seen.group.status, seen.group.retry_of, seen.group.reason) == ("COMPLETED", failed, "retry")
    assert [step.step for step in seen.steps if step.linked] == [IMPORT]
    assert {step.step: step.status.name for step in seen.steps}[LDAP_BACK] == "COMPLETED"
    assert night.view(failed).group.status == "FAILED"


def test_a_cancelled_night_stops_what_runs_and_never_begins_the_rest(night: Night) -> None:
    night.reach_the_hour()
    for _ in range(2):
        night.worker.turn()
    night.worker.tick()
    night.world.await_began(2)
    night.world.app.client.groups.cancel(night.view().group.id, "execution")
    assert night.view().group.status == "IN_PROGRESS"  # the exports do not look whether they are to stop
    for gate in night.gates.values():
        gate.set()
    night.worker.settle()
    night.worker.run_dry()
    assert night.view().group.status == "CANCELLED"
    assert [night.states()[step] for step in (AD_BACK, LDAP_BACK)] == ["CANCELLED", "CANCELLED"]
