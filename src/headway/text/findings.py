"""Findings that need a person: each with its kind, its sentence and its remedy. Pure.

`/readyz`, the dashboard, `doctor`, `status` and the commands show these texts; each exists once, here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING
from urllib.parse import quote as quote_path

from headway.model.checks import Finding, Remedy, Subject
from headway.model.explain.forecast import span
from headway.model.jobs.outcome import SHUTDOWN
from headway.model.jobs.states import State
from headway.model.values.times import instant_text
from headway.model.webhooks.address import origin_of
from headway.text import schedules, targets, webhooks

if TYPE_CHECKING:
    from headway.model.jobs.job import JobRecord
    from headway.model.queue.target import TargetView
    from headway.model.schedules.schedule import Schedule
    from headway.model.webhooks.webhook import Endpoint
    from headway.text.workers import WorkerStatus

NAMED = 3
SCHEDULER = Remedy(
    "start a process with the role scheduler with {command}, or see in its log why it cannot work",
    "headway up --roles scheduler",
    "/schedules",
)
RECOVERY = Remedy("start a Headway process that reaches the database: every process runs recovery")
RESET = Remedy("check the clock, then {command}", "headway schedules reset NAME")
UNUSABLE = Remedy("correct it with {command}, or disable it", "headway apply")
HELD = "resume, resolve, retry, release or cancel it"

# --- workers ------------------------------------------------------------------------------------------------------

NO_WORKER = Finding("no_worker", "no worker is alive", Remedy("start one with {command}", "headway work", "/workers"))
# By the word for the state of the worker, the most surprising first.
WORKER = {
    "halted": Remedy("end it, or continue it with {command}", "kill -CONT PID", "/workers"),
    "paused": Remedy("free processes, memory or file descriptors on its host; it continues by itself", page="/workers"),
    "stuck": Remedy(
        "see its jobs with {command}; end its process if they never stop", "headway workers ls", "/workers"
    ),
    "silent": Remedy(
        "check that its host is up and reaches the database; if it does not come back, start another with {command}",
        "headway work",
        "/workers",
    ),
    "dead": Remedy("start it again with {command}; its jobs are recovered automatically", "headway work", "/workers"),
}


def some(names: Sequence[str], most: int = NAMED) -> str:
    """Returns the first names, and the number of the others."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def worker(status: WorkerStatus, name: str, host: str, pid: int) -> Finding:
    """Returns the finding for a worker whose state is in `WORKER`."""
    remedy = WORKER[status.word]
    if status.word == "halted":
        remedy = replace(remedy, command=f"kill -CONT {pid}")
    sentence = f"{status.word} on {host}, process {pid}. {status.text}"
    return Finding(f"worker_{status.word}", sentence, remedy, subject=Subject("Worker", name[:8], f"worker-{name}"))


def silent(count: int) -> Finding:
    """Returns the finding for the number of workers whose lease has passed."""
    text = "1 worker has not renewed its lease" if count == 1 else f"{count} workers have not renewed their lease"
    return Finding("workers_silent", text, WORKER["silent"])


# --- jobs and targets ---------------------------------------------------------------------------------------------


def job_held(job: JobRecord, now: int, *, since: int | None, target: str | None, behind: str = "") -> Finding:
    """Returns the finding for a PAUSED or ERROR job. `behind` says how many jobs its target keeps waiting."""
    why = (job.reason or "no reason was given").strip().partition("\n")[0]
    lasts = f" for {span(now - since)}" if since is not None else ""
    keeps = f" It holds the target {target}{behind}." if target is not None else ""
    remedy = Remedy(f"{HELD}; see it with {{command}}", f"headway jobs show {job.id}", f"/jobs/{job.id}")
    tone = "bad" if job.status.name == "ERROR" else "held"
    subject = Subject("Job", f"#{job.id} {job.task}", f"job-{job.id}")
    return Finding("job_held", f"{job.status.name}{lasts}: {why}.{keeps}", remedy, tone, subject)


def target_paused(target: TargetView, now: int) -> Finding:
    lasts = f" for {span(now - target.since)}" if target.since is not None else ""
    remedy = Remedy(
        f"{targets.paused_remedy(target)}: {{command}}",
        f"headway targets resume {quote(target.name)}",
        f"/targets/show?name={quote_path(target.name, safe='')}",
    )
    subject = Subject("Target", target.name, f"target-{target.id}")
    text = f"paused{lasts}{f': {target.note}' if target.note else ''}"
    return Finding("target_paused", text, remedy, "held", subject)


# --- schedules and webhooks ---------------------------------------------------------------------------------------


