"""Reservations of programs outside, on both databases: made, renewed, released, expired, recovered and pruned."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headway.engine.client import limits
from headway.engine.direct.reservation_holder import HolderConfig, ReservationHolder, ReservedPlace
from headway.engine.direct.reservations import End, ReservationRequest
from headway.engine.execution import process_tree
from headway.engine.maintenance.pruner import Pruner
from headway.engine.maintenance.recovery import Recovery
from headway.errors import BadInput, NotFound, WrongState
from headway.model.jobs.job import SYSTEM, Reservation
from headway.model.jobs.outcome import Completed
from headway.model.queue.policies import Concurrency
from headway.store import workers
from headway.verify import check
from tests.support.life import Life
from tests.support.survivors import left_behind
from tests.support.waiting import until

DAY = 86400.0


@pytest.fixture
def life(database_url: str) -> Iterator[Life]:
    with Life(database_url) as life:
        limits.settle(life.database, Concurrency(), {"gpu": 1, "remote": 2}, actor=SYSTEM, adopt=True)
        yield life


def everything(life: Life) -> list[Any]:
    return [life.sql(f"select * from {table} order by id") for table in ("hw_reservation", "hw_event", "hw_target")]


def on_gpu(life: Life) -> int:
    return life.enqueue(resources=("gpu",))


# --- made, renewed, released --------------------------------------------------------------------------------------


def test_a_free_resource_is_there_at_once_and_its_queue_stands_still(life: Life) -> None:
    one = life.client.reserve(resources=["gpu"], ttl="1m")
    assert (one.status, one.granted_at) == ("ACTIVE", life.clock.now())
    assert one.expires_at == life.clock.now() + 60_000_000
    assert one.holder == "ada"
    job = on_gpu(life)
    assert life.pick(5) == []
    done = life.client.release_reservation(one.id)
    assert (done.status, done.finished_at) == ("RELEASED", life.clock.now())
    assert life.pick(5) == [job]


def test_what_runs_there_comes_first_and_the_line_is_in_order(life: Life) -> None:
    claim = life.claim(on_gpu(life))
    first, second = (life.client.reserve(resources=["gpu"]) for _ in range(2))
    assert (first.granted_at, second.granted_at) == (None, None)
    life.end(claim, Completed())
    assert life.client.renew_reservation(second.id).granted_at is None
    assert life.client.renew_reservation(first.id).granted_at is not None
    life.client.release_reservation(first.id)
    assert life.client.reservation(second.id).granted_at is not None, "the next one was not let in at once"


def test_all_or_nothing(life: Life) -> None:
    remote = life.client.reserve(resources=["remote"])
    gpu = life.client.reserve(resources=["gpu"])
    both = life.client.reserve(resources=["remote", "gpu"])
    assert both.granted_at is None
    life.client.release_reservation(gpu.id)
    assert life.client.reservation(both.id).granted_at is not None
    assert remote.granted_at is not None


def test_without_a_resource_it_is_the_next_slot_of_the_policys_lane(life: Life) -> None:
    claim = life.claim(life.enqueue())
    later = life.enqueue()
    one = life.client.reserve(ttl="1m")
    assert one.granted_at is None
    life.end(claim, Completed())
    assert life.pick(5) == [], "the reservation goes before the queue"
    assert life.client.renew_reservation(one.id).granted_at is not None
    life.client.release_reservation(one.id)
    assert life.pick(5) == [later]
    assert check(life.database).findings == []


@pytest.mark.parametrize(
    "policy", ["per_task", "tests.support.own_policies.NoLanes", "tests.support.own_policies.ByLetter"]
)
def test_a_policy_without_a_lane_for_all_tasks_has_no_next_slot(life: Life, policy: str) -> None:
    limits.settle(life.database, Concurrency(policy), {}, actor=SYSTEM, adopt=True)
    before = everything(life)
    with pytest.raises(BadInput, match="name a resource or a target") as raised:
        life.client.reserve()
    assert raised.value.code == "no_shared_lane"
    assert everything(life) == before


def test_another_policy_gives_a_waiting_reservation_its_lanes(life: Life) -> None:
    claim = life.claim(life.enqueue())
    waits, resource = life.client.reserve(), life.client.reserve(resources=["gpu"])
    (lane,) = life.sql("select id from hw_lane where kind = 'policy' and name = 'global'")
    assert json.loads(waits.lanes) == list(lane)
    limits.settle(life.database, Concurrency("per_resource"), {}, actor=SYSTEM, adopt=True)
    assert life.client.renew_reservation(waits.id).lanes == waits.lanes, "the same lane is for all tasks here"
    limits.settle(life.database, Concurrency("per_task"), {}, actor=SYSTEM, adopt=True)
    after = life.client.renew_reservation(waits.id)
    assert (after.lanes, after.granted_at is not None) == ("[]", True), "nothing is left to wait for"
    assert life.client.reservation(resource.id).lanes == resource.lanes
    kinds = "select kind from hw_event where thing = 'reservation' and thing_id = {} order by version"
    assert [kind for (kind,) in life.sql(kinds.format(waits.id))][:2] == ["reservation.created", "reservation.relaned"]
    life.end(claim, Completed())
    assert check(life.database).findings == []


def test_a_target_can_be_reserved(life: Life) -> None:
    job = life.enqueue(target="desk-1")
    one = life.client.reserve(target="desk-1")
    assert one.granted_at is not None
    assert life.pick(5) == []
    life.client.release_reservation(one.id)
    assert life.pick(5) == [job]


@pytest.mark.parametrize(
    ("wish", "error", "words"),
    [
        ({"resources": ["gpu"], "ttl": "365d"}, BadInput, "at most 10m"),
        ({"resources": ["gpu"], "ttl": 601}, BadInput, "at most 10m"),
        ({"resources": ["gpu"], "ttl": 0}, BadInput, "more than 0"),
        ({"resources": ["gpu"], "ttl": "soon"}, BadInput, "ttl"),
        ({"resources": ["gpo"]}, BadInput, "did you mean gpu"),
        ({"resources": "gpu"}, BadInput, "a list of names"),
        ({"resources": ["g\n"]}, BadInput, "control characters"),
        ({"target": "desk-9"}, NotFound, "no target 'desk-9'"),
        ({"target": "desk-9", "resources": ["gpu"]}, NotFound, "no target 'desk-9'"),
    ],
)
def test_bad_wishes_change_nothing(life: Life, wish: dict[str, Any], error: type[Exception], words: str) -> None:
    before = everything(life)
    with pytest.raises(error, match=words):
        life.client.reserve(**wish)
    assert everything(life) == before


def test_verbs_on_what_is_not_there_or_has_ended(life: Life) -> None:
    one = life.client.reserve(resources=["gpu"])
    life.client.release_reservation(one.id)
    before = everything(life)
    for verb in (life.client.renew_reservation, life.client.release_reservation):
        with pytest.raises(NotFound, match="no reservation 77"):
            verb(77)
        with pytest.raises(WrongState, match="RELEASED") as raised:
            verb(one.id)
        assert raised.value.facts["status"] == "RELEASED"
    assert everything(life) == before


def test_what_one_of_us_holds_is_not_for_others_to_release(life: Life) -> None:
    holder, place = holding(life)
    assert place.id is not None
    for verb in (life.client.renew_reservation, life.client.release_reservation):
        with pytest.raises(WrongState, match="ada"):
            verb(place.id)
    assert life.client.reservation(place.id).status == "ACTIVE"
    holder.release(place, End("COMPLETED"))
    holder.close()


# --- expiry -------------------------------------------------------------------------------------------------------


def test_one_that_is_not_renewed_frees_its_lane_at_the_next_claim(life: Life) -> None:
    """No recovery, nobody else: the claim itself looks."""
    one = life.client.reserve(resources=["gpu"], ttl=60)
    job = on_gpu(life)
    life.clock.advance(59.999)
    assert life.pick(1) == []
    life.clock.advance(0.001)
    assert life.pick(1) == [job]
    ended = life.client.reservation(one.id)
    assert (ended.status, ended.error) == ("EXPIRED", "it was not renewed in time")


def test_renewing_gives_another_ttl(life: Life) -> None:
    one = life.client.reserve(resources=["gpu"], ttl=60)
    on_gpu(life)
    for _ in range(3):
        life.clock.advance(50)
        assert life.client.renew_reservation(one.id).expires_at == life.clock.now() + 60_000_000
    assert life.pick(1) == []


def test_one_whose_time_is_over_cannot_be_renewed_although_nobody_noticed(life: Life) -> None:
    one = life.client.reserve(resources=["gpu"], ttl=60)
    waits = life.client.reserve(resources=["gpu"], ttl=600)
    life.clock.advance(60)
    with pytest.raises(WrongState, match="EXPIRED"):
        life.client.renew_reservation(one.id)
    assert life.client.reservation(one.id).status == "EXPIRED"
    assert life.client.reservation(waits.id).granted_at is not None


# --- recovery -----------------------------------------------------------------------------------------------------


def holding(life: Life, *, pid: int | None = None) -> tuple[ReservationHolder, ReservedPlace]:
    """A holder in this process, or in one of another number, that has the gpu."""
    holder, place = ReservationHolder(life.database, HolderConfig()), ReservedPlace()
    if pid is not None:
        who = holder.who
        holder.who = workers.Identity(who.id, who.host, who.boot, pid, 1)
    holder.register()
    holder.reserve(place, ReservationRequest(life.client.tenant_id, "ada", ("gpu",)), actor=life.client.actor)
    assert place.granted
    return holder, place


def gone() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(60)
    return process.pid


def found(life: Life, place: ReservedPlace) -> Reservation:
    assert place.id is not None
    return life.client.reservation(place.id)


def recover_twice(life: Life) -> None:
    Recovery(life.database).tick()
    once = everything(life)
    Recovery(life.database).tick()
    assert everything(life) == once


def test_recovery_ends_what_a_dead_holder_has(life: Life) -> None:
    _, place = holding(life, pid=gone())
    job = on_gpu(life)
    assert life.pick(1) == []
    recover_twice(life)
    one = found(life, place)
    assert (one.status, one.outcome) == ("EXPIRED", "ABANDONED")
    assert "is gone" in (one.error or "")
    assert life.pick(1) == [job]


def test_recovery_leaves_a_living_holder_alone(life: Life) -> None:
    holder, place = holding(life)
    life.clock.advance(10 * DAY)
    recover_twice(life)
    assert found(life, place).status == "ACTIVE"
    holder.release(place, End("COMPLETED"))
    holder.close()


def test_recovery_ends_what_was_not_renewed(life: Life) -> None:
    one = life.client.reserve(resources=["gpu"], ttl=60)
    life.clock.advance(61)
    recover_twice(life)
    assert life.client.reservation(one.id).status == "EXPIRED"


@contextmanager
def left_by(life: Life, holder: ReservationHolder) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the holder that its death did not end."""
    with left_behind() as (tag, process):
        facts = {"slot": 0, "tag": tag, "pid": process.pid, "process_start": process_tree.start_time(process.pid) or 0}
        life.database.transact("adopt", lambda tx: workers.adopt(tx, holder.who.id, **facts))  # type: ignore[arg-type]
        yield process


