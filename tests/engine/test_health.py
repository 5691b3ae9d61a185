"""Whether a process is ready, and what is said when it is not."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from headway.clock import micros
from headway.engine.loop import Loop
from headway.engine.monitoring.readiness import Reason, ready
from headway.errors import Unreachable
from headway.store import workers
from headway.store.db import open_database
from headway.store.postgres.row_security import RowSecurity
from headway.store.transfer import seal
from headway.store.transfer.seal import Seal
from tests.support.cramped import WHY, paused_worker
from tests.support.deadlines import join
from tests.support.life import Life


@pytest.fixture
def life(database_url: str) -> Iterator[Life]:
    with Life(database_url) as life:
        yield life


class Round(Loop):
    name = "recovery"

    def tick(self) -> float:
        return 30.0


def test_all_is_well(life: Life) -> None:
    health = ready(life.database, roles=("api", "worker"), worker_id=life.worker_id)
    assert health.ready
    assert (health.reasons, health.warnings) == ([], [])


def test_a_server_without_workers_is_ready_and_says_so(life: Life) -> None:
    life.database.transact("retire", lambda tx: workers.retire(tx, life.worker_id, "shutdown"))
    health = ready(life.database)
    assert health.ready
    assert [str(one) for one in health.warnings] == ["no worker is alive. Start one with `headway work`"]


def test_a_worker_that_lost_its_lease_is_not_ready(life: Life) -> None:
    life.clock.advance(61)
    health = ready(life.database, roles=("worker",), worker_id=life.worker_id)
    assert not health.ready
    assert "has lost its lease" in str(health.reasons[0])
    (silent,) = [str(one) for one in health.warnings if one.code == "workers_silent"]
    assert silent.startswith("1 worker has not renewed its lease. Check that its host is up")
    assert ready(life.database, roles=("api",)).ready


def test_a_worker_that_cannot_start_work_is_not_ready(database_url: str) -> None:
    with paused_worker(database_url) as worker:
        health = ready(worker.database, roles=("worker",), worker_id=worker.who.id)
        (reason,) = health.reasons
        assert reason.code == "worker_paused"
        assert f"of this process cannot start the work it claims: {WHY}. Free processes, memory" in str(reason)
        assert ready(worker.database, roles=("api",)).ready, "the worker belongs to another process"


def test_a_worker_with_work_that_does_not_stop_is_not_ready(life: Life) -> None:
    life.database.transact("stuck", lambda tx: workers.set_state(tx, life.worker_id, "stuck", life.actor()))
    health = ready(life.database, roles=("worker",), worker_id=life.worker_id)
    assert [reason.code for reason in health.reasons] == ["worker_stuck"]
    assert "has work that does not stop: it claims no more jobs" in str(health.reasons[0])


def test_a_database_that_is_away(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> Any:
        raise Unreachable("PostgreSQL cannot be reached: connection refused")

    monkeypatch.setattr(life.database, "begin_read", gone)
    assert ready(life.database).reasons == [
        Reason("database_unreachable", "PostgreSQL cannot be reached: connection refused")
    ]


def test_a_closed_database_is_a_reason_and_no_crash(life: Life) -> None:
    life.database.close()
    assert "was closed" in str(ready(life.database).reasons[0])


def test_an_empty_database_is_not_ready(empty_url: str) -> None:
    database = open_database(empty_url)
    assert "run `headway db migrate`" in str(ready(database).reasons[0])
    database.close()


def test_an_older_schema_is_not_ready(life: Life) -> None:
    life.sql_write("delete from hw_schema where version = (select max(version) from hw_schema)")
    assert "run `headway db migrate`" in str(ready(life.database).reasons[0])


def test_a_late_tick_is_said(life: Life) -> None:
    columns = "tenant_id, name, definition, enabled, origin, decided_until, next_at, created_at, created_by"
    due = life.clock.now() - micros(90)
    life.sql_write(f"insert into hw_schedule ({columns}) values (1, 'nightly', '{{}}', 1, 'api', 0, {due}, 0, '{{}}')")
    assert "a tick is 90 s late" in str(ready(life.database).warnings[0])


def test_the_wall_is_said_when_it_is_not_on(life: Life) -> None:
    assert ready(life.database, wall=lambda tx: RowSecurity("on")).warnings == []
    walled = ready(life.database, wall=lambda tx: RowSecurity("off", "no role"))
    assert walled.warnings == [Reason("wall_off", "the wall between tenants is off: no role. See docs/tenants.md")]


def test_a_loop_that_stands_still_is_said(life: Life) -> None:
    loop = Round()
    loop.thread = threading.current_thread()
    assert ready(life.database, loops=[loop]).ready  # it has not begun
    loop.safely()
    assert ready(life.database, loops=[loop]).ready
    assert loop.went_at is not None
    loop.went_at = time.monotonic() - 200
    (said,) = map(str, ready(life.database, loops=[loop]).reasons)
    assert re.fullmatch(r"recovery has not done its round for 2\d\d s.*", said)


def test_a_loop_that_ended_by_itself_is_said(life: Life) -> None:
    loop = Round()
    loop.thread = threading.Thread(target=str)
    loop.thread.start()
    join(loop.thread)
    assert "has ended by itself" in str(ready(life.database, loops=[loop]).reasons[0])
    loop.stop()
    assert ready(life.database, loops=[loop]).ready


def test_a_database_that_was_moved_is_not_ready(sqlite_url: str) -> None:
    with Life(sqlite_url) as life:
        assert ready(life.database).ready  # from here on it has a connection to read with
        life.database.transact("seal", lambda tx: seal.close(tx, Seal("a", "postgresql://h/x", 1), []))
        (said,) = ready(life.database).reasons
        assert said.code == "moved"
        assert "is being moved to postgresql://h/x" in said.text
        life.database.transact("done", lambda tx: seal.conclude(tx, Seal("a", "postgresql://h/x", 1)))
        assert "was moved to postgresql://h/x" in ready(life.database).reasons[0].text
