"""What people and programs do to jobs: each verb one transaction. Python, command line and HTTP all come here."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headway.clock import micros
from headway.engine import reserving, tracing
from headway.engine.groups import Groups
from headway.engine.registry import Registry, unknown_text
from headway.errors import BadInput, CommitUnknown, NotFound, WrongState
from headway.model import verbs
from headway.model.job import Actor, Job, NewJob, Options, Reservation
from headway.model.retry import RetryPolicy
from headway.model.states import State, Verb
from headway.model.values import (
    check_budget,
    check_note,
    check_priority,
    check_resources,
    duration_text,
    seconds,
    to_json,
)
from headway.model.verbs import Change
from headway.store import groups, jobs, places, reading, targets
from headway.store.answers import Keyed
from headway.store.db import Database, Row, Tx
from headway.store.lanes import Lanes, find_target
from headway.store.tenants import Statement, admitting

if TYPE_CHECKING:
    from headway.engine.schedules import Schedules
    from headway.engine.sessions import Sessions
    from headway.engine.templates import Templates
    from headway.engine.tenants import Tenants
    from headway.engine.tokens import Tokens
    from headway.engine.webhooks import Webhooks

INTERRUPTED = "the thread that stored this job with others was interrupted: whether it was stored is not known"
LONGEST_TTL = 600.0
KNOWN_FOR = 30 * 86400.0
REFRESH_SECONDS = 5.0


class _Wish:
    """One caller's job on its way into a shared transaction. Its caller sleeps at the gate."""

    __slots__ = ("answer", "error", "gate", "job", "leads")

    def __init__(self, job: NewJob) -> None:
        self.job = job
        self.answer: tuple[int, bool] | None = None
        self.error: BaseException | None = None
        self.leads = False
        self.gate = threading.Lock()
        self.gate.acquire()


