"""Stores jobs: creating, locking and changing them, and their retries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from headway.errors import NotFound
from headway.model.event import NewEvent
from headway.model.jobs.actions import Change
from headway.model.jobs.job import Actor, JobRecord, NewJob, Run
from headway.model.jobs.outcome import FailureKind
from headway.model.jobs.states import State
from headway.model.values.json import encode
from headway.store import events, rows
from headway.store.db import Row, Tx


def parameters(
    job: NewJob, bodies: Sequence[object], bucket_id: int, tenant_id: int, actor: str, *, admitted: bool = False
) -> dict[str, object]:
    """Returns the parameters of `enqueue` for jobs that are alike.

    Unless they are `admitted`, the statement creates none for a tenant with max_queued.
    """
    return {
        "tenant_id": tenant_id,
        "actor": actor,
        "params": encode(bodies),
        "count": len(bodies),
        "admitted": int(admitted),
        "bucket_id": bucket_id,
        "task": job.task,
        "priority": job.priority,
        "options": job.options,
        "key": job.key,
        "hold": int(job.hold),
        "not_before": job.not_before,
        "delay": job.delay,
        "expires_at": job.expires_at,
        "template_id": job.template_id,
    }


PlacedJob = tuple[NewJob, int, int | None]  # a job to create, its bucket, its target
_in_common = attrgetter(*(name for name in NewJob._fields if name not in ("params", "target")))


def alike(a: PlacedJob, b: PlacedJob) -> bool:
    """Returns True if one statement can create both jobs.

    The jobs then differ only in params and target, and neither has a key.
    """
    (one, bucket, _), (other, its_bucket, _) = a, b
    return bucket == its_bucket and one.key is None and _in_common(one) == _in_common(other)


def runs_of_alike(new: Sequence[PlacedJob]) -> list[list[PlacedJob]]:
    """Splits jobs, in order, into runs that one statement can create."""
    runs: list[list[PlacedJob]] = []
    for job in new:
        if runs and alike(runs[-1][0], job):
            runs[-1].append(job)
        else:
            runs.append([job])
    return runs


def insert(
    tx: Tx, tenant_id: int, actor: Actor, new: Sequence[PlacedJob], *, admitted: bool = False
) -> list[int | None]:
    """Creates jobs and returns their ids in order.

    An id is None if the key was taken, or if the tenant accepts no jobs.
    """
    ids: list[int | None] = []
    for run in runs_of_alike(new):
        job, bucket_id, _ = run[0]
        bodies = [body(one.params, target_id) for one, _, target_id in run]
        values = parameters(job, bodies, bucket_id, tenant_id, actor.text(), admitted=admitted)
        ids += ids_of(tx.run("enqueue", **values)) or [None] * len(run)
        for _, _, target_id in run:
            tx.touch(target_id)
    return ids


def body(params: str, target_id: int | None) -> object:
    """Returns a job's element in the `params` of `enqueue`."""
    return params if target_id is None else (params, target_id)


def ids_of(made: Sequence[Row]) -> list[int]:
    """Returns the ids of new jobs, which `enqueue` returns as (first id, count)."""
    return [job_id for first, count in made for job_id in range(first, first + count)]


def find(tx: Tx, job_id: int, tenant_id: int) -> JobRecord:
    return _one(tx.run("read_job", id=job_id), job_id, tenant_id)


def find_all(tx: Tx, ids: Sequence[int]) -> dict[int, JobRecord]:
    return {job.id: job for job in map(rows.job, tx.run("read_jobs", ids=json.dumps(list(ids))))}


def lock(tx: Tx, job_id: int, tenant_id: int | None = None) -> JobRecord:
    return _one(tx.run("lock_job", id=job_id), job_id, tenant_id)


def lock_all(tx: Tx, ids: Sequence[int]) -> dict[int, JobRecord]:
    """Locks jobs in the order of their ids, as every transaction does."""
    return {job.id: job for job in map(rows.job, tx.run("lock_jobs", ids=json.dumps(sorted(ids))))}


def _one(found: list[Row], job_id: int, tenant_id: int | None) -> JobRecord:
    job = rows.job(found[0]) if found else None
    if job is None or (tenant_id is not None and job.tenant_id != tenant_id):
        raise NotFound(f"there is no job {job_id}")
    return job


def run_of(tx: Tx, job_id: int) -> Run | None:
    found = tx.run("read_run", job_id=job_id)
    return rows.run(found[0]) if found else None


def with_key(tx: Tx, tenant_id: int, task: str, key: str) -> JobRecord | None:
    found = tx.run("job_with_key", tenant_id=tenant_id, task=task, key=key)
    return rows.job(found[0]) if found else None


def automatic_retry(tx: Tx, job_id: int) -> JobRecord | None:
    found = tx.run("automatic_retry", id=job_id)
    return rows.job(found[0]) if found else None


def automatic_retries(tx: Tx, job_id: int) -> list[JobRecord]:
    """Returns the automatic retries after a job, oldest first."""
    return [rows.job(row) for row in tx.run("automatic_retries", id=job_id)]


def chain(tx: Tx, job_id: int) -> list[JobRecord]:
    return [rows.job(row) for row in tx.run("chain", id=job_id)]


