"""`headway verify` on who may run when: limits, order and reservations, in true histories and in damaged ones."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from headway.clock import SECOND
from headway.model.jobs import actions
from headway.model.jobs.job import Options
from headway.model.jobs.outcome import Failed, FailureKind, StoppedByRequest
from headway.model.jobs.retry import RetryPolicy
from headway.store import workers
from headway.store.db import Tx
from headway.store.queue import claims, reservations
from tests.support.world import ANN, CALLER, EVENTS, LANE, OBSERVER, WORKER, Sabotage, Sabotages, World, broken

sabotage = Sabotages()
ONCE = Options(retry=RetryPolicy(max_attempts=0)).text()
BOOM = Failed(FailureKind.EXCEPTION, "boom")


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    made = World(database_url)
    yield made
    made.db.close()


def clean(w: World, *, quiet: bool = True) -> None:
    assert w.check(quiet=quiet).findings == []


def claimed(w: World, count: int = 1) -> list[int]:
    """Claims, completes, and says what it was."""
    held = w.claim(count)
    w.complete(*held)
    return [claim.job_id for claim in held]


# --- true histories -----------------------------------------------------------------------------------------------


def test_targets_run_side_by_side_and_one_at_a_time(world: World) -> None:
    first, second = world.enqueue(2, target="desk")
    (other,) = world.enqueue(target="chair")
    held = world.claim(4)
    assert [claim.job_id for claim in held] == [first, other]
    clean(world, quiet=False)
    world.complete(*held)
    assert claimed(world, 4) == [second]
    clean(world)


def test_a_held_target_waits_for_a_person(world: World) -> None:
    world.enqueue(options=ONCE, target="desk")
    world.enqueue(3, target="desk")
    (failed,) = world.claim()
    world.finish(failed.job_id, BOOM)
    assert world.claim() == []
    (elsewhere,) = world.enqueue(target="chair")
    assert claimed(world) == [elsewhere]
    clean(world, quiet=False)
    world.resume(failed.job_id)
    clean(world, quiet=False)
    (again,) = world.claim(4)
    assert again.job_id == failed.job_id
    world.interrupt(again.job_id)
    world.finish(again.job_id, StoppedByRequest())
    world.release(again.job_id)
    while claimed(world):
        pass
    clean(world)


def test_a_paused_target_starts_nothing(world: World) -> None:
    (job_id,) = world.enqueue(target="desk")
    world.pause_target("desk")
    assert world.claim() == []
    (other,) = world.enqueue(priority=0)
    assert claimed(world) == [other]
    clean(world, quiet=False)
    world.resume_target("desk")
    assert claimed(world) == [job_id]
    clean(world)


def test_resources_are_taken_all_or_nothing(world: World) -> None:
    world.resource("gpu", 1)
    world.resource("net", 2)
    world.enqueue(resources=("gpu", "net"))
    (both,) = world.enqueue(resources=("gpu", "net"))
    (net,) = world.enqueue(resources=("net",), task="u")
    (none,) = world.enqueue()
    held = world.claim(4)
    assert {net, none} < {claim.job_id for claim in held}
    clean(world, quiet=False)
    world.complete(*held)
    assert claimed(world, 4) == [both]
    clean(world)


def test_a_full_lane_lets_others_pass(world: World) -> None:
    gpu = world.resource("gpu", 1)
    first, second, third = world.enqueue(3, resources=("gpu",), priority=9)
    (plain,) = world.enqueue()
    held = world.claim(2)
    assert [claim.job_id for claim in held] == [first, plain]
    world.limit(2, gpu)
    held += world.claim()
    world.limit(1, gpu)
    assert world.claim() == []
    world.complete(*held)
    assert claimed(world) == [third]
    assert held[-1].job_id == second
    clean(world)


def test_a_worker_that_does_not_know_a_task_passes_it_over(world: World) -> None:
    world.register(OBSERVER, tasks=("u",))
    (known,) = world.enqueue(task="u")
    (better,) = world.enqueue(priority=5)
    held = world.claim(worker_id=OBSERVER, tasks=("u",))
    assert [claim.job_id for claim in held] == [known]
    world.complete(*held, worker_id=OBSERVER)
    assert claimed(world) == [better]
    clean(world)


def test_pauses(world: World) -> None:
    world.enqueue(2)
    world.pause_queue(until=world.clock.now() + 35 * SECOND)
    assert world.claim() == []
    world.clock.at += 30 * SECOND
    assert claimed(world) == [1]
    world.pause_queue(0)
    assert world.claim() == []
    world.resume_queue(0)
    assert claimed(world) == [2]
    clean(world)


def test_another_policy(world: World) -> None:
    """Jobs get other lanes; what runs keeps those it has."""
    world.rules(policy="per_task", limit=1)
    world.enqueue(2)
    world.enqueue(2, task="u")
    held = world.claim(4)
    assert [claim.job_id for claim in held] == [1, 3]
    assert world.rules(policy="global", limit=2) == 2
    world.limit(2)
    held += world.claim(4)
    assert len(held) == 4
    clean(world, quiet=False)
    world.complete(*held)
    clean(world)


def test_a_job_of_an_older_policy_gets_its_lanes_before_it_is_claimed(world: World) -> None:
    old = world.lanes.of(1, "t")
    world.rules(policy="per_task", limit=1)
    (job_id,) = world.enqueue()
    world.tamper(f"update hw_job set bucket_id = {old} where id = {job_id}")
    assert claimed(world) == [job_id]
    clean(world)


def test_a_direct_call_that_waits_gets_the_lanes_of_the_new_policy(world: World) -> None:
    world.limit(1)
    world.enqueue()
    held = world.claim()
    call = world.reserve(task="t")
    assert world.settle() == []
    world.rules(policy="per_task")
    assert world.settle() == [call]
    (job_id,) = world.enqueue(task="u")
    held += world.claim()
    assert held[-1].job_id == job_id
    world.complete(*held)
    world.give_back(call)
    clean(world)


def test_a_job_that_still_had_old_lanes_was_not_passed_over(world: World) -> None:
    """Jobs of an older policy get their lanes a thousand at a time; until then they are in nobody's way."""
    world.limit(1)
    world.enqueue(task="u")
    held = world.claim()
    world.rules(policy="per_task", limit=1)
    old = world.lanes.of(1, "t")
    world.rules(policy="global")
    first, *_, last = world.enqueue(1001)
    world.tamper(f"update hw_job set bucket_id = {old} where id >= {first}")
    (passing,) = world.enqueue(target="desk")
    assert claimed(world) == [passing]
    with world.db.read() as tx:
        ((bucket_id,),) = tx.connection.execute(f"select bucket_id from hw_job where id = {last}").fetchall()  # type: ignore[attr-defined]
    assert bucket_id == old
    world.complete(*held)
    assert claimed(world) == [first]
    clean(world, quiet=False)


