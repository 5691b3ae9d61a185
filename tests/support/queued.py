"""Queued jobs for tests of the explanation and the forecast, and the buckets that their tasks and lanes make."""

from __future__ import annotations

from typing import Any

from headway.model.explain.snapshot import ActiveReservation, QueuedJob
from headway.model.jobs.states import State
from headway.model.queue.capacity import Bucket

# Every bucket that a test asked for, by number; equal needs share one, as in the database.
BUCKETS: dict[int, Bucket] = {}


def bucket(task: str, lanes: tuple[int, ...], *, on_target: bool = False) -> Bucket:
    for found in BUCKETS.values():
        if (found.task, found.lanes, found.on_target) == (task, lanes, on_target):
            return found
    made = Bucket(len(BUCKETS) + 1, 1, task, lanes, on_target)
    return BUCKETS.setdefault(made.id, made)


def queued(
    number: int, task: str = "t", lanes: tuple[int, ...] = (), target_id: int | None = None, **more: Any
) -> QueuedJob:
    """A job at the place of its number. With `due` it is SCHEDULED."""
    due = more.pop("due", 0)
    status, not_before = (State.SCHEDULED, due) if due else (State.QUEUED, None)
    in_bucket = bucket(task, lanes, on_target=target_id is not None)
    usual: dict[str, Any] = {"priority": 0, "position": number, "created_at": 1, "not_before": not_before}
    return QueuedJob(number, status, in_bucket.id, target_id=target_id, **usual | more)


def reservation(
    number: int, lanes: tuple[int, ...] = (), target_id: int | None = None, **more: Any
) -> ActiveReservation:
    """A reservation of ann for the tenant of the other jobs."""
    usual: dict[str, Any] = {"created_at": 1, "granted_at": None, "expires_at": None, "holder": "ann", "task": None}
    return ActiveReservation(number, more.pop("tenant_id", 1), lanes, target_id, **usual | more)
