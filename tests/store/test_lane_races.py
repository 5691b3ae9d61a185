"""Lanes, targets and reservations on PostgreSQL while several are at it: made to meet, and in a storm.

Every pair ends as if one had come after the other, nobody waits longer than for a commit, and once all have committed
one more claim finds what may run.
"""

from __future__ import annotations

import json
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest

from headway.app import App
from headway.engine.client import limits
from headway.engine.tasks.registry import Registry, make_spec
from headway.engine.worker.claim_strategy import LOCKED_SECONDS
from headway.engine.worker.config import WorkerConfig
from headway.engine.worker.finish import Ended, finish
from headway.engine.worker.worker import Worker
from headway.errors import BadInput, NotFound, WrongState
from headway.model.jobs.job import Claim, Options
from headway.model.jobs.outcome import Completed, Interrupted, Outcome
from headway.model.jobs.retry import RetryPolicy
from headway.model.queue.policies import Concurrency
from headway.store.db import Tx
from headway.store.postgres.database import PostgresDatabase
from headway.store.queue import claim_snapshot, claims, reservations, select
from headway.store.queue.lanes import BucketCache, resources
from headway.verify import check
from tests.support.life import ADA, BROKEN, FINAL, Life
from tests.support.pair import Pair
from tests.support.waiting import PATIENCE, at_once


@pytest.fixture
def pair(postgres_url: str) -> Iterator[Pair]:
    with Pair(postgres_url) as pair:
        yield pair
        pair.check_versions()


def ids(taken: list[Claim]) -> list[int]:
    return [claim.job_id for claim in taken]


def running(pair: Life) -> list[int]:
    return [job_id for (job_id,) in pair.sql("select id from hw_job where status = 3 order by id")]


@contextmanager
def locked(pair: Pair, job_id: int) -> Iterator[None]:
    """Somebody has a job in hand, and then lets it go again without a change."""
    tx = pair.database.begin("person")
    try:
        tx.run("lock_job", id=job_id)
        yield
    finally:
        pair.database.end(tx)


def reserve(pair: Life, *, lanes: list[int] | None = None, target: str | None = None) -> int:
    """A direct call that asks for its place, and looks at once whether it has it."""
    target_id = None if target is None else pair.client.lanes.target(pair.client.tenant_id, target)
    known = BucketCache(pair.database)

    def work(tx: Tx) -> int:
        claims.lock_and_look(tx, known, ADA)
        number = reservations.add(
            tx, pair.client.tenant_id, lanes=lanes or [], target_id=target_id, holder="call", actor=ADA, worker_id=7
        )
        select.settle_reservations(tx, claim_snapshot.look(tx), known)
        return number

    return pair.database.transact("reserve", work)


def granted(pair: Life, number: int) -> bool:
    return pair.sql(f"select granted_at from hw_reservation where id = {number}") != [(None,)]


def global_lane(pair: Life) -> int:
    ((lane,),) = pair.sql("select id from hw_lane where name = 'global'")
    return int(lane)


# --- two claims of one target ---


def test_two_claims_of_one_target_at_the_same_moment_end_with_one_running(pair: Pair) -> None:
    first, second = (pair.enqueue(target="desk") for _ in range(2))
    with pair.open_at("claim:take", lambda: pair.claim_next(2)) as one:
        other = pair.waiting(lambda: pair.claim_next(2))
    assert (ids(one.result()), ids(other.result(PATIENCE))) == ([first], [])
    assert running(pair) == [first]
    assert pair.end(one.result()[0], Completed())
    assert ids(pair.claim_next(2)) == [second]


def test_many_claims_at_once_take_one_job_of_each_target(pair: Pair) -> None:
    jobs = {target: [pair.enqueue(target=target) for _ in range(4)] for target in ("desk", "lab", "shed")}
    for _ in range(4):
        taken = [claim for future in at_once([lambda: pair.claim_next(3)] * 6) for claim in future.result()]
        assert sorted(ids(taken)) == sorted(queue.pop(0) for queue in jobs.values())
        at_once([lambda claim=claim: pair.end(claim, Completed()) for claim in taken])  # type: ignore[misc]


