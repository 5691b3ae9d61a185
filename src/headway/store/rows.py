"""Rows to values: the one place that knows the order of columns."""

from __future__ import annotations

from typing import Any

from headway.model.job import Job, Run
from headway.model.outcome import FailureKind
from headway.model.states import State, Stop
from headway.store.db import Row

JOB_COLUMNS = (
    "id tenant_id bucket_id status gate priority position created_at fence version attempt retry_auto exhausted hold retry_of"
    " target_id group_id stage not_before expires_at queued_at started_at finished_at worker_id slot claimed_at ran carries stop"
    " stop_by failure_kind reason key task params options created_by"
).split()
RUN_COLUMNS = "job_id tenant_id task params worker_id started_at status finished_at exit_code error artifacts".split()


def fragments() -> dict[str, Any]:
    """The column lists, as the statements name them."""
    return {
        "job_columns": ", ".join(f"j.{name}" for name in JOB_COLUMNS),
        "run_columns": ", ".join(f"r.{name}" for name in RUN_COLUMNS) + ", j.failure_kind, s.body",
    }


def job(row: Row) -> Job:
    values = dict(zip(JOB_COLUMNS, row, strict=True))
    values["status"] = State(values["status"])
    values["stop"] = Stop(values["stop"]) if values["stop"] else None
    values["failure_kind"] = FailureKind(values["failure_kind"]) if values["failure_kind"] else None
    return Job(**values)


def run(row: Row) -> Run:
    values = list(row)
    values[6] = State(values[6]) if values[6] is not None else None
    values[11] = FailureKind(values[11]) if values[11] else None
    return Run(*values)
