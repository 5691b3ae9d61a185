"""Reservations in the database: the line before the queue, the turn of a job after many calls, targets, and ends."""

from __future__ import annotations

from typing import Any

import pytest

from headway.engine.client import limits
from headway.engine.direct import reservations as outside
from headway.errors import Refused
from headway.model.jobs.outcome import Completed
from headway.model.queue.capacity import BURST
from headway.model.queue.policies import Concurrency
from headway.store.db import Tx
from headway.store.queue import claims, reservations, select
from headway.store.queue.lanes import BucketCache
from tests.support.life import ADA, FINAL, TASK, Life

SECOND = 1_000_000


class Line(Life):
    """A database with direct calls that stand in line for lanes named by their names."""

    def call(self, *lanes: str, target: str | None = None, ttl: int | None = None) -> int:
        target_id = None if target is None else self.client.lanes.target(self.client.tenant_id, target)
        known = {name: lane for lane, name in self.sql("select id, name from hw_lane")}

        def work(tx: Tx) -> int:
            tx.run("claim_lock")
            holder: dict[str, Any] = {"worker_id": None if ttl else 7, "ttl": ttl}
            numbers = [known[lane] for lane in lanes]
            return reservations.add(tx, 1, lanes=numbers, target_id=target_id, holder="call", actor=ADA, **holder)

        return self.database.transact("reserve", work)

    def look(self) -> None:
        """Whoever waits looks whether it is its turn."""
        lanes = BucketCache(self.database)

        def work(tx: Tx) -> None:
            view, _ = claims.lock_and_look(tx, lanes, ADA)
            select.settle_reservations(tx, view, lanes)

        self.database.transact("look", work)

    def inside(self) -> list[int]:
        """The calls that have what they wanted, after a look."""
        self.look()
        text = "select id from hw_reservation where granted_at is not null and finished_at is null order by id"
        return [number for (number,) in self.sql(text)]

    def leave(self, number: int) -> bool:
        def work(tx: Tx) -> bool:
            tx.run("claim_lock")
            return reservations.end(tx, number, status="RELEASED", actor=ADA, outcome="COMPLETED")

        return self.database.transact("leave", work)

    def taken(self, count: int = 9) -> list[int]:
        return [claim.job_id for claim in self.claim_next(count)]

    def over(self, job_id: int) -> None:
        assert self.end(self.held(job_id)._replace(target_id=self.job(job_id).target_id), Completed())


@pytest.fixture
def line(database_url: str):
    with Line(database_url) as line:
        limits.settle(line.database, Concurrency(), {"ollama": 1, "remote": 2}, actor=ADA)
        yield line
        line.check_versions()


# --- running, then direct calls, then the queue ---


def test_what_runs_then_the_calls_in_order_then_the_queue(line: Line) -> None:
    first, second = line.enqueue(), line.enqueue(priority=100)
    assert line.taken() == [second]
    one, two = line.call("global"), line.call("global")
    assert line.inside() == []  # nothing is preempted
    line.over(second)
    assert (line.inside(), line.taken()) == ([one], [])
    assert line.leave(one)
    assert (line.inside(), line.taken()) == ([two], [])
    assert line.leave(two)
    assert line.taken() == [first]


def test_a_claim_grants_too_and_also_one_without_a_free_slot(line: Line) -> None:
    line.enqueue()
    number = line.call("global")
    assert line.taken(0) == []
    assert line.sql(f"select granted_at is not null from hw_reservation where id = {number}")[0][0]


def test_the_queue_is_stopped_on_the_lanes_of_a_call_only(line: Line) -> None:
    busy, other = line.enqueue(), line.enqueue(target="desk")
    needs = line.enqueue(target="lab", resources=("ollama",))
    number = line.call("ollama")
    assert line.inside() == [number]
    assert line.taken() == [busy, other]
    line.leave(number)
    assert line.taken() == [needs]


def test_all_lanes_at_once_and_nobody_past_one_that_waits_for_the_same(line: Line) -> None:
    line.set_limit(None)
    job = line.enqueue(resources=("ollama",))
    assert line.taken() == [job]
    both, one, more = line.call("ollama", "remote"), line.call("remote"), line.call("remote")
    assert line.inside() == []  # `both` holds nothing while it waits, and still nobody overtakes it
    line.over(job)
    assert line.inside() == [both, one]
    line.leave(both)
    assert line.inside() == [one, more]


