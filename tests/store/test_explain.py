"""Why a job waits: random states in which every answer is compared with what the next real claims do."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeVar

import apsw
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from headway.clock import micros
from headway.engine.client import limits
from headway.engine.client.client import Client
from headway.engine.tasks.registry import Registry
from headway.engine.worker.finish import Ended, finish
from headway.errors import HeadwayError
from headway.model.explain.blockers import Blocker, Explanation
from headway.model.explain.forecast import Estimate
from headway.model.explain.snapshot import WorkerSlots
from headway.model.groups.group import NewGroup, NewMember
from headway.model.jobs.job import Claim, JobRecord, NewJob, Options
from headway.model.jobs.outcome import Completed, Lost, Outcome, StoppedByRequest
from headway.model.jobs.retry import RetryPolicy
from headway.model.jobs.states import State
from headway.model.queue import capacity as rules
from headway.model.queue.policies import Concurrency
from headway.store import workers
from headway.store.db import Database, Tx
from headway.store.groups import create as new_groups
from headway.store.queue import claims, queue_views, reservations, select
from headway.store.queue.lanes import BucketCache
from tests.support import committed
from tests.support.life import ADA, FINAL, Life
from tests.support.properties import examples

T = TypeVar("T")
EXAMPLES = {"sqlite": 300, "postgres": 60}
BURST = 2  # eight direct calls in a row would be rare
TASKS = ("ash", "birch", "cedar")
TARGETS = ("desk", "lab")
RESOURCES = ("disk", "gpu")
TENANTS = ("default", "other", "third")
HOLDERS = {1: "ann", 2: "zoe", 3: "kim"}
STRANGERS = {1: ("zoe", "kim"), 2: ("ann", "kim"), 3: ("ann", "zoe")}
STAGE = Blocker("stage", "its stage is not open yet")
KINDS = {
    *("status", "not_before", "lane", "target_held", "target_busy", "resource", "reservation", "stage", "paused"),
    *("no_worker", "behind"),
}
OPTIONS = Options(retry=RetryPolicy(0)).text()
_worker_ids = itertools.count(70_001)


def wipe(database: Database) -> None:
    """Everything but the schema, as before the first job."""
    tables = (
        "event",
        "run",
        "result",
        "report",
        "job",
        "group",
        "reservation",
        "touched",
        "target",
        "bucket",
        "worker",
        "turn",
    )
    with database.transaction("wipe") as tx:
        database.execute_script(
            tx,
            "update hw_pruning set active = 1;"
            + "".join(f"delete from hw_{table};" for table in (*tables, "setting"))
            + "delete from hw_lane where name <> 'global'; update hw_lane set capacity = 1, streak = 0;"
            " delete from hw_tenant where id > 1; update hw_pruning set active = 0;"
            " update hw_tenant set paused_at = null, paused_until = null, pause_note = null, active = 1,"
            " max_running = null;"
            " insert into hw_tenant (id, name, created_at) values (2, 'other', 0), (3, 'third', 0);",
        )


# A deed is a name with numbers that choose how. Most often something is enqueued, claimed or ended.
Deed = tuple[str, int, int]
NAMES = (
    *("enqueue",) * 4,
    *("group",) * 3,
    *("claim",) * 3,
    *("end",) * 4,
    *("verb",) * 3,
    *("reserve",) * 2,
    *("move", "pause", "unpause", "unpause", "pause_target", "let_go", "grant", "advance", "advance", "limit"),
    *("policy", "check", "check", "limit_tenant", "switch_tenant", "switch_tenant"),
)
MANY = 2**20
numbers = st.integers(0, MANY - 1)
deeds = st.tuples(st.sampled_from(NAMES), numbers, numbers)
enqueues = st.tuples(st.just("enqueue"), numbers, numbers)
Round = tuple[list[Deed], list[Deed]]


def varied(seed: int) -> list[Round]:
    """What is drawn piece by piece shrinks well, and repeats itself; this does neither."""
    rng = random.Random(seed)

    def some(names: Sequence[str], least: int, most: int) -> list[Deed]:
        count = rng.randint(least, most)
        return [(rng.choice(names), rng.randrange(MANY), rng.randrange(MANY)) for _ in range(count)]

    return [(some(["enqueue", "enqueue", "group"], 2, 6), some(NAMES, 3, 10)) for _ in range(rng.randint(1, 3))]


rounds = st.tuples(st.lists(enqueues, min_size=3, max_size=7), st.lists(deeds, min_size=3, max_size=10))
plans = st.one_of(st.lists(rounds, min_size=1, max_size=3), st.integers(0, 2**62).map(varied))
LANES = ((), (), (), ("disk",), ("gpu",), ("disk", "gpu"))


policies = st.builds(
    Concurrency,
    policy=st.sampled_from(["global", "global", "per_task", "per_resource"]),
    targets=st.sampled_from(["own", "own", "global"]),
    limit=st.sampled_from([None, 1, 2, 3]),
    aging=st.sampled_from([None, None, 2.0]),
)
staffs = st.lists(
    st.tuples(
        st.sets(st.sampled_from(TASKS), min_size=1).map(frozenset),
        st.integers(1, 4),
        st.sampled_from([None, None, None, frozenset({1}), frozenset({2, 3})]),
    ),
    min_size=1,
    max_size=2,
)
Staff = tuple[frozenset[str], int, frozenset[int] | None]


class Choice:
    """A number that chooses, again and again."""

    def __init__(self, number: int) -> None:
        self.number = number

    def of(self, things: Sequence[T]) -> T:
        if not things:
            raise HeadwayError("there is none")
        self.number, which = divmod(self.number, len(things))
        return things[which]


class World:
    """Three tenants, some workers, and a database in which things happen."""

    def __init__(self, life: Life, staff: Sequence[Staff], wishes: Sequence[Concurrency]) -> None:
        self.database, self.clock = life.database, life.clock
        wipe(self.database)
        self.people = [Client(self.database, Registry(), actor=ADA, tenant=name) for name in TENANTS]
        self.wishes = wishes
        self.lanes = BucketCache(self.database)
        self.staff = {self._worker(*one): one for one in staff}
        self.slots = itertools.count()
        self._policy(Choice(0), Choice(0))

    def _worker(self, tasks: frozenset[str], slots: int, tenants: frozenset[int] | None) -> int:
        number = next(_worker_ids)
        who = workers.Identity(number, "elsewhere", "boot", 1, 1)
        known = sorted(tasks)
        self.transact(lambda tx: workers.register(tx, who, ADA, slots=slots, tasks=known, lease=1e7, tenants=tenants))
        return number

    def transact(self, work: Any) -> Any:
        return self.database.transact("deed", work)

    def sql(self, text: str) -> list[Any]:
        with self.database.read() as tx:
            return tx.connection.execute(text).fetchall()  # type: ignore[attr-defined]

    def do(self, deed: str, x: int, y: int) -> None:
        with suppress(HeadwayError):  # refused: nothing has changed
            getattr(self, f"_{deed}")(Choice(x), Choice(y))

    # --- deeds ---

    def _enqueue(self, x: Choice, y: Choice) -> None:
        now = self.clock.now()
        when: dict[str, Any] = x.of(
            ({}, {}, {}, {}, {}, {"delay": micros(5)}, {"hold": True}, {"expires_at": now + micros(5)})
        )
        target, names = x.of((None, None, *TARGETS)), y.of(LANES)
        new = NewJob(x.of(TASKS), "{}", OPTIONS, y.of((0, 0, 1, 2)), target=target, resources=names, **when)
        y.of((*self.people[:1] * 3, *self.people[1:])).enqueue(new)

    def _group(self, x: Choice, y: Choice) -> None:
        """Two to four jobs of one stage, most of them alike, and perhaps one after them."""
        client, priority = y.of((*self.people[:1] * 3, *self.people[1:])), y.of((0, 0, 1, 2))
        task, names = x.of(TASKS), x.of(LANES)
        count, odd = x.of((2, 3, 4)), x.of(TASKS)
        tasks = [task] * (count - 1) + [odd]
        jobs = [
            NewJob(one, "{}", OPTIONS, priority, target=x.of((None,) * 4 + TARGETS[:1]), resources=names)
            for one in tasks
        ]
        members = [NewMember(job, int(n == count), f"step{n}") for n, job in enumerate([*jobs, *y.of(([], jobs[:1]))])]
        new = NewGroup("group", "staged", "continue", tuple(members))
        placed = new_groups.place(client.lanes, client.tenant_id, new)
        self.transact(lambda tx: new_groups.insert(tx, client.tenant_id, placed, ADA))

    def _claim(self, x: Choice, y: Choice) -> None:
        self.claim(x.of(list(self.staff)), y.of((1, 2, 3)))

    def claim(self, worker: int, count: int) -> list[int]:
        """As many as fit, at most."""
        tasks, slots, tenants = self.staff[worker]
        ((running,),) = self.sql(f"select count(*) from hw_job where worker_id = {worker}")
        taken = [next(self.slots) for _ in range(min(count, slots - running))]

        def work(tx: Tx) -> list[Claim]:
            view, _ = claims.lock_and_look(tx, self.lanes, ADA)
            served: dict[str, Any] = {"knows": tasks.__contains__, "serves": WorkerSlots(tasks, tenants=tenants).serves}
            return committed.claim(tx, view, self.lanes, worker_id=worker, actor=ADA, slots=taken, **served)

        return [claim.job_id for claim in self.transact(work)] if taken else []

    def some(self, choice: Choice, *states: State) -> JobRecord:
        wanted = ", ".join(str(int(state)) for state in states)
        found = self.sql(f"select id, tenant_id from hw_job where status in ({wanted}) order by id")
        job_id, tenant_id = choice.of(found)
        return self.people[tenant_id - 1].get(job_id)

    def _end(self, x: Choice, y: Choice) -> None:
        job = self.some(x, State.RUNNING)
        how = y.of(("completed", "completed", "failed", "interrupted", "lost", "shutdown"))
        if how == "interrupted":
            self.people[job.tenant_id - 1].interrupt(job.id)
        outcomes: dict[str, Outcome] = {"completed": Completed(), "failed": FINAL, "lost": Lost("gone")}
        self.finish(job, outcomes.get(how, StoppedByRequest()))

    def finish(self, job: JobRecord, outcome: Outcome) -> None:
        held = (job.id, job.fence, job.slot or 0, job.task, job.params, job.options, job.attempt, job.ran, 0)
        ended = [Ended(Claim(*held, job.target_id, job.group_id, job.stage), outcome)]
        self.transact(lambda tx: finish(tx, job.worker_id or 0, ADA, ended))

    def _verb(self, x: Choice, y: Choice) -> None:
        held = x.of(((State.PAUSED, State.ERROR), (State.PAUSED, State.ERROR), tuple(State)))
        job = self.some(x, *held)
        verb = y.of(("resume", "resume", "resume", "release", "cancel", "interrupt", "retry"))
        getattr(self.people[job.tenant_id - 1], verb)(job.id)

    def _move(self, x: Choice, y: Choice) -> None:
        waiting = (State.WAITING, State.SCHEDULED, State.QUEUED)
        job, to = self.some(x, *waiting), y.of(("top", "bottom", "front", "before"))
        client = self.people[job.tenant_id - 1]
        client.move(job.id, **({"before": self.some(y, *waiting).id} if to == "before" else {"to": to}))

    def _pause(self, x: Choice, y: Choice) -> None:
        until = y.of((None, self.clock.now() + micros(5)))
        x.of(self.people).pause_queue(note="a note", until=until, everybody=x.of((False, False, True)))

    def _unpause(self, x: Choice, y: Choice) -> None:
        y.of(self.people).resume_queue(everybody=x.of((False, True)))

    def _pause_target(self, x: Choice, y: Choice) -> None:
        name, client = x.of(TARGETS), self.people[0]
        y.of((lambda: client.pause_target(name, note="by hand"), lambda: client.resume_target(name)))()

    def _reserve(self, x: Choice, y: Choice) -> None:
        client, target, names = x.of(self.people), x.of((None, None, *TARGETS)), y.of(LANES)
        bucket_id = client.lanes.of(client.tenant_id, x.of(TASKS), names, on_target=target is not None)
        target_id = None if target is None else client.lanes.target(client.tenant_id, target)

        def work(tx: Tx) -> None:
            tx.run("claim_lock")
            (bucket,) = BucketCache(self.database).load(tx, [bucket_id])
            where: dict[str, Any] = {"lanes": bucket.lanes, "target_id": target_id}
            reservations.add(
                tx, client.tenant_id, holder=HOLDERS[client.tenant_id], actor=ADA, ttl=micros(y.of((3, 500))), **where
            )

        self.transact(work)

    def _let_go(self, x: Choice, _: Choice) -> None:
        (which,) = x.of(self.sql("select id from hw_reservation where finished_at is null order by id"))
        self.transact(lambda tx: (tx.run("claim_lock"), reservations.end(tx, which, status="RELEASED", actor=ADA)))

    def _grant(self, *_: Choice) -> None:
        def work(tx: Tx) -> None:
            view, _ = claims.lock_and_look(tx, self.lanes, ADA)
            select.settle_reservations(tx, view, self.lanes)

        self.transact(work)

    def _advance(self, x: Choice, _: Choice) -> None:
        self.clock.advance(x.of((1, 4, 11)))

    def _limit(self, x: Choice, y: Choice) -> None:
        name = x.of(("global", "disk", "gpu", *TASKS))
        limits.change(self.database, name, y.of((1, 2, 3)), tenant_id=1, actor=ADA)

    def _limit_tenant(self, x: Choice, y: Choice) -> None:
        self.people[0].tenants.edit(x.of(TENANTS), {"max_running": y.of((None, 0, 1, 2))})

    def _switch_tenant(self, x: Choice, y: Choice) -> None:
        """Mostly on: of one that is off little happens."""
        verb = y.of(("deactivate", "activate", "activate"))
        getattr(self.people[0].tenants, verb)(x.of(TENANTS))

    def _policy(self, x: Choice, _: Choice) -> None:
        """Clients that have asked lately go on by the policy they know: their jobs get their lanes at the claim."""
        limits.settle(self.database, x.of(self.wishes), {"disk": 1, "gpu": 2}, actor=ADA, adopt=True)

    # --- the comparison ---

    def _check(self, *_: Choice) -> None:
        free, expected, told = self._told()
        taken = [job_id for worker in self._in_turn() for job_id in self.claim(worker, 99)]
        assert set(taken) == expected, f"said to start: {sorted(expected)}, claimed: {taken}; {told}"
        event(f"{min(len(taken), 4)} of {free} slots taken")

    def _in_turn(self) -> list[int]:
        """Those that know least come first."""
        all_slots = {number: WorkerSlots(tasks, tenants=tenants) for number, (tasks, _, tenants) in self.staff.items()}
        return sorted(self.staff, key=lambda worker: all_slots[worker].breadth)

    def _told(self) -> tuple[int, set[int], dict[int, Any]]:
        """What explain says of every job that waits, and that the list says the same."""
        found: dict[int, Any] = {}
        with self.database.read() as tx:
            for client in self.people:
                for one in queue_views.queue(tx, client.tenant_id, 200):
                    explained = queue_views.explain(tx, client.tenant_id, one.view.job.id)
                    # The list says less of a stage that is not open: it does not look into the group.
                    shown = [STAGE if blocker.kind == "stage" else blocker for blocker in explained.blockers]
                    assert shown == one.blockers, (explained, one.blockers)
                    self._check_words(client.tenant_id, explained)
                    found[one.view.job.id] = explained
        for explained in found.values():
            for blocker in explained.blockers:
                event(blocker.kind)
        slots = sum(slots for _, slots, _ in self.staff.values())
        return slots, {job_id for job_id, one in found.items() if not one.blockers}, found

    def _check_words(self, tenant_id: int, explained: Any) -> None:
        """Every kind is one of the contract's, and nothing is said about other tenants' things but that they exist."""
        assert {one.kind for one in explained.blockers} <= KINDS
        text = str(explained)
        assert not any(name in text for name in STRANGERS[tenant_id])
        for thing in ("job", "reservation"):
            named = {int(number) for number in re.findall(rf"\b{thing} (\d+)", text)}
            for number in named:
                assert self.sql(f"select tenant_id from hw_{thing} where id = {number}") == [(tenant_id,)], text


@pytest.fixture
def short_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (rules, reservations):
        monkeypatch.setattr(module, "BURST", BURST)


@pytest.mark.usefixtures("short_burst")
def test_a_job_without_blockers_is_claimed_next_and_no_other(life: Life) -> None:
    @settings(
        max_examples=examples(EXAMPLES[life.database.dialect]),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(staffs, st.lists(policies, min_size=1, max_size=2), plans)
    def check(staff: Any, wishes: list[Concurrency], plan: list[Round]) -> None:
        world = World(life, staff, wishes)
        for made, done in plan:
            for deed in (*made, *done, ("check", 0, 0)):
                world.do(*deed)

    check()


# --- one by one ---------------------------------------------------------------------------------------------------


def explain(life: Life, job_id: int, tenant_id: int = 1) -> Explanation:
    with life.database.read() as tx:
        return queue_views.explain(tx, tenant_id, job_id)


def claim(life: Life, count: int = 1) -> list[int]:
    slots = [next(life.slots) for _ in range(count)]
    return [one.job_id for one in life.database.transact("claim", lambda tx: life.claim_in(tx, slots))]


def test_a_held_target_and_what_to_do(life: Life) -> None:
    held, waiting = (life.enqueue(target="desk-1", retry=0) for _ in range(2))
    assert claim(life) == [held]
    began = life.clock.now()
    life.clock.advance(5)
    assert explain(life, waiting).blockers == (
        Blocker("target_busy", f"job {held} runs on desk-1", f"job {held}", began),
    )
    assert life.end(life.held(held)._replace(target_id=life.job(held).target_id), FINAL)
    stopped = life.clock.now()
    life.clock.advance(5)
    (found,) = explain(life, waiting).blockers
    assert (found.kind, found.by, found.since) == ("target_held", f"job {held}", stopped)
    assert f"it is ERROR (hopeless); headway jobs resume {held}" in found.detail
    assert explain(life, held).blockers[0].since == stopped
    life.client.resume(held)
    (found,) = explain(life, waiting).blockers
    assert (found.kind, found.since) == ("target_held", life.clock.now())
    assert "was resumed on desk-1 and goes first" in found.detail
    assert explain(life, held).blockers == ()


def test_pauses_of_everybody_of_the_queue_and_of_a_target(life: Life) -> None:
    job_id, since, until = life.enqueue(target="desk-1"), life.clock.now(), life.clock.now() + micros(60)
    life.client.pause_queue(everybody=True, until=until)
    life.client.pause_queue(note="the disk")
    life.client.pause_target("desk-1", note="painted")
    assert explain(life, job_id).blockers == (
        Blocker("paused", "all queues are paused; resume it with headway queue resume --all", since=since, until=until),
        Blocker("paused", "the queue is paused: the disk; resume it with headway queue resume", since=since),
        Blocker(
            "paused", "the target desk-1 is paused: painted; resume it with headway targets resume desk-1", since=since
        ),
    )


def test_resources_reservations_and_other_tenants(life: Life) -> None:
    limits.settle(life.database, Concurrency(limit=None), {"gpu": 1}, actor=ADA, adopt=True)
    with life.database.transaction("tenant") as tx:
        life.database.execute_script(tx, "insert into hw_tenant (id, name, created_at) values (2, 'other', 0);")
    theirs = Client(life.database, Registry(), actor=ADA, tenant="other")
    running, _ = theirs.enqueue(life.new(resources=("gpu",)))
    assert claim(life) == [running]
    waiting, since, until = life.enqueue(resources=("gpu",)), life.clock.now(), life.clock.now() + micros(600)
    for tenant_id in (1, 2):
        reserve(life, tenant_id, "gpu")
    assert explain(life, waiting).blockers == (
        Blocker("resource", "the resource gpu is full: 1 of 1 run", "a job of another tenant", since),
        Blocker("reservation", "gpu is reserved: the reservation goes first", "ann, reservation 1", since, until),
        Blocker("reservation", "gpu is reserved: the reservation goes first", "another tenant", since, until),
    )


def reserve(life: Life, tenant_id: int, resource: str) -> None:
    def work(tx: Tx) -> None:
        tx.run("claim_lock")
        ((lane, *_),) = tx.run("lane_by_name", tenant_id=0, kind="resource", name=resource)
        wishes: dict[str, Any] = {"lanes": [lane], "target_id": None, "ttl": micros(600)}
        reservations.add(tx, tenant_id, holder=HOLDERS[tenant_id], actor=ADA, **wishes)

    life.database.transact("reserve", work)


def test_behind_a_job_that_has_aged_and_behind_another_tenant(life: Life) -> None:
    limits.settle(life.database, Concurrency(aging=1.0), {}, actor=ADA, adopt=True)
    old = life.enqueue()
    life.clock.advance(10)
    new = life.enqueue(priority=5)
    assert explain(life, old).blockers == ()
    assert explain(life, new).blockers == (Blocker("behind", "behind a better placed job", f"job {old}"),)
    assert claim(life) == [old]


def test_no_estimate_without_a_history_or_a_worker(life: Life) -> None:
    first, second = life.enqueue(), life.enqueue()
    now = life.clock.now()
    assert explain(life, first).start_estimate == Estimate(now, now)
    assert explain(life, second).start_estimate is None
    (held,) = claim(life)
    life.clock.advance(30)
    assert life.end(life.held(held), Completed())
    third = life.enqueue()
    found = [explain(life, job_id).start_estimate for job_id in (second, third)]
    now = life.clock.now()
    assert found == [Estimate(now, now), Estimate(now + micros(30), now + micros(30))]
    life.clock.advance(60)  # its lease is over
    assert explain(life, third).start_estimate is None


# --- when it starts -----------------------------------------------------------------------------------------------

LASTS = {"ash": 10, "birch": 30, "cedar": 7}


class Clockwork(World):
    """A world in which the work of a task always takes the same time."""

    def __init__(self, life: Life, staff: Any, wishes: Sequence[Concurrency]) -> None:
        super().__init__(life, staff, wishes)
        for client, task in itertools.product(self.people, TASKS):
            bucket_id = client.lanes.of(client.tenant_id, task)
            self.transact(lambda tx, who=client, name=task, into=bucket_id: self._past(tx, who, name, into))

    def _past(self, tx: Tx, client: Client, task: str, bucket_id: int) -> None:
        """A run that took as long as they all do."""
        now = self.clock.now()
        numbers = f"{next(_past_ids)}, {client.tenant_id}, {bucket_id}"
        took = micros(LASTS[task])
        self.database.execute_script(
            tx,
            "insert into hw_job (id, tenant_id, bucket_id, status, position, created_at, fence, finished_at, ran, task,"
            f" params, options, created_by) values ({numbers}, 6, 0, {now}, 1, {now}, {took}, '{task}', '', '', '');",
        )

    def starts(self) -> dict[int, int]:
        """Runs everything to its end, and when each job started."""
        found: dict[int, int] = {}
        while True:
            self._grant()  # workers without a free slot move what is due as well
            for worker in self._in_turn():
                found |= dict.fromkeys(self.claim(worker, 99), self.clock.now())
            ahead = [self._end_of(*row) for row in self.sql("select task, claimed_at from hw_job where status = 3")]
            later = f"select not_before from hw_job where status = 1 and not_before > {self.clock.now()}"
            ahead += [due for (due,) in self.sql(later)]
            if not ahead:
                return found
            self.clock.time = max(self.clock.now(), min(ahead))
            for job_id, *row in self.sql("select id, task, claimed_at from hw_job where status = 3"):
                if self._end_of(*row) <= self.clock.now():
                    ((tenant_id,),) = self.sql(f"select tenant_id from hw_job where id = {job_id}")
                    self.finish(self.people[tenant_id - 1].get(job_id), Completed())

    @staticmethod
    def _end_of(task: str, claimed_at: int) -> int:
        return claimed_at + micros(LASTS[task])

    def estimates(self) -> dict[int, int | None]:
        found: dict[int, int | None] = {}
        with self.database.read() as tx:
            for client in self.people:
                for one in queue_views.queue(tx, client.tenant_id, 200):
                    expected = queue_views.explain(tx, client.tenant_id, one.view.job.id).start_estimate
                    assert expected is None or expected.p50 == expected.p90
                    found[one.view.job.id] = None if expected is None else expected.p50
        return found


_past_ids = itertools.count(-1, -1)
before = st.tuples(st.sampled_from(["claim", "enqueue", "move", "advance", "limit_tenant"]), numbers, numbers)


def test_jobs_start_when_the_estimate_says(life: Life) -> None:
    @settings(
        max_examples=examples(EXAMPLES[life.database.dialect]), deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(staffs, policies, st.lists(enqueues, min_size=3, max_size=8), st.lists(before, max_size=6))
    def check(staff: Any, wished: Concurrency, made: list[Deed], done: list[Deed]) -> None:
        world = Clockwork(life, staff, [wished])
        for name, x, y in (*made, *done):
            if not (name == "enqueue" and x % 8 >= 6):  # nobody is there to end a hold, and what expires never starts
                world.do(name, x, y)
        expected = world.estimates()
        starts = world.starts()
        assert {job_id: starts.get(job_id) for job_id in expected} == expected
        event(f"{sum(at is not None for at in expected.values())} of {len(expected)} can be foreseen")

    check()


# --- what it costs ------------------------------------------------------------------------------------------------

FILL = """
insert into hw_job (id, tenant_id, bucket_id, status, gate, position, created_at, fence, queued_at, finished_at, ran,
  target_id, task, params, options, created_by)