def test_no_lane_is_free_before_the_processes_of_its_holder_are_gone(life: Life) -> None:
    holder, place = holding(life, pid=gone())
    recovery = Recovery(life.database)
    with left_by(life, holder) as process:
        recovery._give_up_the_dead()
        recovery._end_lost_reservations({holder.who.id})
        assert found(life, place).status == "ACTIVE", "its processes could not be ended, and it was given away"
        recovery._end_lost_reservations(set())
        assert found(life, place).status == "ACTIVE", "it was given up after this round had ended processes"
        assert process.poll() is None
        recovery.tick()
        until(lambda: process.poll() is not None)
        assert found(life, place).status == "EXPIRED"


def test_the_processes_of_another_host_are_not_waited_for(life: Life) -> None:
    """Nobody here can see them; its lease is over, and it stopped them itself."""
    holder, place = ReservationHolder(life.database, HolderConfig()), ReservedPlace()
    holder.who = workers.Identity(holder.who.id, "elsewhere", "boot", 1, 1)
    holder.register()
    holder.reserve(place, ReservationRequest(life.client.tenant_id, "ada", ("gpu",)), actor=life.client.actor)
    facts = {"slot": 0, "tag": "t", "pid": 1, "process_start": 1}
    life.database.transact("adopt", lambda tx: workers.adopt(tx, holder.who.id, **facts))  # type: ignore[arg-type]
    Recovery(life.database).tick()
    assert found(life, place).status == "ACTIVE"
    life.database.transact("give_up", lambda tx: workers.retire(tx, holder.who.id, "silent"))
    Recovery(life.database).tick()
    assert found(life, place).status == "EXPIRED"


