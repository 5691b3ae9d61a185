"""Deadlock check of `result()` inside a task, once per second.

It tests if the awaited job can ever end.
"""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING

from headway.engine.client.limits import lives
from headway.engine.execution.own_job import OwnJob, own_job, refuse_knot, refuse_to_wait
from headway.model.explain.blockers import Explanation, sentence
from headway.model.explain.deadlock import knot
from headway.model.jobs.job import JobRecord
from headway.model.jobs.states import State
from headway.store import worker_views
from headway.store.db import Tx
from headway.store.queue import queue_views, waits
from headway.store.worker_views import WorkerView

if TYPE_CHECKING:
    from headway.engine.client.client import Client

ASK_AGAIN = 1.0  # seconds between two checks
logger = logging.getLogger("headway.waiting")


class ResultWait:
    """One wait for a result. Outside of a task it does nothing.

    The wait is recorded at the second check, so that a short wait writes nothing, and only if nothing else can end it:
    without a timeout, in the task's own thread. Each check reads one snapshot of all waits; `model/explain/deadlock.py`
    has the rule.
    """

    def __init__(self, client: Client, *, for_ever: bool) -> None:
        self.client = client
        self.own = own_job()
        self.counts = for_ever and self.own is not None and self.own.stands_still
        self.asked = -math.inf
        self.recorded: int | None = None
        self.warned = False

    def __enter__(self) -> ResultWait:
        return self

    def __exit__(self, *_: object) -> None:
        """Deletes the recorded wait; other waits would take it for a live one."""
        own = self.own
        if own is not None and self.recorded is not None:
            self.client.database.repeat("forget_wait", lambda tx: waits.forget(tx, own.claim))

    def look(self, last: JobRecord) -> None:
        """Raises `WaitsForItself` if the job cannot end before this task does.

        `last` is the last job of the awaited retry chain.
        """
        own = self.own
        if own is None or time.monotonic() - self.asked < ASK_AGAIN:
            return
        first = self.asked == -math.inf
        self._refuse_to_wait(own, last, first=first)
        if not first and self.counts:
            self._record(own, last.id)
            self._refuse_knot(own, last.id)
        self.asked = time.monotonic()

    def _refuse_to_wait(self, own: OwnJob, last: JobRecord, *, first: bool) -> None:
        if last.status is State.RUNNING and last.id != own.id:
            return
        with self.client.database.read() as tx:
            explanation = queue_views.explain(tx, self.client.tenant_id, last.id, lives=lives)
            able = [worker for worker in self._living(tx) if worker.claims(last.task, last.tenant_id)]
        refuse_to_wait(own, explanation, running=[job_id for worker in able for _, job_id, _, _ in worker.running])
        if not first:
            self._warn(own, explanation)

    def _warn(self, own: OwnJob, explanation: Explanation) -> None:
        """Logs once that no worker can claim the job.

        It is not an error, because another worker may start at any time.
        """
        for blocker in explanation.blockers:
            if blocker.kind == "no_worker" and blocker.command is not None and not self.warned:
                self.warned = True
                text = sentence(blocker, explanation.now)
                logger.warning("%s waits for job %d, which cannot start: %s", own.name, explanation.job_id, text)

    def _record(self, own: OwnJob, awaited_id: int) -> None:
        if self.recorded != awaited_id:
            self.recorded = awaited_id  # set first: an interrupt may arrive before the commit
            self.client.database.repeat("record_wait", lambda tx: waits.record(tx, own.claim, awaited_id))

    def _refuse_knot(self, own: OwnJob, awaited_id: int) -> None:
        with self.client.database.read() as tx:
            found, limits = waits.read(tx, {worker.id for worker in self._living(tx)})
        refuse_knot(own, awaited_id, knot(own.claim, found, limits), tenant_id=self.client.tenant_id)

    @staticmethod
    def _living(tx: Tx) -> list[WorkerView]:
        return [worker for worker in worker_views.workers(tx, within=0.0) if lives(worker)]
