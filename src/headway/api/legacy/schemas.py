"""JSON of the deprecated endpoints: `/jobs/*` and `/targets/*` without `/api`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from headway.api.schemas.common import Body, Json, time_or_none
from headway.model.jobs.finish import INTERRUPTED_BY
from headway.model.jobs.job import JobRecord, Run
from headway.model.jobs.states import State
from headway.store.jobs.views import JobView
from headway.store.workers import worker_name

Strict = with_config(ConfigDict(extra="forbid"))
# Old clients know no held jobs, so PAUSED is shown as queued and ERROR as failed.
_STATUS = {
    State.WAITING: "queued",
    State.SCHEDULED: "queued",
    State.QUEUED: "queued",
    State.RUNNING: "running",
    State.PAUSED: "queued",
    State.ERROR: "failed",
    State.COMPLETED: "succeeded",
    State.FAILED: "failed",
    State.SKIPPED: "skipped",
    State.CANCELLED: "cancelled",
}
# On a target, ERROR means that the job holds it and can be resumed; a FAILED job has ended and holds nothing.
_TARGET_STATUS = {
    State.WAITING: "PENDING",
    State.SCHEDULED: "PENDING",
    State.QUEUED: "QUEUED",
    State.RUNNING: "RUNNING",
    State.PAUSED: "PAUSED",
    State.ERROR: "ERROR",
    State.COMPLETED: "SUCCESS",
    State.FAILED: "CANCELED",
    State.SKIPPED: "CANCELED",
    State.CANCELLED: "CANCELED",
}
OldStatus = Literal["queued", "running", "succeeded", "failed", "cancelled", "skipped"]
OldTargetStatus = Literal["PENDING", "QUEUED", "RUNNING", "PAUSED", "ERROR", "SUCCESS", "CANCELED"]


class OldMember(Body):
    type: Annotated[str, Field(max_length=50)]
    params: dict[str, Any] | None = None


class NewOldBatch(Body):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"jobs": [{"type": "research", "params": {"topic": "fog"}}]}]}
    )
    jobs: Annotated[list[OldMember], Field(min_length=1, max_length=1_000)]


@Strict
class Triggered(TypedDict):
    job_id: str
    type: str
    status: OldStatus
    message: str


@Strict
class OldJob(TypedDict):
    job_id: str
    type: str
    status: OldStatus
    params: dict[str, Any]
    pid: int | None
    log_path: str | None
    artifacts: list[Any]
    created_at: str | None
    started_at: str | None
    finished_at: str | None
    exit_code: int | None
    error: str | None


@Strict
class OldJobs(TypedDict):
    jobs: list[OldJob]
    total: int


@Strict
class OldBatch(TypedDict):
    batch_id: str
    job_ids: list[str]
    job_count: int
    status: OldStatus
    message: str


@Strict
class TargetJob(TypedDict):
    job_id: str
    target_id: str
    task: str
    params: dict[str, Any]
    status: OldTargetStatus
    lease_owner: str | None
    lease_expires_at: str | None
    cancel_requested: bool
    message: str | None
    result: Any
    created_at: str | None
    started_at: str | None
    finished_at: str | None


@Strict
class TargetJobs(TypedDict):
    jobs: list[TargetJob]


def triggered_json(job_id: int, kind: str) -> Json:
    return {"job_id": str(job_id), "type": kind, "status": "queued", "message": f"{kind} job {job_id} was queued"}


def status_of(view: JobView) -> str:
    return _STATUS[view.job.status]


def old_job_json(asked: int, kind: str, view: JobView, *, pid: int | None, log_path: str) -> Json:
    """Returns a job with the state of its last retry. Old clients know no retries."""
    job, run = view.job, view.run
    return {
        "job_id": str(asked),
        "type": kind,
        "status": status_of(view),
        "params": json.loads(job.params),
        "pid": pid,
        "log_path": log_path,
        "artifacts": json.loads(run.artifacts) if run is not None and run.artifacts else [],
        "created_at": time_or_none(job.created_at),
        "started_at": time_or_none(job.started_at),
        "finished_at": time_or_none(job.finished_at),
        "exit_code": run.exit_code if run is not None else None,
        "error": (run.error if run is not None else None) or (job.reason if status_of(view) == "failed" else None),
    }


def batch_json(batch_id: int, job_ids: Sequence[int], statuses: Sequence[str]) -> Json:
    """Returns a batch.

    Its status is that of its busiest job, or of its worst once all have ended.
    """
    done = sum(status in ("succeeded", "failed", "cancelled", "skipped") for status in statuses)
    order = ("running", "queued", "failed", "cancelled", "skipped", "succeeded")
    return {
        "batch_id": str(batch_id),
        "job_ids": [str(job_id) for job_id in job_ids],
        "job_count": len(job_ids),
        "status": next(status for status in order if status in statuses),
        "message": f"{done} of {len(job_ids)} jobs have ended",
    }


def states_of(status: str | None) -> frozenset[State]:
    """Returns the states that old clients of a target know by this status; none for None."""
    return frozenset(state for state, old in _TARGET_STATUS.items() if old == status)


def _message(job: JobRecord, run: Run | None) -> str | None:
    if job.status is State.PAUSED and job.reason is not None and job.reason.startswith(INTERRUPTED_BY):
        return "Job was interrupted by user"
    return job.reason or (run.error if run is not None else None)


def target_job_json(view: JobView) -> Json:
    job, run = view.job, view.run
    return {
        "job_id": str(job.id),
        "target_id": view.target,
        "task": job.task,
        "params": json.loads(job.params),
        "status": _TARGET_STATUS[job.status],
        "lease_owner": worker_name(job.worker_id) if job.worker_id is not None else None,
        "lease_expires_at": time_or_none(view.lease_until),
        "cancel_requested": job.stop is not None,
        "message": _message(job, run),
        "result": json.loads(run.result) if run is not None and run.result else None,
        "created_at": time_or_none(job.created_at),
        "started_at": time_or_none(job.started_at),
        "finished_at": time_or_none(job.finished_at),
    }
