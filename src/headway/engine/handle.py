"""A job as its maker holds it: ask how it stands, wait for its result, stop it, move it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from headway.engine.client import Client
from headway.engine.limits import lives
from headway.errors import JobFailed
from headway.model import job as stored
from headway.model.states import State
from headway.model.values import instant
from headway.model.waiting import Explanation
from headway.store import jobs, queue_reading

# How long `result()` sleeps between two looks: short at first, for jobs that take no time.
LOOKS = (0.002, 0.005, 0.01, 0.02, 0.05)


class Job:
    """One job. Every attribute is read from the database when it is asked for."""

    def __init__(self, client: Client, job_id: int, *, created: bool = True) -> None:
        self._client = client
        self.id = job_id
        self.created = created

    def __repr__(self) -> str:
        return f"<Job {self.id}>"

    @property
    def row(self) -> stored.Job:
        return self._client.get(self.id)

    @property
    def status(self) -> str:
        return self.row.status.name

    @property
    def run(self) -> stored.Run | None:
        with self._client.database.read() as tx:
            return jobs.run_of(tx, self.id)

    def explain(self) -> Explanation:
        """Why it does not run now: its rank, what is in its way in order, and when it may start."""
        with self._client.database.read() as tx:
            return queue_reading.explain(tx, self._client.tenant_id, self.id, lives=lives)

    def result(self, timeout: float | None = None) -> Any:
        """Waits for the end of the job's whole retry chain and returns its result."""
        deadline = None if timeout is None else time.monotonic() + timeout
        looks = iter(LOOKS)
        while True:
            last = self._last()
            if last.status.terminal:
                return self._result_of(last)
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"job {last.id} is still {last.status.name} after {timeout:g} s")
            time.sleep(next(looks, LOOKS[-1]))

    def _last(self) -> stored.Job:
        """The last job of the chain: a retry speaks for the one it retries."""
        with self._client.database.read() as tx:
            last = jobs.find(tx, self.id, self._client.tenant_id)
            while last.status is State.FAILED and (follower := jobs.automatic_retry(tx, last.id)) is not None:
                last = follower
            return last

    def _result_of(self, job: stored.Job) -> Any:
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
        """Changes `params`, `priority`, `not_before` or `expires_at`; times as `using()` takes them."""
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
