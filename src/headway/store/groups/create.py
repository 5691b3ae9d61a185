"""Inserts groups with their members."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from headway.model.event import NewEvent
from headway.model.groups import group as group_group
from headway.model.groups.group import OPEN, NewGroup
from headway.model.jobs.job import Actor, NewJob
from headway.store import events
from headway.store.db import Tx
from headway.store.groups.advance import fill_stage, hold_all
from headway.store.queue.lanes import BucketCache


class Placed(NamedTuple):
    """A new group with the bucket and the target of each member."""

    new: NewGroup
    places: list[tuple[int, int | None]]


def place(lanes: BucketCache, tenant_id: int, new: NewGroup) -> Placed:
    """Places a group's members before its transaction.

    New buckets and targets are created in transactions of their own.
    """
    return Placed(new, [_place(lanes, tenant_id, member.job) for member in new.members])


def _place(lanes: BucketCache, tenant_id: int, job: NewJob) -> tuple[int, int | None]:
    lanes.hook(job.options)
    bucket_id = lanes.of(tenant_id, job.task, job.resources, on_target=job.target is not None)
    return bucket_id, None if job.target is None else lanes.target(tenant_id, job.target)


def insert(tx: Tx, tenant_id: int, placed: Placed, actor: Actor) -> int:
    """Creates a group with its jobs and events.

    The group begins at once, unless it follows another group.
    """
    return insert_all(tx, [(tenant_id, placed, actor)])[0]


def insert_all(tx: Tx, wanted: Sequence[tuple[int, Placed, Actor]]) -> list[int]:
    """Creates groups that do not follow each other, in the round trips of one.

    Returns their numbers in order.
    """
    made = tx.run_all(*(("add_group", _group_values(*one)) for one in wanted))
    ids = [int(number) for ((number,),) in made]
    members = (("add_members", _members(number, *one)) for number, one in zip(ids, wanted, strict=True))
    created = [_created(number, *one) for number, one in zip(ids, wanted, strict=True)]
    tx.run_all(*members, events.recorded(created))
    for number, (_, placed, actor) in zip(ids, wanted, strict=True):
        for _, target_id in placed.places:
            tx.touch(target_id)
        first = _first(placed.new)
        if any(member.job.hold and member.stage == first for member in placed.new.members):
            hold_all(tx, number, tx.run("held_in_stage", group_id=number, stage=first), actor)
        if placed.new.retry_of is not None and first > 0:  # the results come from the group that this one retries
            fill_stage(tx, number, first, tx.run("unfilled_members", group_id=number, stage=first))
    tx.wake()
    return ids


def _first(new: NewGroup) -> int:
    return -1 if new.after_id is not None else min(member.stage for member in new.members)


def _group_values(tenant_id: int, placed: Placed, actor: Actor) -> dict[str, object]:
    new = placed.new
    stages = new.stages or 1 + max(member.stage for member in new.members)
    state = {"tenant_id": tenant_id, "status": OPEN[new.kind], "stage": _first(new), "stages": stages}
    return {**state, "kind": new.kind, "actor": actor.text(), **{name: getattr(new, name) for name in _GIVEN}}


_GIVEN = ("name", "mode", "on_failure", "schedule_id", "reason", "nominal_at", "retry_of", "after_id")


def _members(group_id: int, tenant_id: int, placed: Placed, actor: Actor) -> dict[str, object]:
    place = {"tenant_id": tenant_id, "group_id": group_id, "open": _first(placed.new)}
    return {**place, "rows": json.dumps(_rows(placed)), "actor": actor.text()}


def _created(group_id: int, tenant_id: int, placed: Placed, actor: Actor) -> NewEvent:
    values = _group_values(tenant_id, placed, actor)
    facts = {name: values[name] for name in ("stages", *_GIVEN) if values[name] is not None}
    thing = placed.new.kind
    return NewEvent(
        f"{thing}.created", actor, tenant_id=tenant_id, thing_id=group_id, version=1, data=json.dumps(facts)
    )


def _rows(placed: Placed) -> list[dict[str, object]]:
    return [
        _row(member, bucket_id, target_id)
        for member, (bucket_id, target_id) in zip(placed.new.members, placed.places, strict=True)
    ]


def _row(member: group_group.NewMember, bucket_id: int, target_id: int | None) -> dict[str, object]:
    job = member.job
    refers = group_group.RESULT in job.params and group_group.references(json.loads(job.params))
    return {
        "stage": member.stage,
        "step": member.step,
        "task": job.task,
        "bucket_id": bucket_id,
        "target_id": target_id,
        "priority": job.priority,
        "params": job.params,
        "unfilled": job.params if refers else None,
        "options": job.options,
        "hold": int(job.hold),
        "template_id": job.template_id,
        "not_before": job.not_before,
        "delay": job.delay,
    }
