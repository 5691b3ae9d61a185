"""I-18: a job, its run, its events, its bucket and its chain belong to one tenant. And the gate, which is derived."""

from __future__ import annotations

from collections.abc import Iterator

from headway.verify.history import History
from headway.verify.moves import QUEUED, word
from headway.verify.records import JobHistory, JobRow
from headway.verify.report import Finding, about_job


def check(history: History, job: JobHistory) -> Iterator[Finding]:
    row = job.row
    if row is None:
        return
    for text in _strangers(history, job, row):
        yield about_job("I-18", job.id, f"it belongs to tenant {row.tenant_id}, {text}")
    if row.target_id is None and row.gate != int(row.status == QUEUED):
        yield about_job("gate", job.id, f"it is {word(row.status)} without a target and its gate is {row.gate}")


def _strangers(history: History, job: JobHistory, row: JobRow) -> Iterator[str]:
    tenant_id = row.tenant_id
    if tenant_id not in history.tenants:
        yield "which does not exist"
    if row.has_run and row.run_tenant != tenant_id:
        yield f"its run to tenant {row.run_tenant}"
    for event in job.events:
        if event.tenant_id != tenant_id:
            yield f"its event ({event.where}) to tenant {event.tenant_id}"
    bucket = history.buckets.get(row.bucket_id)
    if bucket is None:
        yield f"its bucket {row.bucket_id} does not exist"
    elif (bucket.tenant_id, bucket.task) != (tenant_id, row.task):
        yield f"its task is {row.task!r}, its bucket {row.bucket_id} of tenant {bucket.tenant_id} and {bucket.task!r}"
    if job.parent is not None and job.parent.id is not None and job.parent.tenant_id != tenant_id:
        yield f"job {job.parent.id}, which it retries, to tenant {job.parent.tenant_id}"


def check_lanes(history: History) -> Iterator[Finding]:
    """A bucket needs lanes of the installation or of its own tenant."""
    owner = {lane_id: tenant_id for lane_id, tenant_id, *_ in history.tx.run("verify_lanes")}
    for bucket_id, bucket in history.buckets.items():
        for lane in bucket.lanes:
            if owner.get(lane) not in (0, bucket.tenant_id):
                whose = f"tenant {owner[lane]}" if lane in owner else "nobody"
                yield Finding("I-18", f"bucket {bucket_id}", f"its lane {lane} belongs to {whose}")
