"""Takes the reports of one claim.

Progress, log and spending are buffered; checkpoints and files are stored at once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headway.engine.execution.artifacts import keep
from headway.engine.worker.execution_pool import ExecutionPool
from headway.engine.worker.report_buffer import ReportBuffer
from headway.errors import LeaseLost, Unreachable
from headway.fault_points import point
from headway.model.jobs.job import Claim
from headway.store.db import Database, Tx
from headway.store.jobs import reports

AWAY_SECONDS = 0.5


class ReportSink:
    """The sink of one claim's reports.

    Checkpoints and files are stored before the call returns.
    """

    def __init__(
        self,
        database: Database,
        worker_id: int,
        claim: Claim,
        buffer: ReportBuffer,
        on_stale: Callable[[list[Claim]], None],
        *,
        pool: ExecutionPool,
        artifacts: Path,
    ) -> None:
        self.database = database
        self.worker_id = worker_id
        self.claim = claim
        self.buffer = buffer
        self.on_stale = on_stale
        self.pool = pool
        self.artifacts = artifacts

    def progress(self, done: float, total: float | None, label: str) -> None:
        self.buffer.progress(self.claim, done, total, label)

    def log(self, level: str, message: str, at: int) -> None:
        self.buffer.log(self.claim, level, message, at)

    def spend(self, amounts: dict[str, float]) -> None:
        self.buffer.spend(self.claim, amounts)

    def checkpoint(self, text: str) -> None:
        def save(tx: Tx) -> None:
            self._require(tx)
            tx.run("save_checkpoint", job_id=self.claim.job_id, checkpoint=text)

        self._fenced("checkpoint", save)

    def attach(self, path: str, name: str) -> None:
        kept = keep(self.artifacts, path)
        point("attach.copied")

        def save(tx: Tx) -> None:
            self._require(tx)
            tx.run(
                "add_artifact", job_id=self.claim.job_id, name=name, size=kept.size, sha256=kept.sha256, path=kept.path
            )

        self._fenced("attach", save)
        running = self.pool.running.get(self.claim.job_id)
        if running is not None:
            running.attached = True

    def _require(self, tx: Tx) -> None:
        reports.require(tx, self.worker_id, (self.claim.job_id, self.claim.fence))

    def _fenced(self, label: str, save: Callable[[Tx], None]) -> None:
        """Runs `save` under the fence; raises LeaseLost if the claim was lost.

        While the database is unreachable the caller waits, until its lease runs out and its work is stopped.
        """
        while True:
            try:
                return self.database.transact(label, save)
            except LeaseLost:
                self.on_stale([self.claim])
                raise
            except Unreachable as error:
                if self._given_up():
                    raise LeaseLost(
                        f"job {self.claim.job_id} was stopped while the database was unreachable"
                    ) from error
                self.pool.ended.wait(AWAY_SECONDS)

    def _given_up(self) -> bool:
        running = self.pool.running.get(self.claim.job_id)
        return self.pool.ended.is_set() or running is None or running.stop.asked