def test_the_schema_has_no_place_for_a_second_one(pair: Pair) -> None:
    first, second = (pair.enqueue(target="desk") for _ in range(2))
    assert ids(pair.claim_next()) == [first]
    force = "update hw_job set status = 3, worker_id = 1, slot = 99, claimed_at = 1, fence = 1 where id = "
    with pytest.raises(psycopg.errors.UniqueViolation, match="hw_job_target_hold"):
        pair.raw.execute(f"{force}{second}")
    with pytest.raises(psycopg.errors.UniqueViolation, match="hw_job_target_hold"):
        pair.raw.execute(f"update hw_job set fence = 1 where id = {second}")  # as if it had been resumed


# --- claims and people on one target ---

# Before a statement of the claim somebody else commits; whatever it then takes, nothing is left closed for ever.
STATEMENTS = ["claim_lock", "claim_view", "take_touched", "target_queues", "open_gates", "first_of_bucket", "take"]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_better_job_that_comes_in_the_middle_of_a_claim_is_before_or_after_it(pair: Pair, statement: str) -> None:
    first = pair.enqueue(target="desk")
    better: list[int] = []
    pair.gated.before(f"claim:{statement}", lambda: better.append(pair.enqueue(target="desk", priority=9)))
    taken = pair.claim_next()
    assert len(better) == 1
    assert ids(taken) == (better if statement in STATEMENTS[:4] else [first])
    assert pair.end(taken[0], Completed())
    assert ids(pair.claim_next()) == ([first] if statement in STATEMENTS[:4] else better)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_head_that_is_cancelled_in_the_middle_of_a_claim_leaves_the_next_one_to_be_found(
    pair: Pair, statement: str
) -> None:
    first, second = (pair.enqueue(target="desk") for _ in range(2))
    if statement in STATEMENTS[-2:]:
        assert pair.pick(1) == [first]  # opened by an earlier claim: this one does not have it in hand yet
    pair.gated.before(f"claim:{statement}", lambda: pair.client.cancel(first))
    taken = ids(pair.claim_next()) or ids(pair.claim_next())
    assert (taken, pair.status(first), pair.run_status(first)) == ([second], "CANCELLED", "no run")


def test_a_job_that_is_being_stored_is_found_once_it_is(pair: Pair) -> None:
    first = pair.enqueue(target="desk")
    with pair.open_at("enqueue_many:commit", lambda: pair.enqueue(target="desk", priority=9)) as better:
        claim = pair.claim_next()
        assert ids(claim) == [first]
        assert pair.end(claim[0], Completed())
        assert pair.claim_next() == []
    assert ids(pair.claim_next()) == [better.result()]


DEEDS: dict[str, tuple[str, Callable[[Pair, int, int], object], int | None]] = {
    # label of its transaction, the deed, and which of the two that wait (or 2: a new one) is first afterwards
    "enqueue": ("enqueue_many", lambda pair, a, b: pair.enqueue(target="desk", priority=9), 2),
    "cancel": ("cancel", lambda pair, a, b: pair.client.cancel(a), 1),
    "hold": ("interrupt", lambda pair, a, b: pair.client.interrupt(a), 1),
    "move": ("move", lambda pair, a, b: pair.client.move(b, to="top"), 1),
    "edit": ("edit", lambda pair, a, b: pair.client.edit(b, priority=9), 1),
    "edit its head": ("edit", lambda pair, a, b: pair.client.edit(a, params={"n": 7}), 0),
    "pause": ("target_paused", lambda pair, a, b: pair.client.pause_target("desk"), None),
}


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize("opened", [False, True])
def test_an_end_on_a_target_and_a_deed_on_its_queue_do_not_wait_for_each_other(
    pair: Pair, deed: str, opened: bool
) -> None:
    """Either is in the middle when the other comes, and is done when that one is not."""
    label, act, first = DEEDS[deed]
    a, b, c = (pair.enqueue(target="desk") for _ in range(3))
    (claim,) = pair.claim_next()
    assert claim.job_id == a
    if opened:
        with pair.open_at("finish:commit", lambda: pair.end(claim, Completed())) as end:
            made = pair.pool.submit(act, pair, b, c).result(PATIENCE)
            assert pair.claim_next(3) == []
        assert end.result()
    else:
        with pair.open_at(f"{label}:commit", lambda: act(pair, b, c)) as done:
            assert pair.pool.submit(pair.end, claim, Completed()).result(PATIENCE)
        made = done.result()
    expected = [] if first is None else [(b, c, made)[first]]
    assert ids(pair.claim_next(3)) == expected
    assert pair.claim_next(3) == []


