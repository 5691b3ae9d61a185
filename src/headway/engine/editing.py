"""Changing a job that waits: what it is to do, and where it stands in the queue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headway.errors import BadInput, WrongState
from headway.model import verbs
from headway.model.job import Job
from headway.model.states import State, Verb
from headway.model.values import check_priority, to_json
from headway.model.verbs import Change
from headway.store import groups, jobs, places
from headway.store.db import Tx

if TYPE_CHECKING:
    from headway.engine.client import Client


def edit(
    client: Client,
    job_id: int,
    *,
    params: Mapping[str, object] | None,
    priority: int | None,
    not_before: int | verbs.Cleared | None,
    expires_at: int | verbs.Cleared | None,
    if_version: int | None,
) -> Job:
    text = params_text(params)
    if priority is not None:
        check_priority(priority)

    def change(tx: Tx, job: Job, now: int) -> Change:
        _expect(job, if_version)
        check_params(client, job, text)
        position = new_place(tx, job, priority) if job.status.claimable_later else None
        filled, unfilled = (None, None) if text is None else groups.fill_for(tx, job, text)
        return verbs.edit(
            job,
            params=filled,
            unfilled=unfilled,
            priority=priority,
            position=position,
            not_before=not_before,
            expires_at=expires_at,
            now=now,
        )

    return client.change_job("edit", job_id, change)


def params_text(params: Mapping[str, object] | None) -> str | None:
    return None if params is None else to_json(dict(params), field="params")


def check_params(client: Client, job: Job, text: str | None) -> None:
    """New params, as far as this process knows the job's task."""
    if text is not None and job.task in client.registry.specs:
        client.registry.get(job.task).signature.check(json.loads(text))


def new_place(tx: Tx, job: Job, priority: int | None) -> int | None:
    """A job whose priority changes goes to the end of the new one."""
    return places.bottom(tx) if priority is not None and priority != job.priority else None


def _expect(job: Job, version: int | None) -> None:
    if version is not None and version != job.version:
        raise WrongState(
            f"job {job.id} has changed since it was read (version {job.version}, not {version})",
            code="version_mismatch",
            status=job.status.name,
        )


def move(
    client: Client,
    job_id: int,
    *,
    to: str | None,
    before: int | None,
    after: int | None,
    rank: int | None,
    if_version: int | None,
) -> Job:
    if sum(wish is not None for wish in (to, before, after, rank)) != 1:
        raise BadInput("say exactly one of to, before, after and rank", field="to")

    def change(tx: Tx, job: Job, _now: int) -> Change:
        _expect(job, if_version)
        if job.status not in (State.WAITING, State.SCHEDULED, State.QUEUED):
            raise verbs.refuse(job, Verb.MOVE)
        if to is not None:
            priority, position = _end(tx, job, to)
        else:
            priority, position = _beside(tx, client, job, before, after, rank)
        return verbs.move(jobs.lock(tx, job.id), priority=priority, position=position)

    return client.change_job("move", job_id, change, alone=True)


def _end(tx: Tx, job: Job, to: str) -> tuple[int, int]:
    """The priority and the position at an end of the queue."""
    match to:
        case "top":
            return job.priority, places.top(tx, job, job.priority)
        case "bottom":
            return job.priority, places.bottom(tx)
        case "front":
            return places.front(tx, job)
    raise BadInput(f"to must be top, bottom or front, not {to!r}", field="to")


def _beside(
    tx: Tx, client: Client, job: Job, before: int | None, after: int | None, rank: int | None
) -> tuple[int, int]:
    """The same next to another job, or at a rank."""
    ahead = after is None
    if rank is not None:
        found, ahead = places.at_rank(tx, job, rank)
        if found is None:
            return job.priority, job.position
        other = found
    else:
        other = jobs.lock(tx, before or after or 0, client.tenant_id)
    if other.id == job.id:
        raise BadInput("a job cannot be moved beside itself", field="before" if before else "after")
    if not other.status.claimable_later:
        raise verbs.refuse(other, Verb.MOVE)
    return other.priority, places.beside(tx, job, other, client.actor, before=ahead)
