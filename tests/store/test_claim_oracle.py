"""Every claim against an oracle: random worlds, random deeds, and the exact sequence of each claim; then, mutants.

`HEADWAY_PROOF` makes it longer. A failure names its seed: `World(…, seed).live()` shows the same again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import apsw
import psycopg
import pytest

from headway.engine.client import limits
from headway.engine.client.client import Client
from headway.engine.tasks.registry import Registry
from headway.engine.worker.finish import Ended, finish
from headway.errors import HeadwayError, NotFound, Refused
from headway.model.explain.snapshot import WorkerSlots
from headway.model.groups.group import NewGroup, NewMember
from headway.model.jobs.job import Claim
from headway.model.jobs.outcome import Completed, Interrupted, Lost, Outcome, Skipped, StoppedByRequest
from headway.model.jobs.retry import RetryPolicy
from headway.model.jobs.states import State
from headway.model.queue import capacity as rules
from headway.model.queue import select
from headway.model.queue.policies import Concurrency
from headway.model.queue.select_aged import Aging
from headway.model.queue.stage_sharing import StageSharing
from headway.store import workers
from headway.store.db import Database, Row, Tx
from headway.store.groups import create as new_groups
from headway.store.queue import claims, reservations, targets
from headway.store.queue import select as queue_select
from headway.store.queue.lanes import BucketCache
from tests.support.life import ADA, BROKEN, FINAL, Life
from tests.support.oracle import Expected, Oracle, Promise, Served, Takes, Wishes, Work

PROOF = bool(os.environ.get("HEADWAY_PROOF"))
STATES = {"sqlite": 40_000 if PROOF else 1_500, "postgres": 4_000 if PROOF else 150}
BURST = 2  # eight direct calls in a row are rare in a world of twenty deeds
TASKS = ("ash", "alder", "birch")
RESOURCES = ("ollama", "remote", "disk")
TARGETS = ("desk", "lab", "shed")
POLICIES = (
    "global",
    "global",
    "per_task",
    "per_resource",
    "tests.support.own_policies.ByLetter",
    "tests.support.own_policies:by_letter",
    "tests.support.own_policies.NoLanes",
)
SECOND = 1_000_000
OUTCOMES: tuple[Outcome, ...] = (
    Completed(), Completed(), Completed("7"), Completed(exit_code=0), BROKEN, BROKEN, FINAL, FINAL, Skipped("no"),
    StoppedByRequest(), Interrupted(), Lost("gone"),
)  # fmt: skip


def wipe(database: Database) -> None:
    """Everything but the schema, as before the first job."""
    deletes = [f"delete from hw_{table};" for table in (
        "event", "run", "result", "report", "job", "group", "reservation", "touched", "target", "bucket", "worker",
        "setting", "turn",
    )]  # fmt: skip
    with database.transaction("wipe") as tx:
        database.execute_script(
            tx,
            "update hw_pruning set active = 1;" + "".join(deletes) + "delete from hw_lane where name <> 'global';"
            " update hw_lane set capacity = 1, streak = 0; delete from hw_tenant where id > 1;"
            " update hw_tenant set paused_at = null, paused_until = null, active = 1, max_running = null;"
            " update hw_pruning set active = 0;",
        )


class World(Life):
    """A database, people of one to three tenants, two workers, and the oracle that is told what they all do."""

    def __init__(self, url: str, database: Database, clock: Any, seed: int) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        super().__init__(url, database=database, clock=clock)
        self.oracle = Oracle(burst=BURST)
        self.compared = 0
        self.said = "the beginning"
        self.usual: dict[str, Any] | None = None  # the direct call that most people make
        self.resources: dict[int, tuple[str, ...]] = {}
        self.capacities = {name: self.rng.randint(1, 3) for name in RESOURCES[: self.rng.randint(0, 3)]}
        self.targets = TARGETS[: self.rng.randint(0, 3)]
        strangers = self.rng.choice([0, 0, 0, 0, 1, 1, 2])
        self.people = [self.client, *(self._stranger(2 + n) for n in range(strangers))]
        self.workers = [self._worker(50), self._worker(self.rng.choice([1, 2, 3]))]
        self.lanes = {worker.id: BucketCache(database) for worker in self.workers}
        self.settle()

    def _stranger(self, number: int) -> Client:
        row = f"({number}, 'other{number}', 0)"
        with self.database.transaction("tenant") as tx:
            self.database.execute_script(tx, f"insert into hw_tenant (id, name, created_at) values {row};")
        return Client(self.database, Registry(), actor=ADA, tenant=f"other{number}")

    def _worker(self, slots: int) -> Served:
        tasks = self.rng.sample(TASKS, self.rng.choice([1, 2, 3, 3, 3, 3, 3, 3]))
        worker_id = self.rng.getrandbits(60)
        who = workers.Identity(worker_id, "elsewhere", "boot", 1, 1)
        chance = random.Random(f"{self.seed} {slots}")  # its own, so that the rest of the world stays as it was
        some = len(self.people) > 1 and chance.random() < 0.3
        tenants = frozenset({chance.choice(self.people).tenant_id}) if some else None
        self.database.transact(
            "register",
            lambda tx: workers.register(
                tx, who, self.actor(worker_id), slots=slots, tasks=tasks, lease=1e9, tenants=tenants
            ),
        )
        return Served(worker_id, frozenset(tasks), slots, tenants)

    # --- what there is ---

    def rows(self, tx: Tx | None = None) -> list[Work]:
        """All jobs; with `tx`, as that transaction sees them."""
        columns = (
            "id, tenant_id, status, gate, priority, position, created_at, fence, target_id, not_before, expires_at,"
            " queued_at, worker_id, task, group_id, stage, retry_of"
        )
        text = f"select {columns} from hw_job order by id"
        found = self.sql(text) if tx is None else tx.connection.execute(text).fetchall()  # type: ignore[attr-defined]
        for job_id, *_, retry_of in found:
            if job_id not in self.resources:
                self.resources[job_id] = self.resources[retry_of]
        return [replace(_work(*row), resources=self.resources[row[0]]) for row in found]

    def some_job(self, *states: State) -> int | None:
        found = [job.id for job in self.rows() if not states or job.status in states]
        return self.rng.choice(found) if found else None

    def owner(self, job_id: int) -> Client:
        ((tenant_id,),) = self.sql(f"select tenant_id from hw_job where id = {job_id}")
        return self.people[tenant_id - 1]

    # --- settings ---

    def settle(self) -> None:
        """Somebody adopts other settings: policy, limits, aging, capacities."""
        rng = self.rng
        wishes = Wishes(
            rng.choice(POLICIES),
            rng.choice(["own", "own", "global"]),
            rng.choice([None, 1, 1, 2, 3, 4]),
            {name: rng.randint(1, 4) for name in ("ash", "task:birch", "letter:a", "global") if rng.random() < 0.2},
            rng.choice([None, None, None, 1, 5]),
        )
        self.capacities = {name: rng.randint(1, 3) for name in self.capacities}
        said = Concurrency(
            wishes.policy, wishes.targets, wishes.limit, tuple(sorted(wishes.limits.items())), wishes.aging
        )
        limits.settle(self.database, said, self.capacities, actor=ADA, adopt=True)
        wishes.aging = None if wishes.aging is None else wishes.aging * SECOND
        self.oracle.adopt(wishes, self.capacities)

    def change_limit(self) -> None:
        who, capacity = self.rng.choice(self.people), self.rng.choice([None, 1, 2, 3])
        kind, name = self.rng.choice([*(("resource", n) for n in self.capacities), ("policy", "global"),
                                      *(("policy", f"task:{t}") for t in TASKS)])  # fmt: skip
        if kind == "resource":
            capacity = capacity or 1
        with suppress(NotFound):
            limits.change(self.database, name, capacity, tenant_id=who.tenant_id, actor=ADA)
            owner = 0 if kind == "resource" or name == "global" else who.tenant_id
            self.oracle.changed[kind, owner, name] = capacity

    # --- people ---

    def enqueue_some(self) -> None:
        """One, several of one kind, or several on several targets at once."""
        rng, who = self.rng, self.rng.choice(self.people)
        if who.tenant_id in self.oracle.inactive:
            return
        count = rng.choice([1, 1, 1, 2, 3, 6])
        fields = self._kind()
        target = fields.pop("target")
        if count > 1 and rng.random() < 0.5 and self.targets:
            new = [self.new(**fields, target=rng.choice([*self.targets, None])) for _ in range(count)]
            made = [job_id for job_id, _ in who.enqueue_many(new)]
        elif count > 1:
            job = self.new(**fields, target=target)
            made = [job_id for job_id, _ in who.enqueue_alike(job, ["{}"] * count)]
        else:
            made = [who.enqueue(self.new(**fields, target=target))[0]]
        self.resources |= dict.fromkeys(made, fields["resources"])

    def group_some(self) -> None:
        """Jobs of one or two stages, most of them alike."""
        rng, who = self.rng, self.rng.choice(self.people)
        kind, stages = self._kind(), rng.choice([1, 1, 1, 2])
        kinds = [kind if rng.random() < 0.7 else self._kind() for _ in range(rng.choice([2, 3, 3, 5]))]
        places = [kind["resources"] for kind in kinds]
        jobs = [self.new(**{**kind, "hold": False, "expires_at": None}) for kind in kinds]
        members = [NewMember(job, min(n, stages - 1) if stages > 1 else 0, f"step{n}") for n, job in enumerate(jobs)]
        policy = rng.choice(["stop", "continue", "skip"])
        new = NewGroup("group", "staged" if stages > 1 else "parallel", policy, tuple(members))
        placed = new_groups.place(who.lanes, who.tenant_id, new)
        number = self.database.transact("group", lambda tx: new_groups.insert(tx, who.tenant_id, placed, ADA))
        for job_id, step in self.sql(f"select id, step from hw_job where group_id = {number}"):
            self.resources[job_id] = places[int(step.removeprefix("step"))]

    def _kind(self) -> dict[str, Any]:
        rng, now = self.rng, self.clock.now()
        return {
            "task": rng.choice(TASKS),
            "priority": rng.choice([0, 0, 0, 1, 2, 99]),
            "target": rng.choice([*self.targets, None]),
            "resources": tuple(sorted(n for n in self.capacities if rng.random() < 0.35)),
            "hold": rng.random() < 0.05,
            "delay": rng.choice([None] * 5 + [5 * SECOND, 20 * SECOND]),
            "expires_at": rng.choice([None] * 6 + [now + 4 * SECOND, now + 30 * SECOND]),
            "retry": RetryPolicy(rng.choice([0, 0, 1, 2]), rng.choice([0.0, 3.0])),
            "on_error": rng.choice(["hold", "hold", "fail"]),
            "on_lost": rng.choice(["retry", "hold", "fail"]),
            "on_shutdown": rng.choice([None, None, "pause", "resume"]),
        }

    def use_a_verb(self) -> None:
        """Any verb on any job, whether it is allowed or not."""
        rng, job_id, other = self.rng, self.some_job(), self.some_job()
        if job_id is None:
            return
        verbs: list[Callable[[Client], object]] = [
            lambda c: c.cancel(job_id),
            lambda c: c.interrupt(job_id),
            lambda c: c.resume(job_id),
            lambda c: c.resolve(job_id, 1),
            lambda c: c.release(job_id),
            lambda c: c.retry(job_id),
            lambda c: c.edit(job_id, priority=rng.choice([0, 1, 2])),
            lambda c: c.edit(job_id, not_before=self.clock.now()),
            lambda c: c.move(job_id, to=rng.choice(["top", "bottom", "front"])),
            lambda c: c.move(job_id, rank=rng.randint(1, 4)),
            lambda c: c.move(job_id, before=other),
        ]
        with suppress(HeadwayError):
            rng.choice(verbs)(self.owner(job_id))

    def decide(self) -> None:
        """A person decides about a job that waits for it."""
        job_id = self.some_job(State.PAUSED, State.ERROR, State.WAITING)
        if job_id is not None:
            who = self.owner(job_id)
            verb = self.rng.choice(["resume", "resume", "resume", "retry", "release", "resolve", "cancel"])
            with suppress(HeadwayError):
                getattr(who, verb)(job_id)

    def tie(self) -> None:
        """Two jobs at the same place, which only their times and numbers tell apart."""
        ids = [job.id for job in self.rows() if job.status <= State.QUEUED]
        chosen = self.rng.sample(ids, min(len(ids), 3))

        def work(tx: Tx) -> None:
            for job_id in chosen:
                text = f"update hw_job set position = 5000, created_at = created_at / {10 * SECOND} * {10 * SECOND}"
                tx.connection.execute(f"{text} where id = {job_id}")  # type: ignore[attr-defined]
                tx.touch(self.job_row(job_id).target_id)

        self.database.transact("tie", work)

    def job_row(self, job_id: int) -> Work:
        return next(job for job in self.rows() if job.id == job_id)

    def pause(self) -> None:
        rng, who = self.rng, self.rng.choice(self.people)
        everybody = rng.random() < 0.3
        key = 0 if everybody else who.tenant_id
        if key in self.oracle.paused and rng.random() < 0.8:
            who.resume_queue(everybody=everybody)
            del self.oracle.paused[key]
        else:
            until = rng.choice([None, self.clock.now() + 10 * SECOND])
            who.pause_queue(everybody=everybody, until=until)
            self.oracle.paused[key] = until

    def limit_a_tenant(self) -> None:
        who, most = self.rng.choice(self.people), self.rng.choice([None, 0, 1, 2, 3])
        self.client.tenants.edit(who.tenant, {"max_running": most})
        self.oracle.most.pop(who.tenant_id, None)
        if most is not None:
            self.oracle.most[who.tenant_id] = most

    def switch_a_tenant(self) -> None:
        who, inactive = self.rng.choice(self.people), self.oracle.inactive
        if who.tenant_id in inactive:
            self.client.tenants.activate(who.tenant)
        else:
            self.client.tenants.deactivate(who.tenant)
            with pytest.raises(Refused, match="inactive"):
                who.enqueue(self.new(task="ash"))
        inactive ^= {who.tenant_id}

    def pause_a_target(self) -> None:
        found = self.sql("select id, tenant_id, name from hw_target")
        if found:
            target_id, tenant_id, name = self.rng.choice(found)
            who, paused = self.people[tenant_id - 1], self.oracle.paused_targets
            if target_id in paused:
                who.resume_target(name)
            else:
                who.pause_target(name)
            paused ^= {target_id}

    # --- direct calls ---

    def reserve(self) -> None:
        rng, who = self.rng, self.rng.choice(self.people)
        kind = self.usual = self.usual if self.usual and rng.random() < 0.8 else self._kind()
        target = None if kind["target"] is None else who.lanes.target(who.tenant_id, kind["target"])
        ttl = rng.choice([None, 5 * SECOND, 60 * SECOND])
        fresh, is_call = BucketCache(self.database), rng.random() < 0.6

        def work(tx: Tx) -> int:
            tx.run("claim_lock")
            lanes = fresh.needed(tx, who.tenant_id, kind["task"], kind["resources"], on_target=target is not None)
            wishes: dict[str, Any] = {
                "worker_id": None if ttl else 7,
                "ttl": ttl,
                "task": kind["task"] if is_call else None,
            }
            return reservations.add(
                tx, who.tenant_id, lanes=lanes, target_id=target, holder="somebody", actor=ADA, **wishes
            )

        number = self.database.transact("reserve", work)
        call = (who.tenant_id, kind["task"], kind["resources"])
        lanes = self.oracle.lanes_of(*call, on_target=target is not None)
        expires = None if ttl is None else self.clock.now() + ttl
        self.oracle.promises.append(Promise(number, lanes, target, expires, call=call if is_call else None))

    def many_calls(self) -> None:
        """One direct call after the other, and there is always one more that waits."""
        for _ in range(3):
            self.reserve()
        for _ in range(self.rng.randint(2, 5)):
            self.rng.choice([self.claim_some, self.claim_some, self.grant])()
            self.release()
            self.reserve()

    def release(self) -> None:
        if not self.oracle.promises:
            return
        granted = [promise for promise in self.oracle.promises if promise.granted]
        promise = self.rng.choice(granted or self.oracle.promises)

        def work(tx: Tx) -> bool:
            tx.run("claim_lock")
            return reservations.end(tx, promise.id, status="RELEASED", actor=ADA)

        assert self.database.transact("release", work)
        self.oracle.promises.remove(promise)

    def grant(self) -> None:
        """A caller looks whether it is its turn."""
        lanes = BucketCache(self.database)

        def work(tx: Tx) -> list[Claim]:
            view, _ = claims.lock_and_look(tx, lanes, ADA)
            queue_select.settle_reservations(tx, view, lanes)
            return []

        self._compare(0, lambda _: True, work)

    # --- workers ---

    def claim_some(self) -> None:
        self._turn(ends=0)

    def turn(self) -> None:
        """Ends and claims in one transaction."""
        self._turn(ends=self.rng.choice([1, 2, 4, 9]))

    def end_some(self) -> None:
        worker = self.rng.choice(self.workers)
        ended = self._ended(worker, self.rng.choice([1, 1, 2, 5]))
        self.database.transact("finish", lambda tx: finish(tx, worker.id, self.actor(worker.id), ended))

    def _ended(self, worker: Served, count: int) -> list[Ended]:
        with self.database.read() as tx:
            held = sorted(claims.own(tx, worker.id))
        chosen = self.rng.sample(held, min(count, len(held)))
        return [Ended(claim, self.rng.choice(OUTCOMES)) for claim in chosen]

    def _turn(self, ends: int) -> None:
        worker = self.rng.choice([self.workers[0], *self.workers])
        ended, lanes, actor = self._ended(worker, ends), self.lanes[worker.id], self.actor(worker.id)
        taken = {row[0] for row in self.sql(f"select slot from hw_job where status = 3 and worker_id = {worker.id}")}
        free = [slot for slot in range(worker.slots) if slot not in taken - {e.claim.slot for e in ended}]
        slots = free[: self.rng.choice([1, 1, 1, 2, 3, 8, 50])]
        knows, hand = worker.tasks.__contains__, WorkerSlots(worker.tasks, tenants=worker.tenants)
        self._compare(
            len(slots),
            worker.takes,
            lambda tx: self.claim_in(tx, slots, worker.id, knows=knows, serves=hand.serves, lanes=lanes),
            first=lambda tx: finish(tx, worker.id, actor, ended),
        )

    def _compare(
        self,
        count: int,
        takes: Takes,
        act: Callable[[Tx], list[Claim]],
        *,
        first: Callable[[Tx], object] = lambda _: None,
    ) -> None:
        """Asks the oracle in the middle of the transaction, where it sees what the claim sees."""

        def work(tx: Tx) -> tuple[Expected, list[int]]:
            first(tx)
            expected = self.oracle.expect(self.rows(tx), self.clock.now(), self.workers, takes, count)
            return expected, [claim.job_id for claim in act(tx)]

        expected, claimed = self.database.transact("turn", work)
        assert claimed == expected.jobs, f"claimed {claimed}, expected {expected.jobs}"
        after = self.rows()
        self.oracle.happened(expected, after)
        self._check_promises(expected)
        self._check_gates(after)
        assert dict(self.sql("select tenant_id, turn from hw_turn where tenant_id > 0")) == self.oracle.turns
        self.compared += 1

    def _check_promises(self, expected: Expected) -> None:
        found = {
            number: (status, granted is not None)
            for number, status, granted in self.sql("select id, status, granted_at from hw_reservation")
        }
        active = {number: granted for number, (status, granted) in found.items() if status == "ACTIVE"}
        assert active == {p.id: p.granted for p in self.oracle.promises}, f"{found}, expected {self.oracle.promises}"
        assert all(found[number][0] == "EXPIRED" for number in expected.expired)

    def _check_gates(self, rows: Sequence[Work]) -> None:
        bits = self.oracle.gates(rows)
        wrong = {job.id: job.gate for job in rows if job.gate != bits[job.id]}
        assert not wrong, f"gates {wrong}, by the definition {[bits[job_id] for job_id in wrong]}"

    # --- living ---

    def later(self) -> None:
        self.clock.advance(self.rng.choice([1, 3, 10]))

    def live(self) -> int:
        """A random life. How many claims were compared."""
        deeds: dict[Callable[[], None], int] = {
            self.enqueue_some: 7, self.group_some: 6, self.claim_some: 4, self.turn: 7, self.end_some: 3,
            self.use_a_verb: 4, self.decide: 4, self.reserve: 2, self.release: 4, self.grant: 2, self.many_calls: 1,
            self.pause: 1, self.pause_a_target: 1, self.change_limit: 1, self.settle: 1, self.later: 3, self.tie: 1,
            self.limit_a_tenant: 1, self.switch_a_tenant: 1,
        }  # fmt: skip
        for _ in range(self.rng.randint(1, 6)):
            self.enqueue_some()
        for deed in self.rng.sample(list(deeds), 3):  # what is the fashion in this world
            deeds[deed] *= 3
        for deed in self.rng.choices(list(deeds), list(deeds.values()), k=self.rng.randint(8, 30)):
            self.said = deed.__name__
            deed()
        self.claim_some()
        self._check_schema()
        return self.compared

    def _check_schema(self) -> None:
        self.check_versions()
        twice = "select target_id from hw_job where target_id is not null and {} group by target_id having count(*) > 1"
        assert self.sql(twice.format("status between 3 and 5")) == []
        assert self.sql(twice.format("gate = 1")) == []
        assert self.sql("select id from hw_job where gate = 1 and status <> 2") == []
        assert self.sql("select job_id from hw_run where job_id not in (select id from hw_job where fence > 0)") == []
        assert self.sql("select id from hw_job where fence > 0 and id not in (select job_id from hw_run)") == []


def _work(job_id: int, tenant_id: int, status: int, *rest: Any) -> Work:
    facts, (group_id, stage) = rest[:-3], rest[-3:-1]
    job = Work(job_id, tenant_id, State(status), *facts)
    return job if group_id is None else replace(job, stage=(group_id, stage))


@pytest.fixture
def short_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (rules, reservations):
        monkeypatch.setattr(module, "BURST", BURST)


def worlds(life: Life, seeds: Iterator[int]) -> Iterator[World]:
    for seed in seeds:
        wipe(life.database)
        with pytest.MonkeyPatch.context() as patch:
            if seed % 2:  # looks at the front of the queue first, as where there are many kinds of work
                patch.setattr(queue_select, "MANY", 0)
                patch.setattr(queue_select, "SPARE", seed % 3)
            yield World(life.url, life.database, life.clock, seed)


def live_through(life: Life, count: int) -> int:
    """So many worlds, one after the other in one database. How many claims were compared."""
    compared = 0
    for world in worlds(life, iter(range(count))):
        try:
            compared += world.live()
        except (AssertionError, apsw.Error, psycopg.Error) as error:
            raise AssertionError(f"world {world.seed}, at {world.said}: {error}") from error
    return compared


@pytest.mark.usefixtures("short_burst")
def test_every_claim_takes_what_a_walk_through_the_whole_queue_takes(life: Life) -> None:
    count = STATES[life.database.dialect]
    compared = live_through(life, count)
    print(f"{life.database.dialect}: {count} states, {compared} claims compared")
    assert compared > 5 * count


# --- the oracle can fail ------------------------------------------------------------------------------------------


def take_nothing(self: rules.Capacity, lanes: object, stage: object = None, queue: object = None) -> None:
    """A claim that does not count what it has just taken."""


def first_in_line(queue: rules.Queue) -> int | None:
    return None if queue.paused else queue.first


def unpaused(queue: rules.Queue) -> int | None:
    return rules.head(replace(queue, paused=False))


def whoever_has_room(
    reserved: Sequence[rules.Reserved], rooms: rules.Capacity, busy: object, first: object
) -> list[int]:
    waiting = [one for one in reserved if not one.granted]
    return [one.id for one in waiting if all(rooms.free.get(lane, 1) > 0 for lane in one.lanes)]


def reserve_nothing(rooms: rules.Capacity, reserved: Sequence[rules.Reserved], streaks: object) -> None:
    for one in reserved:
        if one.granted:
            rooms.occupy_lanes(one.lanes)


def bucket_by_bucket(
    count: int,
    buckets: Sequence[rules.Bucket],
    rooms: rules.Capacity,
    places: select.ReadPlaces,
    others: Sequence[rules.Bucket] = (),
    turns: select.Turns | None = None,
) -> list[select.Pick]:
    found: list[select.Pick] = []
    for bucket in buckets:
        found += select.select_jobs(count - len(found), [bucket], rooms, places, others, turns)
    return found


def uncounted(self: rules.Capacity, bucket: rules.Bucket, stage: Any = None, queue: Any = None) -> None:
    self.occupy_lanes(bucket.lanes, stage, queue)


def any_stage(self: StageSharing, lanes: object, stage: object) -> bool:
    return stage is not None


def count_each(rooms: object, lanes: object, stage: object, count: object) -> None:
    """The running jobs of a stage take as many places as they are."""


def three_of_the_front(self: queue_select.ClaimSource, tenant_id: int, most: int) -> list[Row]:
    return self.tx.run("front", tenant_id=tenant_id, limit=3)


MUTANTS: dict[str, tuple[object, str, object]] = {
    "what a claim takes is not counted": (rules.Capacity, "occupy_lanes", take_nothing),
    "who holds a target does not matter": (targets, "head", first_in_line),
    "the pause of a target does not matter": (targets, "head", unpaused),
    "nobody chooses the first of a target anew": (Tx, "touch", lambda self, target_id: None),
    "jobs keep the lanes of an older policy": (BucketCache, "stale", lambda self, tx, version, ids: []),
    "reservations are granted in any order": (rules, "grants", whoever_has_room),
    "reserved lanes stay open": (rules, "reserve", reserve_nothing),
    "reserved targets stay open": (rules, "shut_targets", lambda reserved, streaks: set()),
    "no job ever goes before a direct call": (reservations, "BURST", 10**6),
    "one kind of work after the other": (queue_select, "select_jobs", bucket_by_bucket),
    "the front of the queue is all there is": (queue_select.ClaimSource, "front", three_of_the_front),
    "nobody joins a full lane": (StageSharing, "accepts_members", lambda self, lanes, queue=0: False),
    "anybody's stage joins": (StageSharing, "may_join", any_stage),
    "members join past whoever waits": (StageSharing, "_close", lambda self, lanes: False),
    "each member takes a place": (rules, "_count_as_one", count_each),
    "age counts for nothing": (Aging, "effective", lambda self, priority, queued_at: priority),
    "workers take what other tenants have": (WorkerSlots, "_serves_tenant", lambda self, bucket: True),
    "nobody takes turns": (queue_select, "_turns", lambda source, ready: None),
    "who came first is always first": (select, "in_turn", lambda tenants, turns: sorted(tenants)),
    "turns are forgotten": (claims, "last_turns", lambda picks: {}),
    "what a tenant runs in one claim is not counted": (rules.Capacity, "occupy", uncounted),
    "who waits elsewhere never keeps members off": (StageSharing, "block", lambda self, lanes, queue=0: False),
}


@pytest.mark.usefixtures("short_burst")
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_caught(sqlite_life: Life, mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whose, name, other = MUTANTS[mutant]
    monkeypatch.setattr(whose, name, other)
    with pytest.raises(AssertionError, match="world"):
        live_through(sqlite_life, 400)