@pytest.mark.parametrize("deed", [name for name in DEEDS if name != "pause"])
def test_a_claim_does_not_wait_for_a_deed_on_the_queue_of_a_target(pair: Pair, deed: str) -> None:
    label, act, first = DEEDS[deed]
    a, b = (pair.enqueue(target="desk") for _ in range(2))
    other = pair.enqueue(target="lab")
    assert pair.pick(1) == [a]  # its gate is open
    with pair.open_at(f"{label}:commit", lambda: act(pair, a, b)) as done:
        early = pair.pool.submit(pair.claim_next, 9).result(PATIENCE)
    assert set(ids(early)) - {a} == {other}
    if a in ids(early):
        assert pair.end(next(claim for claim in early if claim.job_id == a), Completed())
    expected = (a, b, done.result())[first or 0]
    assert ids(pair.claim_next(9)) == [b if a in ids(early) and expected == a else expected]


def test_a_head_that_somebody_has_in_hand_and_lets_go_keeps_its_turn(pair: Pair) -> None:
    first, second = (pair.enqueue(target="desk") for _ in range(2))
    other = pair.enqueue(target="lab")
    with locked(pair, first):
        assert ids(pair.claim_next(3)) == [other]
    assert ids(pair.claim_next(3)) == [first]
    assert pair.status(second) == "QUEUED"


@pytest.mark.parametrize("deed", ["edit", "pause"])
@pytest.mark.parametrize("statement", ["target_queues", "close_gates", "first_of_bucket", "take"])
def test_a_head_that_is_no_longer_first_is_not_taken_because_somebody_had_it_in_hand(
    pair: Pair, deed: str, statement: str
) -> None:
    """Its gate could not be closed while somebody had it in hand, who lets it go before the claim takes its jobs."""
    a, b = (pair.enqueue(target="desk") for _ in range(2))
    assert pair.pick(1) == [a]
    DEEDS[deed][1](pair, a, b)
    worker_slots = pair.database.begin("person")
    worker_slots.run("lock_job", id=a)
    pair.gated.before(f"claim:{statement}", lambda: pair.database.end(worker_slots))
    assert a not in ids(pair.claim_next())
    pair.gated.act(f"claim:{statement}")
    taken = ids(pair.claim_next())
    assert running(pair) == ([] if deed == "pause" else [b])
    assert a not in taken


def test_a_target_that_is_paused_in_the_middle_of_a_claim(pair: Pair) -> None:
    first, second = (pair.enqueue(target="desk") for _ in range(2))
    with pair.open_at("claim:take", pair.claim_next) as claim:
        pause = pair.waiting(lambda: pair.client.pause_target("desk"))
    pause.result(PATIENCE)
    assert ids(claim.result()) == [first]  # it was claimed before the pause
    assert pair.end(claim.result()[0], Completed())
    assert pair.claim_next() == []
    pair.client.resume_target("desk")
    assert ids(pair.claim_next()) == [second]


@pytest.mark.parametrize("everybody", [False, True])
def test_when_a_pause_of_the_queue_has_returned_nothing_more_starts(pair: Pair, everybody: bool) -> None:
    pair.set_limit(None)
    first, _ = pair.enqueue(), pair.enqueue()
    with pair.open_at("claim:take", pair.claim_next) as claim:
        pause = pair.waiting(lambda: pair.client.pause_queue(everybody=everybody))
    pause.result(PATIENCE)
    assert ids(claim.result()) == [first]
    assert pair.claim_next() == []


