"""Jobs, runs, workers and events as JSON of the API.

`queue_status` is for clients that know three states. QUEUED is any job that does not run and has not ended (WAITING,
SCHEDULED, QUEUED, PAUSED, ERROR). RUNNING has a live claim. CANCELLED is CANCELLED. For any other ended job it is null,
and `outcome` is the status of its run, or SKIPPED for a job that never ran.
"""

from __future__ import annotations

import json
from typing import Any

from headway.model.event import Event
from headway.model.explain.blockers import Blocker, Explanation
from headway.model.explain.forecast import Estimate
from headway.model.jobs.job import Actor, Options, Run
from headway.model.jobs.states import State
from headway.model.values.json import instant_text
from headway.store.jobs.views import JobView, LogLine, WorkReport
from headway.store.worker_views import WorkerView
from headway.store.workers import worker_name

Json = dict[str, Any]


def time_or_none(instant: int | None) -> str | None:
    return None if instant is None else instant_text(instant)


def actor_json(text: str) -> Json:
    actor = Actor.parse(text)
    return {"type": actor.type, "id": actor.id, "name": actor.name}


def queue_status(state: State) -> str | None:
    if state is State.RUNNING or state is State.CANCELLED:
        return state.name
    return None if state.terminal else State.QUEUED.name


def outcome(view: JobView) -> str | None:
    if view.run is not None:
        return view.run.status.name if view.run.status is not None else None
    return State.SKIPPED.name if view.job.status is State.SKIPPED else None


def job_json(view: JobView) -> Json:
    """**Job** of the API."""
    job, options = view.job, Options.parse(view.job.options)
    left = 0 if job.status.terminal else max(0, options.retry.max_attempts - view.retries_used)
    return {
        "job_id": job.id,
        "task": job.task,
        "params": json.loads(job.params),
        "status": job.status.name,
        "queue_status": queue_status(job.status),
        "outcome": outcome(view),
        "priority": job.priority,
        "position": job.position,
        "rank": view.rank,
        "target": view.target,
        "resources": list(options.resources),
        "template_id": job.template_id,
        **_plan(view),
        "stage": job.stage,
        "step": job.step,
        "retry_of": job.retry_of,
        "attempt": job.attempt,
        "retries_remaining": left,
        "exhausted": bool(job.exhausted),
        "not_before": time_or_none(job.not_before),
        "key": job.key,
        "reason": job.reason,
        "stop_requested": job.stop.value if job.stop else None,
        "created_at": time_or_none(job.created_at),
        "queued_at": time_or_none(job.queued_at),
        "started_at": time_or_none(job.started_at),
        "finished_at": time_or_none(job.finished_at),
        "created_by": actor_json(job.created_by),
        "progress": _progress(view.report),
        "meters": view.report.spent if view.report else {},
        "budget": dict(options.budget),
        "expires_at": time_or_none(job.expires_at),
        "failure_kind": job.failure_kind.value if job.failure_kind else None,
        "lease_owner": worker_name(job.worker_id) if job.worker_id is not None else None,
        "lease_expires_at": time_or_none(view.lease_until),
        "version": job.version,
        "run": run_json(view.run) if view.run is not None else None,
    }


def _plan(view: JobView) -> Json:
    """Returns the ids of schedule, execution and group.

    An execution is not shown as a group.
    """
    group = view.group
    execution = group is not None and group.kind == "execution"
    return {
        "schedule_id": group.schedule_id if group is not None else None,
        "execution_id": view.job.group_id if execution else None,
        "group_id": None if execution else view.job.group_id,
    }


def _progress(report: WorkReport | None) -> Json | None:
    if report is None or report.done is None:
        return None
    return {"done": report.done, "total": report.total, "label": report.label, "at": instant_text(report.at)}


def run_json(run: Run) -> Json:
    """**Run** of the API. A run has the id of its job."""
    return {
        "run_id": run.job_id,
        "job_id": run.job_id,
        "task": run.task,
        "status": run.status.name if run.status is not None else None,
        "params_snapshot": json.loads(run.params),
        "started_at": time_or_none(run.started_at),
        "finished_at": time_or_none(run.finished_at),
        "exit_code": run.exit_code,
        "error": run.error,
        "failure_kind": run.failure_kind.value if run.failure_kind else None,
        "artifacts": json.loads(run.artifacts) if run.artifacts else [],
        "result": json.loads(run.result) if run.result else None,
    }


def worker_json(worker: WorkerView, *, alive: bool) -> Json:
    """**Worker** of the API."""
    return {
        "worker_id": worker_name(worker.id),
        "host": worker.host,
        "pid": worker.pid,
        "started_at": time_or_none(worker.started_at),
        "beat_at": time_or_none(worker.beat_at),
        "slots": worker.slots,
        "running": [
            {"job_id": job_id, "task": task, "slot": slot, "since": time_or_none(since)}
            for slot, job_id, task, since in worker.running
        ],
        "tasks": list(worker.tasks),
        "state": worker.shown_state if alive or worker.state == "gone" else "gone",
        "note": worker.note,
    }


def event_json(event: Event) -> Json:
    """**Event** of the API. `status` is the state of the job after the event."""
    return {
        "event_id": event.id,
        "kind": event.kind,
        "thing": event.thing,
        "thing_id": event.thing_id,
        "version": event.version,
        "status": State(event.status).name if event.status is not None else None,
        "at": time_or_none(event.at),
        "actor": actor_json(event.actor),
        "fence": event.fence,
        "data": json.loads(event.data) if event.data else None,
    }


def line_json(line: LogLine) -> Json:
    return {"at": time_or_none(line.at), "level": line.level, "message": line.message}


def blocker_json(blocker: Blocker) -> Json:
    return {
        "kind": blocker.kind,
        "detail": blocker.detail,
        "by": blocker.by,
        "since": time_or_none(blocker.since),
        "until": time_or_none(blocker.until),
    }


def explain_json(explained: Explanation) -> Json:
    """**Explanation** of the API."""
    expected = explained.start_estimate
    return {
        "job_id": explained.job_id,
        "status": explained.status,
        "rank": explained.rank,
        "blockers": [blocker_json(blocker) for blocker in explained.blockers],
        "start_estimate": None if expected is None else _estimate(expected),
    }


def _estimate(expected: Estimate) -> Json:
    return {"p50": instant_text(expected.p50), "p90": instant_text(expected.p90)}