def test_aging(world: World) -> None:
    (low,) = world.enqueue()
    world.rules(aging=10.0)
    ids = []
    while low not in ids:
        world.enqueue(priority=5)
        ids += claimed(world)
    assert len(ids) > 2
    assert len(claimed(world, 4)) == 1
    world.rules(aging=None)
    (low,) = world.enqueue()
    world.clock.at += 3600 * SECOND
    (high,) = world.enqueue(priority=1)
    assert claimed(world) == [high]
    assert claimed(world) == [low]
    clean(world)


def test_reservations_come_before_the_queue_and_in_order(world: World) -> None:
    gpu = world.resource("gpu", 1)
    waiting, behind = world.enqueue(2, resources=("gpu",))
    (running,) = world.claim()
    assert running.job_id == waiting
    first, second = world.reserve(gpu), world.reserve(gpu)
    assert world.settle() == []
    world.complete(running)
    assert world.claim() == []
    assert world.settle() == [first]
    clean(world, quiet=False)
    world.give_back(first)
    assert world.settle() == [second]
    world.give_back(second)
    assert claimed(world) == [behind]
    clean(world)
    assert world.check().counted["reservations"] == 2


def test_a_reservation_for_a_target_waits_for_its_holder(world: World) -> None:
    (job_id,) = world.enqueue(target="desk", options=ONCE)
    (behind,) = world.enqueue(target="desk")
    world.claim()
    number = world.reserve(target="desk")
    world.finish(job_id, BOOM)
    assert world.settle() == []
    world.release(job_id)
    assert world.settle() == [number]
    assert world.claim() == []
    clean(world, quiet=False)
    world.give_back(number)
    assert claimed(world) == [behind]
    clean(world)