# --- pruning ------------------------------------------------------------------------------------------------------


def test_only_what_ended_before_retention_goes_with_its_events(life: Life) -> None:
    pruner = Pruner(life.database, retention=DAY, artifacts=Path("nowhere"))
    old = life.client.reserve(resources=["remote"])
    life.client.release_reservation(old.id)
    life.clock.advance(DAY + 1)
    young = life.client.reserve(resources=["remote"])
    life.client.release_reservation(young.id)
    holder, place = holding(life)
    life.clock.advance(10)
    assert pruner.tick() == 0.0
    assert pruner.tick() > 0.0
    kept = {young.id, place.id}
    assert {row[0] for row in life.sql("select id from hw_reservation")} == kept
    assert {row[0] for row in life.sql("select thing_id from hw_event where thing = 'reservation'")} == kept
    assert life.sql("select active from hw_pruning") == [(0,)]
    holder.release(place, End("COMPLETED"))
    holder.close()


def test_callers_that_left_go_with_their_reservations(life: Life) -> None:
    for _ in range(2):  # the newest reservation stays, so that its number is not given again
        holder, place = holding(life)
        holder.release(place, End("COMPLETED"))
        holder.close()
    living = life.sql("select count(*) from hw_worker where kind = 'worker'")
    life.clock.advance(2 * DAY)
    Pruner(life.database, retention=DAY, artifacts=Path("nowhere")).tick()
    assert life.sql("select count(*) from hw_worker where kind = 'caller'") == [(0,)]
    assert life.sql("select count(*) from hw_worker where kind = 'worker'") == living
