"""Finds the origin of work that was retried: the actor who gave its params, and the group that was retried first."""

from __future__ import annotations

import json

from headway.model.groups.group import Group
from headway.model.jobs.job import JobRecord
from headway.store.db import Tx
from headway.store.groups import advance as groups
from headway.store.jobs import changes as jobs


def first_of_group(tx: Tx, group: Group) -> Group:
    """Returns the group from which a chain of retries began. A group that another one retries is never pruned."""
    while group.retry_of is not None:
        group = groups.find(tx, group.retry_of, group.tenant_id)
    return group


def of_params(tx: Tx, job: JobRecord) -> tuple[JobRecord, str]:
    """Returns the job that got these params first, as far as it is kept, and the actor who decided them.

    A retry copies the params of the job before it, also from group to group. A job whose params were edited belongs to
    its last editor.
    """
    while True:
        if (editor := _editor(tx, job)) is not None:
            return job, editor
        before = _before(tx, job)
        if before is None or not _same_params(before, job):
            return job, job.created_by
        job = before


def _editor(tx: Tx, job: JobRecord) -> str | None:
    for actor, data in tx.run("edits_of_job", job_id=job.id):
        if "params" in json.loads(data):
            return str(actor)
    return None


def _before(tx: Tx, job: JobRecord) -> JobRecord | None:
    if job.retry_of is not None:
        return jobs.find_all(tx, [job.retry_of]).get(job.retry_of)
    if job.group_id is None:
        return None
    group = groups.find(tx, job.group_id, job.tenant_id)
    if group.retry_of is None:
        return None
    for (number,) in tx.run("last_of_step", group_id=group.retry_of, step=job.step):
        if number is not None:
            return jobs.find(tx, number, job.tenant_id)
    return None


def _same_params(before: JobRecord, job: JobRecord) -> bool:
    return before.params == job.params or (before.unfilled or before.params) == (job.unfilled or job.params)