def test_a_reservation_that_waits_for_a_resumed_job_stops_nobody(world: World) -> None:
    """That job may need the same lanes: if they were closed, both would wait for ever."""
    gpu = world.resource("gpu", 2)
    held = world.paused(target="desk", resources=("gpu",))
    call = world.reserve(gpu, target="desk")
    (other,) = world.enqueue(resources=("gpu",))
    assert world.claim(2) == []
    world.resume(held)
    assert claimed(world, 2) == [held, other]
    assert world.settle() == [call]
    world.give_back(call)
    clean(world)


@pytest.mark.parametrize("where", ["gpu", "desk"])
def test_after_eight_direct_calls_one_job_goes_first(world: World, where: str) -> None:
    gpu = world.resource("gpu", 1)
    on = {"resources": ("gpu",)} if where == "gpu" else {"target": "desk"}

    def reserve() -> int:
        return world.reserve(gpu) if where == "gpu" else world.reserve(target="desk")

    first, second = world.enqueue(2, **on)
    number = reserve()
    for _ in range(8):
        world.beat(WORKER)
        assert world.settle() == [number]
        world.give_back(number)
        number = reserve()
    assert world.settle() == []
    assert claimed(world, 4) == [first]
    assert world.settle() == [number]
    assert world.claim() == []
    clean(world, quiet=False)
    world.give_back(number)
    assert claimed(world) == [second]
    clean(world)


def test_a_reservation_that_is_not_renewed_expires(world: World) -> None:
    gpu = world.resource("gpu", 1)
    number = world.reserve(gpu, ttl=35.0)
    (job_id,) = world.enqueue(resources=("gpu",))
    assert world.claim() == []
    assert world.settle() == [number]
    assert claimed(world) == [job_id]
    clean(world)


def test_a_reservation_is_overdue_only_beyond_its_time_and_only_if_somebody_could_know(world: World) -> None:
    world.reserve(LANE, ttl=60.0)
    world.clock.at += 1000 * SECOND
    clean(world)
    world.register(OBSERVER)
    seen = []
    for after in (29.0, 2.0):
        world.beat(OBSERVER, after=after)
        seen.append(broken(world.check()))
    assert seen == [set(), {"I-16"}]
    assert world.check(recovery=40.0).findings == []


def test_a_callers_reservation_has_the_time_of_its_lease(world: World) -> None:
    world.register(CALLER, kind="caller")
    world.reserve(LANE, worker_id=CALLER)
    world.beat(CALLER)
    world.clock.at += 1000 * SECOND
    clean(world)
    world.register(OBSERVER)
    seen = []
    for after in (149.0, 2.0):
        world.beat(OBSERVER, after=after)
        seen.append(broken(world.check()))
    assert seen == [set(), {"I-16"}]


def test_places_that_are_not_known_are_not_judged(world: World) -> None:
    """An edit says where a job went, not where it came from."""
    (edited,) = world.enqueue(target="desk")
    (behind,) = world.enqueue(target="desk")
    world.change(edited, actions.edit, priority=0, position=9 << 40, now=world.clock.now())
    assert claimed(world) == [behind]
    assert claimed(world) == [edited]
    clean(world)


def test_pruned_jobs_may_have_been_in_the_way(world: World) -> None:
    gpu = world.resource("gpu", 1)
    (gone,) = world.enqueue(resources=("gpu",))
    world.claim()
    (waiting,) = world.enqueue(resources=("gpu",), priority=5)
    (passing,) = world.enqueue()
    (held,) = world.claim()
    assert held.job_id == passing
    world.run(
        lambda tx: tx.run(
            "complete",
            ended=json.dumps({gone: 1}),
            results="{}",
            codes="{}",
            worker_id=WORKER,
            actor=world.worker.text(),
        )
    )
    calls = [world.reserved(gpu)]
    world.give_back(calls[0])
    world.complete(held)
    _prune(world, [gone])
    clean(world, quiet=False)
    assert claimed(world) == [waiting]
    clean(world)


def _prune(w: World, ids: list[int]) -> None:
    def work(tx: Tx) -> None:
        tx.run("begin_pruning")
        for step in ("tally", "prune"):
            tx.run(step, ids=json.dumps(ids))
        tx.run("end_pruning")

    w.run(work)


