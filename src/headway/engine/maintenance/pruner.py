"""Retention: deletes chains, groups and other records that ended long ago.

Jobs go by whole chains and whole groups, and a tally keeps their number. Reservations, ticks and webhook deliveries go
too. Answers to idempotency keys go after a day and ended sessions at once, independent of the retention.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headway.clock import micros
from headway.engine.execution.artifacts import place_of
from headway.engine.loop import Loop
from headway.model.jobs.job import SYSTEM, JobRecord
from headway.store import events, idempotency
from headway.store.access import sessions
from headway.store.db import Database, Tx
from headway.store.groups import advance as groups
from headway.store.jobs import changes as jobs
from headway.store.webhooks import outbox

BATCH = 200
INTERVAL = 60.0
START = (-(2**63), 0)


class Pruner(Loop):
    name = "pruner"

    def __init__(self, database: Database, *, retention: float | None, artifacts: Path) -> None:
        super().__init__()
        self.database = database
        self.retention = retention
        self.artifacts = artifacts
        # Position of this pass. A chain that must stay does not hide the chains behind it.
        self.after = START
        self.after_group = START
        self.after_delivery = START

    def tick(self) -> float:
        forgotten = self.prune_answers() + self.prune_sessions()
        outbox.disarm(self.database)  # the lock may have been taken when the last webhook was deleted
        if self.retention is None:
            return 0.0 if forgotten else INTERVAL
        before = self.database.clock.now() - micros(self.retention)
        deleted = self.prune(before) + self.prune_groups(before) + self.prune_ticks(before)
        deleted += self.prune_reservations(before) + self.prune_deliveries(before)
        return 0.0 if deleted or forgotten else INTERVAL

    def prune_answers(self) -> int:
        """Deletes a batch of idempotency keys older than a day. Returns their number."""
        with self.database.read() as tx:
            if not tx.run("old_answer", kept=idempotency.KEPT):
                return 0
        return self.database.transact("prune_answers", idempotency.prune)

    def prune_sessions(self) -> int:
        """Deletes a batch of ended sessions. Returns their number."""
        with self.database.read() as tx:
            if not tx.run("ended_session"):
                return 0
        return self.database.transact("prune_sessions", sessions.prune)

    def prune_reservations(self, before: int) -> int:
        """Deletes a batch of reservations that ended before an instant, with their events.

        Returns their number. No claim reads them, so the claim lock is not needed.
        """
        with self.database.read() as tx:
            if not tx.run("ended_reservation", before=before):
                return 0
        return self.database.transact("prune_reservations", lambda tx: _delete_reservations(tx, before))

    def prune_deliveries(self, before: int) -> int:
        """Deletes a batch of deliveries that ended before an instant.

        Only deliveries whose own event is gone are deleted, with their attempts and events. Returns the number
        examined; 0 ends a pass.
        """
        with self.database.read() as tx:
            page = tx.run("prunable_deliveries", **_page(before, self.after_delivery))
        self.after_delivery = (page[-1][0], page[-1][1]) if page else START
        doomed = [number for _, number, may_go in page if may_go]
        if doomed:
            self.database.transact("prune_deliveries", lambda tx: _delete_deliveries(tx, json.dumps(doomed), before))
        return len(page)

    def prune_groups(self, before: int) -> int:
        """Deletes a batch of groups that ended before an instant, with all their jobs.

        Returns the number deleted, or, if none could go, the number examined; 0 ends a pass.
        """
        with self.database.read() as tx:
            page = [(at, group_id) for at, group_id in tx.run("prunable_groups", **_page(before, self.after_group))]
        self.after_group = page[-1] if page else START
        gone = 0
        for _, group_id in page:
            deleted, files = self.database.transact("prune_group", _delete_group, group_id, before)
            self._unlink(files)
            gone += deleted
        return gone or len(page)

    def prune_ticks(self, before: int) -> int:
        """Deletes a batch of the tick ledger. Returns the number of rows."""
        with self.database.read() as tx:
            if not tx.run("old_tick", before=before):
                return 0
        return self.database.transact("prune_ticks", lambda tx: _delete_ticks(tx, before))

    def _unlink(self, files: list[str]) -> None:
        for file in files:  # after the commit: a leftover file is harmless, a missing one is not
            if (place := place_of(self.artifacts, file)) is not None:
                place.unlink(missing_ok=True)

    def prune(self, before: int) -> int:
        """Deletes a batch of chains that ended before an instant.

        Returns the number of jobs; 0 ends a pass.
        """
        chains = self._ended(before)
        if not chains:
            self.after = START
            return 0
        deleted, files = self.database.transact("prune", lambda tx: _delete(tx, chains, before))
        self._unlink(files)
        return deleted

    def _ended(self, before: int) -> list[list[int]]:
        """Returns the next chains that may go.

        It reads without the write lock, because a terminal job never changes.
        """
        found: list[list[int]] = []
        with self.database.read() as tx:
            tx.run("pin_plans")
            while len(found) < BATCH and (page := _first_jobs(tx, before, self.after)):
                chains = [jobs.chain(tx, job_id) for _, job_id in page]
                found += [[job.id for job in chain] for chain in chains if all(_ended(job, before) for job in chain)]
                self.after = page[-1]
        return found


@contextmanager
def _pruning(tx: Tx, before: int) -> Iterator[None]:
    """Permits the deletion of old records, and notes where the history now begins."""
    tx.run("begin_pruning")
    tx.run("note_pruning", before=before)
    newest = events.newest(tx)
    yield
    if events.newest(tx) < newest:
        # SQLite would reuse these ids, and a subscriber that resumes from one of them would miss new events.
        tx.run("note_pruned", newest=newest, actor=SYSTEM.text())
    tx.run("end_pruning")


def _delete_reservations(tx: Tx, before: int) -> int:
    tx.run("pin_plans")
    with _pruning(tx, before):
        gone = tx.run("prune_reservations", before=before)
        tx.run("prune_workers", before=before)
    return len(gone)


def _delete_deliveries(tx: Tx, ids: str, before: int) -> None:
    with _pruning(tx, before):
        tx.run("prune_deliveries", ids=ids)


def _page(before: int, after: tuple[int, int]) -> dict[str, int]:
    return {"before": before, "after_at": after[0], "after_id": after[1], "limit": BATCH}


def _first_jobs(tx: Tx, before: int, after: tuple[int, int]) -> list[tuple[int, int]]:
    """Returns (finished at, id) of the first jobs of chains, oldest end first."""
    rows = tx.run("prunable", **_page(before, after))
    return [(finished_at, job_id) for finished_at, job_id in rows]


def _ended(job: JobRecord, before: int) -> bool:
    return job.finished_at is not None and job.finished_at < before


def _delete(tx: Tx, chains: list[list[int]], before: int) -> tuple[int, list[str]]:
    tx.run("pin_plans")
    there = jobs.lock_all(tx, [job_id for chain in chains for job_id in chain])
    # A job may have been retried since it was read, and then its chain continues.
    retried = {job_id for (job_id,) in tx.run("retries_beyond", ids=json.dumps(sorted(there)))}
    doomed = [job_id for chain in chains if retried.isdisjoint(chain) for job_id in chain if job_id in there]
    if not doomed:
        return 0, []
    with _pruning(tx, before):
        files = _delete_jobs(tx, doomed)
        tx.run("prune_workers", before=before)
    return len(doomed), files


def _delete_jobs(tx: Tx, doomed: list[int]) -> list[str]:
    """Deletes jobs with all their records.

    Returns the files that no artifact names any more.
    """
    ids = json.dumps(sorted(doomed))
    paths = [path for (path,) in tx.run("artifact_paths", ids=ids)]
    tx.run("tally", ids=ids)
    tx.run("prune", ids=ids)
    return [path for path in paths if not tx.run("artifact_in_use", path=path)]


def _delete_ticks(tx: Tx, before: int) -> int:
    with _pruning(tx, before):
        gone = tx.run("prune_ticks", before=before)
        if gone:
            tx.run("prune_tick_events", ids=json.dumps([tick_id for _, tick_id in gone]))
        for tenant_id, count in Counter(tenant_id for tenant_id, _ in gone).items():
            tx.run("tally_ticks", tenant_id=tenant_id, count=count)
    return len(gone)


def _delete_group(tx: Tx, group_id: int, before: int) -> tuple[int, list[str]]:
    """Deletes a group with all chains that began in it, unless a chain is unfinished."""
    tx.run("pin_plans")
    if not groups.lock_all(tx, [group_id]):
        return 0, []
    there = tx.run("group_chains", group_id=group_id)
    if any(finished_at is None or finished_at >= before for _, finished_at in there):
        return 0, []
    jobs.lock_all(tx, [job_id for job_id, _ in there])
    if tx.run("retry_of_group", id=group_id) or len(tx.run("group_chains", group_id=group_id)) != len(there):
        return 0, []  # it was retried since it was read
    with _pruning(tx, before):
        files = _delete_jobs(tx, [job_id for job_id, _ in there])
        tx.run("tally_group", id=group_id)
        tx.run("prune_group", id=group_id)
    return 1, files