def test_a_granted_call_counts_like_a_claim(line: Line) -> None:
    calls = [line.call("remote") for _ in range(3)]
    assert line.inside() == calls[:2]
    limits.change(line.database, "remote", 3, tenant_id=1, actor=ADA)
    assert line.inside() == calls
    limits.change(line.database, "remote", 1, tenant_id=1, actor=ADA)
    assert line.inside() == calls  # a lowered limit stops nothing
    line.leave(calls[0])
    assert line.call("remote") not in line.inside()


def test_free_places_beside_a_call_stay_closed_to_the_queue(line: Line) -> None:
    """The queue is stopped on those lanes, however many places they have."""
    line.set_limit(None)
    number = line.call("remote")
    job = line.enqueue(resources=("remote",))
    assert (line.inside(), line.taken()) == ([number], [])
    line.leave(number)
    assert line.taken() == [job]


def test_a_tenant_has_a_share_of_reservations_from_outside(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each claim of every tenant reads all active reservations: 100,000 of one tenant stopped the others."""
    monkeypatch.setattr(outside, "MOST_OUTSIDE", 2)
    one, _ = line.client.reserve(ttl=60.0), line.client.reserve(ttl=60.0)
    with pytest.raises(Refused) as refused:
        line.client.reserve(ttl=60.0)
    assert refused.value.code == "limit_reached"
    line.call("global")  # the servers limit their direct calls
    line.client.release_reservation(one.id)
    line.client.reserve(ttl=60.0)


def test_a_call_without_any_lane_is_let_in_at_once(line: Line) -> None:
    busy = line.enqueue()
    assert line.taken() == [busy]
    number = line.call()
    assert line.inside() == [number]


def test_a_paused_queue_does_not_stop_direct_calls(line: Line) -> None:
    line.client.pause_queue(everybody=True)
    line.enqueue()
    number = line.call("global")
    assert (line.inside(), line.taken()) == ([number], [])


# --- targets ---


@pytest.mark.parametrize("state", ["RUNNING", "PAUSED", "ERROR", "resumed"])
def test_a_held_target_stops_a_call_until_it_is_free(line: Line, state: str) -> None:
    job_id = line.in_state(state, target="desk")
    number = line.call(target="desk")
    assert line.inside() == []
    line.over(job_id) if state == "RUNNING" else line.client.cancel(job_id)
    assert line.inside() == [number]


def test_a_paused_target_stops_a_call(line: Line) -> None:
    line.enqueue(target="desk", hold=True)
    line.client.pause_target("desk")
    number = line.call(target="desk")
    assert line.inside() == []
    line.client.resume_target("desk")
    assert line.inside() == [number]


def test_a_call_on_a_target_goes_before_its_queue_and_others_go_on(line: Line) -> None:
    first, second = line.enqueue(target="desk"), line.enqueue(target="desk")
    other = line.enqueue(target="lab")
    assert line.pick(1) == [first]  # its gate is open already
    one, two = line.call(target="desk"), line.call(target="desk")
    assert line.taken() == [other]
    assert line.inside() == [one]
    line.leave(one)
    assert (line.taken(), line.inside()) == ([], [two])
    line.leave(two)
    assert line.taken() == [first]
    assert line.status(second) == "QUEUED"


def test_a_failure_on_a_target_keeps_the_calls_waiting_for_the_person(line: Line) -> None:
    job_id = line.enqueue(target="desk", retry=0)
    (claim,) = line.claim_next()
    number = line.call(target="desk")
    assert line.end(claim, FINAL)
    assert line.inside() == []
    line.client.release(job_id)
    assert line.inside() == [number]


# --- after many calls a job goes first ---


def rounds(line: Line, count: int, *lanes: str, target: str | None = None) -> str:
    """So many turns of one place, with a next call always in line: `c` for a call, `j` for a job."""
    drawn, waiting = "", [line.call(*lanes, target=target)]
    for _ in range(count):
        waiting.append(line.call(*lanes, target=target))
        took, inside = line.taken(1), line.inside()
        assert len(took) + len(inside) == 1, "one at a time, and never nobody"
        if took:
            drawn += "j"
            line.over(took[0])
        else:
            drawn += "c"
            assert inside == [waiting.pop(0)]
            line.leave(inside[0])
    for number in waiting:
        line.leave(number)
    return drawn


def test_after_eight_calls_in_a_row_one_job_goes_first(line: Line) -> None:
    assert BURST == 8
    for _ in range(3):
        line.enqueue(priority=1)
    assert rounds(line, 30, "global") == "ccccccccjccccccccjccccccccjccc"


def test_the_same_on_a_target(line: Line) -> None:
    for _ in range(2):
        line.enqueue(target="desk")
    assert rounds(line, 20, target="desk") == "ccccccccjccccccccjcc"


def test_calls_that_kept_nobody_waiting_do_not_count(line: Line) -> None:
    assert rounds(line, 20, "global") == "c" * 20
    line.enqueue()
    assert rounds(line, 10, "global") == "ccccccccjc"


@pytest.mark.parametrize("why", ["paused", "no worker knows it", "its other lane is full", "another lane"])
def test_a_job_that_could_not_start_anyway_does_not_hold_the_calls_up(line: Line, why: str) -> None:
    line.enqueue(
        task="unheard.of" if why == "no worker knows it" else TASK,
        resources=("ollama",) if why in ("its other lane is full", "another lane") else (),
        target="desk" if why == "another lane" else None,
    )
    if why == "paused":
        line.client.pause_queue()
    if why == "its other lane is full":
        line.client.lanes.target(1, "desk")
        line.call("ollama")
    drawn = ""
    for _ in range(12):
        number = line.call("global")
        drawn += "c" if number in line.inside() else "-"
        line.leave(number)
    assert drawn == "c" * 12


def test_better_jobs_on_other_lanes_do_not_hide_the_one_that_waits(line: Line) -> None:
    """With slots for all of them, its turn comes after eight calls however many others are better placed."""
    waiting = line.enqueue()
    for n in range(6):
        line.enqueue(target=f"desk{n}", priority=50)
    numbers = [line.call("global") for _ in range(BURST + 2)]
    for number in numbers[:BURST]:
        assert number in line.inside()
        line.leave(number)
    assert line.inside() == []
    assert waiting in line.taken(20)


# --- ends ---


def test_what_is_not_renewed_in_time_is_ended_by_whoever_claims(line: Line) -> None:
    job = line.enqueue()
    one, two = line.call("global", ttl=5 * SECOND), line.call("global", ttl=60 * SECOND)
    assert line.inside() == [one]
    line.clock.advance(4)
    assert (line.inside(), line.taken()) == ([one], [])
    line.clock.advance(1)
    assert line.taken() == []  # it is the next call's turn
    assert line.inside() == [two]
    line.clock.advance(60)
    assert line.taken() == [job]
    found = line.sql("select status, error, granted_at is null from hw_reservation order by id")
    assert [(status, bool(error)) for status, error, _ in found] == [("EXPIRED", True)] * 2
    kinds = line.sql("select kind from hw_event where thing = 'reservation' order by id")
    assert [kind.rpartition(".")[2] for (kind,) in kinds] == ["created"] * 2 + ["granted", "expired"] * 2


def test_a_call_that_gives_up_waiting_leaves_the_line(line: Line) -> None:
    busy = line.enqueue()
    assert line.taken() == [busy]
    one, two = line.call("global"), line.call("global")
    assert line.leave(one)
    line.over(busy)
    assert line.inside() == [two]


def test_it_ends_once(line: Line) -> None:
    number = line.call("global")
    assert line.leave(number)
    before = line.sql("select * from hw_reservation"), line.sql("select count(*) from hw_event")
    assert not line.leave(number)
    assert (line.sql("select * from hw_reservation"), line.sql("select count(*) from hw_event")) == before
    assert line.inside() == []


def test_another_policy_leaves_a_call_in_the_lanes_it_asked_for(line: Line) -> None:
    number = line.call("global")
    jobs = [line.enqueue(), line.enqueue()]
    assert line.inside() == [number]
    limits.settle(line.database, Concurrency("per_task"), {}, actor=ADA, adopt=True)
    assert line.taken() == jobs[:1]
    limits.settle(line.database, Concurrency("global", limit=2), {}, actor=ADA, adopt=True)
    assert line.taken() == []
    line.leave(number)
    assert line.taken() == jobs[1:]