@pytest.mark.parametrize("verb", ["resume", "resolve", "release", "retry", "cancel"])
def test_a_decision_about_the_holder_and_a_claim_at_once(pair: Pair, verb: str) -> None:
    holder, behind = pair.enqueue(target="desk", retry=0), pair.enqueue(target="desk")
    (claim,) = pair.claim_next()
    assert pair.end(claim, FINAL)
    assert pair.status(holder) == "ERROR"
    decide = getattr(pair.client, verb)
    with pair.open_at(f"{verb}:commit", lambda: decide(holder)) as decided:
        assert pair.pool.submit(pair.claim_next, 3).result(PATIENCE) == []
    after = decided.result().id if verb in ("resume", "retry") else behind
    assert ids(pair.claim_next(3)) == [after]


# --- reservations ---


def test_a_claim_and_a_reservation_come_one_after_the_other(pair: Pair) -> None:
    lane = global_lane(pair)
    first, second = pair.enqueue(), pair.enqueue()
    with pair.open_at("claim:take", pair.claim_next) as claim:
        call = pair.waiting(lambda: reserve(pair, lanes=[lane]))
    assert ids(claim.result()) == [first]
    number = call.result(PATIENCE)
    assert not granted(pair, number)  # only work that was running already precedes the call
    assert pair.end(claim.result()[0], Completed())
    assert pair.claim_next() == []
    assert granted(pair, number)
    with pair.open_at("release:commit", lambda: release(pair, number)):
        late = pair.waiting(pair.claim_next)
    assert ids(late.result(PATIENCE)) == [second]


def test_a_reservation_that_came_first_is_served_first(pair: Pair) -> None:
    lane, job_id = global_lane(pair), pair.enqueue()
    with pair.open_at("reserve:commit", lambda: reserve(pair, lanes=[lane])) as call:
        claim = pair.waiting(pair.claim_next)
    assert claim.result(PATIENCE) == []
    assert granted(pair, call.result())
    release(pair, call.result())
    assert ids(pair.claim_next()) == [job_id]


def test_a_reservation_of_a_target_and_a_claim_there(pair: Pair) -> None:
    job_id = pair.enqueue(target="desk")
    assert pair.pick(1) == [job_id]
    with pair.open_at("reserve:commit", lambda: reserve(pair, target="desk")) as call:
        claim = pair.waiting(pair.claim_next)
    assert (claim.result(PATIENCE), granted(pair, call.result())) == ([], True)
    release(pair, call.result())
    with pair.open_at("claim:take", pair.claim_next) as claimed:
        late = pair.waiting(lambda: reserve(pair, target="desk"))
    assert ids(claimed.result()) == [job_id]
    assert not granted(pair, late.result(PATIENCE))


def test_reservations_at_once_are_granted_one_after_the_other_in_order(pair: Pair) -> None:
    lane = global_lane(pair)
    numbers = [future.result() for future in at_once([lambda: reserve(pair, lanes=[lane])] * 6)]
    for number in sorted(numbers):
        assert [n for n in numbers if granted(pair, n)] == [number]
        release(pair, number)
        assert pair.claim_next() == []
        numbers.remove(number)


def test_a_reservation_does_not_wait_for_a_move(pair: Pair) -> None:
    """Who holds the claim lock waits for nothing, and a move may have to wait for somebody who waits for that lock."""
    first, second, _ = (pair.enqueue() for _ in range(3))
    with pair.open_at("move:commit", lambda: pair.client.move(second, before=first)):
        number = pair.pool.submit(reserve, pair, lanes=[global_lane(pair)]).result(PATIENCE)
    assert granted(pair, number)
    with pair.open_at("move:commit", lambda: pair.client.move(second, after=first)):
        adopted = pair.pool.submit(adopt, pair, policy="per_task").result(PATIENCE)
    assert adopted.relaned == 1  # the others are in the move's hands


def release(pair: Life, number: int) -> None:
    def work(tx: Tx) -> bool:
        tx.run("claim_lock")
        return reservations.end(tx, number, status="RELEASED", actor=ADA)

    assert pair.database.transact("release", work)


