"""Jobs as they are stored, for tests of the model."""

from __future__ import annotations

from typing import Any

from headway.model.jobs.finish import FinishInputs
from headway.model.jobs.job import Actor, JobRecord, Options
from headway.model.jobs.retry import RetryPolicy
from headway.model.jobs.states import State, StopRequest

NOW = 1_000_000
ADA = Actor("user", "7", "ada")


def a_job(status: State, **fields: Any) -> JobRecord:
    """A job in this state, with the columns that the schema requires there."""
    claimed = status >= State.RUNNING
    row: dict[str, Any] = dict.fromkeys(JobRecord.__slots__) | {
        "id": 5,
        "tenant_id": 1,
        "bucket_id": 1,
        "status": status,
        "gate": int(status is State.QUEUED),
        "priority": 0,
        "position": 5 << 20,
        "created_at": 1,
        "fence": int(claimed),
        "version": 3,
        "attempt": 1,
        "retry_auto": 0,
        "exhausted": 0,
        "hold": int(status is State.WAITING),
        "not_before": NOW + 60 if status is State.SCHEDULED else None,
        "queued_at": 2 if status >= State.QUEUED else None,
        "started_at": 3 if claimed else None,
        "finished_at": 9 if status.terminal else None,
        "worker_id": 77 if status is State.RUNNING else None,
        "slot": 0 if status is State.RUNNING else None,
        "claimed_at": 3 if claimed else None,
        "ran": 0,
        "carries": 0,
        "task": "t",
        "params": '{"n":1}',
        "options": Options().text(),
        "created_by": ADA.text(),
    }
    return JobRecord(**(row | fields))


def standing(
    policy: RetryPolicy | None = None,
    *,
    retries_used: int = 0,
    stop: StopRequest | None = None,
    stop_by: Actor | None = None,
    on_target: bool = False,
    over_budget: str | None = None,
    group_cancelled: bool = False,
    **options: Any,
) -> FinishInputs:
    """What the transaction that ends a running job knows of it."""
    by = None if stop_by is None else stop_by.text()
    job = a_job(State.RUNNING, stop=stop, stop_by=by, target_id=3 if on_target else None)
    wishes = Options(retry=policy or RetryPolicy(), **options)
    return FinishInputs(job, wishes, NOW, retries_used, over_budget, group_cancelled=group_cancelled)
