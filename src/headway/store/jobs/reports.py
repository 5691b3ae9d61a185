"""Stores progress, meters and log lines.

The writes themselves are not fenced: the caller asks `still_held` first, in the same transaction.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from headway.errors import LeaseLost
from headway.model.event import NewEvent
from headway.model.jobs.job import Actor
from headway.store import events
from headway.store.db import Tx

FencedJob = tuple[int, int]  # job id, fence
NewLogLine = tuple[int, str, str]  # time, level, message
# Characters of a chunk of the log, and those around a message. A message has at most a quarter of a chunk.
CHUNK, AROUND = 32 * 1024, 40


def still_held(tx: Tx, worker_id: int, claims: Collection[FencedJob]) -> set[int]:
    """Returns the claims that are still held, locked until the transaction ends."""
    found = tx.run("fenced", rows=json.dumps(sorted(claims)), worker_id=worker_id)
    return {row[0] for row in found}


def require(tx: Tx, worker_id: int, claim: FencedJob) -> None:
    if not still_held(tx, worker_id, [claim]):
        raise LeaseLost(f"job {claim[0]} is no longer held under fence {claim[1]}: its work must stop")


def save_progress(tx: Tx, progress: Mapping[int, tuple[float, float | None, str]]) -> None:
    tx.run("save_progress", rows=json.dumps([(job_id, *values) for job_id, values in progress.items()]))


def save_spent(tx: Tx, spent: Mapping[int, Mapping[str, float]]) -> None:
    tx.run("save_spent", rows=json.dumps([(job_id, json.dumps(meters)) for job_id, meters in spent.items()]))


def add_log(tx: Tx, lines: Mapping[int, Sequence[NewLogLine]]) -> None:
    """Adds lines to the logs of jobs, in chunks that a reader can hold in memory."""
    rows = [(job_id, json.dumps(chunk)) for job_id, written in lines.items() for chunk in _chunks(written)]
    tx.run("add_log", rows=json.dumps(rows))


def _chunks(lines: Sequence[NewLogLine]) -> list[Sequence[NewLogLine]]:
    chunks, begin, size = [], 0, 0
    for n, line in enumerate(lines):
        size += len(line[2]) + AROUND
        if size > CHUNK and n > begin:
            chunks.append(lines[begin:n])
            begin, size = n, len(line[2]) + AROUND
    return [*chunks, lines[begin:]]


def stored_last(tx: Tx, lines: Mapping[int, Sequence[NewLogLine]]) -> set[int]:
    """Returns the jobs whose last stored log lines are these.

    Each line has its time to the microsecond, so equal lines are the same lines.
    """
    found = tx.run("last_log", ids=json.dumps(sorted(lines)))
    return {job_id for job_id, text in found if text == json.dumps(_chunks(lines[job_id])[-1])}


def reject_late(tx: Tx, claim: FencedJob, actor: Actor) -> None:
    """Records a write under a stale fence, once per fence."""
    job_id, fence = claim
    # The lock comes before the check, because two threads of a worker may report the same write.
    if not tx.run("lock_job", id=job_id) or tx.run("late_write_known", id=job_id, fence=fence):
        return
    ((tenant_id, version, status),) = tx.run("bump_version", id=job_id)
    event = NewEvent(
        "job.late_write_rejected",
        actor,
        tenant_id=tenant_id,
        thing_id=job_id,
        version=version,
        status=status,
        fence=fence,
    )
    events.record(tx, event)