# --- limits and policies ---


def adopt(pair: Pair, **wishes: Any) -> limits.SettledLimits:
    return limits.settle(pair.database, Concurrency(**wishes), {}, actor=ADA, adopt=True)


def test_a_limit_that_changes_in_the_middle_of_a_claim_holds_from_the_next_one_on(pair: Pair) -> None:
    jobs = [pair.enqueue() for _ in range(4)]
    with pair.open_at("claim:take", lambda: pair.claim_next(4)) as claim:
        change = pair.waiting(lambda: limits.change(pair.database, "global", 3, tenant_id=1, actor=ADA))
    change.result(PATIENCE)
    assert ids(claim.result()) == jobs[:1]
    with pair.open_at("limits:commit", lambda: limits.change(pair.database, "global", 2, tenant_id=1, actor=ADA)):
        late = pair.waiting(lambda: pair.claim_next(4))
    assert ids(late.result(PATIENCE)) == jobs[1:2]


def test_another_policy_and_a_claim_come_one_after_the_other(pair: Pair) -> None:
    jobs = [pair.enqueue(task=task) for task in ("ash", "ash", "birch", "birch")]
    with pair.open_at("claim:take", lambda: pair.claim_next(4)) as claim:
        change = pair.waiting(lambda: adopt(pair, policy="per_task", limit=1))
    assert ids(claim.result()) == jobs[:1]
    assert change.result(PATIENCE).relaned == 3
    with pair.open_at("limits:commit", lambda: adopt(pair, policy="global", limit=2)):
        late = pair.waiting(lambda: pair.claim_next(4))
    assert ids(late.result(PATIENCE)) == jobs[1:2]


def test_a_job_that_is_stored_while_the_policy_changes_gets_the_lanes_of_now(pair: Pair) -> None:
    pair.enqueue(task="ash", hold=True)
    with pair.open_at("enqueue_many:commit", lambda: pair.client.enqueue_many([pair.new(task="ash")] * 3)) as made:
        adopt(pair, policy="per_task", limit=2)
    jobs = [job_id for job_id, _ in made.result()]
    assert ids(pair.claim_next(3)) == jobs[:2]
    assert pair.events(jobs[0]) == ["job.created", "job.relaned", "job.claimed"]


def test_a_policy_changes_although_somebody_has_a_job_in_hand(pair: Pair) -> None:
    """Who holds the claim lock waits for nothing: that job gets its lanes before it is claimed."""
    jobs = [pair.enqueue(task="ash") for _ in range(3)]
    with locked(pair, jobs[0]):
        assert pair.pool.submit(adopt, pair, policy="per_task", limit=2).result(PATIENCE).relaned == 2
        assert ids(pair.pool.submit(pair.claim_next, 3).result(PATIENCE)) == jobs[1:]
    assert pair.claim_next(3) == []
    assert pair.end(pair.held(jobs[1]), Completed())
    assert ids(pair.claim_next(3)) == jobs[:1]


def test_a_lane_is_not_left_empty_because_somebody_has_the_first_job_in_hand(pair: Pair) -> None:
    """What was picked and could not be taken is gone past at the next look, and looked at again soon after."""
    pair.set_limit(1)
    registry = Registry()
    registry.add(make_spec(story, name="ash", isolation=None, options=Options(), priority=0))
    worker = Worker(pair.database, registry, WorkerConfig(slots=2))
    pair.database.transact("register", worker._register)
    first, second = pair.enqueue(task="ash"), pair.enqueue(task="ash")
    worker.pool.async_runner = Mock()  # what is claimed is not run here
    with locked(pair, first):
        assert pair.pool.submit(worker.tick).result(PATIENCE) == 0.0
        assert running(pair) == []
        assert pair.pool.submit(worker.tick).result(PATIENCE) <= LOCKED_SECONDS + 0.01
        assert running(pair) == [second]
    worker.waiter.close()


