"""Tenants: made, limited, switched off and on; turns between them; what their limits keep out."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from headway.api.schemas.workers import worker_json
from headway.engine.client import limits
from headway.engine.client.client import Client
from headway.engine.monitoring import worker_checks
from headway.engine.monitoring.check import Scope
from headway.errors import BadInput, NotFound, Refused, WrongState
from headway.model.access.tenants import Allowance
from headway.model.explain.snapshot import WorkerSlots
from headway.model.groups.group import NewGroup
from headway.model.jobs.outcome import Completed
from headway.model.queue.policies import Concurrency
from headway.store import worker_views, workers
from headway.store.db import Tx
from headway.store.queue import claims, queue_views
from headway.store.queue.lanes import BucketCache
from headway.store.worker_views import OwnJobs
from headway.verify import check
from tests.store.test_plans import recording
from tests.support import committed
from tests.support.life import ADA, BROKEN, TASK, Life
from tests.support.pair import Pair
from tests.support.plans import member
from tests.support.schedules import Clockwork, teach
from tests.support.tenants import add_tenant

DAILY = {"cron": "0 0 * * *", "steps": [{"task": "sync"}]}


def events(life: Life, number: int) -> list[tuple[int, str]]:
    text = f"select version, kind from hw_event where thing = 'tenant' and thing_id = {number} order by version"
    return life.sql(text)


def unlimited(life: Life) -> None:
    limits.settle(life.database, Concurrency(limit=None), {}, actor=ADA, adopt=True)


# --- the verbs ----------------------------------------------------------------------------------------------------


def test_a_tenant_is_made_limited_and_switched_off_and_on(life: Life) -> None:
    tenants = life.client.tenants
    made = tenants.create("shop", max_running=2)
    assert (made.name, made.active, made.allowance, made.version) == ("shop", True, Allowance(None, 2, None), 1)
    edited = tenants.edit("shop", {"max_queued": 10, "max_running": None}, if_version=1)
    assert edited.allowance == Allowance(10, None, None)
    assert not tenants.deactivate("shop").active
    assert tenants.deactivate("shop").version == 3  # as it is: nothing happened
    assert tenants.activate("shop").active
    assert [one.name for one in tenants.list()] == ["default", "shop"]
    assert [one.name for one in tenants.list(after="default")] == ["shop"]
    assert tenants.get("shop") == tenants.activate("shop")
    kinds = ["tenant.created", "tenant.edited", "tenant.deactivated", "tenant.activated"]
    assert events(life, made.id) == list(enumerate(kinds, 1))
    assert check(life.database).findings == []


def test_impossible_values_are_refused(life: Life) -> None:
    tenants = life.client.tenants
    tenants.create("shop")
    for name, hint in (("shop", "already"), ("*", "every tenant"), ("", "1 to 200"), ("a\nb", "control")):
        with pytest.raises(BadInput, match=hint) as caught:
            tenants.create(name)
        assert caught.value.field == "name"
    for changes, field in (({"max_queued": -1}, "max_queued"), ({"max_running": True}, "max_running"), ({"x": 1}, "x")):
        with pytest.raises(BadInput) as caught:
            tenants.edit("shop", changes)
        assert caught.value.field == field
    with pytest.raises(BadInput, match="whole number"):
        tenants.create("other", max_schedules=10**10)
    with pytest.raises(NotFound, match="did you mean shop"):
        tenants.edit("shopp", {"max_queued": 1})
    with pytest.raises(WrongState, match="has changed"):
        tenants.edit("shop", {"max_queued": 1}, if_version=9)
    assert len(tenants.list()) == 2


# --- switched off -------------------------------------------------------------------------------------------------


def test_nothing_of_an_inactive_tenant_starts_and_it_gets_nothing_new(life: Life) -> None:
    teach(life)
    client = add_tenant(life, "shop")
    waiting, _ = client.enqueue(life.new(key="k"))
    schedule = client.schedules.create("s", DAILY)
    client.lanes.target(client.tenant_id, "desk")
    group = client.groups.create(NewGroup("g", "parallel", "stop", (member(life, 0, "a"),)))
    running = life.claim_next()
    assert [claim.job_id for claim in running] == [waiting]
    life.client.tenants.deactivate("shop")
    attempts: list[Callable[[], object]] = [
        lambda: client.enqueue(life.new()),
        lambda: client.enqueue(life.new(target="desk")),
        lambda: client.enqueue(life.new(key="other")),
        lambda: client.enqueue_many([life.new(), life.new(priority=2)]),
        lambda: client.enqueue_alike(life.new(), ["{}", "{}"]),
        lambda: client.groups.create(NewGroup("g", "parallel", "stop", (member(life, 0, "a"),))),
        lambda: client.schedules.run(schedule.id),
        lambda: client.reserve(target="desk"),
    ]
    before = life.sql("select count(*) from hw_job")
    for attempt in attempts:
        with pytest.raises(Refused, match="inactive") as caught:
            attempt()
        assert caught.value.code == "tenant_inactive"
    assert life.sql("select count(*) from hw_job") == before
    assert client.enqueue(life.new(key="k")) == (waiting, False)  # it is there already
    unlimited(life)
    assert life.claim_next(5) == []
    assert life.end(running[0], Completed())  # what ran has ended
    (blocked,) = [one for one in explained(life, client) if one.kind == "paused"]
    assert blocked.detail == "the tenant shop is inactive: activate it with headway tenants activate shop"
    assert blocked.since == life.clock.now()
    life.client.tenants.activate("shop")
    assert len(life.claim_next(5)) == 1
    assert client.groups.get(group).finished_at is None
    assert check(life.database).findings == []


def explained(life: Life, client: Client) -> list[Any]:
    with life.database.read() as tx:
        (one,) = queue_views.queue(tx, client.tenant_id)
        return list(queue_views.explain(tx, client.tenant_id, one.view.job.id).blockers)


def test_ticks_of_an_inactive_tenant_are_skipped(life: Life) -> None:
    made = Clockwork(life)
    schedule = made.create()
    made.advance("5m")
    life.client.tenants.deactivate("default")
    made.advance("5m")
    made.advance("20m")  # late, and in one go
    life.client.tenants.activate("default")
    made.advance("5m")
    found = [(minute, count, what) for minute, count, what in made.ticks(schedule.id)]
    assert found[0][2].startswith("FIRED")
    assert [(count, what) for _, count, what in found[1:3]] == [
        (1, "SKIPPED: tenant inactive"),
        (4, "SKIPPED: tenant inactive"),
    ], found
    told = life.sql("select data from hw_event where kind = 'schedule.tick.skipped'")
    assert len(told) >= 2
    assert all("tenant inactive" in data for (data,) in told[:2])
    assert check(life.database).findings == []


# --- how much -----------------------------------------------------------------------------------------------------


def test_more_jobs_than_may_wait_are_refused_all_or_none(life: Life) -> None:
    client = add_tenant(life, "shop")
    life.client.tenants.edit("shop", {"max_queued": 3})
    first, _ = client.enqueue(life.new(key="k"))
    client.enqueue(life.new(hold=True))
    for attempt in (
        lambda: client.enqueue_many([life.new(), life.new(priority=1)]),
        lambda: client.enqueue_alike(life.new(), ["{}", "{}"]),
        lambda: client.groups.create(NewGroup("g", "sequential", "stop", (member(life, 0, "a"), member(life, 1, "b")))),
    ):
        with pytest.raises(Refused, match="at most 3 jobs that wait") as caught:
            attempt()
        assert (caught.value.code, caught.value.facts["most"]) == ("limit_reached", 3)
    client.enqueue(life.new(delay=5_000_000))
    with pytest.raises(Refused, match="max_queued"):
        client.enqueue(life.new())
    assert client.enqueue(life.new(key="k")) == (first, False)  # it is no new one
    assert life.sql("select count(*) from hw_job") == [(3,)]
    (claim,) = life.claim_next()
    client.enqueue(life.new(target="desk"))  # what runs does not wait
    assert life.end(claim, BROKEN)  # a retry is no new wish: it comes whatever waits
    assert life.sql("select count(*) from hw_job where status <= 2") == [(4,)]
    assert add_tenant(life, "other").enqueue(life.new())[1]  # nobody else is concerned
    life.client.tenants.edit("shop", {"max_queued": None})
    client.enqueue_many([life.new() for _ in range(5)])


def test_ticks_beyond_the_limit_do_not_fire(life: Life) -> None:
    made = Clockwork(life)
    life.client.tenants.edit("default", {"max_queued": 1})
    schedule = made.create(overlap="allow")
    made.advance("5m")
    made.advance("5m")
    assert [what for _, _, what in made.ticks(schedule.id)] == ["FIRED", "SKIPPED: tenant limit reached"]
    with pytest.raises(Refused, match="jobs that wait"):
        life.client.schedules.run(schedule.id, force=True)
    assert check(life.database).findings == []


def test_more_schedules_than_may_be_are_refused(life: Life) -> None:
    teach(life)
    client = add_tenant(life, "shop")
    life.client.tenants.edit("shop", {"max_schedules": 2})
    client.schedules.create("a", DAILY)
    client.schedules.create("b", DAILY)
    with pytest.raises(Refused, match="at most 2 schedules") as caught:
        client.schedules.create("c", DAILY)
    assert caught.value.code == "limit_reached"
    client.schedules.delete("a")
    client.schedules.create("c", DAILY)


def test_no_more_jobs_run_than_may(life: Life) -> None:
    unlimited(life)
    client = add_tenant(life, "shop")
    life.client.tenants.edit("shop", {"max_running": 2})
    ids = [client.enqueue(life.new())[0] for _ in range(4)]
    running = life.claim_next(9)
    assert [claim.job_id for claim in running] == ids[:2]
    with life.database.read() as tx:
        found = queue_views.explain(tx, client.tenant_id, ids[2]).blockers
    assert [(one.kind, one.detail, one.by) for one in found] == [
        ("lane", "the tenant shop is at its limit: 2 of 2 run", f"job {ids[0]}, job {ids[1]}"),
    ]
    assert [claim.job_id for claim in life.claim_next(9)] == []
    assert life.end(running[0], Completed())
    assert [claim.job_id for claim in life.claim_next(9)] == ids[2:3]
    assert check(life.database).findings == []


def test_a_freed_place_of_a_tenant_wakes_the_others(postgres_life: Life) -> None:
    life = postgres_life
    unlimited(life)
    client = add_tenant(life, "shop")
    life.client.tenants.edit("shop", {"max_running": 1})
    client.enqueue(life.new())
    client.enqueue(life.new(task="elsewhere"))
    (claim,) = life.claim_next()
    woken: list[bool] = []

    def turn(tx: Tx) -> None:
        assert claims.complete(tx, life.worker_id, life.actor(), {claim.job_id: claim.fence}, {}).result()
        lanes = BucketCache(life.database)
        view, _ = claims.lock_and_look(tx, lanes, life.actor())
        who = {"worker_id": life.worker_id, "actor": life.actor(), "slots": [7]}
        committed.claim(tx, view, lanes, **who, knows=lambda task: task != "elsewhere", freed=True)
        woken.append(tx.wakes)

    life.database.transact("turn", turn)
    assert woken == [True]


# --- workers of some tenants --------------------------------------------------------------------------------------


def of_tenants(worker_id: int, *tenants: int) -> Callable[[Tx], None]:
    who = workers.Identity(worker_id, "elsewhere", "boot", 1, 1)
    served = {"slots": 9, "tasks": [TASK], "lease": 1e9, "tenants": tenants}
    return lambda tx: workers.register(tx, who, ADA, **served)  # type: ignore[arg-type]


def test_a_worker_of_some_tenants_takes_their_jobs_only(life: Life) -> None:
    unlimited(life)
    shop, mill = add_tenant(life, "shop"), add_tenant(life, "mill")
    ids = {client.tenant_id: client.enqueue(life.new())[0] for client in (life.client, shop, mill)}
    hand = WorkerSlots(frozenset({TASK}), tenants=frozenset({shop.tenant_id, mill.tenant_id}))

    def claim(tx: Tx) -> list[int]:
        return [one.job_id for one in life.claim_in(tx, range(90, 99), serves=hand.serves)]

    assert life.database.transact("turn", claim) == [ids[shop.tenant_id], ids[mill.tenant_id]]
    assert life.database.transact("turn", claim) == []
    assert [one.job_id for one in life.claim_next(9)] == [ids[life.client.tenant_id]]
    assert check(life.database).findings == []


def test_explain_says_that_all_workers_serve_other_tenants(life: Life) -> None:
    unlimited(life)
    shop = add_tenant(life, "shop")
    job_id, other = life.enqueue(), shop.enqueue(life.new())[0]
    life.database.transact("retire", lambda tx: workers.retire(tx, life.worker_id, "over"))
    life.database.transact("register", of_tenants(7, shop.tenant_id))
    with life.database.read() as tx:
        (blocker,) = queue_views.explain(tx, life.client.tenant_id, job_id).blockers
        assert queue_views.explain(tx, shop.tenant_id, other).blockers == ()
        (listed,) = [worker for worker in worker_views.workers(tx) if worker.gone_at is None]
        tasks = worker_checks.judge_tasks(worker_checks.read_tasks(Scope(tx, None)))
    assert blocker.kind == "no_worker"
    assert blocker.detail == "every living worker serves other tenants only: headway work"
    assert listed.tenants == {shop.tenant_id: "shop"}
    assert (worker_json(listed, alive=True)["tenants"], tasks.mark) == (["shop"], "look")
    assert [worker_json(listed, alive=True, own=OwnJobs(number, set()))["tenants"] for number in (1, 2)] == [
        [],
        ["shop"],
    ]


# --- turns --------------------------------------------------------------------------------------------------------


def test_tenants_take_turns(life: Life) -> None:
    """A thousand jobs of one do not keep one of another waiting."""
    unlimited(life)
    shop, mill = add_tenant(life, "shop"), add_tenant(life, "mill")
    many = [job_id for job_id, _ in life.client.enqueue_alike(life.new(priority=99), ["{}"] * 20)]
    few = [shop.enqueue(life.new())[0] for _ in range(3)]
    one, _ = mill.enqueue(life.new())
    taken = [claim.job_id for claim in life.claim_next(4)] + [claim.job_id for claim in life.claim_next(5)]
    assert taken == [many[0], few[0], one, many[1], few[1], many[2], few[2], many[3], many[4]]
    assert check(life.database).findings == []


def test_who_had_no_work_has_its_turn_at_once_and_no_more_than_that(life: Life) -> None:
    unlimited(life)
    shop = add_tenant(life, "shop")
    ours = [life.enqueue() for _ in range(20)]
    shop.enqueue(life.new())
    life.claim_next(6)
    theirs = [shop.enqueue(life.new())[0] for _ in range(20)]
    assert [claim.job_id for claim in life.claim_next(4)] == [theirs[0], ours[5], theirs[1], ours[6]]


def test_turns_cost_nothing_while_one_tenant_has_work(life: Life) -> None:
    add_tenant(life, "shop")
    unlimited(life)

    def names() -> list[str]:
        lanes = BucketCache(life.database)
        life.claim_next(lanes=lanes)
        with recording(life) as found:
            life.claim_next(lanes=lanes)
        # Commits before are told to other processes by a thread of its own.
        return [call.name for call in found.calls if call.name != "notify_others"]

    take = "take_one" if life.database.one_writer else "take"
    life.client.enqueue_alike(life.new(), ["{}"] * 5)
    assert names() == ["claim_lock", "claim_view", "first_of_bucket", take]
    assert life.sql("select count(*) from hw_turn") == [(0,)]
    add = add_tenant(life, "mill")
    add.enqueue_alike(life.new(), ["{}"] * 5)
    found = [name for name in names() if name != "first_of_bucket"]  # a guess may have been wrong
    assert found == ["claim_lock", "claim_view", "turns", "save_turns", take]


def test_enqueueing_is_one_statement_for_a_tenant_without_limits(life: Life) -> None:
    client = add_tenant(life, "shop")
    client.enqueue(life.new())
    with recording(life) as found:
        client.enqueue(life.new())
    assert {call.name for call in found.calls} - {"notify_others"} == {"enqueue"}


# --- at the same time ---------------------------------------------------------------------------------------------


def test_two_who_enqueue_at_once_do_not_both_get_the_last_place(postgres_url: str) -> None:
    with Pair(postgres_url) as pair:
        pair.client.tenants.edit("default", {"max_queued": 1})
        other = pair.client.sibling(ADA, "default")
        pair.client.lanes.of(1, pair.new().task)
        other.lanes.of(1, pair.new().task)
        with pair.open_at("enqueue_many:count_queued", lambda: pair.client.enqueue(pair.new())) as first:
            second = pair.waiting(lambda: other.enqueue(pair.new()))
        first.result()
        with pytest.raises(Refused, match="jobs that wait"):
            second.result()
        assert pair.sql("select count(*) from hw_job") == [(1,)]


def test_two_who_make_schedules_at_once_do_not_both_get_the_last(postgres_url: str) -> None:
    with Pair(postgres_url) as pair:
        teach(pair)
        pair.client.tenants.edit("default", {"max_schedules": 1})
        make = pair.client.schedules.create
        with pair.open_at("create_schedule:add_schedule", lambda: make("a", DAILY)) as first:
            second = pair.waiting(lambda: make("b", DAILY))
        first.result()
        with pytest.raises(Refused, match="at most 1 schedules"):
            second.result()


def test_a_tenant_without_a_limit_locks_nothing(postgres_url: str) -> None:
    """Somebody has the tenant's row in hand; who enqueues does not wait."""
    with Pair(postgres_url) as pair:
        job = pair.enqueue()
        with pair.open_at("move:save_job", lambda: pair.client.move(job, to="top")):
            assert pair.enqueue() > job