def chain_without_params(tx: Tx, job_id: int) -> list[JobRecord]:
    """Returns the jobs of a chain for what their states decide; their params are left out."""
    return [rows.job(row) for row in tx.run("chain_without_params", id=job_id)]


def chain_failures(tx: Tx, job_id: int) -> list[FailureKind]:
    """Returns the failures before this job in its chain of automatic retries."""
    return [FailureKind(kind or "EXCEPTION") for (kind,) in tx.run("chain_failures", id=job_id)]


def spent(tx: Tx, job_id: int) -> dict[str, float]:
    found = tx.run("read_report", job_id=job_id)
    return json.loads(found[0][3]) if found and found[0][3] else {}


def apply(tx: Tx, change: Change, actor: Actor) -> int:
    """Stores a change with its event, and closes the run if the change says so.

    Returns the job's new version.
    """
    job = change.job
    landed = tx.run(
        "save_job",
        id=job.id,
        status=int(job.status),
        gate=job.gate,
        priority=job.priority,
        position=job.position,
        version=job.version,
        exhausted=job.exhausted,
        hold=job.hold,
        not_before=job.not_before,
        expires_at=job.expires_at,
        queued_at=job.queued_at,
        finished_at=job.finished_at,
        worker_id=job.worker_id,
        slot=job.slot,
        ran=job.ran,
        carries=job.carries,
        stop=job.stop.value if job.stop else None,
        stop_by=job.stop_by,
        failure_kind=job.failure_kind.value if job.failure_kind else None,
        reason=job.reason,
        params=job.params,
        unfilled=job.unfilled,
        options=job.options,
    )
    assert landed, f"job {job.id} was changed without its lock"
    if change.run is not None:
        tx.run(
            "close_run",
            job_id=job.id,
            status=int(change.run.status),
            exit_code=change.run.exit_code,
            error=change.run.error,
        )
    if change.result is not None and change.result != "null":
        tx.run("save_result", job_id=job.id, body=change.result)
    record(tx, job, change.kind, actor, version=job.version + 1, data=change.data)
    tx.touch(job.target_id)
    return job.version + 1


def end_unrun(tx: Tx, changes: Sequence[Change], actor: Actor) -> None:
    """Ends locked jobs that never ran and end alike, in two statements."""
    if not changes:
        return
    first = changes[0].job
    end = {"status": int(first.status), "finished_at": first.finished_at, "reason": first.reason}
    landed = tx.run("end_unrun", ids=json.dumps([change.job.id for change in changes]), **end)
    assert len(landed) == len(changes), "jobs were changed without their lock"
    ends = [_event(one.job, one.kind, actor, version=one.job.version + 1, data=one.data) for one in changes]
    events.record(tx, *ends)
    for change in changes:
        tx.touch(change.job.target_id)


def record(
    tx: Tx,
    job: JobRecord,
    kind: str,
    actor: Actor,
    *,
    version: int,
    data: Mapping[str, object] | None = None,
    fence: int | None = None,
) -> None:
    """Records an event of a job."""
    events.record(tx, _event(job, kind, actor, version=version, data=data, fence=fence))


def _event(
    job: JobRecord,
    kind: str,
    actor: Actor,
    *,
    version: int,
    data: Mapping[str, object] | None = None,
    fence: int | None = None,
) -> NewEvent:
    text = json.dumps(data) if data else None
    fence = fence if fence is not None else (job.fence or None)
    return NewEvent(
        kind,
        actor,
        thing="job",
        tenant_id=job.tenant_id,
        thing_id=job.id,
        version=version,
        status=int(job.status),
        fence=fence,
        data=text,
    )


def insert_retry(
    tx: Tx,
    parent: JobRecord,
    actor: Actor,
    *,
    delay: float,
    auto: bool,
    params: str | None = None,
    unfilled: str | None = None,
    options: str | None = None,
    priority: int | None = None,
    position: int | None = None,
    in_group: bool = True,
) -> int:
    """Creates a retry in a failed job's place, with its checkpoint and meters.

    With `in_group`, the retry is also a member of the failed job's group.
    """
    ((job_id,),) = tx.run(
        "insert_retry",
        id=parent.id,
        delay=round(delay * 1_000_000),
        auto=int(auto),
        in_group=int(in_group),
        params=params,
        unfilled=unfilled,
        options=options,
        priority=priority,
        position=position,
        actor=actor.text(),
    )
    tx.touch(parent.target_id)
    same_params = params is None or params == parent.params
    tx.run("copy_report", from_id=parent.id, to_id=job_id, with_checkpoint=int(same_params))
    tx.run("mark_carries", id=job_id)
    return int(job_id)


def close_like_run(tx: Tx, job: JobRecord, run: State, actor: Actor) -> None:
    """Ends a job like its run, which has already ended.

    Needed only after database damage: the run is the record, so the job follows it.
    """
    now = tx.now()
    ended = replace(job, status=run, finished_at=int(now), worker_id=None, slot=None, stop=None, stop_by=None)
    kind = {State.COMPLETED: "job.completed", State.FAILED: "job.failed", State.SKIPPED: "job.skipped"}[run]
    apply(tx, Change(ended, kind, {"reason": "its run had already ended"}), actor)
