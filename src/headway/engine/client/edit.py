"""Edits and moves a job that has not started."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headway.engine.client.authority import check_new_params, of_caller
from headway.errors import BadInput, WrongState
from headway.model.jobs import actions
from headway.model.jobs.actions import Change
from headway.model.jobs.job import JobRecord
from headway.model.jobs.states import State, Verb
from headway.model.values.json import to_json
from headway.model.values.names import check_priority
from headway.store.db import Tx
from headway.store.groups import advance as groups
from headway.store.jobs import changes as jobs
from headway.store.jobs import positions

if TYPE_CHECKING:
    from headway.engine.client.client import Client


def edit(
    client: Client,
    job_id: int,
    *,
    params: Mapping[str, object] | None,
    priority: int | None,
    not_before: int | actions.Cleared | None,
    expires_at: int | actions.Cleared | None,
    if_version: int | None,
) -> JobRecord:
    text, caller = params_text(params), of_caller(client)
    if priority is not None:
        check_priority(priority)

    def change(tx: Tx, job: JobRecord, now: int) -> Change:
        _expect(job, if_version)
        if text is not None:
            check_new_params(caller, tx, job)
        check_params(client, job, text)
        position = new_place(tx, job, priority) if job.status.claimable_later else None
        filled, unfilled = (None, None) if text is None else groups.fill_for(tx, job, text)
        return actions.edit(
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


def check_params(client: Client, job: JobRecord, text: str | None) -> None:
    """Checks new params: the secrets they name, and their types if this process knows the job's task."""
    if text is None:
        return
    client.check_secrets(job.task, [text])
    if job.task in client.registry.specs:
        client.registry.get(job.task).signature.check(json.loads(text))


def new_place(tx: Tx, job: JobRecord, priority: int | None) -> int | None:
    """Returns the last position of a new priority; None if the priority stays."""
    return positions.bottom(tx) if priority is not None and priority != job.priority else None


def _expect(job: JobRecord, version: int | None) -> None:
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
) -> JobRecord:
    if sum(given is not None for given in (to, before, after, rank)) != 1:
        raise BadInput("give exactly one of to, before, after and rank", field="to")

    def change(tx: Tx, job: JobRecord, _now: int) -> Change:
        _expect(job, if_version)
        if job.status not in (State.WAITING, State.SCHEDULED, State.QUEUED):
            raise actions.refuse(job, Verb.MOVE)
        if to is not None:
            priority, position = _end(tx, job, to)
        else:
            priority, position = _beside(tx, client, job, before, after, rank)
        return actions.move(jobs.lock(tx, job.id), priority=priority, position=position)

    return client.change_job("move", job_id, change, alone=True)


def _end(tx: Tx, job: JobRecord, to: str) -> tuple[int, int]:
    """Returns the priority and position at an end of the queue."""
    match to:
        case "top":
            return job.priority, positions.top(tx, job, job.priority)
        case "bottom":
            return job.priority, positions.bottom(tx)
        case "front":
            return positions.front(tx, job)
    raise BadInput(f"to must be top, bottom or front, not {to!r}", field="to")


def _beside(
    tx: Tx, client: Client, job: JobRecord, before: int | None, after: int | None, rank: int | None
) -> tuple[int, int]:
    """Returns the priority and position next to another job, or at a rank."""
    ahead = after is None
    if rank is not None:
        found, ahead = positions.at_rank(tx, job, rank)
        if found is None:
            return job.priority, job.position
        other = found
    else:
        other = jobs.lock(tx, before or after or 0, client.tenant_id)
    if other.id == job.id:
        raise BadInput("a job cannot be moved beside itself", field="before" if before else "after")
    if not other.status.claimable_later:
        raise actions.refuse(other, Verb.MOVE)
    return other.priority, positions.beside(tx, job, other, client.actor, before=ahead)
