"""The verbs on groups and executions, each in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from headway.engine import tracing
from headway.engine.client import authority, idempotency
from headway.errors import WrongState
from headway.model.groups import group as group_group
from headway.model.groups.group import Group, Member, NewGroup, NewMember
from headway.model.jobs.job import JobRecord, NewJob, Options
from headway.model.values.names import check_name
from headway.store.access import tenants
from headway.store.db import Tx
from headway.store.groups import advance as groups
from headway.store.groups import create as new_groups
from headway.store.queue import targets

if TYPE_CHECKING:
    from headway.engine.client.client import Client


class Groups:
    """The verbs on groups, for one tenant and one actor.

    An execution is a group of its own kind.
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    def create(self, new: NewGroup) -> int:
        """Stores a group with all its jobs in one transaction, or nothing."""
        check_name(new.name, field="name")
        group_group.check_mode(new.mode)
        authority.check_policy(self.client, new.on_failure)  # before its module is imported
        group_group.failure_policy(new.on_failure)
        group_group.check_members(new.members)
        authority.check_group(self.client, new.on_failure, new.members)
        for member in new.members:
            self.client.check_secrets(member.job.task, [member.job.params])
        with tracing.enqueueing(new.name, len(new.members)) as stamp:
            return self._create(
                replace(new, members=tuple(replace(member, job=stamp(member.job)) for member in new.members))
            )

    def _create(self, new: NewGroup) -> int:
        client = self.client
        placed = new_groups.place(client.lanes, client.tenant_id, new)

        def work(tx: Tx) -> int:
            with tenants.admitting(tx.run, client.tenant_id):
                return new_groups.insert(tx, client.tenant_id, placed, client.actor)

        return idempotency.create_once(client, "create_group", work, look="headway groups ls")

    def get(self, group_id: int, kind: str | None = None) -> Group:
        with self.client.database.read() as tx:
            return groups.find(tx, group_id, self.client.tenant_id, kind)

    def cancel(self, group_id: int, kind: str | None = None) -> Group:
        """Cancels waiting and held members, and asks running ones to stop."""
        client = self.client

        def work(tx: Tx) -> Group:
            groups.find(tx, group_id, client.tenant_id, kind)
            group = groups.lock(tx, group_id, client.tenant_id)
            if group.finished_at is not None:
                raise WrongState(
                    f"{group.kind} {group_id} is {group.status}: it has already ended", status=group.status
                )
            groups.cancel(tx, group, client.actor, now=client.time_in(tx))
            return groups.find(tx, group_id, client.tenant_id)

        return client.transact("cancel_group", work)

    def retry(self, group_id: int, kind: str | None = None) -> int:
        """Creates a new group of the failed members and all later stages. Returns its id.

        Members that succeeded are linked and do not run again.
        """
        client = self.client
        with client.database.read() as tx:
            group = groups.find(tx, group_id, client.tenant_id, kind)
            known = groups.steps(tx, group_id)
            again = groups.steps_to_retry(tx, group)
            desks = targets.names(tx, [job.target_id for _, job in again])
        self._may_retry(group, again)
        authority.check_policy_again(client, group)
        authority.check_retries(client, [job for _, job in again])
        new = _retried(group, again, desks)
        group_group.check_members(new.members, known)
        placed = new_groups.place(client.lanes, client.tenant_id, new)

        def work(tx: Tx) -> int:
            if group.schedule_id is not None:
                tx.run("lock_schedule", id=group.schedule_id)  # the scheduler takes the same lock when it fires
            with tenants.admitting(tx.run, client.tenant_id):
                return again_in(tx)

        def again_in(tx: Tx) -> int:
            locked = groups.lock(tx, group_id, client.tenant_id)
            for (follower,) in tx.run("retry_of_group", id=group_id):
                raise WrongState(
                    f"{locked.kind} {group_id} is already being retried by {follower}", status=locked.status
                )
            if group.schedule_id is not None:
                self._alone(tx, group)
            return new_groups.insert(tx, client.tenant_id, placed, client.actor)

        return idempotency.create_once(client, "retry_group", work, look=f"headway {group.kind}s show {group_id}")

    @staticmethod
    def _may_retry(group: Group, again: list[tuple[Member, JobRecord]]) -> None:
        if group.finished_at is None:
            text = f"{group.kind} {group.id} is {group.status}: it can be retried when it has ended; cancel it, or wait"
            raise WrongState(text, status=group.status)
        if not again:
            raise WrongState(f"{group.kind} {group.id} is {group.status}: nothing in it failed", status=group.status)

    @staticmethod
    def _alone(tx: Tx, group: Group) -> None:
        """Refuses a concurrent execution of one schedule, as the overlap rules do."""
        for other in groups.active(tx, group.schedule_id or 0):
            text = f"execution {other.id} of the same schedule is {other.status}: wait for it, or cancel it first"
            raise WrongState(text, status=other.status)


def _retried(group: Group, again: list[tuple[Member, JobRecord]], desks: Mapping[int, str]) -> NewGroup:
    return NewGroup(
        name=group.name,
        mode=group.mode,
        on_failure=group.on_failure,
        members=tuple(_again(member, job, desks.get(job.target_id or 0)) for member, job in again),
        kind=group.kind,
        schedule_id=group.schedule_id,
        reason="retry" if group.kind == "execution" else None,
        nominal_at=group.nominal_at,
        retry_of=group.id,
        stages=group.stages,
    )


def _again(member: Member, job: JobRecord, target: str | None) -> NewMember:
    """Returns the same step for a new group, with the params as they were enqueued."""
    new = NewJob(
        job.task,
        job.unfilled or job.params,
        job.options,
        priority=job.priority,
        target=target,
        resources=Options.parse(job.options).resources,
        template_id=job.template_id,
    )
    return NewMember(new, member.stage, member.step)
