"""Retention: whole chains that ended long ago are deleted, and a tally says how many there were."""

from __future__ import annotations

import json
from pathlib import Path

from headway.clock import micros
from headway.engine.loop import Loop
from headway.store import jobs
from headway.store.db import Database, Tx

BATCH = 200
INTERVAL = 60.0


class Pruner(Loop):
    name = "pruner"

    def __init__(self, database: Database, *, retention: float | None, artifacts: Path) -> None:
        super().__init__()
        self.database = database
        self.retention = retention
        self.artifacts = artifacts

    def tick(self) -> float:
        if self.retention is None:
            return INTERVAL
        before = self.database.clock.now() - micros(self.retention)
        deleted = self.prune(before)
        return 0.0 if deleted else INTERVAL

    def prune(self, before: int) -> int:
        """One batch of chains that ended before an instant. Returns how many jobs went."""
        deleted, files = self.database.transact("prune", lambda tx: _prune(tx, before))
        for file in files:  # after the commit: a file too many is harmless, one too few is not
            (self.artifacts / file).unlink(missing_ok=True)
        return deleted


def _prune(tx: Tx, before: int) -> tuple[int, list[str]]:
    doomed: set[int] = set()
    for (job_id,) in tx.run("prunable", before=before, limit=BATCH):
        if job_id not in doomed:
            chain = jobs.chain(tx, job_id)
            if all(job.finished_at is not None and job.finished_at < before for job in chain):
                doomed.update(job.id for job in chain)
    if not doomed:
        return 0, []
    ids = json.dumps(sorted(doomed))
    paths = [path for (path,) in tx.run("artifact_paths", ids=ids)]
    tx.run("begin_pruning")
    tx.run("tally", ids=ids)
    tx.run("prune", ids=ids)
    tx.run("prune_workers", before=before)
    tx.run("end_pruning")
    return len(doomed), [path for path in paths if not tx.run("artifact_in_use", path=path)]
