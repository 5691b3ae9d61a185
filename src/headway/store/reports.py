"""What running work reports, in the database: progress, meters, log lines, checkpoints. Every write is fenced."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from headway.errors import LeaseLost
from headway.model.job import Actor
from headway.store.db import Tx

Held = tuple[int, int]  # job id, fence


def still_held(tx: Tx, worker_id: int, claims: Collection[Held]) -> set[int]:
    """Which of these claims still stand; they stay locked until the transaction ends."""
    found = tx.run("fenced", rows=json.dumps(sorted(claims)), worker_id=worker_id)
    return {row[0] for row in found}


def require(tx: Tx, worker_id: int, claim: Held) -> None:
    if not still_held(tx, worker_id, [claim]):
        raise LeaseLost(f"job {claim[0]} is no longer held under fence {claim[1]}: its work must stop")


def save_progress(tx: Tx, progress: Mapping[int, tuple[float, float | None, str]]) -> None:
    tx.run("save_progress", rows=json.dumps([(job_id, *values) for job_id, values in progress.items()]))


def save_spent(tx: Tx, spent: Mapping[int, Mapping[str, float]]) -> None:
    tx.run("save_spent", rows=json.dumps([(job_id, json.dumps(meters)) for job_id, meters in spent.items()]))


def add_log(tx: Tx, lines: Mapping[int, Sequence[tuple[int, str, str]]]) -> None:
    tx.run("add_log", rows=json.dumps([(job_id, json.dumps(chunk)) for job_id, chunk in lines.items()]))


def reject_late(tx: Tx, claim: Held, actor: Actor) -> None:
    """Records that a worker wrote under a fence that has ended: one event however often it tries."""
    job_id, fence = claim
    # Locked before it is looked for, because two threads of a worker may come with the same news.
    if not tx.run("lock_job", id=job_id) or tx.run("late_write_known", id=job_id, fence=fence):
        return
    ((tenant_id, version, status),) = tx.run("bump_version", id=job_id)
    event = (tenant_id, "job", job_id, version, "job.late_write_rejected", status, actor.text(), fence, None)
    tx.run("add_events", rows=json.dumps([event]))