with recursive g(n) as (select 1 union all select n + 1 from g where n < {count})
select 1000 + n, 1, case when n % 5 = 0 then {targeted} else {plain} end, case when n % 2 then 2 else 6 end,
  n % 2 = 1 and n % 5 > 0, n, n, n % 2 = 0, n, case when n % 2 = 0 then n end, n, case when n % 5 = 0 then {target} end,
  'ash', '', '{{}}', '{{}}' from g
"""


def test_explaining_costs_the_same_however_long_the_queue_is(sqlite_url: str) -> None:
    """Counted by SQLite itself, in steps of its machine."""
    steps = [explaining(f"{sqlite_url}-{count}", count) for count in (4_000, 40_000)]
    assert steps[1] < 1.1 * steps[0], steps


def explaining(url: str, count: int) -> int:
    """The steps that the answer about the last job of a queue takes, and the list of the first ones."""
    with Life(url) as life:
        client, steps = life.client, list[int]()
        plain, targeted = (client.lanes.of(client.tenant_id, "ash", on_target=on) for on in (False, True))
        target = client.lanes.target(client.tenant_id, "desk")
        with life.database.transaction("fill") as tx:
            text = FILL.format(count=count, plain=plain, targeted=targeted, target=target)
            life.database.execute_script(tx, text)
            tx.touch(target)
        with life.database.read() as tx:
            connection: Any = tx.connection  # type: ignore[attr-defined]
            connection.trace_v2(
                apsw.SQLITE_TRACE_PROFILE, lambda event: steps.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])
            )
            far = queue_views.explain(tx, client.tenant_id, 1000 + count - 1)
            near = queue_views.queue(tx, client.tenant_id)
            connection.trace_v2(0, None)
        assert (far.rank, far.blockers[-1].kind, near[0].view.rank) == (None, "behind", 1)
        return sum(steps)
