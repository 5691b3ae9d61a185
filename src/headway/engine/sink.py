"""Where the reports of one claim go: progress, log and spend are gathered, the rest is stored before it returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headway.engine import artifacts
from headway.errors import LeaseLost, Unreachable
from headway.faults import point
from headway.model.job import Claim
from headway.store import reports
from headway.store.db import Tx

if TYPE_CHECKING:
    from headway.engine.worker import Worker

AWAY_SECONDS = 0.5


class JobSink:
    """Where one claim's reports go. Progress, log and spend are gathered; the rest is stored before it returns."""

    def __init__(self, worker: Worker, claim: Claim) -> None:
        self.worker = worker
        self.claim = claim

    def progress(self, done: float, total: float | None, label: str) -> None:
        self.worker.notes.progress(self.claim, done, total, label)
        self.worker.notes_due()

    def log(self, level: str, message: str, at: int) -> None:
        self.worker.notes.log(self.claim, level, message, at)
        self.worker.notes_due()

    def spend(self, amounts: dict[str, float]) -> None:
        self.worker.notes.spend(self.claim, amounts)
        self.worker.notes_due()

    def checkpoint(self, text: str) -> None:
        def save(tx: Tx) -> None:
            self._require(tx)
            tx.run("save_checkpoint", job_id=self.claim.job_id, checkpoint=text)

        self._fenced("checkpoint", save)

    def attach(self, path: str, name: str) -> None:
        kept = artifacts.keep(self.worker.wishes.artifacts, path)
        point("attach.copied")

        def save(tx: Tx) -> None:
            self._require(tx)
            tx.run(
                "add_artifact", job_id=self.claim.job_id, name=name, size=kept.size, sha256=kept.sha256, path=kept.path
            )

        self._fenced("attach", save)
        running = self.worker.running.get(self.claim.job_id)
        if running is not None:
            running.attached = True

    def _require(self, tx: Tx) -> None:
        reports.require(tx, self.worker.who.id, (self.claim.job_id, self.claim.fence))

    def _fenced(self, label: str, save: Callable[[Tx], None]) -> None:
        """Stores under the fence. While the database is away the work waits: its lease says for how long."""
        while True:
            try:
                return self.worker.database.transact(label, save)
            except LeaseLost:
                self.worker.reject([self.claim])
                raise
            except Unreachable as error:
                if self._given_up():
                    raise LeaseLost(f"job {self.claim.job_id} was stopped while the database was away") from error
                self.worker.ended.wait(AWAY_SECONDS)

    def _given_up(self) -> bool:
        running = self.worker.running.get(self.claim.job_id)
        return self.worker.ended.is_set() or running is None or running.stop.asked
