"""Commits whose answer never came, and that were still under way when what they wrote was looked for: real cuts."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest

from headway import App
from headway.api.schemas.webhooks import render
from headway.engine.client import limits
from headway.engine.direct import reservations as direct_reservations
from headway.engine.direct.reservation_holder import HolderConfig, ReservationHolder, ReservedPlace
from headway.engine.direct.reservations import End, ReservationRequest
from headway.engine.maintenance.recovery import BATCH, Recovery
from headway.engine.scheduler.scheduler import Scheduler
from headway.engine.webhooks.deliverer import Deliverer
from headway.engine.webhooks.http_client import Guard
from headway.engine.worker.config import WorkerConfig
from headway.engine.worker.finish import Ended, finish
from headway.engine.worker.worker import Worker
from headway.errors import CommitUnknown, Unreachable
from headway.model.groups.group import NewGroup, NewMember
from headway.model.jobs.job import SYSTEM, NewJob
from headway.model.jobs.outcome import Failed, FailureKind
from headway.model.queue.policies import Concurrency
from headway.store.db import Tx, open_database
from headway.store.postgres import database
from headway.store.queue import reservations
from headway.store.webhooks import deliveries
from headway.testing import FrozenClock, drain
from headway.verify import check
from tests.engine.test_many_orphans import lose
from tests.support import committed, tasks_for_worker
from tests.support.figures import Figure
from tests.support.late_commits import LateCommits, late_commits
from tests.support.life import Life
from tests.support.receivers import receiver
from tests.support.schedules import Clockwork, teach
from tests.support.waiting import until

PROOF = bool(os.environ.get("HEADWAY_PROOF"))
CUTS = 5_000 if PROOF else 340
REPEATS = 200 if PROOF else 8
RESERVATIONS = 1_000 if PROOF else 40
TICKS, DELIVERIES, RECOVERIES = (400, 400, 60) if PROOF else (10, 16, 3)
TASKS = ("add", "report.async", "wait.async")
NEW = NewJob("add", '{"a":1,"b":1}', "{}")
# Jobs that wait or run at a time, and which of them write a checkpoint of their own.
AHEAD, REPORTS = 5, 60


@contextmanager
def serving(url: str) -> Iterator[App]:
    app = App(database=url)
    for name in TASKS:
        app.task(name)(tasks_for_worker.app.tasks[name].function)
    limits.settle(app.database, Concurrency(limit=None), {}, actor=SYSTEM, adopt=True)
    with app:
        yield app


@pytest.fixture
def line(postgres_url: str, figure: Figure) -> Iterator[LateCommits]:
    with late_commits(postgres_url) as line:
        yield line
        figure("commits cut off from their client", line.cuts)


def count(app: App, text: str) -> int:
    with app.database.read() as tx:
        connection: Any = tx.connection  # type: ignore[attr-defined]
        ((found,),) = connection.execute(text).fetchall()
        return int(found)


def ended(app: App) -> Counter[str]:
    with app.database.read() as tx:
        connection: Any = tx.connection  # type: ignore[attr-defined]
        return Counter(dict(connection.execute("select kind, count(*) from hw_event group by kind").fetchall()))


def lines_logged(app: App) -> Counter[int]:
    with app.database.read() as tx:
        connection: Any = tx.connection  # type: ignore[attr-defined]
        chunks = connection.execute("select job_id, lines from hw_log").fetchall()
    return sum((Counter({job_id: len(json.loads(lines))}) for job_id, lines in chunks), Counter())


def test_commits_under_way_at_the_read_back_leave_no_ghosts(
    line: LateCommits, postgres_url: str, figure: Figure
) -> None:
    """Each turn may lose its answer while its commit is on the way: the worker holds in the end what it runs, no job
    is recorded twice, and no write is taken for a late one."""
    with serving(postgres_url) as near, serving(line.url) as far:
        worker = Worker(far.database, far.registry, WorkerConfig(slots=3))
        far.database.transact("register", worker._register)
        made, failed = 0, Counter[str]()
        line.share = 0.6
        while line.cuts < CUTS:
            while made - worker.finished < AHEAD:
                report = made % REPORTS == 0
                near.tasks["report.async" if report else "add"].enqueue(**({} if report else {"a": 1, "b": made}))
                made += 1
            try:
                worker.wait(min(worker.tick(), 0.05))
            except Unreachable as error:
                failed[type(error).__name__] += 1
        line.share = 0.0
        deadline = time.monotonic() + 30.0
        while worker.pool.running or count(near, "select count(*) from hw_job where status <= 3"):
            assert time.monotonic() < deadline, f"{sorted(worker.pool.running)} run, {ended(near)}"
            worker.tick()
        known, logged = ended(near), lines_logged(near)
        findings = check(near.database, quiet=True).findings
        worker.close()
    figure(f"of {line.cuts} commits of turns cut off from their client {line.late} arrived late; {dict(failed)}")
    assert sorted(worker.pool.free) == [0, 1, 2]
    assert known["job.completed"] == made
    assert known["job.late_write_rejected"] == 0
    assert set(logged.values()) == {3}, "log lines were stored twice, or not at all"
    assert not findings


# --- reservations -------------------------------------------------------------------------------------------------


def test_a_reservation_under_way_when_it_is_looked_for_does_not_close_its_lane(
    line: LateCommits, postgres_url: str
) -> None:
    with serving(postgres_url) as near, serving(line.url) as far:
        holder = ReservationHolder(far.database, HolderConfig())
        holder.register()
        wish = ReservationRequest(near.client.tenant_id, "ada", task="add")
        for _ in range(RESERVATIONS):
            line.share = 0.8
            place = ReservedPlace()
            with suppress(CommitUnknown):
                holder.reserve(place, wish, actor=SYSTEM)
            with suppress(Unreachable):
                holder.tick()
            line.share = 0.0
            if place.id is not None:
                holder.release(place, End("COMPLETED"))
            holder.tick()
            active = count(near, "select count(*) from hw_reservation where finished_at is null")
            assert active == 0, f"{active} reservations stay after {line.cuts} cuts, and {holder.places} are known"
        findings = check(near.database, quiet=True).findings
        holder.close()
    assert line.cuts >= RESERVATIONS
    assert not findings


# --- the net: what a renewal says is held, against what is here ---------------------------------------------------


@contextmanager
def at_work(app: App, **wishes: Any) -> Iterator[Worker]:
    worker = Worker(app.database, app.registry, WorkerConfig(slots=2, heartbeat=0.1, **wishes))
    worker.register()
    worker.start()
    try:
        until(worker.lease.beating.is_set, "the first beat")
        yield worker
    finally:
        worker.drain()
        worker.interrupt_all("the test is over", grace=0.0)
        until(lambda: not worker.busy(), "the end of all work")
        worker.stop()
        worker.join(30.0)
        worker.close()


def test_a_claim_that_its_worker_does_not_know_of_is_run(database_url: str) -> None:
    """However it came about: the slot is not lost, and the job does not stay RUNNING for the life of the process."""
    with serving(database_url) as app, at_work(app, tasks=("wait.*",)) as worker:
        job = app.tasks["add"].enqueue(a=1, b=2)
        slot = worker.pool.free[-1]
        take = partial(committed.take, worker_id=worker.who.id, actor=worker.actor, picks=[job.id], slots=[slot])
        assert app.database.transact("turn", lambda tx: take(tx))
        until(lambda: job.row.status.terminal, "the end of the job")
        assert job.status == "COMPLETED"
        assert sorted(worker.pool.free) == [0, 1]
        assert not check(app.database, quiet=True).findings


def test_work_whose_claim_has_ended_is_stopped(database_url: str) -> None:
    with serving(database_url) as app, at_work(app) as worker:
        job = app.tasks["wait.async"].enqueue()
        until(lambda: worker.at_work, "the beginning of the work")
        (running,) = worker.pool.running.values()
        lost = Ended(running.claim, Failed(FailureKind.LOST, "another process ended it", final=True))
        app.database.transact("turn", lambda tx: finish(tx, worker.who.id, SYSTEM, [lost]))
        until(lambda: not worker.pool.running, "the end of the work")
        assert job.status == "FAILED"
        assert sorted(worker.pool.free) == [0, 1]


def test_a_reservation_that_its_holder_does_not_know_of_is_ended(database_url: str) -> None:
    with serving(database_url) as app:
        holder = ReservationHolder(app.database, HolderConfig(heartbeat=0.1))
        holder.open()
        wish = ReservationRequest(app.client.tenant_id, "ada", task="add")
        reserve = partial(
            direct_reservations.reserve, lanes=holder.lanes, request=wish, actor=SYSTEM, worker_id=holder.who.id
        )
        number, granted = app.database.transact("reserve", lambda tx: reserve(tx))
        assert granted
        with app.database.read() as tx:
            assert [one.id for one in reservations.active(tx)] == [number]

        def ended() -> bool:
            with app.database.read() as tx:
                return not reservations.active(tx)

        until(ended, "the end of the reservation")
        holder.close()


def test_a_place_that_others_ended_is_lost_to_its_holder(database_url: str) -> None:
    with serving(database_url) as app:
        holder = ReservationHolder(app.database, HolderConfig(heartbeat=0.1))
        holder.open()
        place = ReservedPlace()
        holder.reserve(place, ReservationRequest(app.client.tenant_id, "ada", task="add"), actor=SYSTEM)
        number = place.id or 0
        app.database.transact("end", lambda tx: reservations.end(tx, number, status="EXPIRED", actor=SYSTEM))
        until(lambda: place.lost is not None, "the loss of the place")
        holder.release(place, End("ABANDONED"))
        holder.close()


# --- ticks, deliveries and recovery ---------------------------------------------------------------------------------


def test_a_tick_fires_once_although_the_answer_was_lost(line: LateCommits, postgres_url: str) -> None:
    clock, names = FrozenClock(), ("a", "b", "c")
    with (
        Life(postgres_url, clock=clock) as near,
        Life(line.url, database=open_database(line.url, clock=clock), clock=clock) as far,
    ):
        clockwork = Clockwork(near)
        for name in names:
            clockwork.create(name, cron="* * * * *", overlap="allow")
        teach(far)
        scheduler = Scheduler(far.client)
        fired = 0
        while fired < TICKS or line.cuts < TICKS:
            fired += 1
            clock.advance(60)
            line.share = 0.7
            until(lambda: fired_all(scheduler, near), "the tick of every schedule")
            line.share = 0.0
        until(lambda: not line.under_way, "that no commit is under way")
        scheduler.tick()
        for number in range(1, len(names) + 1):
            assert clockwork.ticks(number) == [(at, 1, "FIRED") for at in range(1, fired + 1)]
        assert near.sql("select count(*) from hw_group") == [(fired * len(names),)]
        assert near.sql("select count(*) from hw_job") == [(fired * len(names),)]
        assert not check(near.database).findings


def fired_all(scheduler: Scheduler, near: Life) -> bool:
    """One tick of the scheduler. Whether it decided everything that was due, as another connection sees it."""
    with suppress(Unreachable):
        scheduler.tick()
    return near.sql(f"select count(*) from hw_schedule where next_at <= {near.clock.now()}") == [(0,)]


def test_a_delivery_is_sent_and_recorded_once_although_answers_were_lost(line: LateCommits, postgres_url: str) -> None:
    """The answer of its lease, of the text it sends, or of what came of it: no sender died, so no try is lost."""
    with serving(postgres_url) as near, serving(line.url) as far, receiver() as ours:
        near.client.allow_private = True
        near.client.webhooks.create(ours.url, ["job.run.completed"])
        guard = Guard(allow_private=True, deadline=30.0)
        deliverer = Deliverer(far.database, render=render, guard=guard)
        made = 0
        while made < DELIVERIES or line.cuts < DELIVERIES:
            made += 1
            near.tasks["add"].enqueue(a=1, b=2)
            drain(near)
            line.share = 0.4
            until(lambda: sent_all(deliverer, near), "the end of the delivery")
            line.share = 0.0
        until(lambda: not line.under_way, "that no commit is under way")
        deliverer.tick()
        tries = count(near, "select count(*) from hw_try where error is null and status_code = 200")
        found = check(near.database, quiet=True).findings
    assert tries == made == len(ours.received)
    assert len({one.headers["webhook-id"] for one in ours.received}) == made
    assert not found


def sent_all(deliverer: Deliverer, near: App) -> bool:
    with suppress(Unreachable):
        deliverer.tick()
    deliverer.settle(30.0)
    return count(near, "select count(*) from hw_delivery where status = 'PENDING'") == 0


def test_recovery_settles_each_claim_once_although_answers_were_lost(line: LateCommits, postgres_url: str) -> None:
    line.never = 0.7
    with serving(postgres_url) as near, serving(line.url) as far:
        rounds = 0
        while rounds < RECOVERIES or line.cuts < RECOVERIES:
            rounds += 1
            lost = lose(near, 3 * BATCH, worker_id=100 + rounds)
            recovery = Recovery(far.database)
            line.share = 0.6
            ended = False
            while not ended:
                with suppress(Unreachable):
                    recovery.tick()
                    ended = True
            line.share = 0.0
            left = count(near, "select count(*) from hw_job where status = 3")
            assert left == 0, f"a round without an error left {left} claims after {line.cuts} cuts"
            for number in lost:
                assert count(near, f"select count(*) from hw_job where retry_of = {number}") == 1
        until(lambda: not line.under_way, "that no commit is under way")
        events = "select count(*) from hw_event where kind = 'job.failed'"
        assert count(near, events) == rounds * 3 * BATCH
        assert not check(near.database).findings


# --- what makes nothing twice is done again -----------------------------------------------------------------------


@pytest.mark.parametrize("make", [Worker, ReservationHolder], ids=["worker", "holder"])
def test_a_worker_is_registered_once_although_the_answer_was_lost(
    line: LateCommits, postgres_url: str, make: type[Worker] | type[ReservationHolder]
) -> None:
    with serving(postgres_url) as near, serving(line.url) as far:
        for _ in range(REPEATS):
            one = (
                Worker(far.database, far.registry, WorkerConfig())
                if make is Worker
                else ReservationHolder(far.database, HolderConfig())
            )
            line.next = 2
            far.database.repeat("register", one._register)
            one.waiter.close()
            assert count(near, f"select count(*) from hw_worker where id = {one.who.id}") == 1
            assert count(near, f"select count(*) from hw_event where thing_id = {one.who.id}") == 1
        assert not check(near.database).findings


@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "keyed"])
def test_a_token_is_made_once_and_shown_although_the_answer_was_lost(
    line: LateCommits, postgres_url: str, keyed: bool
) -> None:
    with serving(postgres_url) as near, serving(line.url) as far:
        for n in range(REPEATS):
            client = far.client.keyed("POST /api/tokens", f"k{n}", "d") if keyed else far.client
            line.next = 2
            token, plain = client.tokens.create(f"t{n}", "viewer", tenant="default")
            found = near.client.tokens.find(plain)
            assert found is not None
            assert found.id == token.id
        assert count(near, "select count(*) from hw_token") == REPEATS
        assert not check(near.database).findings


def test_a_request_with_an_idempotency_key_makes_one_job_although_the_answer_was_lost(
    line: LateCommits, postgres_url: str
) -> None:
    with serving(postgres_url) as near, serving(line.url) as far:
        far.tasks["add"].enqueue(a=0, b=0)  # its kind of work is known from here on
        for n in range(REPEATS):
            client = far.client.keyed("POST /api/jobs", f"k{n}", "d")
            line.next = 2
            job_id, _ = client.enqueue(NewJob("add", f'{{"a":1,"b":{n}}}', "{}"))
            assert near.client.get(job_id).params == f'{{"a":1,"b":{n}}}'
        assert count(near, "select count(*) from hw_job") == 1 + REPEATS
        assert not check(near.database).findings


@pytest.mark.parametrize(("key", "says"), [(None, "look for it under task 'add'"), ("k", "again with the same key")])
def test_a_caller_whose_enqueue_lost_its_answer_is_told_what_to_do(
    line: LateCommits, postgres_url: str, key: str | None, says: str
) -> None:
    with serving(postgres_url) as near, serving(line.url) as far:
        far.tasks["add"].enqueue(a=0, b=0)
        line.next, line.words = 1, b"insert into hw_job" if key is None else None
        with pytest.raises(CommitUnknown, match=says):
            far.client.enqueue(NewJob("add", '{"a":1,"b":1}', "{}", key=key))
        assert count(near, "select count(*) from hw_job") in (1, 2)


STEPS = {"cron": "@daily", "steps": [{"task": "add", "params": {"a": 1, "b": 1}}]}


def pair() -> NewGroup:
    return NewGroup("pair", "parallel", "stop", tuple(NewMember(NEW, 0, step) for step in "ab"))


def a_schedule(app: App, name: str) -> int:
    return app.client.schedules.create(name, STEPS, enabled=False).id


def a_failed_job(app: App, _: str) -> int:
    job_id, _made = app.client.enqueue(NEW._replace(params='{"a":1,"b":"x"}', options='{"retry":{"max_attempts":0}}'))
    drain(app)
    return job_id


def a_failed_group(app: App, _: str) -> int:
    number = app.client.groups.create(pair())
    app.client.groups.cancel(number)
    return number


def a_webhook(app: App, _: str) -> int:
    return app.client.webhooks.create("https://example.com/hook").id


def a_failed_delivery(app: App, name: str) -> int:
    webhook = a_webhook(app, name)
    number = app.client.webhooks.test(webhook).id

    def fail(tx: Tx) -> None:
        leased = deliveries.lease_ahead(tx, "us", webhook, seconds=60.0, actor=SYSTEM)
        deliveries.fail(tx, leased, "gone", SYSTEM)

    app.database.transact("fail", fail)
    return number


def nothing(_: App, __: str) -> int:
    return 0


# For each verb that makes something: what has to be there, the verb, the table of what it makes, where to look for it.
Prepare = Callable[[App, str], int]
Verb = Callable[[App, str, int], Any]
MAKING: dict[str, tuple[Prepare, Verb, str, str]] = {
    "group": (nothing, lambda app, _, __: app.client.groups.create(pair()), "hw_group", "groups ls"),
    "group again": (a_failed_group, lambda app, _, n: app.client.groups.retry(n), "hw_group", "groups show"),
    "schedule": (nothing, lambda app, name, _: a_schedule(app, name), "hw_schedule", "schedules show"),
    "execution": (a_schedule, lambda app, _, n: app.client.schedules.run(n), "hw_group", "schedules show"),
    "template": (
        nothing,
        lambda app, name, _: app.client.templates.create(name, "add"),
        "hw_template",
        "templates show",
    ),
    "tenant": (nothing, lambda app, name, _: app.client.tenants.create(name), "hw_tenant", "tenants ls"),
    "webhook": (nothing, lambda app, name, _: a_webhook(app, name), "hw_endpoint", "webhooks ls"),
    "test": (a_webhook, lambda app, _, n: app.client.webhooks.test(n), "hw_delivery", "webhooks deliveries"),
    "replay": (
        a_failed_delivery,
        lambda app, _, n: app.client.webhooks.replay(n),
        "hw_delivery",
        "webhooks deliveries",
    ),
    "retry": (a_failed_job, lambda app, _, n: app.client.retry(n), "hw_job", "jobs show"),
    "reservation": (nothing, lambda app, _, __: app.client.reserve(target="desk"), "hw_reservation", "limits ls"),
}


@pytest.mark.parametrize("thing", MAKING)
def test_what_a_caller_makes_is_made_once_and_answered_although_the_answer_was_lost(
    line: LateCommits, postgres_url: str, thing: str
) -> None:
    prepare, make, table, _ = MAKING[thing]
    with serving(postgres_url) as near, serving(line.url) as far:
        furnish(near, far, prepare, make)
        for n in range(REPEATS):
            number = prepare(near, f"before {n}")
            before = ids(near, table)
            line.next = 2
            made = make(far, f"t{n}", number)
            assert line.next == 0
            assert ids(near, table) - before == {made if isinstance(made, int) else made.id}
        assert not check(near.database).findings


@pytest.mark.parametrize("thing", MAKING)
def test_a_caller_that_loses_every_answer_is_told_where_to_look(
    line: LateCommits, postgres_url: str, thing: str
) -> None:
    prepare, make, table, look = MAKING[thing]
    with serving(postgres_url) as near, serving(line.url) as far:
        furnish(near, far, prepare, make)
        number = prepare(near, "before")
        before = ids(near, table)
        line.share = 1.0
        with pytest.raises(CommitUnknown, match=f"whether it was stored is not known; look with `headway {look}"):
            make(far, "t", number)
        line.share = 0.0
        assert len(ids(near, table) - before) <= 1


def furnish(near: App, far: App, prepare: Prepare, make: Verb) -> None:
    """One of them, so that its kind of work, its target and the like are known from here on."""
    near.client.lanes.target(near.client.tenant_id, "desk")
    make(far, "first", prepare(near, "before the first"))


def ids(app: App, table: str) -> set[int]:
    with app.database.read() as tx:
        connection: Any = tx.connection  # type: ignore[attr-defined]
        return {number for (number,) in connection.execute(f"select id from {table}").fetchall()}


def test_a_session_a_secret_and_a_kind_of_work_are_made_once(line: LateCommits, postgres_url: str) -> None:
    with serving(postgres_url) as near, serving(line.url) as far:
        _, plain = near.client.tokens.create("t", "viewer", tenant="default")
        for verb in (
            lambda: far.client.sessions.begin(plain),
            far.client.webhooks.secret,
            far.client.webhooks.rotate_secret,
            lambda: far.client.lanes.of(far.client.tenant_id, "add"),
            lambda: far.client.lanes.target(far.client.tenant_id, "desk"),
        ):
            line.next = 2
            assert verb()
        assert count(near, "select count(*) from hw_session") == 1
        assert count(near, "select count(*) from hw_signer where old_secret <> secret") == 1
        assert not check(near.database).findings


def test_a_commit_that_is_held_back_for_too_long_is_undone_before_the_look(
    line: LateCommits, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look waits for the lock until the server has ended the session that stands still; the commit comes after
    that, and changes nothing."""
    monkeypatch.setattr(database, "IDLE_SECONDS", 1)
    with serving(postgres_url) as near, serving(line.url) as far:
        job = near.tasks["add"].enqueue(a=1, b=2)
        worker = Worker(far.database, far.registry, WorkerConfig(slots=1))
        far.database.transact("register", worker._register)
        line.gate, line.next, line.early = threading.Event(), 1, 0.0
        with pytest.raises(CommitUnknown):
            worker.tick()
        worker._read_back()
        assert not worker.pool.running
        assert job.status == "QUEUED"
        line.gate.set()
        worker.tick()
        until(lambda: worker.tick() >= 0 and job.status == "COMPLETED", "the end of the job")
        worker.close()
        assert not check(near.database, quiet=True).findings
