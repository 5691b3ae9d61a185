"""Where jobs come into being: one, several in one transaction, many that differ in their params alone, and jobs in a
transaction of the caller's own."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headway.engine import tracing
from headway.engine.shared_commits import Answer, SharedCommits
from headway.errors import BadInput
from headway.model.job import NewJob
from headway.store import jobs
from headway.store.answers import Keyed
from headway.store.db import Row, Tx
from headway.store.tenants import Statement, admitting

if TYPE_CHECKING:
    from headway.engine.client import Client

COUNTED_SECONDS = 5.0


class Intake:
    """The new jobs of one client."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.shared = SharedCommits(self._many)
        self._counted_until = 0.0

    def enqueue(self, job: NewJob) -> Answer:
        with tracing.enqueueing(job.task) as stamp:
            if self.client.database.one_writer:
                return self.shared.enqueue(stamp(job))
            return self._many([stamp(job)])[0]

    def many(self, new: Sequence[NewJob]) -> list[Answer]:
        if not new:
            return []
        with tracing.enqueueing(new[0].task, len(new)) as stamp:
            return self._many([stamp(job) for job in new])

    def alike(self, job: NewJob, params: Sequence[str]) -> list[Answer]:
        with tracing.enqueueing(job.task, len(params)) as stamp:
            return self._alike(stamp(job), params)

    def on(self, connection: Any, job: NewJob, params: Sequence[str]) -> list[int]:
        if job.key is not None:
            raise BadInput("a key cannot be used together with connection=: enqueue without one of them", field="key")
        with tracing.enqueueing(job.task, len(params)) as stamp:
            return self._on_connection(connection, stamp(job), params)

    def _many(self, new: Sequence[NewJob]) -> list[Answer]:
        if len(new) == 1 and new[0].key is None:
            return self._alike(new[0], [new[0].params])
        tenant_id, database = self.client.tenant_id, self.client.database
        made = [self._placed(job) for job in new]
        answers = database.transact("enqueue_many", lambda tx: self.insert(tx, tenant_id, made))
        database.announce()
        return answers

    def _placed(self, job: NewJob) -> jobs.Made:
        """A job with its bucket and its target."""
        tenant_id, lanes = self.client.tenant_id, self.client.lanes
        lanes.hook(job.options)
        bucket_id = lanes.of(tenant_id, job.task, job.resources, on_target=job.target is not None)
        return job, bucket_id, None if job.target is None else lanes.target(tenant_id, job.target)

    # --- jobs that differ in their params alone: one statement ---

    def _alike(self, job: NewJob, params: Sequence[str]) -> list[Answer]:
        database = self.client.database
        _, _, target_id = placed = self._placed(job)
        wishes = self._parameters(placed, params)
        alone = target_id is None and not isinstance(database, Keyed)
        made = database.once("enqueue", **wishes) if alone and time.monotonic() > self._counted_until else []
        ids = jobs.ids_of(made)
        if not ids:
            rows = database.transact("enqueue_many", lambda tx: self._touching(tx, target_id, wishes))
            ids = [job_id for (job_id,) in rows]
        database.announce()
        return [(job_id, True) for job_id in ids]

    def _touching(self, tx: Tx, target_id: int | None, wishes: Mapping[str, object]) -> list[Row]:
        """One row for each job: so they are kept with an idempotency key."""
        tx.touch(target_id)
        made = tx.run("enqueue", **wishes) or self._admitted(tx.run, wishes)
        return [(job_id,) for job_id in jobs.ids_of(made)]

    def _admitted(self, run: Statement, wishes: Mapping[str, object]) -> list[Row]:
        """For a tenant that is inactive: refused. For one whose jobs are counted: with the count."""
        self._counted_until = time.monotonic() + COUNTED_SECONDS  # one that is counted is not asked in vain each time
        with admitting(run, self.client.tenant_id):
            return run("enqueue", **{**wishes, "admitted": 1})

    def _parameters(self, placed: jobs.Made, params: Sequence[str]) -> dict[str, object]:
        job, bucket_id, target_id = placed
        bodies = params if target_id is None else [jobs.body(text, target_id) for text in params]
        return jobs.parameters(job, bodies, bucket_id, self.client.tenant_id, self.client.actor_text)

    def _on_connection(self, connection: Any, job: NewJob, params: Sequence[str]) -> list[int]:
        database = self.client.database
        _, _, target_id = placed = self._placed(job)
        wishes = self._parameters(placed, params)

        def run(name: str, /, **given: object) -> list[Row]:
            return database.run_on(connection, name, given)

        made = run("enqueue", **wishes) or self._admitted(run, wishes)
        if target_id is not None:
            database.run_on(connection, "touch", {"ids": json.dumps([target_id])})
        database.run_on(connection, "notify", {})
        return jobs.ids_of(made)

    # --- any jobs, some of them with keys ---

    def insert(self, tx: Tx, tenant_id: int, made: Sequence[jobs.Made]) -> list[Answer]:
        """In a transaction that has begun."""
        ids = jobs.insert(tx, tenant_id, self.client.actor, made)
        found = [self._or_holder(tx, one, job_id) for one, job_id in zip(made, ids, strict=True)]
        while left := [n for n, one in enumerate(found) if one is None]:
            with admitting(tx.run, tenant_id):
                ids = jobs.insert(tx, tenant_id, self.client.actor, [made[n] for n in left], admitted=True)
            for n, job_id in zip(left, ids, strict=True):
                found[n] = self._or_holder(tx, made[n], job_id)
        return [one for one in found if one is not None]

    def _or_holder(self, tx: Tx, made: jobs.Made, job_id: int | None) -> Answer | None:
        """The new job, or who has the key. None: the tenant gets none as it is, or who had the key ended just now."""
        job, _, _ = made
        if job_id is None and job.key is not None:
            holder = jobs.with_key(tx, self.client.tenant_id, job.task, job.key)
            return None if holder is None else (holder.id, False)
        return None if job_id is None else (job_id, True)
