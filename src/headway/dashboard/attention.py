"""Finds things that need attention, each with what to do and where.

These are late workers, overdue ticks, held jobs, paused targets and failing webhooks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from urllib.parse import quote

from headway.clock import micros
from headway.engine.client.limits import lives
from headway.engine.monitoring.readiness import LATE_TICK
from headway.model.explain.forecast import span
from headway.model.queue.target import TargetView
from headway.model.schedules.definition import Schedule
from headway.model.webhooks.address import origin_of
from headway.model.webhooks.webhook import Endpoint
from headway.store import worker_views
from headway.store.db import Tx
from headway.store.jobs.held import HeldJob, held
from headway.store.queue import targets
from headway.store.schedules import schedules
from headway.store.webhooks import endpoints
from headway.store.worker_views import WorkerView
from headway.store.workers import worker_name
from headway.text import webhooks, workers
from headway.text.targets import remedy

LISTED = 20
# The list of checks on the health page, for when none of them found anything.
CHECKED = (
    "whether a webhook fails",
    "whether a job needs a decision or keeps a target",
    "whether a target is paused",
    "whether a worker is late with its lease, gone or stuck",
    "whether a tick is overdue",
)


@dataclass(frozen=True, slots=True)
class AttentionItem:
    """A thing that needs attention: where it is shown, its state, and what to do."""

    key: str
    noun: str
    name: str
    path: str
    tone: str
    text: str
    todo: str
    command: str | None = None


def findings(tx: Tx, tenant_id: int, now: int) -> list[AttentionItem]:
    """Returns the first items of each kind, those that block jobs first."""
    return [
        *islice((_worker(worker) for worker in worker_views.workers(tx, within=0.0) if _late(worker)), LISTED),
        *(_tick(schedule, late) for schedule, late in _overdue(tx, tenant_id, now)),
        *(_held(job, now) for job in held(tx, tenant_id, LISTED)),
        *(_target(target, now) for target in targets.paused(tx, tenant_id, LISTED)[0]),
        *(_webhook(endpoint, now) for endpoint in endpoints.failing(tx, tenant_id, LISTED)),
    ]


# --- work ---------------------------------------------------------------------------------------------------------


def _standing(worker: WorkerView) -> workers.WorkerStatus:
    return workers.standing(
        worker.shown_state, left=False, has_lease=worker.has_lease, process=lives(worker), note=worker.note
    )


def _late(worker: WorkerView) -> bool:
    return worker.gone_at is None and _standing(worker).tone == "bad"


_WORKER_TODO = {
    "silent": "Check that its host is up and reaches the database. Start another worker if it does not come back.",
    "dead": "Start it again. Its jobs are recovered automatically.",
    "paused": "Check its host for a lack of processes, memory or file descriptors. It resumes when it has them.",
    "stuck": "Check on its page which jobs it still runs; end its process if they never stop.",
}


def _worker(worker: WorkerView) -> AttentionItem:
    how, name = _standing(worker), worker_name(worker.id)
    where = f"{worker.host}, process {worker.pid}"
    command = "headway work" if how.word in ("silent", "dead") else None
    text = f"{how.word} on {where}. {how.text}"
    return AttentionItem(f"worker-{name}", "Worker", name[:8], "/workers", "bad", text, _WORKER_TODO[how.word], command)


def _overdue(tx: Tx, tenant_id: int, now: int) -> Iterator[tuple[Schedule, int]]:
    """Yields each overdue schedule and how late it is, in microseconds."""
    found = ((schedule, now - (schedule.next_at or now)) for schedule in schedules.upcoming(tx, tenant_id, LISTED))
    return ((schedule, late) for schedule, late in found if late > micros(LATE_TICK))


def _tick(schedule: Schedule, late: int) -> AttentionItem:
    text = f"its tick was due {span(late)} ago"
    todo = "No process with the role scheduler runs, or it cannot reach the database: start one."
    path, command = f"/schedules/{schedule.id}", "headway up --roles scheduler"
    return AttentionItem(f"schedule-{schedule.id}", "Schedule", schedule.name, path, "bad", text, todo, command)


def _held(held_job: HeldJob, now: int) -> AttentionItem:
    job, target = held_job.view.job, held_job.view.target
    why = (job.reason or "no reason was given").strip().partition("\n")[0]
    since = f" for {span(now - held_job.since)}" if held_job.since is not None else ""
    keeps = f" It holds the target {target}{_behind(held_job)}." if target is not None else ""
    todo = "Resume, resolve, retry, release or cancel it on its page."
    text = f"{job.status.name}{since}: {why}.{keeps}"
    tone = "bad" if job.status.name == "ERROR" else "held"
    return AttentionItem(f"job-{job.id}", "Job", f"#{job.id} {job.task}", f"/jobs/{job.id}", tone, text, todo)


def _behind(held_job: HeldJob) -> str:
    waiting = held_job.waiting
    if not waiting:
        return ""
    return f", {waiting:,}{'+' if held_job.at_least else ''} {'job' if waiting == 1 else 'jobs'} behind it"


def _target(target: TargetView, now: int) -> AttentionItem:
    since = f" for {span(now - target.since)}" if target.since is not None else ""
    text = f"paused{since}{f': {target.note}' if target.note else ''}"
    path = f"/targets/show?name={quote(target.name, safe='')}"
    return AttentionItem(f"target-{target.id}", "Target", target.name, path, "held", text, remedy(target) or "")


# --- webhooks -----------------------------------------------------------------------------------------------------


def _webhook(endpoint: Endpoint, now: int) -> AttentionItem:
    how = webhooks.standing(endpoint, now)
    todo = "Check the receiver's answers on its page, fix the receiver and send a test; disable it if it is not in use."
    path, name = f"/webhooks/{endpoint.id}", f"#{endpoint.id} {origin_of(endpoint.url)}"
    return AttentionItem(f"webhook-{endpoint.id}", "Webhook", name, path, how.tone, how.text, todo)
