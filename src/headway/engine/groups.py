"""What people and programs do to groups and executions: each verb one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from headway.engine import tracing
from headway.errors import WrongState
from headway.model import plan
from headway.model.job import Job, NewJob, Options
from headway.model.plan import Group, Member, NewGroup, NewMember
from headway.model.values import check_name
from headway.store import groups, targets, tenants
from headway.store.db import Tx

if TYPE_CHECKING:
    from headway.engine.client import Client


class Groups:
    """The verbs on groups, for one tenant and one actor. Executions are groups of their own kind."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def create(self, new: NewGroup) -> int:
        """Stores a group with all its jobs in one transaction, or nothing."""
        check_name(new.name, field="name")
        plan.check_mode(new.mode)
        plan.failure_policy(new.on_failure)
        plan.check_members(new.members)
        with tracing.enqueueing(new.name, len(new.members)) as stamp:
            return self._create(replace(new, members=tuple(replace(one, job=stamp(one.job)) for one in new.members)))

    def _create(self, new: NewGroup) -> int:
        client = self.client
        placed = groups.place(client.lanes, client.tenant_id, new)

        def work(tx: Tx) -> int:
            with tenants.admitting(tx.run, client.tenant_id):
                return groups.insert(tx, client.tenant_id, placed, client.actor)

        return client.database.transact("create_group", work)

    def get(self, group_id: int, kind: str | None = None) -> Group:
        with self.client.database.read() as tx:
            return groups.find(tx, group_id, self.client.tenant_id, kind)

    def cancel(self, group_id: int, kind: str | None = None) -> Group:
        """Ends what waits, asks what runs to stop."""
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

        return client.database.transact("cancel_group", work)

    def retry(self, group_id: int, kind: str | None = None) -> int:
        """A new group of what failed and of what would have come after it. What succeeded is linked, not run again."""
        client = self.client
        with client.database.read() as tx:
            group = groups.find(tx, group_id, client.tenant_id, kind)
            known = groups.steps(tx, group_id)
            again = groups.steps_to_retry(tx, group)
            desks = targets.names(tx, [job.target_id for _, job in again])
        self._may_retry(group, again)
        new = _retried(group, again, desks)
        plan.check_members(new.members, known)
        placed = groups.place(client.lanes, client.tenant_id, new)

        def work(tx: Tx) -> int:
            if group.schedule_id is not None:
                tx.run("lock_schedule", id=group.schedule_id)  # whoever fires it does the same
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
            return groups.insert(tx, client.tenant_id, placed, client.actor)

        return client.database.transact("retry_group", work)

    @staticmethod
    def _may_retry(group: Group, again: list[tuple[Member, Job]]) -> None:
        if group.finished_at is None:
            text = f"{group.kind} {group.id} is {group.status}: it can be retried when it has ended; cancel it, or wait"
            raise WrongState(text, status=group.status)
        if not again:
            raise WrongState(f"{group.kind} {group.id} is {group.status}: nothing in it failed", status=group.status)

    @staticmethod
    def _alone(tx: Tx, group: Group) -> None:
        """Two executions of one schedule at once are what overlap rules are to prevent."""
        for other in groups.active(tx, group.schedule_id or 0):
            text = f"execution {other.id} of the same schedule is {other.status}: wait for it, or cancel it first"
            raise WrongState(text, status=other.status)


def _retried(group: Group, again: list[tuple[Member, Job]], desks: Mapping[int, str]) -> NewGroup:
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


def _again(member: Member, job: Job, target: str | None) -> NewMember:
    """The same step once more, as it was asked for."""
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