def test_after_what_was_pruned_it_judges_again(world: World) -> None:
    world.resource("gpu", 1)
    gone = claimed(world) if world.enqueue(resources=("gpu",)) else []
    world.enqueue(resources=("gpu",), priority=5)
    (passing,) = world.enqueue()
    _prune(world, gone)
    world.complete(*world.take(passing))
    assert broken(world.check()) == {"I-11"}


def test_direct_calls_that_were_pruned_may_have_made_it_a_jobs_turn(world: World) -> None:
    gpu = world.resource("gpu", 2)
    for _ in range(8):
        world.give_back(world.reserved(gpu))

    def prune(tx: Tx) -> None:
        tx.run("begin_pruning")
        assert len(tx.run("prune_reservations", before=world.clock.now())) == 7
        tx.run("end_pruning")

    world.run(prune, after=0.0)
    world.reserve(gpu)
    first, second = world.enqueue(2, resources=("gpu",))
    world.complete(*world.take(first))
    clean(world, quiet=False)
    world.complete(*world.take(second))
    assert broken(world.check()) == {"I-16"}


def on_postgres(w: World) -> bool:
    return w.db.dialect == "postgres"


def test_recent_events_are_left_for_the_next_time(world: World) -> None:
    """PostgreSQL passes over a job that somebody is changing; that the change comes can only be waited for."""
    _, second = world.enqueue(2)
    world.take(second)
    assert broken(world.check()) == (set() if on_postgres(world) else {"I-11"})
    world.clock.at += SECOND
    assert broken(world.check()) == {"I-11"}


def test_a_long_transaction_shows_how_long_others_may_not_have_seen_a_job(world: World) -> None:
    first, second = world.enqueue(2)
    world.tamper(f"update hw_event set at = at - {3 * SECOND} * (thing_id % 2) where thing = 'job'", without=EVENTS)
    world.complete(*world.take(first, second))
    world.enqueue(priority=1)
    (behind,) = world.enqueue()
    world.clock.at -= 15 * SECOND
    world.complete(*world.take(behind))
    assert broken(world.check(settle=1.0)) == {"I-11"}
    assert broken(world.check()) == (set() if on_postgres(world) else {"I-11"})


# --- limits -------------------------------------------------------------------------------------------------------


@sabotage("I-05", "as number 2 of lane 2: limit 1")
def resource_over_its_capacity(w: World) -> None:
    w.resource("gpu", 1)
    w.complete(*w.take(*w.enqueue(2, resources=("gpu",))))


@sabotage("I-05", "as number 3 of lane 1: limit 1")
def claimed_after_the_limit_was_lowered(w: World) -> None:
    ids = w.enqueue(3)
    held = w.claim(2)
    w.limit(1)
    w.complete(*held, *w.take(ids[2]))


@sabotage("I-05", "as number 2 of lane 2: limit 1")
def granted_beside_a_running_job(w: World) -> None:
    gpu = w.resource("gpu", 1)
    w.enqueue(resources=("gpu",))
    w.claim()
    w.grant(w.reserve(gpu))


@sabotage("I-05", "its events lead to none")
def lane_made_unseen(w: World) -> None:
    w.resource("gpu", 1)
    w.tamper("delete from hw_event where kind = 'lane.created'", without=("hw_event_kept",))


@sabotage("I-05", "the settings have version 2, their events lead to 1")
def settings_changed_unseen(w: World) -> None:
    w.rules(aging=10.0)
    w.tamper("update hw_setting set version = 2")


@sabotage("I-05", "its events lead to the lanes of bucket 2, its row has bucket 1")
def lanes_changed_unseen(w: World) -> None:
    w.enqueue()
    w.rules(policy="per_task")
    w.tamper("update hw_job set bucket_id = 1")


@sabotage("I-05", "it had the lanes of bucket 2 and left those of bucket 1 (version 3)")
def lanes_that_it_never_had(w: World) -> None:
    w.enqueue()
    w.rules(policy="per_task")
    w.rules(policy="global")
    w.tamper("""update hw_event set data = '{"from": 1, "to": 1}' where version = 3""", without=EVENTS)


