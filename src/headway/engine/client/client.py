"""The verbs on jobs, each in one transaction, for Python, command line and HTTP.

Verbs that need more than a few lines live in modules of their own beside this one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from headway.clock import SECOND, micros
from headway.engine.client import authority, pause, reservations
from headway.engine.client import edit as client_edit
from headway.engine.client import retry as client_retry
from headway.engine.client.enqueue import Intake
from headway.engine.client.groups import Groups
from headway.engine.client.placed_again import placed_again, still_checked
from headway.engine.direct import reservations as direct_reservations
from headway.engine.tasks.registry import Registry, unknown_text
from headway.errors import BadInput, NotFound
from headway.model.access.permissions import Visitor
from headway.model.access.secrets import OwnedSecret, check_connection, check_secrets
from headway.model.jobs import actions
from headway.model.jobs.actions import Change
from headway.model.jobs.job import Actor, JobRecord, NewJob, Reservation
from headway.model.jobs.retry import RetryPolicy
from headway.model.values.json import to_json
from headway.model.values.names import check_budget
from headway.store.db import Database, Tx
from headway.store.groups import advance as groups
from headway.store.jobs import changes as jobs
from headway.store.queue.lanes import BucketCache

if TYPE_CHECKING:
    from headway.engine.client.idempotency import KeyedRequest
    from headway.engine.client.schedules import Schedules
    from headway.engine.client.sessions import Sessions
    from headway.engine.client.templates import Templates
    from headway.engine.client.tenants import Tenants
    from headway.engine.client.tokens import Tokens
    from headway.engine.client.webhooks import Webhooks

T = TypeVar("T")
KNOWN_FOR = 30 * 86400.0
REFRESH_SECONDS = 5.0


class Client:
    """The verbs on jobs, for one tenant and one actor."""

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
        secrets: Mapping[str, OwnedSecret] | None = None,
        connections: Collection[str] = (),
        tick_tolerance: float = 60.0,
        visitor: Visitor | None = None,
    ) -> None:
        self.database = database
        self.request: KeyedRequest | None = None  # the request that it serves, if that has an idempotency key
        self.allow_private = allow_private  # for webhooks; None if the settings are unknown
        self.secrets = secrets or {}
        self.tick_tolerance = micros(tick_tolerance)
        self.connections = connections  # the names, without the addresses
        self.longest_ttl = reservation_ttl
        self.usual_retry = retry or RetryPolicy()
        self.registry = registry
        self.actor = actor
        self.visitor = visitor  # whose authority is checked; None for the owner of the database
        self.actor_text = actor.text()
        self.tenant = tenant
        self.lanes = BucketCache(database, resources=resources)
        self.groups = Groups(self)
        self.intake = Intake(self)
        self._tenant_id: int | None = None
        self._known: tuple[float, dict[str, tuple[int, str]]] = (0.0, {})

    def sibling(self, actor: Actor, tenant: str, visitor: Visitor | None = None) -> Client:
        """Returns a client with the same settings for another actor and tenant."""
        return Client(
            self.database.beyond(),
            self.registry,
            actor=actor,
            tenant=tenant,
            retry=self.usual_retry,
            resources=self.lanes.defined,
            reservation_ttl=self.longest_ttl,
            allow_private=self.allow_private,
            secrets=self.secrets,
            connections=self.connections,
            tick_tolerance=self.tick_tolerance / SECOND,
            visitor=visitor,
        )

    def keyed(self, route: str, key: str, digest: str, *, several: bool = False) -> Client:
        """Returns a client for one request with an idempotency key.

        The first transaction that commits stores the key together with the objects it made. With `several` transactions
        the key is stored before the first of them. Raises `Replayed` if the request was answered before.
        """
        from headway.engine.client.idempotency import KeyedRequest, key_of

        wanted = key_of(self.tenant_id, route, key, digest)
        other = self.sibling(self.actor, self.tenant, self.visitor)
        other.database, other.request = self.database, KeyedRequest(self.database, wanted, several=several)
        # Buckets and targets are created in transactions of their own, before the keyed one.
        other.lanes, other._tenant_id, other._known = self.lanes, self._tenant_id, self._known
        return other

    def check_secrets(self, task: str, params: Sequence[str]) -> None:
        """Refuses params that name secrets of others, as far as the settings of this process know; a run checks again.

        The settings of a worker may know more secrets. A visitor gets the same answer for those of others and for
        unknown ones, so it is refused both if these settings name any.
        """
        self._check_secrets(task, params, unknown=self.visitor is not None)

    def check_stored(self, task: str, params: Sequence[str]) -> None:
        """Refuses params of a schedule or a template that name an unknown secret or connection.

        Their jobs are made when no person looks. Settings that name no secret, or no connection, refuse none: those of
        the workers may name them.
        """
        self._check_secrets(task, params, unknown=True)
        if self.connections:
            for text in params:
                check_connection(self.connections, text, task=task)

    def _check_secrets(self, task: str, params: Sequence[str], *, unknown: bool) -> None:
        check_secrets(self.secrets, params, tenant=self.tenant, task=task, unknown=unknown and bool(self.secrets))

    @property
    def replayed(self) -> bool:
        """True if an earlier request with the same idempotency key made the object."""
        return self.request is not None and self.request.replayed

    def recall(self) -> Any:
        """Returns the id that an earlier request with the same idempotency key made.

        It serves a request whose stored answer is missing, so that the request is not validated again against a later
        state. None if nothing was made.
        """
        return None if self.request is None else self.request.recall()

    def transact(
        self,
        label: str,
        work: Callable[[Tx], T],
        *,
        noun: type | None = None,
        database: Database | None = None,
        repeatable: bool = False,
    ) -> T:
        """Runs the transaction of a verb, once per idempotency key if the client has one.

        `noun` is the type of the object that it returns; None for ids. With the key, the noun and the id are stored.
        `database` is the one to use, if it is not the client's own. `repeatable` work runs again when the answer to its
        commit is lost.
        """
        database = database or self.database
        if self.request is not None and not self.request.landed:
            return self.request.run(database, label, work, noun)
        return database.repeat(label, work) if repeatable else database.transact(label, work)

    @cached_property
    def schedules(self) -> Schedules:
        from headway.engine.client.schedules import (
            Schedules,  # late: schedules import tasks, and tasks import the client
        )

        return Schedules(self)

    @cached_property
    def sessions(self) -> Sessions:
        from headway.engine.client.sessions import Sessions

        return Sessions(self)

    @cached_property
    def templates(self) -> Templates:
        from headway.engine.client.templates import Templates

        return Templates(self)

    @cached_property
    def tenants(self) -> Tenants:
        from headway.engine.client.tenants import Tenants

        return Tenants(self)

    @cached_property
    def tokens(self) -> Tokens:
        from headway.engine.client.tokens import Tokens

        return Tokens(self)

    @cached_property
    def webhooks(self) -> Webhooks:
        from headway.engine.client.webhooks import Webhooks

        return Webhooks(self)

    @property
    def tenant_id(self) -> int:
        if self._tenant_id is None:
            with self.database.read() as tx:
                found = tx.run("tenant_by_name", name=self.tenant)
            if not found:
                raise NotFound(f"there is no tenant {self.tenant!r}", noun="tenant")
            self._tenant_id = int(found[0][0])
        return self._tenant_id

    # --- creating ---

    def known_task(self, name: str) -> tuple[int, str]:
        """Returns the priority and options of a task, as its last worker declared them.

        Refuses a task that neither this process nor any recent worker knows, because its job would wait for ever.
        """
        if name in self.registry.specs:
            return self.registry.facts(name)
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
        """Stores one job durably.

        Returns its id, and False if an existing job holds its key.
        """
        return self.intake.enqueue(job)

    def enqueue_many(self, new: Sequence[NewJob]) -> list[tuple[int, bool]]:
        """Stores all jobs in one transaction, or none."""
        return self.intake.many(new)

    def enqueue_alike(self, job: NewJob, params: Sequence[str]) -> list[tuple[int, bool]]:
        """Stores jobs that differ only in their params, with one statement and one commit."""
        return self.intake.alike(job, params)

    def enqueue_on(self, connection: Any, job: NewJob, params: Sequence[str]) -> list[int]:
        """Stores jobs in the caller's PostgreSQL transaction; they exist once it commits."""
        return self.intake.on(connection, job, params)

    # --- verbs ---

    def change_job(
        self, label: str, job_id: int, change: Callable[[Tx, JobRecord, int], Change], *, alone: bool = False
    ) -> JobRecord:
        def work(tx: Tx) -> JobRecord:
            if alone:  # a decision that reads many jobs needs the tenant lock
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

        return self.transact(label, work, noun=JobRecord)

    @staticmethod
    def time_in(tx: Tx) -> int:
        now = tx.now()
        return int(now)

    def cancel(self, job_id: int) -> JobRecord:
        return self.change_job("cancel", job_id, lambda _, job, now: actions.cancel(job, actor=self.actor, now=now))

    def interrupt(self, job_id: int) -> JobRecord:
        return self.change_job("interrupt", job_id, lambda _, job, __: actions.interrupt(job, actor=self.actor))

    def resume(self, job_id: int, budget: Mapping[str, float] | None = None) -> JobRecord:
        caps = None if budget is None else dict(check_budget(budget))

        def resumed(checked: JobRecord | None) -> JobRecord:
            def change(tx: Tx, job: JobRecord, now: int) -> Change:
                still_checked(checked, job)
                spent, stage_open = jobs.spent(tx, job.id), groups.is_open(tx, job)
                return actions.resume(job, now=now, spent=spent, budget=caps, stage_open=stage_open)

            return self.change_job("resume", job_id, change)

        return placed_again(self, lambda tx: jobs.find(tx, job_id, self.tenant_id), resumed)

    def resolve(self, job_id: int, result: object = None) -> JobRecord:
        text = to_json(result, field="result")
        caller, by = authority.of_caller(self), self.actor.shown

        def change(tx: Tx, job: JobRecord, now: int) -> Change:
            resolved = actions.resolve(job, result=text, by=by, now=now)
            authority.check_result(caller, tx, job)
            return resolved

        return self.change_job("resolve", job_id, change)

    def release(self, job_id: int) -> JobRecord:
        return self.change_job(
            "release", job_id, lambda _, job, now: actions.release(job, by=self.actor.shown, now=now)
        )

    def edit(
        self,
        job_id: int,
        *,
        params: Mapping[str, object] | None = None,
        priority: int | None = None,
        not_before: int | actions.Cleared | None = None,
        expires_at: int | actions.Cleared | None = None,
        if_version: int | None = None,
    ) -> JobRecord:
        return client_edit.edit(
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
    ) -> JobRecord:
        return client_edit.move(self, job_id, to=to, before=before, after=after, rank=rank, if_version=if_version)

    def reorder(self, ids: Sequence[int]) -> list[int]:
        """Puts these jobs into this order, within the places they hold together.

        Returns the ids that moved.
        """
        from headway.engine.client.move import reorder

        return reorder(self, ids)

    def retry(
        self,
        job_id: int,
        *,
        params: Mapping[str, object] | None = None,
        priority: int | None = None,
        budget: Mapping[str, float] | None = None,
        again: bool = True,
    ) -> JobRecord:
        """Retries a failed job.

        A waiting automatic retry is brought forward; otherwise a new job is inserted.

        Without `again`, a job that was already retried is refused.
        """
        return client_retry.retry(self, job_id, params=params, priority=priority, budget=budget, again=again)

    # --- reading ---

    def get(self, job_id: int) -> JobRecord:
        with self.database.read() as tx:
            return jobs.find(tx, job_id, self.tenant_id)

    # --- the queue as a whole ---

    def pause_queue(self, *, note: str | None = None, until: int | None = None, everybody: bool = False) -> None:
        """Pauses the queue of this tenant, or of all tenants; running jobs continue."""
        pause.pause_queue(self, note=note, until=until, everybody=everybody)

    def resume_queue(self, *, everybody: bool = False) -> None:
        pause.resume_queue(self, everybody=everybody)

    # --- targets ---

    def pause_target(self, name: str, *, note: str | None = None) -> None:
        """Pauses a target: no job starts on it, a running job continues."""
        pause.pause_target(self, name, note=note)

    def resume_target(self, name: str) -> None:
        pause.resume_target(self, name)

    def release_target(self, name: str) -> JobRecord:
        """Releases the job that holds a target: the job ends FAILED, the target is open."""
        return pause.release_target(self, name)

    # --- reservations of programs outside ---

    def reserve(
        self, *, resources: Sequence[str] = (), target: str | None = None, ttl: float | str | None = None
    ) -> Reservation:
        """Reserves the next slot of these lanes.

        The slot is held from `granted_at` until `ttl` after the last renewal.
        """
        return reservations.reserve(self, resources=resources, target=target, ttl=ttl)

    def renew_reservation(self, number: int) -> Reservation:
        """Extends a reservation by its ttl from now.

        The answer also shows if the reservation was granted.
        """
        return reservations.renew(self, number)

    def release_reservation(self, number: int) -> Reservation:
        return reservations.release(self, number)

    def reservation(self, number: int) -> Reservation:
        with self.database.read() as tx:
            return direct_reservations.find(tx, self.tenant_id, number)
