"""What runs now: I-08 nothing runs without its owner; and I-05 as it stands, no slot holds two jobs."""

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


def check(history: History) -> Iterator[Finding]:
    running = [Running._make(row) for row in history.tx.run("verify_running")]
    history.counted["running"] = len(running)
    ((observed_since,),) = history.tx.run("verify_observer")
    for job in running:
        text = _ghost(history, job, observed_since)
        if text is not None:
            yield about_job("I-08", job.job_id, text)
    yield from _slots(running)


def _ghost(history: History, job: Running, observed_since: int | None) -> str | None:
    if job.owner is None:
        return f"it is RUNNING and its worker {job.worker_id:x} does not exist"
    if job.gone_at is None and job.lease_until >= history.now:
        return None
    # Nobody has to notice while nobody is there; from then on the same time is given.
    if observed_since is None:
        return None
    lease = max(history.lease, job.lease_until - job.beat_at)
    last_sign = job.beat_at if job.gone_at is None else job.gone_at
    over = history.now - max(last_sign, observed_since) - 2 * lease - history.recovery
    if over <= 0:
        return None
    return f"it is RUNNING, its worker {job.worker_id:x} was last there at {last_sign}: {over / 1e6:g} s too long ago"


def _slots(running: list[Running]) -> Iterator[Finding]:
    places = Counter((job.worker_id, job.slot) for job in running)
    for (worker_id, slot), count in places.items():
        if count > 1:
            yield Finding("I-05", f"worker {worker_id:x}", f"{count} jobs run in its slot {slot}")
    held = Counter(job.worker_id for job in running)
    for worker_id, slots in {job.worker_id: job.slots for job in running if job.owner is not None}.items():
        if held[worker_id] > slots:
            yield Finding("I-05", f"worker {worker_id:x}", f"it runs {held[worker_id]} jobs in {slots} slots")