@pytest.mark.parametrize("at", ["cancel:commit", "save_job"])
@pytest.mark.parametrize("in_hand", [True, False])
def test_verify_knows_that_a_job_in_hand_had_its_lanes_in_the_plan(pair: Pair, in_hand: bool, at: str) -> None:
    """The second waits for the resource that the first would get: the third needs none and is claimed. It is wrong when
    nobody had the first in hand."""
    pair.set_limit(None)
    limits.settle(pair.database, Concurrency(limit=None), {"gpu": 1}, actor=ADA, adopt=True)
    first, second = pair.enqueue(resources=("gpu",)), pair.enqueue(resources=("gpu",))
    third = pair.enqueue()
    pair.clock.advance(60)
    with pair.open_at(at, lambda: pair.client.cancel(first)):
        assert ids(pair.pool.submit(pair.claim_next, 3).result(PATIENCE)) == [third]
    if not in_hand:  # as if it had been cancelled long before
        with pair.raw.transaction():
            pair.raw.execute("set local session_replication_role = replica")
            pair.raw.execute("update hw_event set at = at - 30000000 where kind = 'job.cancelled'")
    pair.clock.advance(120)
    found = [(f.invariant, f.thing) for f in check(pair.database).findings if f.invariant == "I-11"]
    assert found == ([] if in_hand else [("I-11", f"job {second}")])
    assert ids(pair.claim_next(3)) == [second]


def test_a_lane_that_comes_into_being_while_limits_change_gets_the_new_one(pair: Pair) -> None:
    """Its first job comes from a process that still knows the old limit."""
    adopt(pair, policy="per_task", limit=1)
    pair.client.lanes.refresh()
    with pair.open_at("limits:commit", lambda: adopt(pair, policy="per_task", limit=3)):
        first = pair.waiting(lambda: pair.enqueue(task="ash"))
    jobs = [first.result(PATIENCE), *(pair.enqueue(task="ash") for _ in range(3))]
    assert ids(pair.claim_next(9)) == jobs[:3]
    adopt(pair, policy="per_task", limit=2)
    jobs = [pair.enqueue(task="birch") for _ in range(4)]
    assert ids(pair.claim_next(9)) == jobs[:2]


# --- the caller's own transaction ---


def test_a_transaction_of_the_callers_own_that_stays_open_stops_nobody(postgres_url: str) -> None:
    with App(postgres_url) as app, Life(postgres_url) as life, psycopg.connect(postgres_url) as own:
        app.task("story.generate")(story)
        life.set_limit(None)
        before, beside = life.enqueue(target="desk"), life.enqueue()
        life.enqueue(target="lab", task="never", hold=True)
        job = app.tasks["story.generate"].using(connection=own, target="desk", priority=50).enqueue()
        many = app.tasks["story.generate"].using(connection=own, target="lab").enqueue_many([{}, {}])
        taken = life.database.transact("claim", lambda tx: life.claim_in(tx, [1, 2, 3]))
        assert sorted(ids(taken)) == [before, beside]
        behind = life.enqueue(target="desk")
        assert all(life.end(claim, Completed()) for claim in taken)
        taken = life.database.transact("claim", lambda tx: life.claim_in(tx, [1, 2, 3]))
        assert ids(taken) == [behind]
        assert life.end(taken[0], Completed())
        assert life.pick(9) == []
        own.commit()
        taken = life.database.transact("claim", lambda tx: life.claim_in(tx, [1, 2, 3]))
        assert ids(taken) == [job.id, many[0].id]
        app.tasks["story.generate"].using(connection=own, target="desk").enqueue()
        own.rollback()
        assert all(life.end(claim, Completed()) for claim in taken)
        assert life.pick(9) == [many[1].id]


async def story() -> None: ...


# --- a storm ---

OF_A_STORM, ENOUGH = ("claimed", "full lanes", "snapshots", "make", "decide", "call", "adopt"), 9
STORM_SECONDS = 60.0 if os.environ.get("HEADWAY_PROOF") else 4.0
POOLS = {"ollama": 1, "remote": 2}
PLACES = ("desk", "lab", "shed", None, None)