def _as_if_on(w: World, name: str, *ids: int) -> None:
    """As if these jobs had been on another target, which only a broken claim could give them."""
    w.tamper(f"update hw_job set target_id = {w.target(name)} where id in ({', '.join(map(str, ids))})")


@sabotage("I-05", "on target 1, which job 1 held")
def target_shared(w: World) -> None:
    w.enqueue(target="desk")
    (other,) = w.enqueue(target="chair")
    w.complete(*w.claim(2))
    _as_if_on(w, "desk", other)


@sabotage("I-05", "on target 1, which job 1 held")
def held_target_given_away(w: World) -> None:
    w.paused(target="desk")
    (other,) = w.enqueue(target="chair")
    w.complete(*w.claim())
    _as_if_on(w, "desk", other)


@sabotage("I-05", "on target 1, which job 1 held")
def resumed_holder_passed_by(w: World) -> None:
    w.resume(w.paused(target="desk"))
    (other,) = w.enqueue(target="chair", priority=9)
    w.complete(*w.claim())
    _as_if_on(w, "desk", other)


@sabotage("I-05", "on target 1, which was paused at")
def claimed_on_a_paused_target(w: World) -> None:
    w.target("desk")
    w.pause_target("desk")
    (other,) = w.enqueue(target="chair")
    w.complete(*w.claim())
    _as_if_on(w, "desk", other)


@sabotage("I-05", "on target 1, which job 1 held")
def held_target_granted(w: World) -> None:
    w.paused(target="desk")
    w.grant(w.reserve(target="desk"))


@sabotage("I-05", "on target 1, which was paused at")
def paused_target_granted(w: World) -> None:
    w.target("desk")
    w.pause_target("desk")
    w.grant(w.reserve(target="desk"))


@sabotage("I-05", "on target 1, which reservation 1 had")
def claimed_on_a_granted_target(w: World) -> None:
    w.target("desk")
    w.reserved(target="desk")
    (other,) = w.enqueue(target="chair")
    w.complete(*w.claim())
    _as_if_on(w, "desk", other)


@sabotage("I-05", "on target 1, which reservation 1 had")
def target_granted_twice(w: World) -> None:
    w.target("desk")
    w.reserved(target="desk")
    w.grant(w.reserve(target="desk"))


@sabotage("I-05", "its gate is open, but job 1 has target 1")
def gate_open_on_a_busy_target(w: World) -> None:
    w.enqueue(2, target="desk")
    w.claim()
    w.tamper("update hw_job set gate = 1 where status = 2")


@sabotage("I-05", "its gate is open, but job 1 has target 1")
def gate_open_on_a_held_target(w: World) -> None:
    w.paused(target="desk")
    w.enqueue(target="desk")
    w.claim()
    w.tamper("update hw_job set gate = 1 where status = 2")


@sabotage("I-05", "its gate is open, but target 1 is paused")
def gate_open_on_a_paused_target(w: World) -> None:
    w.enqueue(target="desk")
    w.pause_target("desk")
    w.claim()
    w.tamper("update hw_job set gate = 1 where status = 2")


# --- order --------------------------------------------------------------------------------------------------------


@sabotage("I-11", "it is QUEUED without a target and its gate is closed")
def gate_closed(w: World) -> None:
    w.enqueue()
    w.tamper("update hw_job set gate = 0")


@sabotage("I-11", "it may be claimed on target 1 and its gate is closed")
def first_of_its_target_closed(w: World) -> None:
    w.enqueue(2, target="desk")
    w.run(lambda tx: _settle_targets(w, tx))
    w.tamper("update hw_job set gate = 0")


@sabotage("I-11", "it may be claimed on target 1 and its gate is closed")
def resumed_holder_closed(w: World) -> None:
    w.resume(w.paused(target="desk"))
    w.run(lambda tx: _settle_targets(w, tx))
    w.tamper("update hw_job set gate = 0")


@sabotage("I-11", "its gate is open, but job 1 is first on target 1")
def second_of_its_target_open(w: World) -> None:
    w.enqueue(2, target="desk")
    w.run(lambda tx: _settle_targets(w, tx))
    w.tamper("update hw_job set gate = 0", "update hw_job set gate = 1 where id = 2")


def _settle_targets(w: World, tx: Tx) -> None:
    claims.lock_and_look(tx, w.lanes, w.worker)


