"""Buffers the reports of running jobs: progress, log lines and spending.

One transaction stores the reports of many jobs. Checkpoints bypass the buffer: they are stored before the call returns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from headway.model.jobs.job import Claim
from headway.store.db import Tx
from headway.store.jobs import reports

GATHER_SECONDS = 0.5
LOG_LIMIT = 10 * 1024 * 1024


@dataclass(slots=True)
class BufferedReports:
    """The reports of one claim since the last write."""

    claim: Claim
    progress: tuple[float, float | None, str] | None = None
    lines: list[tuple[int, str, str]] = field(default_factory=list)
    spent: dict[str, float] | None = None


class ReportBuffer:
    """The unstored reports of a worker's jobs.

    Any thread adds; only the worker's thread takes. `due_at` is when the worker stores them; `wake` tells it that
    there is such a time.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        self.due_at: float | None = None
        self.lock = threading.Lock()
        self.pending: dict[int, BufferedReports] = {}
        self.totals: dict[int, dict[str, float]] = {}
        self.logged: dict[int, int] = {}

    def begin(self, job_id: int, spent: dict[str, float]) -> None:
        with self.lock:
            self.totals[job_id] = dict(spent)

    def end(self, job_id: int) -> None:
        if job_id in self.totals or job_id in self.logged:
            with self.lock:
                self.totals.pop(job_id, None)
                self.logged.pop(job_id, None)

    def forget(self, job_id: int) -> None:
        """Drops the reports of a job that has ended.

        They are stored already, or the claim was lost.
        """
        with self.lock:
            self.pending.pop(job_id, None)
        self.end(job_id)

    def _of(self, claim: Claim) -> BufferedReports:
        return self.pending.setdefault(claim.job_id, BufferedReports(claim))

    def progress(self, claim: Claim, done: float, total: float | None, label: str) -> None:
        with self.lock:
            self._of(claim).progress = (done, total, label)
        self._gather()

    def log(self, claim: Claim, level: str, message: str, at: int) -> None:
        self._add_line(claim, level, message, at)
        self._gather()

    def _add_line(self, claim: Claim, level: str, message: str, at: int) -> None:
        with self.lock:
            logged = self.logged.get(claim.job_id, 0)
            if logged > LOG_LIMIT:
                return
            self.logged[claim.job_id] = logged + len(message) + 40
            if self.logged[claim.job_id] > LOG_LIMIT:
                level, message = "WARNING", f"the log is longer than {LOG_LIMIT >> 20} MiB: the rest is not kept"
            self._of(claim).lines.append((at, level, message))

    def spend(self, claim: Claim, amounts: dict[str, float]) -> None:
        with self.lock:
            totals = self.totals.setdefault(claim.job_id, {})
            for meter, amount in amounts.items():
                totals[meter] = totals.get(meter, 0.0) + amount
            self._of(claim).spent = totals
        self._gather()

    def _gather(self) -> None:
        if self.due_at is None:
            self.due_at = time.monotonic() + GATHER_SECONDS
            self.wake()

    def take_due(self, *, now: bool) -> list[BufferedReports]:
        """Takes the reports if they are due, or if the worker writes anyway (`now`)."""
        if self.due_at is None or not (now or time.monotonic() >= self.due_at):
            return []
        self.due_at = None
        return self.take()

    def take(self) -> list[BufferedReports]:
        """Removes and returns all pending reports.

        The caller stores them or gives them back.
        """
        with self.lock:
            taken, self.pending = list(self.pending.values()), {}
            for note in taken:
                note.spent = dict(note.spent) if note.spent is not None else None
            return taken

    def give_back(self, taken: list[BufferedReports]) -> None:
        """Puts reports back into the buffer after a failed write.

        Newer values win; log lines keep their order.
        """
        with self.lock:
            for old in taken:
                new = self.pending.get(old.claim.job_id)
                if new is None:
                    self.pending[old.claim.job_id] = old
                    continue
                new.progress = new.progress or old.progress
                new.lines = old.lines + new.lines
                new.spent = new.spent or old.spent
        if taken:
            self.due_at = time.monotonic()


def store(tx: Tx, worker_id: int, notes: list[BufferedReports]) -> list[Claim]:
    """Stores the reports of claims that are still held; returns the lost claims."""
    held = reports.still_held(tx, worker_id, [(note.claim.job_id, note.claim.fence) for note in notes])
    kept = [note for note in notes if note.claim.job_id in held]
    progress = {note.claim.job_id: note.progress for note in kept if note.progress is not None}
    spent = {note.claim.job_id: note.spent for note in kept if note.spent is not None}
    lines = {note.claim.job_id: note.lines for note in kept if note.lines}
    if progress:
        reports.save_progress(tx, progress)
    if spent:
        reports.save_spent(tx, spent)
    if lines:
        reports.add_log(tx, lines)
    return [note.claim for note in notes if note.claim.job_id not in held]


def already_stored(tx: Tx, notes: list[BufferedReports]) -> set[int]:
    """Returns the jobs whose log lines are stored already.

    Progress and spending are totals, so it does no harm to store them twice.
    """
    lines = {note.claim.job_id: note.lines for note in notes if note.lines}
    return reports.stored_last(tx, lines) if lines else set()
