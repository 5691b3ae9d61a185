"""Checks that running jobs have a live owner (I-08) and a slot each (I-05)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from headway.verify.history import History
from headway.verify.report import Finding, about_job


class Running(NamedTuple):
    job_id: int
    worker_id: int
    slot: int
    claimed_at: int
    owner: int | None
    slots: int
    beat_at: int
    lease_until: int
    gone_at: int | None


class Lease(NamedTuple):
    """The lease of a worker, or of a process that makes direct calls."""

    beat_at: int
    lease_until: int
    gone_at: int | None


def observed_since(history: History) -> int | None:
    """Returns since when a live process could notice lost claims, or None."""
    ((since,),) = history.tx.run("verify_observer")
    return None if since is None else int(since)


def overdue(history: History, held: Lease, observed: int | None) -> str | None:
    """Describes for how long claims under this lease are overdue, or None."""
    # Without an observer no claim can be recovered. A new observer gets the same time as any other.
    if observed is None or (held.gone_at is None and held.lease_until >= history.now):
        return None
    lease = max(history.lease, held.lease_until - held.beat_at)
    last_sign = held.beat_at if held.gone_at is None else held.gone_at
    over = history.now - max(last_sign, observed) - 2 * lease - history.recovery
    return f"was last alive at {last_sign}: {over / 1e6:g} s too long ago" if over > 0 else None


def check(history: History) -> Iterator[Finding]:
    running = [Running._make(row) for row in history.tx.run("verify_running")]
    history.counted["running"] = len(running)
    observed = observed_since(history)
    for job in running:
        text = _orphan(history, job, observed)
        if text is not None:
            yield about_job("I-08", job.job_id, f"it is RUNNING, {text}")
    yield from _slots(running)


def _orphan(history: History, job: Running, observed: int | None) -> str | None:
    if job.owner is None:
        return f"its worker {job.worker_id:x} does not exist"
    over = overdue(history, Lease(job.beat_at, job.lease_until, job.gone_at), observed)
    return None if over is None else f"its worker {job.worker_id:x} {over}"


def _slots(running: list[Running]) -> Iterator[Finding]:
    places = Counter((job.worker_id, job.slot) for job in running)
    for (worker_id, slot), count in places.items():
        if count > 1:
            yield Finding("I-05", f"worker {worker_id:x}", f"{count} jobs run in its slot {slot}")
    held = Counter(job.worker_id for job in running)
    for worker_id, slots in {job.worker_id: job.slots for job in running if job.owner is not None}.items():
        if held[worker_id] > slots:
            yield Finding("I-05", f"worker {worker_id:x}", f"it runs {held[worker_id]} jobs in {slots} slots")