def ticks_late(lag: int) -> Finding:
    """Returns the finding for the most overdue tick. `lag` is in microseconds."""
    return Finding("ticks_late", f"a tick is {span(lag)} late", SCHEDULER)


def schedule_late(schedule: Schedule, lag: int) -> Finding:
    remedy = replace(SCHEDULER, page=f"/schedules/{schedule.id}")
    subject = Subject("Schedule", schedule.name, f"schedule-{schedule.id}")
    return Finding("schedule_late", f"its tick was due {span(lag)} ago", remedy, subject=subject)


def schedule_ahead(schedule: Schedule) -> Finding:
    """Returns the finding for a schedule whose ticks were decided by a clock that was ahead."""
    remedy = replace(RESET, command=f"headway schedules reset {quote(schedule.name)}", page=f"/schedules/{schedule.id}")
    sentence = f"{schedule.name} until {instant_text(schedule.decided_until)}"
    subject = Subject("Schedule", schedule.name, f"ahead-{schedule.id}")
    return Finding("schedule_ahead", sentence, remedy, subject=subject)


def schedule_unusable(schedule: Schedule, why: str) -> Finding:
    """Returns the finding for a schedule that cannot run."""
    remedy = replace(UNUSABLE, page=f"/schedules/{schedule.id}")
    subject = Subject("Schedule", schedule.name, f"unusable-{schedule.id}")
    return Finding("schedule_unusable", f"{schedule.name}: {why}", remedy, subject=subject)


def missed_remedy(name: str, *, several: bool = False) -> Remedy:
    """Returns how missed ticks are looked at and marked as seen."""
    which = "--all" if several else quote(name)
    text = f"see them with `headway schedules ticks {quote(name)}`, then mark them as seen with {{command}}"
    return Remedy(text, f"headway schedules seen {which}")


def ticks_missed(schedule: Schedule, count: int) -> Finding:
    """Returns the finding for missed ticks that no person has seen."""
    remedy = replace(missed_remedy(schedule.name), page=f"/schedules/{schedule.id}")
    subject = Subject("Schedule", schedule.name, f"missed-{schedule.id}")
    return Finding("ticks_missed", schedules.missed_words(schedule.name, count), remedy, "held", subject)


def execution_waits(
    schedule: Schedule, execution_id: int, job_id: int, step: str, state: int, reason: str | None
) -> Finding:
    """Returns the finding for a schedule whose execution waits for a PAUSED or ERROR step."""
    stopped = reason == SHUTDOWN
    effect = {"skip": " skips every tick", "queue": " starts no execution"}.get(schedule.parsed.overlap, "")
    held = f"{State(state).name}{' since a shutdown' if stopped else ''}"
    sentence = f"{schedule.name}{effect}: execution {execution_id} waits for job {job_id} (step {step}, {held})"
    remedy = Remedy(f"{HELD}: {{command}}", f"headway jobs show {job_id}", f"/jobs/{job_id}")
    if stopped:
        text = 'resume it with {command}; `on_shutdown = "resume"` for the step or the schedule does so by itself'
        remedy = Remedy(text, f"headway jobs resume {job_id}", f"/jobs/{job_id}")
    return Finding("execution_waits", sentence, remedy, "held", Subject("Schedule", schedule.name, f"held-{job_id}"))


def webhook_fails(endpoint: Endpoint, now: int) -> Finding:
    status = webhooks.standing(endpoint, now)
    remedy = Remedy(
        "see the answers of its receiver with {command}, repair the receiver and send a test; disable it if it is not"
        " in use",
        f"headway webhooks deliveries {endpoint.id}",
        f"/webhooks/{endpoint.id}",
    )
    subject = Subject("Webhook", f"#{endpoint.id} {origin_of(endpoint.url)}", f"webhook-{endpoint.id}")
    return Finding("webhook_fails", status.text, remedy, status.tone, subject)


# --- the installation ---------------------------------------------------------------------------------------------


def row_security_off(state: str, remedy: str | None) -> Finding:
    return Finding("wall_off", f"the wall between tenants is {state}", Remedy(remedy or "see docs/tenants.md"))


def schema(found: int, known: int) -> Finding:
    """Returns the finding for a database of another schema. `found` 0 means that it has none."""
    if found > known:
        text = f"the database has schema {found}, this Headway knows up to {known}"
        return Finding("schema", text, Remedy("install the newer Headway that made it"))
    text = "this is not a Headway database yet"
    if found:
        text = f"the database has schema {found}, this Headway needs {known}"
    return Finding("schema", text, Remedy("run {command}", "headway db migrate"))