def test_a_target_that_was_touched_is_chosen_anew_by_the_next_claim(world: World) -> None:
    world.enqueue(target="desk")
    clean(world, quiet=False)
    with world.db.read() as tx:
        ((gate,),) = tx.connection.execute("select gate from hw_job").fetchall()  # type: ignore[attr-defined]
    assert gate == 0


@sabotage("I-11", "when job 1 behind it was claimed")
def overtaken_by_another_task(w: World) -> None:
    (first,) = w.enqueue(task="u")
    w.enqueue(priority=5)
    w.complete(*w.take(first))


@sabotage("I-11", "when job 1 behind it was claimed")
def overtaken_although_its_resource_was_free(w: World) -> None:
    w.resource("gpu", 1)
    (first,) = w.enqueue()
    w.enqueue(priority=5, resources=("gpu",))
    w.complete(*w.take(first))


@sabotage("I-11", "when job 2 behind it was claimed")
def resource_taken_by_a_worse_one(w: World) -> None:
    w.resource("gpu", 1)
    w.resource("net", 1)
    w.enqueue(resources=("gpu", "net"))
    w.enqueue(resources=("gpu",))
    w.enqueue(resources=("net",))
    w.complete(*w.take(2, 3))


@sabotage("I-11", "when job 1 behind it was claimed")
def overtaken_by_another_target(w: World) -> None:
    (first,) = w.enqueue(target="desk")
    w.enqueue(priority=5, target="chair")
    w.complete(*w.take(first))


@sabotage("I-11", "when job 1 behind it was claimed")
def overtaken_by_a_job_without_a_target(w: World) -> None:
    (first,) = w.enqueue()
    w.enqueue(priority=5, target="chair")
    w.complete(*w.take(first))


@sabotage("I-11", "when job 2 behind it was claimed")
def resumed_holder_overtaken(w: World) -> None:
    w.resume(w.paused(target="desk"))
    (other,) = w.enqueue()
    w.complete(*w.take(other))


@sabotage("I-11", "it stood in the queue on target 1 since")
def not_the_first_of_its_target(w: World) -> None:
    w.enqueue(2, target="desk")
    w.run(lambda tx: _settle_targets(w, tx))
    w.tamper("update hw_job set gate = 0", "update hw_job set gate = 1 where id = 2")
    w.complete(*w.take(2))


@sabotage("I-11", "when job 2 behind it was claimed")
def overtaken_after_it_got_other_lanes(w: World) -> None:
    w.rules(policy="per_task", limit=1)
    w.enqueue(task="u")
    held = w.claim()
    (second,) = w.enqueue()
    w.enqueue(task="u", priority=5)
    w.rules(policy="global", limit=None)
    w.complete(*w.take(second), *held)


@sabotage("I-11", "when job 1 behind it was claimed")
def overtaken_after_its_resource_was_raised(w: World) -> None:
    gpu = w.resource("gpu", 1)
    (first,) = w.enqueue()
    w.enqueue(2, resources=("gpu",), priority=5)
    w.claim()
    w.limit(2, gpu)
    w.complete(*w.take(first))


@sabotage("I-11", "its queue was paused since")
def claimed_while_its_queue_was_paused(w: World) -> None:
    w.enqueue()
    w.pause_queue()
    w.complete(*w.take(1))


@sabotage("I-11", "its queue was paused since")
def claimed_while_everything_was_paused(w: World) -> None:
    w.enqueue()
    w.pause_queue(0, until=w.clock.now() + 1000 * SECOND)
    w.complete(*w.take(1))


@sabotage("I-11", "it stood in the queue with priority 6 by its age since")
def age_ignored(w: World) -> None:
    w.rules(aging=10.0)
    w.enqueue()
    w.clock.at += 44 * SECOND
    (urgent,) = w.enqueue(priority=4)
    w.complete(*w.take(urgent))


@sabotage("I-11", "with priority 3 by its age since")
def age_counted_too_high(w: World) -> None:
    w.rules(aging=30.0)
    (old,) = w.enqueue()
    w.enqueue(priority=3)
    w.complete(*w.take(old))


@sabotage("I-11", "when job 2 behind it was claimed")
def order_within_a_priority_changed_by_age(w: World) -> None:
    w.rules(aging=10.0)
    w.enqueue(2)
    w.move(1, position=0)
    w.complete(*w.take(2))


