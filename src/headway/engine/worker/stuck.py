"""Marks a worker stuck if work does not stop.

Only the worker's thread judges; any thread may ask if only such work is left.
"""

from __future__ import annotations

from headway.engine.execution.running import Running
from headway.engine.worker.execution_pool import ExecutionPool
from headway.engine.worker.lease import Lease
from headway.engine.worker.life import WorkerLife, WorkerState
from headway.model.jobs.states import NOT_STOPPING
from headway.store import workers
from headway.store.db import Tx
from headway.store.queue import claims


class StuckWatch:
    """Judges the work that was asked to stop."""

    def __init__(self, life: WorkerLife, lease: Lease, pool: ExecutionPool) -> None:
        self.life = life
        self.lease = lease
        self.pool = pool

    def judge(self) -> bool:
        """Marks the worker stuck if work does not stop; returns True while work is asked to stop.

        Such work keeps its claim. A stuck worker claims nothing, and its process exits when its other jobs are done.
        """
        asked = self.pool.asked()
        if asked and (hopeless := self.pool.end_blocked_loop(asked) or self._hopeless(asked)):
            self.life.move(WorkerState.STALLED)
            try:
                self.lease.database.transact("stuck", self._store, hopeless)
                self.life.stored = "stuck"
            finally:
                self.life.move(WorkerState.STUCK)
        return bool(asked)

    def _hopeless(self, asked: list[Running]) -> list[Running]:
        return [] if self.life.state is WorkerState.STUCK else self.pool.hopeless(asked)

    def _store(self, tx: Tx, hopeless: list[Running]) -> None:
        who, actor = self.lease.who, self.lease.actor
        workers.set_state(tx, who.id, "stuck", actor)
        for running in hopeless:
            claim = running.claim
            for tenant_id, version in tx.run("mark_reason", id=claim.job_id, fence=claim.fence, reason=NOT_STOPPING):
                claims.record_stuck(tx, tenant_id, claim, version, actor)

    @property
    def only_stuck_left(self) -> bool:
        """True if the worker is stuck and only jobs that do not stop are left.

        All finished jobs are recorded then.
        """
        left = list(self.pool.running.values())
        stuck = self.life.state is WorkerState.STUCK
        return stuck and all(running.asked_at is not None and self.pool.works(running) for running in left)