class Client:
    """The verbs, for one tenant and one actor."""

    def __init__(
        self,
        database: Database,
        registry: Registry,
        *,
        actor: Actor,
        tenant: str = "default",
        retry: RetryPolicy | None = None,
        resources: Mapping[str, int] | None = None,
        reservation_ttl: float = 600.0,
    ) -> None:
        self.database = database
        self.longest_ttl = reservation_ttl
        self.usual_retry = retry or RetryPolicy()
        self.registry = registry
        self.actor = actor
        self.actor_text = actor.text()
        self.tenant = tenant
        self.lanes = Lanes(database, resources=resources)
        self.groups = Groups(self)
        self._tenant_id: int | None = None
        self._known: tuple[float, dict[str, tuple[int, str]]] = (0.0, {})
        self._counted_until = 0.0
        self._wishes: list[_Wish] = []
        self._collecting = threading.Lock()
        self._led = False

    def sibling(self, actor: Actor, tenant: str) -> Client:
        """The same verbs for somebody else."""
        return Client(
            self.database.beyond(),
            self.registry,
            actor=actor,
            tenant=tenant,
            retry=self.usual_retry,
            resources=self.lanes.defined,
            reservation_ttl=self.longest_ttl,
        )

    def keyed(self, route: str, key: str, digest: str, *, several: bool = False) -> Client:
        """The same verbs for one request with an idempotency key: the first transaction that commits is its own, and
        what that makes is stored with the key. With `several` transactions the key is taken before the first of them.
        Raises `Replayed` if the request was answered before."""
        from headway.engine import answers

        other = self.sibling(self.actor, self.tenant)
        other.database = answers.keyed(self.database, self.tenant_id, route, key, digest, several=several)
        # Buckets and targets come into being in transactions of their own, before the one that makes the thing.
        other.lanes, other._tenant_id, other._known = self.lanes, self._tenant_id, self._known
        return other

    @property
    def replayed(self) -> bool:
        """Whether what was asked for had been made by an earlier request with the same idempotency key."""
        return isinstance(self.database, Keyed) and self.database.replayed

    def recall(self) -> Any:
        """The number that an earlier request with the same key made, when its answer is not known: nobody judges it
        again by what has changed since. None: nothing was made."""
        return self.database.recall() if isinstance(self.database, Keyed) else None

    @cached_property
    def schedules(self) -> Schedules:
        from headway.engine.schedules import Schedules  # it makes jobs of tasks, which are enqueued through a client

        return Schedules(self)

    @cached_property
    def sessions(self) -> Sessions:
        from headway.engine.sessions import Sessions

        return Sessions(self)

    @cached_property
    def templates(self) -> Templates:
        from headway.engine.templates import Templates

        return Templates(self)

    @cached_property
    def tenants(self) -> Tenants:
        from headway.engine.tenants import Tenants

        return Tenants(self)

    @cached_property
    def tokens(self) -> Tokens:
        from headway.engine.tokens import Tokens

        return Tokens(self)

    @cached_property
    def webhooks(self) -> Webhooks:
        from headway.engine.webhooks import Webhooks

        return Webhooks(self)

    @property
    def tenant_id(self) -> int:
        if self._tenant_id is None:
            with self.database.read() as tx:
                found = tx.run("tenant_by_name", name=self.tenant)
            if not found:
                raise NotFound(f"there is no tenant {self.tenant!r}")
            self._tenant_id = int(found[0][0])
        return self._tenant_id

    # --- creating ---

    def known_task(self, name: str) -> tuple[int, str]:
        """The priority and options of a task, as the last worker that had it said.

        A task that neither this process nor any recent worker knows would wait for ever: refused.
        """
        if name in self.registry.specs:
            return self.registry.told(name)
        at, known = self._known
        if name not in known or time.monotonic() - at > REFRESH_SECONDS:
            with self.database.read() as tx:
                found = tx.run("known_tasks", within=micros(KNOWN_FOR))
            known = {task: (priority, options) for task, priority, options in found}
            self._known = (time.monotonic(), known)
        if name not in known:
            raise BadInput(
                unknown_text(name, sorted({*known, *self.registry.specs})), code="unknown_task", field="task"
            )
        return known[name]

    def enqueue(self, job: NewJob) -> tuple[int, bool]:
        """Stores one job durably. Returns its id, and whether it is new (False: its key was taken by that job)."""
        with tracing.enqueueing(job.task) as stamp:
            return self._enqueue(stamp(job))

    def _enqueue(self, job: NewJob) -> tuple[int, bool]:
        if not self.database.one_writer:
            return self._enqueue_many([job])[0]
        # Callers at the same time share one commit: the first one leads, the others' jobs go with the next.
        wish = _Wish(job)
        with self._collecting:
            self._wishes.append(wish)
            leads, self._led = not self._led, True
        if not leads:
            try:
                wish.gate.acquire()
            except BaseException:  # Ctrl-C: nobody may wait for a leader that is gone
                self._withdraw(wish)
                raise
        if wish.answer is None and wish.error is None:
            self._lead()
        if wish.error is not None:
            raise wish.error
        assert wish.answer is not None
        return wish.answer

    def _lead(self) -> None:
        """Stores everybody's jobs, then hands the lead to somebody who came meanwhile."""
        with self._collecting:
            batch, self._wishes = self._wishes, []
        try:
            answers = self._enqueue_many([wish.job for wish in batch])
            for wish, answer in zip(batch, answers, strict=True):
                wish.answer = answer
        except BaseException as error:
            for wish in batch:
                wish.error = error if isinstance(error, Exception) else CommitUnknown(INTERRUPTED)
            raise
        finally:
            with self._collecting:
                successor = self._choose_leader()
            for wish in successor + batch:
                wish.gate.release()

    def _choose_leader(self) -> list[_Wish]:
        successor = self._wishes[:1]
        self._led = bool(successor)
        for wish in successor:
            wish.leads = True
        return successor

    def _withdraw(self, wish: _Wish) -> None:
        with self._collecting:
            if wish not in self._wishes:
                return  # it is being stored already
            self._wishes.remove(wish)
            successor = self._choose_leader() if wish.leads else []
        for other in successor:
            other.gate.release()

    def enqueue_many(self, new: Sequence[NewJob]) -> list[tuple[int, bool]]:
        """Stores all of them in one transaction, or none."""
        if not new:
            return []
        with tracing.enqueueing(new[0].task, len(new)) as stamp:
            return self._enqueue_many([stamp(job) for job in new])

    def _enqueue_many(self, new: Sequence[NewJob]) -> list[tuple[int, bool]]:
        if len(new) == 1 and new[0].key is None:
            return self._enqueue_alike(new[0], [new[0].params])
        tenant_id = self.tenant_id
        made = [self._placed(job) for job in new]
        answers = self.database.transact("enqueue_many", lambda tx: self._insert(tx, tenant_id, made))
        self.database.announce()
        return answers

    def _placed(self, job: NewJob) -> jobs.Made:
        """A job with its bucket and its target."""
        tenant_id = self.tenant_id
        self.lanes.hook(job.options)
        bucket_id = self.lanes.of(tenant_id, job.task, job.resources, on_target=job.target is not None)
        return job, bucket_id, None if job.target is None else self.lanes.target(tenant_id, job.target)

    def enqueue_alike(self, job: NewJob, params: Sequence[str]) -> list[tuple[int, bool]]:
        """Stores jobs that differ in their params alone: one statement, one commit."""
        with tracing.enqueueing(job.task, len(params)) as stamp:
            return self._enqueue_alike(stamp(job), params)

    def _enqueue_alike(self, job: NewJob, params: Sequence[str]) -> list[tuple[int, bool]]:
        _, _, target_id = placed = self._placed(job)
        wishes = self._parameters(placed, params)
        alone = target_id is None and not isinstance(self.database, Keyed)
        made = self.database.once("enqueue", **wishes) if alone and time.monotonic() > self._counted_until else []
        if not made:
            made = self.database.transact("enqueue_many", lambda tx: self._touching(tx, target_id, wishes))
        self.database.announce()
        return [(job_id, True) for (job_id,) in sorted(made)]

    def _touching(self, tx: Tx, target_id: int | None, wishes: Mapping[str, object]) -> list[Row]:
        tx.touch(target_id)
        return tx.run("enqueue", **wishes) or self._admitted(tx.run, wishes)

    def _admitted(self, run: Statement, wishes: Mapping[str, object]) -> list[Row]:
        """For a tenant that is inactive: refused. For one whose jobs are counted: with the count."""
        self._counted_until = time.monotonic() + REFRESH_SECONDS  # one that is counted is not asked in vain each time
        with admitting(run, self.tenant_id):
            return run("enqueue", **{**wishes, "admitted": 1})

    def _parameters(self, placed: jobs.Made, params: Sequence[str]) -> dict[str, object]:
        job, bucket_id, target_id = placed
        bodies = params if target_id is None else [jobs.body(text, target_id) for text in params]
        common = jobs.shared(job, bucket_id)
        return {**common, "params": json.dumps(bodies), "tenant_id": self.tenant_id, "actor": self.actor_text}

    def _insert(self, tx: Tx, tenant_id: int, made: Sequence[jobs.Made]) -> list[tuple[int, bool]]:
        ids = jobs.insert(tx, tenant_id, self.actor, made)
        found = [self._or_holder(tx, one, job_id) for one, job_id in zip(made, ids, strict=True)]
        while left := [n for n, one in enumerate(found) if one is None]:
            with admitting(tx.run, tenant_id):
                ids = jobs.insert(tx, tenant_id, self.actor, [made[n] for n in left], admitted=True)
            for n, job_id in zip(left, ids, strict=True):
                found[n] = self._or_holder(tx, made[n], job_id)
        return [one for one in found if one is not None]

    def _or_holder(self, tx: Tx, made: jobs.Made, job_id: int | None) -> tuple[int, bool] | None:
        """The new job, or who has the key. None: the tenant gets none as it is, or who had the key ended just now."""
        job, _, _ = made
        if job_id is None and job.key is not None:
            holder = jobs.with_key(tx, self.tenant_id, job.task, job.key)
            return None if holder is None else (holder.id, False)
        return None if job_id is None else (job_id, True)

    def enqueue_on(self, connection: Any, job: NewJob, params: Sequence[str]) -> list[int]:
        """Stores jobs in the caller's own PostgreSQL transaction: they exist if and when it commits."""
        if job.key is not None:
            raise BadInput("a key cannot be used together with connection=: enqueue without one of them", field="key")
        with tracing.enqueueing(job.task, len(params)) as stamp:
            return self._enqueue_on(connection, stamp(job), params)

    def _enqueue_on(self, connection: Any, job: NewJob, params: Sequence[str]) -> list[int]:
        _, _, target_id = placed = self._placed(job)
        wishes = self._parameters(placed, params)

        def run(name: str, /, **given: object) -> list[Row]:
            return self.database.run_on(connection, name, given)

        made = run("enqueue", **wishes) or self._admitted(run, wishes)
        if target_id is not None:
            self.database.run_on(connection, "touch", {"ids": json.dumps([target_id])})
        self.database.run_on(connection, "notify", {})
        return sorted(job_id for (job_id,) in made)

    # --- verbs ---

    def _change(self, label: str, job_id: int, change: Callable[[Tx, Job, int], Change], *, alone: bool = False) -> Job:
        def work(tx: Tx) -> Job:
            if alone:  # what is decided by looking at many jobs is decided by one at a time
                tx.run("pin_plans")
                tx.run("lock_tenant", id=self.tenant_id)
            group = groups.lock_of_job(tx, job_id)
            job = jobs.lock(tx, job_id, self.tenant_id)
            changed = change(tx, job, self._now(tx))
            jobs.apply(tx, changed, self.actor)
            if group is not None:
                groups.hold_up(tx, group, job, changed.job, self.actor)
                groups.advance(tx, group, self.actor)
            tx.wake()
            return jobs.find(tx, job_id, self.tenant_id)

        return self.database.transact(label, work)

    @staticmethod
    def _now(tx: Tx) -> int:
        ((now,),) = tx.run("time")
        return int(now)

    def cancel(self, job_id: int) -> Job:
        return self._change("cancel", job_id, lambda _, job, now: verbs.cancel(job, actor=self.actor, now=now))

    def interrupt(self, job_id: int) -> Job:
        return self._change("interrupt", job_id, lambda _, job, __: verbs.interrupt(job, actor=self.actor))

    def resume(self, job_id: int, budget: Mapping[str, float] | None = None) -> Job:
        caps = None if budget is None else dict(check_budget(budget))
        return self._change(
            "resume",
            job_id,
            lambda tx, job, now: verbs.resume(
                job, now=now, spent=jobs.spent(tx, job.id), budget=caps, stage_open=groups.is_open(tx, job)
            ),
        )

    def resolve(self, job_id: int, result: object = None) -> Job:
        text = to_json(result, field="result")
        by = self.actor.shown
        return self._change("resolve", job_id, lambda _, job, now: verbs.resolve(job, result=text, by=by, now=now))

    def release(self, job_id: int) -> Job:
        return self._change("release", job_id, lambda _, job, now: verbs.release(job, by=self.actor.shown, now=now))

    def edit(
        self,
        job_id: int,
        *,
        params: Mapping[str, object] | None = None,
        priority: int | None = None,
        not_before: int | verbs.Cleared | None = None,
        expires_at: int | verbs.Cleared | None = None,
        if_version: int | None = None,
    ) -> Job:
        text = None if params is None else to_json(dict(params), field="params")
        if priority is not None:
            check_priority(priority)

        def change(tx: Tx, job: Job, now: int) -> Change:
            _expect(job, if_version)
            if text is not None and job.task in self.registry.specs:
                self.registry.get(job.task).signature.check(json.loads(text))
            position = _new_place(tx, job, priority) if job.status.claimable_later else None
            params, unfilled = (None, None) if text is None else groups.fill_for(tx, job, text)
            return verbs.edit(
                job,
                params=params,
                unfilled=unfilled,
                priority=priority,
                position=position,
                not_before=not_before,
                expires_at=expires_at,
                now=now,
            )

        return self._change("edit", job_id, change)

    def move(
        self,
        job_id: int,
        *,
        to: str | None = None,
        before: int | None = None,
        after: int | None = None,
        rank: int | None = None,
        if_version: int | None = None,
    ) -> Job:
        if sum(wish is not None for wish in (to, before, after, rank)) != 1:
            raise BadInput("say exactly one of to, before, after and rank", field="to")

        def change(tx: Tx, job: Job, _now: int) -> Change:
            _expect(job, if_version)
            if job.status not in (State.WAITING, State.SCHEDULED, State.QUEUED):
                raise verbs.refuse(job, Verb.MOVE)
            priority, position = self._place(tx, job, to, before, after, rank)
            return verbs.move(jobs.lock(tx, job.id), priority=priority, position=position)

        return self._change("move", job_id, change, alone=True)

    def reorder(self, ids: Sequence[int]) -> list[int]:
        """These jobs take, in this order, the places they hold together. Those that moved."""
        from headway.engine.reordering import reorder

        return reorder(self, ids)

    def _place(
        self, tx: Tx, job: Job, to: str | None, before: int | None, after: int | None, rank: int | None
    ) -> tuple[int, int]:
        match to:
            case "top":
                return job.priority, places.top(tx, job, job.priority)
            case "bottom":
                return job.priority, places.bottom(tx)
            case "front":
                return places.front(tx, job)
            case str():
                raise BadInput(f"to must be top, bottom or front, not {to!r}", field="to")
        ahead = after is None
        if rank is not None:
            found, ahead = places.at_rank(tx, job, rank)
            if found is None:
                return job.priority, job.position
            other = found
        else:
            other = jobs.lock(tx, before or after or 0, self.tenant_id)
        if other.id == job.id:
            raise BadInput("a job cannot be moved beside itself", field="before" if before else "after")
        if not other.status.claimable_later:
            raise verbs.refuse(other, Verb.MOVE)
        return other.priority, places.beside(tx, job, other, self.actor, before=ahead)

    def retry(
        self,
        job_id: int,
        *,
        params: Mapping[str, object] | None = None,
        priority: int | None = None,
        budget: Mapping[str, float] | None = None,
        again: bool = True,
    ) -> Job:
        """A new job for a failed one. An automatic retry that waits is brought forward instead. Without `again`, a job
        that has been tried again already is refused."""
        text = None if params is None else to_json(dict(params), field="params")
        if priority is not None:
            check_priority(priority)

        def work(tx: Tx) -> int:
            group = groups.lock_of_job(tx, job_id)
            job = jobs.lock(tx, job_id, self.tenant_id)
            if text is not None and job.task in self.registry.specs:
                self.registry.get(job.task).signature.check(json.loads(text))
            options = _with_budget(job, budget)
            given, unfilled = (None, None) if text is None else groups.fill_for(tx, job, text, at_once=True)
            waiting = self._waiting_retry(tx, job)
            if not again and waiting is None and reading.retried(tx, [job.id]):
                raise WrongState(f"job {job.id} was tried again already", code="retried", status=job.status.name)
            if group is not None and waiting is None:
                job = jobs.lock(tx, groups.last_of_step(tx, job))  # the chain goes on from its last job
            tx.wake()
            if waiting is not None:
                position = _new_place(tx, waiting, priority)
                forward = verbs.bring_forward(
                    waiting,
                    now=self._now(tx),
                    params=given,
                    unfilled=unfilled,
                    priority=priority,
                    position=position,
                    options=options,
                )
                jobs.apply(tx, forward, self.actor)
                if forward.job.params != waiting.params:
                    tx.run("forget_checkpoint", job_id=waiting.id)
                return waiting.id
            self._close_for_retry(tx, job)
            position = _new_place(tx, job, priority)
            return jobs.insert_retry(
                tx,
                job,
                self.actor,
                delay=0.0,
                auto=False,
                params=given,
                unfilled=unfilled,
                options=options,
                priority=priority,
                position=position,
                in_group=group is not None and groups.is_open(tx, job),
            )

        new_id = self.database.transact("retry", work)
        return self.get(new_id)

    def _waiting_retry(self, tx: Tx, job: Job) -> Job | None:
        """The last automatic retry of a job, if it waits; while one is under way, retrying is refused."""
        last: Job | None = None
        follower = jobs.automatic_retry(tx, job.id)
        while follower is not None:
            last = follower
            follower = jobs.automatic_retry(tx, last.id)
        if job.group_id is not None and (number := groups.last_of_step(tx, job)) != job.id:
            last = jobs.find(tx, number, job.tenant_id)  # also one that a person made
        if last is not None:
            last = jobs.lock(tx, last.id)  # it may have been claimed, or have ended, since we looked
        if last is None or last.status.terminal:
            return None
        if last.status.claimable_later:
            return last
        text = f"job {job.id} is already being retried: job {last.id} is {last.status.name}"
        raise WrongState(text, status=last.status.name, job_id=last.id)

    def _close_for_retry(self, tx: Tx, job: Job) -> None:
        if job.status in (State.PAUSED, State.ERROR):
            jobs.apply(tx, verbs.close_for_retry(job, by=self.actor.shown, now=self._now(tx)), self.actor)
        else:
            run = jobs.run_of(tx, job.id)
            if not job.status.terminal or run is None or run.status is not State.FAILED:
                raise verbs.refuse(job, Verb.RETRY)
        if job.key is not None:
            holder = jobs.with_key(tx, job.tenant_id, job.task, job.key)
            if holder is not None:
                raise WrongState(f"the key {job.key!r} is taken by job {holder.id}", status=holder.status.name)

    # --- looking ---

    def get(self, job_id: int) -> Job:
        with self.database.read() as tx:
            return jobs.find(tx, job_id, self.tenant_id)

    # --- the queue as a whole ---

    def pause_queue(self, *, note: str | None = None, until: int | None = None, everybody: bool = False) -> None:
        """Nothing more starts, for this tenant or for all; what runs goes on."""
        facts: dict[str, object] = {"note": check_note(note), "until": until}
        self._tenant_event(0 if everybody else self.tenant_id, "pause_tenant", "tenant.paused", facts)

    def resume_queue(self, *, everybody: bool = False) -> None:
        self._tenant_event(0 if everybody else self.tenant_id, "resume_tenant", "tenant.resumed", {})

    def _tenant_event(self, tenant_id: int, statement: str, kind: str, facts: dict[str, object]) -> None:
        def work(tx: Tx) -> None:
            tx.run("lock_tenant", id=tenant_id)
            tx.run("claim_lock")  # so that every claim was made either before a pause or after it
            ((version,),) = tx.run(statement, id=tenant_id, **facts)
            data = json.dumps({name: fact for name, fact in facts.items() if fact is not None})
            event = (tenant_id, "tenant", tenant_id, version, kind, None, self.actor.text(), None, data)
            tx.run("add_events", rows=json.dumps([event]))
            tx.wake()

        database = self.database if tenant_id else self.database.beyond()
        database.transact(kind.replace(".", "_"), work)

    # --- targets ---

    def pause_target(self, name: str, *, note: str | None = None) -> None:
        """Nothing more starts on this target; what runs there goes on."""
        self.database.transact(
            "target_paused", lambda tx: targets.pause(tx, self.tenant_id, name, check_note(note), self.actor)
        )

    def resume_target(self, name: str) -> None:
        self.database.transact("target_resumed", lambda tx: targets.resume(tx, self.tenant_id, name, self.actor))

    def release_target(self, name: str) -> Job:
        """Releases the job that holds a target: it ends FAILED, and the target is open."""
        with self.database.read() as tx:
            target_id = find_target(tx, self.tenant_id, name)[0]
            ((_, _, holder, status, _, _),) = tx.run("target_queues", ids=json.dumps([target_id]))
        if holder is None:
            raise WrongState(f"no job holds the target {name!r}: there is nothing to release", status="free")
        if status not in (State.PAUSED, State.ERROR):
            word, verbs_left = State(status).name, "cancel" if status == State.QUEUED else "interrupt or cancel"
            raise WrongState(f"job {holder} on {name!r} is {word}: {verbs_left} it instead", status=word)
        return self.release(holder)

    # --- reservations of programs outside ---

    def reserve(
        self, *, resources: Sequence[str] = (), target: str | None = None, ttl: float | str | None = None
    ) -> Reservation:
        """The next slot of these. It is there from `granted_at` on, and for `ttl` after the last renewal."""
        names, micros_to_live = check_resources(resources), self._ttl(ttl)
        if not names and target is None:
            raise BadInput("name a resource or a target to reserve", field="resources")
        tenant_id, lanes = self.tenant_id, Lanes(self.database, resources=self.lanes.defined)

        def work(tx: Tx) -> Reservation:
            target_id = None if target is None else int(find_target(tx, tenant_id, target)[0])
            wish = reserving.Wish(tenant_id, self.actor.shown, names, target_id)
            number, _ = reserving.reserve(tx, lanes, wish, self.actor, ttl=micros_to_live)
            return reserving.find(tx, tenant_id, number)

        return self.database.beyond().transact("reserve", work)

    def _ttl(self, wish: float | str | None) -> int:
        most = min(self.longest_ttl, LONGEST_TTL)
        ttl = most if wish is None else seconds(wish, field="ttl")
        if not 0 < ttl <= most:
            longest = duration_text(most)
            raise BadInput(f"ttl must be more than 0 and at most {longest}: renew it while you need it", field="ttl")
        return micros(ttl)

    def renew_reservation(self, number: int) -> Reservation:
        """Another ttl from now on; also the way to see whether it was granted."""
        tenant_id, lanes = self.tenant_id, Lanes(self.database)
        found = self.database.beyond().transact(
            "renew_reservation", lambda tx: reserving.renew(tx, lanes, tenant_id, number)
        )
        if found.finished_at is not None:
            raise WrongState(f"reservation {number} is {found.status}: make a new one", status=found.status)
        if found.ttl is None:
            raise WrongState(f"reservation {number} is renewed by {found.holder} itself", status=found.status)
        return found

    def release_reservation(self, number: int) -> Reservation:
        tenant_id, lanes = self.tenant_id, Lanes(self.database)
        ended = self.database.beyond().transact(
            "release_reservation", lambda tx: reserving.give_back(tx, lanes, tenant_id, number, self.actor)
        )
        found = self.reservation(number)
        if not ended:
            raise WrongState(f"reservation {number} is {found.status} already", status=found.status)
        return found

    def reservation(self, number: int) -> Reservation:
        with self.database.read() as tx:
            return reserving.find(tx, self.tenant_id, number)


def _expect(job: Job, version: int | None) -> None:
    if version is not None and version != job.version:
        raise WrongState(
            f"job {job.id} has changed since it was read (version {job.version}, not {version})",
            code="version_mismatch",
            status=job.status.name,
        )


def _new_place(tx: Tx, job: Job, priority: int | None) -> int | None:
    """A job whose priority changes goes to the end of the new one."""
    return places.bottom(tx) if priority is not None and priority != job.priority else None


def _with_budget(job: Job, budget: Mapping[str, float] | None) -> str | None:
    if budget is None:
        return None
    return replace(Options.parse(job.options), budget=check_budget(budget)).text()