# --- reservations -------------------------------------------------------------------------------------------------


@sabotage("I-16", "before reservation 1, which waited for the same")
def granted_out_of_turn(w: World) -> None:
    gpu, net = w.resource("gpu", 1), w.resource("net", 1)
    w.reserve(gpu, net)
    w.grant(w.reserve(net))


@sabotage("I-16", "before reservation 1, which waited for the same")
def target_granted_out_of_turn(w: World) -> None:
    w.reserve(target="desk")
    w.grant(w.reserve(target="desk"))


@sabotage("I-16", "on lane 2, which reservation 1 had to get next")
def claimed_past_a_reservation(w: World) -> None:
    gpu = w.resource("gpu", 2)
    w.reserve(gpu)
    w.complete(*w.take(*w.enqueue(resources=("gpu",))))


@sabotage("I-16", "on lane 2, which reservation 1 had to get next")
def claimed_past_one_that_was_granted(w: World) -> None:
    gpu = w.resource("gpu", 2)
    w.reserved(gpu)
    w.complete(*w.take(*w.enqueue(resources=("gpu",))))


@sabotage("I-16", "on target 1, which reservation 1 had to get next")
def claimed_past_a_reservation_of_its_target(w: World) -> None:
    w.reserve(target="desk")
    w.complete(*w.take(*w.enqueue(target="desk")))


@sabotage("I-16", "on lane 2, which reservation 1 had to get next")
def claimed_past_one_that_waits_for_a_held_target(w: World) -> None:
    gpu = w.resource("gpu", 2)
    held = w.paused(target="desk", resources=("gpu",))
    w.reserve(gpu, target="desk")
    w.complete(*w.take(*w.enqueue(resources=("gpu",))))
    w.resume(held)


@sabotage("I-16", "on lane 2, which reservation 9 had to get next")
def two_jobs_in_one_turn(w: World) -> None:
    gpu = w.resource("gpu", 2)
    for _ in range(8):
        w.give_back(w.reserved(gpu))
    w.reserve(gpu)
    w.complete(*w.take(*w.enqueue(2, resources=("gpu",))))


@sabotage("I-16", "on lane 2, which reservation 8 had to get next")
def one_direct_call_too_few(w: World) -> None:
    gpu = w.resource("gpu", 2)
    for _ in range(7):
        w.give_back(w.reserved(gpu))
    w.reserve(gpu)
    w.complete(*w.take(*w.enqueue(resources=("gpu",))))


@sabotage("I-16", "version 3, reservation.granted: it was granted before")
def granted_twice(w: World) -> None:
    number = w.reserved(LANE)
    w.tamper(f"update hw_reservation set granted_at = null where id = {number}")
    w.grant(number)


@sabotage("I-16", "version 3, reservation.granted comes after its end")
def granted_after_its_end(w: World) -> None:
    number = w.reserve(LANE)
    w.give_back(number)
    w.tamper(f"update hw_reservation set finished_at = null, status = 'ACTIVE' where id = {number}")
    w.grant(number)
    w.tamper(f"update hw_reservation set finished_at = 1, status = 'RELEASED' where id = {number}")


@sabotage("I-16", "version 3, reservation.released comes after its end")
def ended_twice(w: World) -> None:
    number = w.reserve(LANE)
    w.give_back(number)
    w.tamper(f"update hw_reservation set finished_at = null, status = 'ACTIVE' where id = {number}")
    w.give_back(number)


@sabotage("I-16", "1 released, 0 expired; its row is EXPIRED (version 2), never granted")
def ended_otherwise(w: World) -> None:
    w.give_back(w.reserve(LANE))
    w.tamper("update hw_reservation set status = 'EXPIRED'")


@sabotage("I-16", "its events lead to ((1,), None), its row has ((2,), None)")
def lanes_of_a_reservation_changed_unseen(w: World) -> None:
    gpu = w.resource("gpu", 1)
    w.reserve(LANE)
    w.tamper(f"update hw_reservation set lanes = '[{gpu}]'")


@sabotage("I-16", "it has a history and no row")
def reservation_deleted(w: World) -> None:
    w.give_back(w.reserve(LANE))
    w.tamper("delete from hw_reservation")


