"""Creates jobs: one, several, many alike, or on the caller's own connection."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headway.engine import tracing
from headway.engine.client.authority import check_jobs
from headway.engine.client.group_commit import Enqueued, SharedCommits
from headway.errors import BadInput, CommitUnknown
from headway.model.jobs.job import NewJob
from headway.store.access.tenants import Statement, admitting
from headway.store.db import Row, Tx
from headway.store.jobs import changes as jobs

if TYPE_CHECKING:
    from headway.engine.client.client import Client

COUNTED_SECONDS = 5.0


class Intake:
    """Enqueues the jobs of one client."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.shared = SharedCommits(self._many)
        self._counted_until = 0.0

    def enqueue(self, job: NewJob) -> Enqueued:
        check_jobs(self.client, [job])
        self.client.check_secrets(job.task, [job.params])
        with tracing.enqueueing(job.task) as stamp:
            if self.client.database.one_writer:
                return self.shared.enqueue(stamp(job))
            try:
                return self._many([stamp(job)])[0]
            except CommitUnknown as error:
                raise unknown(error, [job]) from error

    def many(self, new: Sequence[NewJob]) -> list[Enqueued]:
        if not new:
            return []
        check_jobs(self.client, new)
        for job in new:
            self.client.check_secrets(job.task, [job.params])
        with tracing.enqueueing(new[0].task, len(new)) as stamp:
            try:
                return self._many([stamp(job) for job in new])
            except CommitUnknown as error:
                raise unknown(error, new) from error

    def alike(self, job: NewJob, params: Sequence[str]) -> list[Enqueued]:
        check_jobs(self.client, [job])
        self.client.check_secrets(job.task, params)
        with tracing.enqueueing(job.task, len(params)) as stamp:
            try:
                return self._alike(stamp(job), params)
            except CommitUnknown as error:
                raise unknown(error, [job] * len(params)) from error

    def on(self, connection: Any, job: NewJob, params: Sequence[str]) -> list[int]:
        check_jobs(self.client, [job])
        self.client.check_secrets(job.task, params)
        if job.key is not None:
            raise BadInput(
                "a key cannot be used together with connection=", hint="enqueue without one of them", field="key"
            )
        with tracing.enqueueing(job.task, len(params)) as stamp:
            return self._on_connection(connection, stamp(job), params)

    def _many(self, new: Sequence[NewJob]) -> list[Enqueued]:
        if len(new) == 1 and new[0].key is None:
            return self._alike(new[0], [new[0].params])
        tenant_id, database = self.client.tenant_id, self.client.database
        made = [self._placed(job) for job in new]
        answers = self.client.transact("enqueue_many", lambda tx: self.insert(tx, tenant_id, made))
        database.announce()
        return answers

    def _placed(self, job: NewJob) -> jobs.PlacedJob:
        """Returns a job with its bucket and its target."""
        tenant_id, lanes = self.client.tenant_id, self.client.lanes
        lanes.hook(job.options)
        bucket_id = lanes.of(tenant_id, job.task, job.resources, on_target=job.target is not None)
        return job, bucket_id, None if job.target is None else lanes.target(tenant_id, job.target)

    # --- jobs that differ only in their params: one statement ---

    def _alike(self, job: NewJob, params: Sequence[str]) -> list[Enqueued]:
        database = self.client.database
        _, _, target_id = placed = self._placed(job)
        columns = self._parameters(placed, params)
        alone = target_id is None and self.client.request is None
        made = database.once("enqueue", **columns) if alone and time.monotonic() > self._counted_until else []
        ids = jobs.ids_of(made)
        if not ids:
            rows = self.client.transact("enqueue_many", lambda tx: self._touching(tx, target_id, columns))
            ids = [job_id for (job_id,) in rows]
        database.announce()
        return [(job_id, True) for job_id in ids]

    def _touching(self, tx: Tx, target_id: int | None, columns: Mapping[str, object]) -> list[Row]:
        """Inserts jobs and marks their target as changed.

        Returns one row per job, the form that an idempotency key stores.
        """
        tx.touch(target_id)
        made = tx.run("enqueue", **columns) or self._admitted(tx.run, columns)
        return [(job_id,) for job_id in jobs.ids_of(made)]

    def _admitted(self, run: Statement, columns: Mapping[str, object]) -> list[Row]:
        """Inserts jobs of a tenant with max_queued, and refuses an inactive tenant."""
        self._counted_until = time.monotonic() + COUNTED_SECONDS  # a tenant with max_queued skips the fast path for 5 s
        with admitting(run, self.client.tenant_id):
            return run("enqueue", **{**columns, "admitted": 1})

    def _parameters(self, placed: jobs.PlacedJob, params: Sequence[str]) -> dict[str, object]:
        job, bucket_id, target_id = placed
        bodies = params if target_id is None else [jobs.body(text, target_id) for text in params]
        return jobs.parameters(job, bodies, bucket_id, self.client.tenant_id, self.client.actor_text)

    def _on_connection(self, connection: Any, job: NewJob, params: Sequence[str]) -> list[int]:
        database = self.client.database
        _, _, target_id = placed = self._placed(job)
        columns = self._parameters(placed, params)

        def run(name: str, /, **given: object) -> list[Row]:
            return database.run_on(connection, name, given)

        made = run("enqueue", **columns) or self._admitted(run, columns)
        if target_id is not None:
            database.run_on(connection, "touch", {"ids": json.dumps([target_id])})
        database.run_on(connection, "notify", {})
        return jobs.ids_of(made)

    # --- any jobs, some of them with keys ---

    def insert(self, tx: Tx, tenant_id: int, made: Sequence[jobs.PlacedJob]) -> list[Enqueued]:
        """Inserts jobs in the caller's transaction.

        Returns for each its id, and False if an existing job holds its key.
        """
        ids = jobs.insert(tx, tenant_id, self.client.actor, made)
        found = [self._or_holder(tx, job, job_id) for job, job_id in zip(made, ids, strict=True)]
        while left := [n for n, answer in enumerate(found) if answer is None]:
            with admitting(tx.run, tenant_id):
                ids = jobs.insert(tx, tenant_id, self.client.actor, [made[n] for n in left], admitted=True)
            for n, job_id in zip(left, ids, strict=True):
                found[n] = self._or_holder(tx, made[n], job_id)
        return [answer for answer in found if answer is not None]

    def _or_holder(self, tx: Tx, made: jobs.PlacedJob, job_id: int | None) -> Enqueued | None:
        """Returns the new job, or the job that holds the key.

        None if the tenant needs the counted insert, or if the holder of the key has just ended.
        """
        job, _, _ = made
        if job_id is None and job.key is not None:
            holder = jobs.with_key(tx, self.client.tenant_id, job.task, job.key)
            return None if holder is None else (holder.id, False)
        return None if job_id is None else (job_id, True)


def unknown(error: CommitUnknown, new: Sequence[NewJob]) -> CommitUnknown:
    """Returns the error for jobs whose commit got no answer.

    Either all of the jobs are stored, or none.
    """
    what = "job was" if len(new) == 1 else f"{len(new)} jobs were"
    look = f"look for {'it' if len(new) == 1 else 'them'} under task {new[0].task!r} before you enqueue again"
    if all(job.key is not None for job in new):
        look = "enqueue again with the same key: while such a job is unfinished, no second one is made"
    text = f"the connection to PostgreSQL broke during a commit: whether the {what} stored is not known"
    return CommitUnknown(f"{text}; {look}", task=new[0].task)
