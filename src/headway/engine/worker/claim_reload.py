"""Replaces the worker's claims by those in the database.

Needed after a lost answer, or after a renewal that differs. The claim lock makes the stored claims final: a transaction
whose connection broke holds it until its commit is decided (decision 0027).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headway.engine.execution.running import Running
from headway.engine.worker import report_buffer
from headway.engine.worker.execution_pool import ExecutionPool
from headway.engine.worker.lease import Lease
from headway.engine.worker.reconciliation import HeldClaim, Reconciliation
from headway.engine.worker.report_buffer import BufferedReports, ReportBuffer
from headway.model.jobs.job import Claim
from headway.store.db import Tx
from headway.store.queue import claims


class Reloaded(NamedTuple):
    """The result of a reload: claims to start, and the number of ends that were recorded already."""

    fresh: list[Claim]
    recorded: int


class ClaimReload:
    """Knows if the claims in the database may differ from the worker's, and reads them again.

    `needed` is written by the worker's thread and by the heartbeat's. `unsure` are reports that may be stored already.
    """

    def __init__(self, lease: Lease, pool: ExecutionPool, notes: ReportBuffer) -> None:
        self.lease = lease
        self.pool = pool
        self.notes = notes
        self.needed = False
        self.unsure: list[BufferedReports] = []
        self.reconciliation = Reconciliation[Running](lambda running: running.claim.fence)

    def compare(self, message: dict[str, Any]) -> None:
        """Compares the claims that the heartbeat found in the database. Only its thread calls this."""
        if self.reconciliation.differs(message, self.pool.running):
            self.needed = True
            self.lease.owner.waiter.wake()

    def run(self) -> Reloaded:
        held, stored = self.lease.database.transact("turn", self._read)
        pending, self.unsure = self.unsure, []
        self.notes.give_back([note for note in pending if note.claim.job_id not in stored])
        recorded = self.pool.drop_unless(lambda claim: (claim.job_id, claim.fence) in held)
        for claim in recorded:
            self.notes.forget(claim.job_id)
        for running in list(self.pool.running.values()):
            if (running.claim.job_id, running.claim.fence) not in held:
                self.pool.stop_lost(running.claim)
        fresh = [claim for claim in held.values() if claim.job_id not in self.pool.running]
        self.pool.keep_free(self.pool.free, {claim.slot for claim in fresh})
        self.needed = False
        return Reloaded(fresh, len(recorded))

    def _read(self, tx: Tx) -> tuple[dict[HeldClaim, Claim], set[int]]:
        """Returns the stored claims, and the jobs whose reports are stored already."""
        held = {(claim.job_id, claim.fence): claim for claim in claims.own(tx, self.lease.who.id)}
        return held, report_buffer.already_stored(tx, self.unsure)