class Counting(PostgresDatabase):
    """Counts how often a transaction had to be done again because another one was in its way."""

    conflicts = 0

    def pause_after_conflict(self) -> None:
        Counting.conflicts += 1
        super().pause_after_conflict()


class Storm:
    """Workers and people who all do at once what comes to their minds."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.over = threading.Event()
        self.deeds: Counter[str] = Counter()

    def rage(self, seconds: float) -> None:
        """Until the time is over or somebody met an error; that one is raised."""
        everyone = [self.work] * 4 + [self.live] * 3 + [self.watch]
        with ThreadPoolExecutor(len(everyone)) as pool:
            futures = [pool.submit(who, seed) for seed, who in enumerate(everyone)]
            for future in futures:
                future.add_done_callback(lambda _: self.over.set())
            self.over.wait(seconds)
            # On a busy machine it takes longer until enough has happened to have met each other.
            for _ in range(100):
                if self.weakest() > ENOUGH or self.over.wait(seconds / 10):
                    break
            self.over.set()
        for future in futures:
            future.result()

    def weakest(self) -> int:
        """How often that was done which was done least."""
        return min(self.deeds[deed] for deed in OF_A_STORM)

    def work(self, seed: int) -> None:
        """A worker: ends what it has, one way or another, and claims again."""
        rng = random.Random(seed)
        with Life(self.url, database=Counting(self.url)) as life:
            lanes, held = BucketCache(life.database), list[Claim]()
            while not self.over.is_set():
                held = life.database.transact("turn", self._turn, life, lanes, held, rng)
                self.deeds["claimed"] += len(held)
            life.database.transact("finish", lambda tx: self._end(life, tx, held, rng))

    def _turn(self, tx: Tx, life: Life, lanes: BucketCache, held: list[Claim], rng: random.Random) -> list[Claim]:
        tx.run("pin_plans")
        self._end(life, tx, held, rng)
        return life.claim_in(tx, list(range(rng.randint(1, 4))), lanes=lanes)

    @staticmethod
    def _end(life: Life, tx: Tx, held: list[Claim], rng: random.Random) -> None:
        outcomes: list[Outcome] = [Completed(), Completed("1"), FINAL, BROKEN, Interrupted()]
        ends = [Ended(claim, rng.choice(outcomes)) for claim in held]
        assert finish(tx, life.worker_id, life.actor(), ends) == []

    def live(self, seed: int) -> None:
        """A person."""
        rng = random.Random(seed)
        with Life(self.url, database=Counting(self.url)) as life:
            calls: list[int] = []
            while not self.over.is_set():
                deed = rng.choice(["make"] * 5 + ["change"] * 6 + ["decide"] * 6 + ["pause", "call", "call", "adopt"])
                with suppress(WrongState, NotFound, BadInput):
                    getattr(self, f"_{deed}")(life, rng, calls)
                self.deeds[deed] += 1
            while calls:
                release(life, calls.pop())
            for name in filter(None, set(PLACES)):
                life.client.resume_target(name)

    def _make(self, life: Life, rng: random.Random, _: list[int]) -> None:
        wishes: dict[str, Any] = {
            "task": rng.choice(["ash", "birch"]),
            "priority": rng.choice([0, 0, 5]),
            "resources": tuple(sorted(rng.sample(list(POOLS), rng.choice([0, 1, 1, 2])))),
            "retry": RetryPolicy(rng.choice([0, 1]), 0.0),
        }
        life.client.enqueue_many([life.new(**wishes, target=rng.choice(PLACES)) for _ in range(rng.randint(1, 4))])

    def _some(self, life: Life, rng: random.Random, states: str) -> int:
        found = life.sql(f"select id from hw_job where status in ({states}) order by id desc limit 40")
        if not found:
            raise NotFound("nothing")
        return int(rng.choice(found)[0])

    def _change(self, life: Life, rng: random.Random, _: list[int]) -> None:
        job_id, client = self._some(life, rng, "2, 3"), life.client
        rng.choice([
            lambda: client.cancel(job_id),
            lambda: client.interrupt(job_id),
            lambda: client.edit(job_id, priority=rng.randint(0, 5)),
            lambda: client.move(job_id, to="top"),
            lambda: client.move(job_id, before=self._some(life, rng, "2")),
        ])()  # fmt: skip

    def _decide(self, life: Life, rng: random.Random, _: list[int]) -> None:
        job_id, client = self._some(life, rng, "0, 4, 5"), life.client
        rng.choice([client.resume, client.resolve, client.release, client.retry, client.cancel])(job_id)

    def _pause(self, life: Life, rng: random.Random, _: list[int]) -> None:
        name = rng.choice(("desk", "lab"))
        rng.choice([life.client.pause_target, life.client.resume_target, life.client.resume_target])(name)

    def _call(self, life: Life, rng: random.Random, calls: list[int]) -> None:
        if calls:
            release(life, calls.pop())
        else:
            pools = [
                lane for name, (lane, _) in life.database.transact("look", resources).items() if rng.random() < 0.6
            ]
            calls.append(reserve(life, lanes=pools, target=rng.choice(PLACES)))

    def _adopt(self, life: Life, rng: random.Random, _: list[int]) -> None:
        wished = Concurrency(rng.choice(["per_resource", "per_task", "global"]), limit=2)
        limits.settle(life.database, wished, POOLS, actor=ADA, adopt=True)

    def watch(self, seed: int) -> None:
        """Counts every lane and every target, in one snapshot after the other."""
        with Life(self.url, database=Counting(self.url)) as life:
            while not self.over.is_set():
                with life.database.read() as tx:
                    self._count(tx)
                self.deeds["snapshots"] += 1

    def _count(self, tx: Tx) -> None:
        limits_ = {row[0]: row[4] for row in tx.run("lanes")}
        lanes_of = {row[0]: json.loads(row[3]) for row in tx.run("all_buckets")}
        rows = tx.connection.execute(  # type: ignore[attr-defined]
            "select status, bucket_id, target_id from hw_job where status between 3 and 5"
        ).fetchall()
        calls = [(json.loads(one.lanes), one.target_id) for one in reservations.active(tx) if one.granted_at]
        used = Counter(lane for status, bucket, _ in rows if status == 3 for lane in lanes_of[bucket])
        used.update(lane for lanes, _ in calls for lane in lanes)
        on_target = Counter([row[2] for row in rows if row[2]] + [target for _, target in calls if target])
        full = [lane for lane, count in used.items() if limits_[lane] is not None and count >= limits_[lane]]
        self.deeds["full lanes"] += len(full)
        assert all(used[lane] <= limits_[lane] for lane in full), f"more than the limit: {used}, {limits_}"
        assert all(count == 1 for count in on_target.values()), f"more than one on a target: {on_target}"


def test_workers_and_people_in_a_storm_keep_every_limit_and_never_lock_each_other_out(postgres_url: str) -> None:
    with Life(postgres_url) as life:
        wished = Concurrency("per_resource", limit=2)
        limits.settle(life.database, wished, POOLS, actor=ADA, adopt=True)
        for place in filter(None, set(PLACES)):
            life.enqueue(target=place, retry=0)
    storm, Counting.conflicts = Storm(postgres_url), 0
    storm.rage(STORM_SECONDS)
    print(dict(storm.deeds), "conflicts", Counting.conflicts)
    assert Counting.conflicts == 0
    assert storm.weakest() > ENOUGH
    with Life(postgres_url) as life:
        everything_ends(life)
        life.check_versions()


def everything_ends(life: Life) -> None:
    """Nothing was left closed: when people decide and workers work, every job comes to its end."""
    lanes = BucketCache(life.database)
    for (job_id,) in life.sql("select id from hw_job where status in (4, 5)"):
        life.client.resolve(job_id)
    for (job_id,) in life.sql("select id from hw_job where status = 0"):
        life.client.resume(job_id)
    while taken := life.database.transact("claim", lambda tx: life.claim_in(tx, list(range(20)), lanes=lanes)):
        assert all(life.end(claim, Completed()) for claim in taken)
    assert life.sql("select id, status, gate, target_id from hw_job where status < 6") == []