def test_a_claim_comes_before_or_after_a_deactivation(postgres_url: str) -> None:
    """The claim that has the lock goes on, and the deactivation waits; the one behind it takes nothing."""
    with Pair(postgres_url) as pair:
        unlimited(pair)
        first, second = pair.enqueue(), pair.enqueue()
        with pair.open_at("claim:take", lambda: pair.claim_next()) as claim:
            off = pair.waiting(lambda: pair.client.tenants.deactivate("default"))
            later = pair.pool.submit(pair.claim_next, 5)
        assert [one.job_id for one in claim.result()] == [first]
        assert not off.result().active
        left = {one.job_id for one in later.result()}
        assert left in (set(), {second})
        assert pair.claim_next(5) == []
        assert check(pair.database).findings == []


def test_enqueueing_meets_a_deactivation(postgres_url: str) -> None:
    """What was stored before it is there; nothing after it is."""
    with Pair(postgres_url) as pair:
        pair.client.tenants.create("shop")
        clients = [pair.client.sibling(ADA, "shop") for _ in range(4)]

        def work(client: Client) -> int:
            made = 0
            with suppress(Refused):
                while made < 500:
                    client.enqueue(pair.new())
                    made += 1
            return made

        with ThreadPoolExecutor(5) as pool:
            futures = [pool.submit(work, client) for client in clients]
            pair.client.tenants.deactivate("shop")
            made = sum(future.result() for future in futures)
        assert pair.sql("select count(*) from hw_job") == [(made,)]
        with pytest.raises(Refused):
            clients[0].enqueue(pair.new())


def test_jobs_of_ones_own_transaction_are_counted_too(postgres_life: Life) -> None:
    life = postgres_life
    client = add_tenant(life, "shop")
    life.client.tenants.edit("shop", {"max_queued": 1})
    with psycopg.connect(life.url) as own:
        client.enqueue_on(own, life.new(), ["{}"])
        with pytest.raises(Refused, match="jobs that wait"):
            client.enqueue_on(own, life.new(), ["{}"])
        own.rollback()
    assert life.sql("select count(*) from hw_job") == [(0,)]
