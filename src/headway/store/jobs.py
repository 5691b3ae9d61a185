"""Jobs in the database: creating, locking, changing one, and what hangs on it. Functions of a transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from headway.errors import NotFound
from headway.model.job import Actor, Job, NewJob, Run
from headway.model.outcome import FailureKind
from headway.model.states import State
from headway.model.values import encode
from headway.model.verbs import Change
from headway.store import rows
from headway.store.db import Row, Tx


def parameters(
    job: NewJob, bodies: Sequence[object], bucket_id: int, tenant_id: int, actor: str, *, admitted: bool = False
) -> dict[str, object]:
    """Those of `enqueue` for jobs that are alike. Unless they are `admitted`, none is made for a tenant whose jobs are
    counted."""
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


Made = tuple[NewJob, int, int | None]  # a job to be made, its bucket, its target
_in_common = attrgetter(*(name for name in NewJob._fields if name not in ("params", "target")))


def alike(a: Made, b: Made) -> bool:
    """Whether one statement can make both: they differ in params and target alone, and neither has a key."""
    (one, bucket, _), (other, its_bucket, _) = a, b
    return bucket == its_bucket and one.key is None and _in_common(one) == _in_common(other)


def runs_of_alike(new: Sequence[Made]) -> list[list[Made]]:
    """The jobs in order, in runs that one statement each can make."""
    runs: list[list[Made]] = []
    for job in new:
        if runs and alike(runs[-1][0], job):
            runs[-1].append(job)
        else:
            runs.append([job])
    return runs


def insert(tx: Tx, tenant_id: int, actor: Actor, new: Sequence[Made], *, admitted: bool = False) -> list[int | None]:
    """Creates jobs. Their ids in order; None where the key was taken, or the tenant gets none."""
    ids: list[int | None] = []
    for run in runs_of_alike(new):
        job, bucket_id, _ = run[0]
        bodies = [body(one.params, target_id) for one, _, target_id in run]
        wishes = parameters(job, bodies, bucket_id, tenant_id, actor.text(), admitted=admitted)
        ids += ids_of(tx.run("enqueue", **wishes)) or [None] * len(run)
        for _, _, target_id in run:
            tx.touch(target_id)
    return ids


def body(params: str, target_id: int | None) -> object:
    """One job as `enqueue` takes it."""
    return params if target_id is None else (params, target_id)


def ids_of(made: Sequence[Row]) -> list[int]:
    """The numbers of the new jobs in order, which `enqueue` tells in runs: the first, and how many."""
    return [job_id for first, count in made for job_id in range(first, first + count)]


def find(tx: Tx, job_id: int, tenant_id: int) -> Job:
    return _one(tx.run("read_job", id=job_id), job_id, tenant_id)


def find_all(tx: Tx, ids: Sequence[int]) -> dict[int, Job]:
    return {job.id: job for job in map(rows.job, tx.run("read_jobs", ids=json.dumps(list(ids))))}


def lock(tx: Tx, job_id: int, tenant_id: int | None = None) -> Job:
    return _one(tx.run("lock_job", id=job_id), job_id, tenant_id)


def lock_all(tx: Tx, ids: Sequence[int]) -> dict[int, Job]:
    """Locked in the order of their ids, like everywhere."""
    return {job.id: job for job in map(rows.job, tx.run("lock_jobs", ids=json.dumps(sorted(ids))))}


def _one(found: list[Row], job_id: int, tenant_id: int | None) -> Job:
    job = rows.job(found[0]) if found else None
    if job is None or (tenant_id is not None and job.tenant_id != tenant_id):
        raise NotFound(f"there is no job {job_id}")
    return job


def run_of(tx: Tx, job_id: int) -> Run | None:
    found = tx.run("read_run", job_id=job_id)
    return rows.run(found[0]) if found else None


def with_key(tx: Tx, tenant_id: int, task: str, key: str) -> Job | None:
    found = tx.run("job_with_key", tenant_id=tenant_id, task=task, key=key)
    return rows.job(found[0]) if found else None


def automatic_retry(tx: Tx, job_id: int) -> Job | None:
    found = tx.run("automatic_retry", id=job_id)
    return rows.job(found[0]) if found else None


def chain(tx: Tx, job_id: int) -> list[Job]:
    return [rows.job(row) for row in tx.run("chain", id=job_id)]


def chain_failures(tx: Tx, job_id: int) -> list[FailureKind]:
    """What failed before this job in its chain of automatic retries."""
    return [FailureKind(kind or "EXCEPTION") for (kind,) in tx.run("chain_failures", id=job_id)]


def spent(tx: Tx, job_id: int) -> dict[str, float]:
    found = tx.run("read_report", job_id=job_id)
    return json.loads(found[0][3]) if found and found[0][3] else {}


def apply(tx: Tx, change: Change, actor: Actor) -> int:
    """Stores a change with its event, and closes the run if it says so. Returns the job's new version."""
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
    """The same for locked jobs that end alike and never ran, however many, in two statements."""
    if not changes:
        return
    first = changes[0].job
    end = {"status": int(first.status), "finished_at": first.finished_at, "reason": first.reason}
    landed = tx.run("end_unrun", ids=json.dumps([change.job.id for change in changes]), **end)
    assert len(landed) == len(changes), "jobs were changed without their lock"
    events = [_event(one.job, one.kind, actor, version=one.job.version + 1, data=one.data) for one in changes]
    tx.run("add_events", rows=json.dumps(events))
    for change in changes:
        tx.touch(change.job.target_id)


def record(
    tx: Tx,
    job: Job,
    kind: str,
    actor: Actor,
    *,
    version: int,
    data: Mapping[str, object] | None = None,
    fence: int | None = None,
) -> None:
    """One event of a job."""
    tx.run("add_events", rows=json.dumps([_event(job, kind, actor, version=version, data=data, fence=fence)]))


def _event(
    job: Job,
    kind: str,
    actor: Actor,
    *,
    version: int,
    data: Mapping[str, object] | None = None,
    fence: int | None = None,
) -> tuple[object, ...]:
    text = json.dumps(data) if data else None
    fence = fence if fence is not None else (job.fence or None)
    return job.tenant_id, "job", job.id, version, kind, int(job.status), actor.text(), fence, text


def insert_retry(
    tx: Tx,
    parent: Job,
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
    """The new job that takes a failed one's place, with its checkpoint and meters. `in_group`: also in its group."""
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


def close_like_run(tx: Tx, job: Job, run: State, actor: Actor) -> None:
    """Damage only: the run has ended and the job has not; the run is the record, so the job follows it."""
    ((now,),) = tx.run("time")
    ended = replace(job, status=run, finished_at=int(now), worker_id=None, slot=None, stop=None, stop_by=None)
    kind = {State.COMPLETED: "job.completed", State.FAILED: "job.failed", State.SKIPPED: "job.skipped"}[run]
    apply(tx, Change(ended, kind, {"reason": "its run had already ended"}), actor)
