"""What people and programs do to jobs: each verb one transaction. Python, command line and HTTP all come here.

The verbs that need more than a few lines have rooms of their own: enqueuing, editing, retrying, pausing, outside.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headway.clock import micros
from headway.engine import editing, outside, pausing, reserving, retrying
from headway.engine.enqueuing import Intake
from headway.engine.groups import Groups
from headway.engine.registry import Registry, unknown_text
from headway.errors import BadInput, NotFound
from headway.model import verbs
from headway.model.job import Actor, Job, NewJob, Reservation
from headway.model.retry import RetryPolicy
from headway.model.values import check_budget, to_json
from headway.model.verbs import Change
from headway.store import groups, jobs
from headway.store.answers import Keyed
from headway.store.db import Database, Tx
from headway.store.lanes import Lanes

if TYPE_CHECKING:
    from headway.engine.schedules import Schedules
    from headway.engine.sessions import Sessions
    from headway.engine.templates import Templates
    from headway.engine.tenants import Tenants
    from headway.engine.tokens import Tokens
    from headway.engine.webhooks import Webhooks

KNOWN_FOR = 30 * 86400.0
REFRESH_SECONDS = 5.0


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
        allow_private: bool | None = None,
    ) -> None:
        self.database = database
        self.allow_private = allow_private  # where webhooks may go, if the settings are known
        self.longest_ttl = reservation_ttl
        self.usual_retry = retry or RetryPolicy()
        self.registry = registry
        self.actor = actor
        self.actor_text = actor.text()
        self.tenant = tenant
        self.lanes = Lanes(database, resources=resources)
        self.groups = Groups(self)
        self.intake = Intake(self)
        self._tenant_id: int | None = None
        self._known: tuple[float, dict[str, tuple[int, str]]] = (0.0, {})

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
            allow_private=self.allow_private,
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
        return self.intake.enqueue(job)

    def enqueue_many(self, new: Sequence[NewJob]) -> list[tuple[int, bool]]:
        """Stores all of them in one transaction, or none."""
        return self.intake.many(new)

    def enqueue_alike(self, job: NewJob, params: Sequence[str]) -> list[tuple[int, bool]]:
        """Stores jobs that differ in their params alone: one statement, one commit."""
        return self.intake.alike(job, params)

    def enqueue_on(self, connection: Any, job: NewJob, params: Sequence[str]) -> list[int]:
        """Stores jobs in the caller's own PostgreSQL transaction: they exist if and when it commits."""
        return self.intake.on(connection, job, params)

    # --- verbs ---

    def change_job(
        self, label: str, job_id: int, change: Callable[[Tx, Job, int], Change], *, alone: bool = False
    ) -> Job:
        def work(tx: Tx) -> Job:
            if alone:  # what is decided by looking at many jobs is decided by one at a time
                tx.run("pin_plans")
                tx.run("lock_tenant", id=self.tenant_id)
            group = groups.lock_of_job(tx, job_id)
            job = jobs.lock(tx, job_id, self.tenant_id)
            changed = change(tx, job, self.time_in(tx))
            jobs.apply(tx, changed, self.actor)
            if group is not None:
                groups.hold_up(tx, group, job, changed.job, self.actor)
                groups.advance(tx, group, self.actor)
            tx.wake()
            return jobs.find(tx, job_id, self.tenant_id)

        return self.database.transact(label, work)

    @staticmethod
    def time_in(tx: Tx) -> int:
        ((now,),) = tx.run("time")
        return int(now)

    def cancel(self, job_id: int) -> Job:
        return self.change_job("cancel", job_id, lambda _, job, now: verbs.cancel(job, actor=self.actor, now=now))

    def interrupt(self, job_id: int) -> Job:
        return self.change_job("interrupt", job_id, lambda _, job, __: verbs.interrupt(job, actor=self.actor))

    def resume(self, job_id: int, budget: Mapping[str, float] | None = None) -> Job:
        caps = None if budget is None else dict(check_budget(budget))
        return self.change_job(
            "resume",
            job_id,
            lambda tx, job, now: verbs.resume(
                job, now=now, spent=jobs.spent(tx, job.id), budget=caps, stage_open=groups.is_open(tx, job)
            ),
        )

    def resolve(self, job_id: int, result: object = None) -> Job:
        text = to_json(result, field="result")
        by = self.actor.shown
        return self.change_job("resolve", job_id, lambda _, job, now: verbs.resolve(job, result=text, by=by, now=now))

    def release(self, job_id: int) -> Job:
        return self.change_job("release", job_id, lambda _, job, now: verbs.release(job, by=self.actor.shown, now=now))

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
        return editing.edit(
            self,
            job_id,
            params=params,
            priority=priority,
            not_before=not_before,
            expires_at=expires_at,
            if_version=if_version,
        )

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
        return editing.move(self, job_id, to=to, before=before, after=after, rank=rank, if_version=if_version)

    def reorder(self, ids: Sequence[int]) -> list[int]:
        """These jobs take, in this order, the places they hold together. Those that moved."""
        from headway.engine.reordering import reorder

        return reorder(self, ids)

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
        return retrying.retry(self, job_id, params=params, priority=priority, budget=budget, again=again)

    # --- looking ---

    def get(self, job_id: int) -> Job:
        with self.database.read() as tx:
            return jobs.find(tx, job_id, self.tenant_id)

    # --- the queue as a whole ---

    def pause_queue(self, *, note: str | None = None, until: int | None = None, everybody: bool = False) -> None:
        """Nothing more starts, for this tenant or for all; what runs goes on."""
        pausing.pause_queue(self, note=note, until=until, everybody=everybody)

    def resume_queue(self, *, everybody: bool = False) -> None:
        pausing.resume_queue(self, everybody=everybody)

    # --- targets ---

    def pause_target(self, name: str, *, note: str | None = None) -> None:
        """Nothing more starts on this target; what runs there goes on."""
        pausing.pause_target(self, name, note=note)

    def resume_target(self, name: str) -> None:
        pausing.resume_target(self, name)

    def release_target(self, name: str) -> Job:
        """Releases the job that holds a target: it ends FAILED, and the target is open."""
        return pausing.release_target(self, name)

    # --- reservations of programs outside ---

    def reserve(
        self, *, resources: Sequence[str] = (), target: str | None = None, ttl: float | str | None = None
    ) -> Reservation:
        """The next slot of these. It is there from `granted_at` on, and for `ttl` after the last renewal."""
        return outside.reserve(self, resources=resources, target=target, ttl=ttl)

    def renew_reservation(self, number: int) -> Reservation:
        """Another ttl from now on; also the way to see whether it was granted."""
        return outside.renew(self, number)

    def release_reservation(self, number: int) -> Reservation:
        return outside.release(self, number)

    def reservation(self, number: int) -> Reservation:
        with self.database.read() as tx:
            return reserving.find(tx, self.tenant_id, number)
