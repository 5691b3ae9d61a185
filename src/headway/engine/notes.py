"""What running work reports, gathered for a moment and written for many jobs at once; checkpoints at once."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from headway.model.job import Claim
from headway.store import reports
from headway.store.db import Tx

GATHER_SECONDS = 0.5
LOG_LIMIT = 10 * 1024 * 1024


@dataclass(slots=True)
class Pending:
    """What one claim has reported since the last write."""

    claim: Claim
    progress: tuple[float, float | None, str] | None = None
    lines: list[tuple[int, str, str]] = field(default_factory=list)
    spent: dict[str, float] | None = None


class Notes:
    """The reports of a worker's jobs that are not stored yet. Any thread adds, the worker's own one flushes."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pending: dict[int, Pending] = {}
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
        """What was reported by work that has ended is stored already, or is nobody's any more."""
        with self.lock:
            self.pending.pop(job_id, None)
        self.end(job_id)

    def _of(self, claim: Claim) -> Pending:
        return self.pending.setdefault(claim.job_id, Pending(claim))

    def progress(self, claim: Claim, done: float, total: float | None, label: str) -> None:
        with self.lock:
            self._of(claim).progress = (done, total, label)

    def log(self, claim: Claim, level: str, message: str, at: int) -> None:
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

    def take(self) -> list[Pending]:
        """All that is pending; the caller stores it or gives it back."""
        with self.lock:
            taken, self.pending = list(self.pending.values()), {}
            for note in taken:
                note.spent = dict(note.spent) if note.spent is not None else None
            return taken

    def give_back(self, taken: list[Pending]) -> None:
        """After a failed write: what is newer wins, lines stay in order."""
        with self.lock:
            for old in taken:
                new = self.pending.get(old.claim.job_id)
                if new is None:
                    self.pending[old.claim.job_id] = old
                    continue
                new.progress = new.progress or old.progress
                new.lines = old.lines + new.lines
                new.spent = new.spent or old.spent


def store(tx: Tx, worker_id: int, notes: list[Pending]) -> list[Claim]:
    """Writes what was gathered, fenced. Returns the claims that no longer stand."""
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