@sabotage("I-16", "too long ago")
def never_expired(w: World) -> None:
    w.reserve(LANE, ttl=60.0)
    w.register(OBSERVER)
    w.beat(OBSERVER, after=100.0)


@sabotage("I-16", "and was granted at")
def granted_when_its_time_was_over(w: World) -> None:
    number = w.reserve(LANE, ttl=5.0)
    w.grant(number)
    w.give_back(number)


@sabotage("I-16", "and was ended as expired at")
def expired_before_its_time(w: World) -> None:
    number = w.reserve(LANE, ttl=60.0)
    w.run(lambda tx: reservations.end(tx, number, status="EXPIRED", actor=ANN))


@sabotage("I-16", "its holder ca11 was last alive at")
def kept_for_a_caller_that_is_gone(w: World) -> None:
    w.register(CALLER, kind="caller")
    w.reserve(LANE, worker_id=CALLER)
    w.register(OBSERVER)
    w.run(lambda tx: workers.retire(tx, CALLER, "lost"))
    w.beat(OBSERVER, after=151.0)


@sabotage("I-16", "its holder 1f does not exist")
def kept_for_nobody(w: World) -> None:
    w.reserve(LANE, worker_id=0x1F)


# --- tenants ------------------------------------------------------------------------------------------------------

OTHER = "insert into hw_tenant (id, name, created_at) values (2, 'other', 1)"


@sabotage("I-18", "its target 1 to tenant 2")
def target_of_another_tenant(w: World) -> None:
    w.complete(*w.take(*w.enqueue(target="desk")))
    w.tamper(
        OTHER,
        "update hw_target set tenant_id = 2",
        "update hw_event set tenant_id = 2 where thing = 'target'",
        without=EVENTS,
    )


@sabotage("I-18", "its target 7 to no tenant")
def target_of_nobody(w: World) -> None:
    w.complete(*w.take(*w.enqueue(target="desk")))
    w.tamper("update hw_job set target_id = 7")


@sabotage("I-18", "for jobs without one")
def bucket_without_a_target(w: World) -> None:
    w.target("desk")
    w.complete(*w.take(*w.enqueue()))
    _as_if_on(w, "desk", 1)


@sabotage("I-18", "it belongs to tenant 1, its events to 2 and 2")
def events_of_a_target_elsewhere(w: World) -> None:
    w.target("desk")
    w.tamper(OTHER, "update hw_event set tenant_id = 2 where thing = 'target'", without=EVENTS)


@sabotage("I-18", "its lane 2 belongs to tenant 2")
def reserved_in_another_tenant(w: World) -> None:
    w.give_back(w.reserve(w.resource("gpu", 1)))
    w.tamper(OTHER, "update hw_lane set tenant_id = 2 where id = 2")


@sabotage("I-18", "its target 1 belongs to tenant 2")
def target_reserved_in_another_tenant(w: World) -> None:
    w.give_back(w.reserve(target="desk"))
    w.tamper(
        OTHER,
        "update hw_target set tenant_id = 2",
        "update hw_event set tenant_id = 2 where thing = 'target'",
        without=EVENTS,
    )


@sabotage("I-18", "it belongs to tenant 1, its events to 2 and 2")
def reservation_told_elsewhere(w: World) -> None:
    w.give_back(w.reserve(LANE))
    w.tamper(OTHER, "update hw_event set tenant_id = 2 where thing = 'reservation'", without=EVENTS)


@sabotage("I-02", "its history ends with version 1, its row has version 2")
def target_changed_unseen(w: World) -> None:
    w.target("desk")
    w.tamper("update hw_target set version = 2")


@sabotage("I-02", "it got other lanes while it was RUNNING")
def other_lanes_while_it_runs(w: World) -> None:
    w.enqueue()
    w.claim()
    w.run(lambda tx: tx.run("move_ready", ids="[1]", to_id=1))
    event = [1, "job", 1, 3, "job.relaned", 3, ANN.text(), 1, '{"from": 1, "to": 1}']
    w.run(lambda tx: tx.run("add_events", rows=json.dumps([event])))


@pytest.mark.parametrize("case", sabotage, ids=str)
def test_sabotage_is_found(world: World, case: Sabotage) -> None:
    case.is_found(world)
