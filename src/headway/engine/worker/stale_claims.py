"""Stops the work of claims that wrote under a stale fence, and records each once."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from headway.engine.worker.execution_pool import ExecutionPool
from headway.engine.worker.lease import Lease
from headway.errors import Unreachable
from headway.model.jobs.job import Claim
from headway.store.jobs import reports

log = logging.getLogger("headway")


class StaleClaims:
    """The stale claims that are not recorded yet. Any thread may use it."""

    def __init__(self, lease: Lease, pool: ExecutionPool) -> None:
        self.lease = lease
        self.pool = pool
        self.unrecorded: dict[tuple[int, int], Claim] = {}

    def reject(self, lost: Sequence[Claim]) -> None:
        """Stops the work of these claims and records them.

        If the database is unreachable, a later tick records them.
        """
        for claim in lost:
            self.unrecorded[claim.job_id, claim.fence] = claim
            self.pool.stop_lost(claim)
        try:
            self.record()
        except Unreachable as error:
            log.warning("a write under a stale fence is recorded later: %s", error)
            self.lease.owner.waiter.wake()

    def record(self) -> None:
        for held in list(self.unrecorded):
            self.lease.database.transact("reject", reports.reject_late, held, self.lease.actor)
            self.unrecorded.pop(held, None)
