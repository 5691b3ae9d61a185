"""A small system for tests of the checker: every step is a transaction of its own, made by the store's own functions,
and its history can be damaged behind Headway's back."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headway.clock import SECOND
from headway.model.groups.group import NewGroup, NewMember
from headway.model.jobs import actions
from headway.model.jobs.finish import FinishInputs, decide, end_claim
from headway.model.jobs.job import SYSTEM, Actor, Claim, JobRecord, NewJob, Options
from headway.model.jobs.outcome import Failed, FailureKind, Outcome, StoppedByRequest
from headway.model.jobs.retry import RetryPolicy, paid
from headway.model.jobs.states import State
from headway.model.queue.policies import Concurrency
from headway.store import workers
from headway.store.db import Tx, open_database
from headway.store.groups import advance as groups
from headway.store.groups import create as new_groups
from headway.store.jobs import changes as jobs
from headway.store.migrations import migrate
from headway.store.queue import claims, lanes, reservations, select, targets
from headway.store.queue.lanes import BucketCache
from headway.verify import Report, check
from tests.support import committed

ANN = Actor("user", "ann", "Ann")
WORKER = 0xABC
OBSERVER = 0xDEF
CALLER = 0xCA11
LANE = 1
TASKS = ("t", "u", "v")
TWICE = Options(retry=RetryPolicy(max_attempts=2)).text()


class Steps:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.at = 1_800_000_000 * SECOND

    def now(self) -> int:
        return self.at

    def monotonic(self) -> float:
        return self.at / SECOND


class World:
    """Each step comes ten seconds after the one before. The global lane is open, and a worker with four slots lives."""

    def __init__(self, url: str) -> None:
        self.clock = Steps()
        self.db = open_database(url, clock=self.clock)
        migrate(self.db)
        self.lanes = BucketCache(self.db)
        self.worker = actor_of(WORKER)
        self.register(WORKER, slots=4)
        self.limit(None)

    def run(self, work: Callable[[Tx], Any], *, after: float = 10.0) -> Any:
        self.clock.at += round(after * SECOND)
        return self.db.transact("step", work)

    def register(self, worker_id: int, *, slots: int = 1, tasks: Sequence[str] = TASKS, kind: str = "worker") -> None:
        who = workers.Identity(worker_id, "host", "boot", 1, 1)
        actor = actor_of(worker_id)
        self.run(lambda tx: workers.register(tx, who, actor, slots=slots, tasks=tasks, lease=60.0, kind=kind))

    def beat(self, worker_id: int, *, after: float = 10.0) -> None:
        self.run(lambda tx: workers.beat(tx, worker_id, 60.0), after=after)

    # --- limits ---

    def limit(self, capacity: int | None, lane: int = LANE) -> None:
        self.run(lambda tx: lanes.set_capacity(tx, lane, str(lane), capacity, ANN))

    def resource(self, name: str, capacity: int) -> int:
        """The lane of a new resource."""

        def work(tx: Tx) -> tuple[int, int | None]:
            return lanes.define(tx, tenant_id=0, kind="resource", name=name, capacity=capacity, actor=ANN)

        return int(self.run(work)[0])

    def rules(self, **wishes: Any) -> int:
        """Other concurrency settings. Returns how many jobs got other lanes."""

        def work(tx: Tx) -> int:
            stored, _ = lanes.read_concurrency(tx)
            lanes.save_concurrency(tx, replace(stored, **wishes), ANN)
            return lanes.relane_all(tx, BucketCache(self.db), ANN)

        moved: int = self.run(work)
        self.lanes.refresh()
        return moved

    def rules_of_now(self) -> Concurrency:
        with self.db.read() as tx:
            return lanes.read_concurrency(tx)[0]

    def pause_queue(self, tenant_id: int = 1, *, until: int | None = None) -> None:
        self._tenant(tenant_id, "pause_tenant", "tenant.paused", {"note": None, "until": until})

    def resume_queue(self, tenant_id: int = 1) -> None:
        self._tenant(tenant_id, "resume_tenant", "tenant.resumed", {})

    def _tenant(self, tenant_id: int, statement: str, kind: str, facts: dict[str, object]) -> None:
        def work(tx: Tx) -> None:
            ((version,),) = tx.run(statement, id=tenant_id, **facts)
            event = (tenant_id, "tenant", tenant_id, version, kind, None, ANN.text(), None, json.dumps(facts))
            tx.run("add_events", rows=json.dumps([event]))

        self.run(work)

    # --- jobs ---

    def enqueue(
        self,
        count: int = 1,
        *,
        task: str = "t",
        options: str = TWICE,
        target: str | None = None,
        resources: tuple[str, ...] = (),
        **wishes: Any,
    ) -> list[int]:
        bucket_id = self.lanes.of(1, task, resources, on_target=target is not None)
        target_id = None if target is None else self.target(target)
        new = [
            (NewJob(task, "{}", options, target=target, resources=resources, **wishes), bucket_id, target_id)
        ] * count
        answer = self.run(lambda tx: jobs.insert(tx, 1, ANN, new))
        return [job_id for job_id in answer if job_id is not None]

    def stage(
        self, count: int = 2, *, tasks: Sequence[str] = ("t",), options: str = TWICE, then: int = 0, **wishes: Any
    ) -> list[int]:
        """So many jobs of one stage, whose tasks alternate; `then` more are behind them in a second one."""
        jobs = [NewJob(tasks[n % len(tasks)], "{}", options, **wishes) for n in range(count + then)]
        members = tuple(NewMember(job, int(n >= count), f"step{n}") for n, job in enumerate(jobs))
        placed = new_groups.place(self.lanes, 1, NewGroup("group", "staged", "continue", members))
        number = self.run(lambda tx: new_groups.insert(tx, 1, placed, ANN))
        with self.db.read() as tx:
            found = tx.connection.execute(f"select id from hw_job where group_id = {number} order by id")  # type: ignore[attr-defined]
            return [job_id for (job_id,) in found.fetchall()]

    def target(self, name: str) -> int:
        return self.lanes.target(1, name)

    def claim(self, count: int = 1, *, worker_id: int = WORKER, tasks: Sequence[str] = TASKS) -> list[Claim]:
        """As a worker claims: lock, look, give reservations what is theirs, take."""

        def work(tx: Tx) -> list[Claim]:
            view, _ = claims.lock_and_look(tx, self.lanes, actor_of(worker_id))
            slots, who, knows = self.free(tx, worker_id)[:count], actor_of(worker_id), tasks.__contains__
            return committed.claim(tx, view, self.lanes, worker_id=worker_id, actor=who, knows=knows, slots=slots)

        found: list[Claim] = self.run(work)
        return found

    def free(self, tx: Tx, worker_id: int = WORKER) -> list[int]:
        taken = {claim.slot for claim in claims.own(tx, worker_id)}
        return [slot for slot in range(100) if slot not in taken]

    def take(self, *ids: int) -> list[Claim]:
        """Claims exactly these, whatever stands before them, or in their way. Targets are settled first."""

        def work(tx: Tx) -> list[Claim]:
            claims.lock_and_look(tx, self.lanes, self.worker)
            return committed.take(tx, WORKER, self.worker, ids, self.free(tx))

        taken: list[Claim] = self.run(work)
        assert len(taken) == len(ids)
        return taken

    def complete(self, *held: Claim, worker_id: int = WORKER) -> None:
        def work(tx: Tx) -> None:
            locked = groups.lock_all(tx, {claim.group_id for claim in held if claim.group_id is not None})
            claims.complete(
                tx, worker_id, actor_of(worker_id), {claim.job_id: claim.fence for claim in held}, {}
            ).result()
            for claim in held:
                tx.touch(claim.target_id)
            for group in locked.values():
                groups.advance(tx, group, actor_of(worker_id))

        self.run(work)

    def finish(self, job_id: int, outcome: Outcome) -> int | None:
        """Ends a running job as a worker does; returns its retry."""
        return self._end(job_id, lambda tx, job: decide(self.standing(tx, job), outcome, lambda: 0.0))

    def force_end(self, job_id: int, state: State, **facts: Any) -> int | None:
        """Ends a running job in this state, whatever would be right."""
        return self._end(job_id, lambda tx, job: end_claim(job, state, self.clock.now(), **facts))

    def _end(self, job_id: int, choose: Callable[[Tx, JobRecord], actions.Change]) -> int | None:
        """Ends a running job, and makes its retry in the same transaction."""

        def work(tx: Tx) -> int | None:
            group = groups.lock_of_job(tx, job_id)
            job = jobs.lock(tx, job_id)
            change = choose(tx, job)
            jobs.apply(tx, change, self.worker)
            again = change.retry is not None
            made = jobs.insert_retry(tx, job, self.worker, delay=change.retry or 0, auto=True) if again else None
            if group is not None:
                if change.job.status in (State.PAUSED, State.ERROR):
                    groups.hold(tx, job, self.worker)
                groups.advance(tx, group, self.worker)
            return made

        made: int | None = self.run(work)
        return made

    def fail(self, job_id: int, kind: FailureKind = FailureKind.EXCEPTION, **facts: Any) -> int:
        child = self.finish(job_id, Failed(kind, "boom", **facts))
        assert child is not None
        return child

    def standing(self, tx: Tx, job: JobRecord) -> FinishInputs:
        used = paid(jobs.chain_failures(tx, job.id)) if job.retry_auto else 0
        return FinishInputs(job, Options(retry=Options.parse(job.options).retry), self.clock.now(), used)

    def change(self, job_id: int, verb: Callable[..., actions.Change], **wishes: Any) -> None:
        def work(tx: Tx) -> None:
            group = groups.lock_of_job(tx, job_id)
            jobs.apply(tx, verb(jobs.lock(tx, job_id), **wishes), ANN)
            if group is not None:
                groups.advance(tx, group, ANN)

        self.run(work)

    def move(self, job_id: int, *, priority: int = 0, position: int) -> None:
        self.change(job_id, actions.move, priority=priority, position=position)

    def cancel(self, job_id: int) -> None:
        self.change(job_id, lambda job: actions.cancel(job, actor=ANN, now=self.clock.now()))

    def interrupt(self, job_id: int) -> None:
        self.change(job_id, lambda job: actions.interrupt(job, actor=ANN))

    def resume(self, job_id: int) -> None:
        self.change(job_id, lambda job: actions.resume(job, now=self.clock.now(), spent={}, budget=None))

    def release(self, job_id: int) -> None:
        self.change(job_id, lambda job: actions.release(job, by="Ann", now=self.clock.now()))

    def promote(self, after: float = 3600.0) -> None:
        self.run(lambda tx: claims.promote(tx, SYSTEM), after=after)

    def paused(self, **wishes: Any) -> int:
        """A job that was interrupted."""
        (job_id,) = self.enqueue(**wishes)
        self.take(job_id)
        self.interrupt(job_id)
        self.finish(job_id, StoppedByRequest())
        return job_id

    def chain(self) -> list[int]:
        """A job that failed for good: three runs, each the retry of the one before."""
        ids = self.enqueue()
        for _ in range(2):
            self.take(ids[-1])
            ids.append(self.fail(ids[-1]))
            self.promote()
        self.take(ids[-1])
        self.finish(ids[-1], Failed(FailureKind.EXCEPTION, "boom"))
        return ids

    # --- targets and reservations ---

    def pause_target(self, name: str) -> None:
        self.run(lambda tx: targets.pause(tx, 1, name, None, ANN))

    def resume_target(self, name: str) -> None:
        self.run(lambda tx: targets.resume(tx, 1, name, ANN))

    def reserve(
        self,
        *on: int,
        target: str | None = None,
        task: str | None = None,
        worker_id: int | None = None,
        ttl: float = 86_400.0,
    ) -> int:
        """A place in the line for these lanes, or those of a task; granted when `settle`, or a claim, comes to it."""
        target_id = None if target is None else self.target(target)

        def work(tx: Tx) -> int:
            tx.run("claim_lock")
            needed = self.lanes.needed(tx, 1, task, (), on_target=target_id is not None) if task else on
            return reservations.add(
                tx,
                1,
                lanes=needed,
                target_id=target_id,
                holder="ann",
                actor=ANN,
                task=task,
                worker_id=worker_id,
                ttl=None if worker_id else round(ttl * SECOND),
            )

        return int(self.run(work))

    def settle(self) -> list[int]:
        """Grants what can be granted. Returns what is granted now."""

        def work(tx: Tx) -> list[int]:
            view, _ = claims.lock_and_look(tx, self.lanes, ANN)
            found = select.settle_reservations(tx, view, self.lanes)
            return [one.id for one in found if one.granted_at is not None]

        granted: list[int] = self.run(work)
        return granted

    def reserved(self, *on: int, target: str | None = None) -> int:
        """A reservation that is granted."""
        number = self.reserve(*on, target=target)
        assert number in self.settle()
        return number

    def grant(self, number: int) -> None:
        """Grants a reservation whatever is in its way."""

        def work(tx: Tx) -> None:
            ((tenant_id, version),) = tx.run("grant_reservation", id=number)
            event = (tenant_id, "reservation", number, version, "reservation.granted", None, SYSTEM.text(), None, None)
            tx.run("add_events", rows=json.dumps([event]))

        self.run(work)

    def give_back(self, number: int) -> None:
        self.run(lambda tx: reservations.end(tx, number, status="RELEASED", actor=ANN))

    # --- damage ---

    def tamper(self, *statements: str, without: tuple[str, ...] = ()) -> None:
        """Changes the database behind Headway's back; the named triggers are out of force meanwhile."""
        with self.db.transaction("tamper") as tx:
            connection: Any = tx.connection  # type: ignore[attr-defined]
            made = [self._drop(connection, trigger) for trigger in without]
            for statement in statements:
                connection.execute(statement)
            for statement in made:
                connection.execute(statement)

    def _drop(self, connection: Any, trigger: str) -> str:
        """Takes a trigger out of force and says how it is put back."""
        if self.db.dialect == "sqlite":
            ((text,),) = connection.execute(f"select sql from sqlite_schema where name = '{trigger}'").fetchall()
            connection.execute(f"drop trigger {trigger}")
            return str(text)
        table = "_".join(trigger.split("_")[:2])
        connection.execute(f"alter table {table} disable trigger {trigger}")
        return f"alter table {table} enable trigger {trigger}"

    def event(self, job_id: int, kind: str, status: State, *, actor: Actor = ANN, fence: int | None = None) -> None:
        """One more event of a job, out of thin air."""

        def work(tx: Tx) -> None:
            ((tenant_id, version, _),) = tx.run("bump_version", id=job_id)
            tx.run(
                "add_events",
                rows=json.dumps([(tenant_id, "job", job_id, version, kind, status, actor.text(), fence, None)]),
            )

        self.run(work)

    def check(self, **how: Any) -> Report:
        return check(self.db, **how)


def actor_of(worker_id: int) -> Actor:
    return Actor("worker", workers.worker_name(worker_id), "host:1")


def broken(report: Report) -> set[str]:
    return {finding.invariant for finding in report.findings}


# --- sabotage -----------------------------------------------------------------------------------------------------

EVENTS = ("hw_event_frozen",)
RUNS = ("hw_run_frozen", "hw_run_once")


@dataclass(frozen=True)
class Sabotage:
    invariant: str
    says: str
    work: Callable[[World], None]
    quiet: bool = False

    def __str__(self) -> str:
        return f"{self.invariant}-{self.work.__name__}"

    def is_found(self, world: World) -> None:
        """The checker names this promise, no other, and says what is wrong."""
        self.work(world)
        report = world.check(quiet=self.quiet)
        assert broken(report) == {self.invariant}, report.findings
        assert any(self.says in finding.text for finding in report.findings), report.findings


class Sabotages(list[Sabotage]):
    """Ways to break promises, and what the checker says about each."""

    def __call__(self, invariant: str, says: str, *, quiet: bool = False) -> Callable[[Callable[[World], None]], None]:
        def register(work: Callable[[World], None]) -> None:
            self.append(Sabotage(invariant, says, work, quiet))

        return register
