"""What somebody should look at, each with what to do and where: workers that are late, ticks that are overdue, what is
held, webhooks that fail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from urllib.parse import quote

from headway.clock import micros
from headway.engine.health import LATE_TICK
from headway.engine.limits import lives
from headway.model import hook_words, workers
from headway.model.estimate import span
from headway.model.schedule import Schedule
from headway.model.targets import TargetView, remedy
from headway.model.webhooks import Endpoint
from headway.store import endpoints, schedules, targets, workers_reading
from headway.store.db import Tx
from headway.store.holding import Held, held
from headway.store.workers import worker_name
from headway.store.workers_reading import WorkerView

LISTED = 20
# What is looked at, in the words of the page that says that all is well.
CHECKED = (
    "whether a webhook fails",
    "whether a job needs a decision or keeps a target",
    "whether a target is paused",
    "whether a worker is late with its lease, gone or stuck",
    "whether a tick is overdue",
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing: what it is and where it is shown, how it stands, what to do, and the command for that if it is one."""

    key: str
    noun: str
    name: str
    path: str
    tone: str
    text: str
    todo: str
    command: str | None = None


def findings(tx: Tx, tenant_id: int, now: int) -> list[Finding]:
    """The first of each kind; what keeps work from going on comes first."""
    return [
        *islice((_worker(one) for one in workers_reading.workers(tx, within=0.0) if _late(one)), LISTED),
        *(_tick(one, late) for one, late in _overdue(tx, tenant_id, now)),
        *(_held(one, now) for one in held(tx, tenant_id, LISTED)),
        *(_target(one, now) for one in targets.paused(tx, tenant_id, LISTED)[0]),
        *(_webhook(one, now) for one in endpoints.failing(tx, tenant_id, LISTED)),
    ]


# --- work ---------------------------------------------------------------------------------------------------------


def _standing(one: WorkerView) -> workers.Standing:
    return workers.standing(one.state, left=False, has_lease=one.has_lease, process=lives(one))


def _late(one: WorkerView) -> bool:
    return one.gone_at is None and _standing(one).tone == "bad"


_WORKER_TODO = {
    "silent": "See whether its host is up and reaches the database. Start another worker if it does not come back.",
    "dead": "Start it again. What it ran is recovered without you.",
    "stuck": "See on its page what it still runs; end its process if that never stops.",
}


def _worker(one: WorkerView) -> Finding:
    how, name = _standing(one), worker_name(one.id)
    where = f"{one.host}, process {one.pid}"
    command = "headway work" if how.word in ("silent", "dead") else None
    text = f"{how.word} on {where}. {how.text}"
    return Finding(f"worker-{name}", "Worker", name[:8], "/workers", "bad", text, _WORKER_TODO[how.word], command)


def _overdue(tx: Tx, tenant_id: int, now: int) -> Iterator[tuple[Schedule, int]]:
    """Each with how late it is."""
    found = ((one, now - (one.next_at or now)) for one in schedules.upcoming(tx, tenant_id, LISTED))
    return ((one, late) for one, late in found if late > micros(LATE_TICK))


def _tick(one: Schedule, late: int) -> Finding:
    text = f"its tick was due {span(late)} ago"
    todo = "No process with the role scheduler is at work, or it cannot reach the database: start one."
    path, command = f"/schedules/{one.id}", "headway up --roles scheduler"
    return Finding(f"schedule-{one.id}", "Schedule", one.name, path, "bad", text, todo, command)


def _held(one: Held, now: int) -> Finding:
    job = one.view.job
    why = (job.reason or "no reason was given").strip().partition("\n")[0]
    since = f" for {span(now - one.since)}" if one.since is not None else ""
    keeps = f" It keeps the target {one.view.target}{_behind(one)}." if one.view.target is not None else ""
    todo = "Resume it, resolve it with a result, retry, release or cancel it on its page."
    text = f"{job.status.name}{since}: {why}.{keeps}"
    tone = "bad" if job.status.name == "ERROR" else "held"
    return Finding(f"job-{job.id}", "Job", f"#{job.id} {job.task}", f"/jobs/{job.id}", tone, text, todo)


def _behind(one: Held) -> str:
    if not one.waiting:
        return ""
    return f", {one.waiting:,}{'+' if one.at_least else ''} {'job' if one.waiting == 1 else 'jobs'} behind it"


def _target(one: TargetView, now: int) -> Finding:
    since = f" for {span(now - one.since)}" if one.since is not None else ""
    text = f"paused{since}{f': {one.note}' if one.note else ''}"
    path = f"/targets/show?name={quote(one.name, safe='')}"
    return Finding(f"target-{one.id}", "Target", one.name, path, "held", text, remedy(one) or "")


# --- webhooks -----------------------------------------------------------------------------------------------------


def _webhook(one: Endpoint, now: int) -> Finding:
    how = hook_words.standing(one, now)
    todo = "See on its page what the receiver answered, mend that and send a test; disable it if nobody listens there."
    path = f"/webhooks/{one.id}"
    return Finding(f"webhook-{one.id}", "Webhook", f"#{one.id} {one.url}", path, how.tone, how.text, todo)
