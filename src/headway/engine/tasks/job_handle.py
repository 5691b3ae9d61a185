"""The handle of an enqueued job: its state, its result, and the verbs on it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from headway.engine.client.client import Client
from headway.engine.client.limits import lives
from headway.engine.tasks.result_wait import ResultWait
from headway.errors import JobFailed
from headway.model.explain.blockers import Explanation
from headway.model.jobs import job as stored
from headway.model.jobs.states import State
from headway.model.values.times import instant
from headway.store.jobs import changes as jobs
from headway.store.queue import queue_views

# Sleeps between two reads of `result()`. The first ones are short, for very short jobs.
LOOKS = (0.002, 0.005, 0.01, 0.02, 0.05)


class Job:
    """The handle of one job. Every attribute is read from the database on access."""

    def __init__(self, client: Client, job_id: int, *, created: bool = True) -> None:
        self._client = client
        self.id = job_id
        self.created = created

    def __repr__(self) -> str:
        return f"<Job {self.id}>"

    @property
    def row(self) -> stored.JobRecord:
        return self._client.get(self.id)

    @property
    def status(self) -> str:
        return self.row.status.name

    @property
    def run(self) -> stored.Run | None:
        with self._client.database.read() as tx:
            return jobs.run_of(tx, self.id)

    def explain(self) -> Explanation:
        """Explains why the job does not run: its rank, its blockers, its estimated start."""
        with self._client.database.read() as tx:
            return queue_views.explain(tx, self._client.tenant_id, self.id, lives=lives)

    def result(self, timeout: float | None = None) -> Any:
        """Waits for the end of the job's whole retry chain and returns its result.

        Inside a task it raises `WaitsForItself` if the job cannot start before that task has ended, and if the task
        has to give way to others that wait for each other in a circle.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        looks = iter(LOOKS)
        with ResultWait(self._client, for_ever=timeout is None) as wait:
            while True:
                last = self._last()
                if last.status.terminal:
                    return self._result_of(last)
                wait.look(last)
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimeoutError(f"job {last.id} is still {last.status.name} after {timeout:g} s")
                time.sleep(next(looks, LOOKS[-1]))

    def _last(self) -> stored.JobRecord:
        """Returns the last job of the retry chain, which decides the result."""
        with self._client.database.read() as tx:
            last = jobs.find(tx, self.id, self._client.tenant_id)
            while last.status is State.FAILED and (follower := jobs.automatic_retry(tx, last.id)) is not None:
                last = follower
            return last

    def _result_of(self, job: stored.JobRecord) -> Any:
        with self._client.database.read() as tx:
            run = jobs.run_of(tx, job.id)
        if job.status is State.COMPLETED:
            return json.loads(run.result) if run is not None and run.result else None
        why = (run.error if run is not None else None) or job.reason or ""
        raise JobFailed(f"job {job.id} is {job.status.name}: {why}".rstrip(": "), status=job.status.name, job_id=job.id)

    def cancel(self) -> Job:
        self._client.cancel(self.id)
        return self

    def interrupt(self) -> Job:
        self._client.interrupt(self.id)
        return self

    def resume(self, budget: Mapping[str, float] | None = None) -> Job:
        self._client.resume(self.id, budget)
        return self

    def resolve(self, result: object = None) -> Job:
        self._client.resolve(self.id, result)
        return self

    def release(self) -> Job:
        self._client.release(self.id)
        return self

    def edit(self, **changes: Any) -> Job:
        """Changes `params`, `priority`, `not_before` or `expires_at`, as in `using()`."""
        for name in ("not_before", "expires_at"):
            if changes.get(name) is not None and not isinstance(changes[name], int):
                changes[name] = instant(changes[name], field=name)
        self._client.edit(self.id, **changes)
        return self

    def move(self, **place: Any) -> Job:
        self._client.move(self.id, **place)
        return self

    def retry(self, **changes: Any) -> Job:
        return Job(self._client, self._client.retry(self.id, **changes).id)
