"""Renders jobs, runs, workers and events: tables that fit 80 columns, and pages about a single job or run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headway.cli.output import one_line, styled, table, visible
from headway.model.event import Event
from headway.model.explain.blockers import Explanation, sentence
from headway.model.jobs.job import Actor, Options, Run
from headway.model.jobs.states import State
from headway.model.values.json import duration_text, instant_text
from headway.store.jobs.views import JobView, LogLine
from headway.store.queue.queue_views import WaitingJob
from headway.store.worker_views import WorkerView
from headway.store.workers import worker_name

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

STYLES = {
    "RUNNING": "cyan",
    "COMPLETED": "green",
    "FAILED": "red",
    "ERROR": "bold red",
    "PAUSED": "yellow",
    "CANCELLED": "magenta",
    "SKIPPED": "dim",
}
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def status_text(state: State) -> Text:
    return styled(state.name, STYLES.get(state.name, ""))


def about(seconds: float) -> str:
    """Formats a duration in its largest unit, like `3m`."""
    whole = max(0, round(seconds))
    for size, unit in _UNITS:
        if whole >= size:
            return f"{whole // size}{unit}"
    return "0s"


def age(then: int | None, now: int) -> str:
    return "" if then is None else about((now - then) / 1e6)


def note(view: JobView, now: int) -> str:
    """Returns the note about a job in a list: stop request, start, rank, progress, error or reason."""
    job = view.job
    if job.stop is not None:
        return f"{job.stop.value} requested"
    if job.status is State.SCHEDULED and job.not_before is not None:
        return f"in {about((job.not_before - now) / 1e6)}"
    if job.status is State.QUEUED and view.rank is not None:
        return f"rank {view.rank}"
    if job.status is State.RUNNING:
        return progress_text(view)
    if view.run is not None and view.run.error and job.status is not State.COMPLETED:
        return view.run.error.splitlines()[0]
    return job.reason or ""


def progress_text(view: JobView) -> str:
    report = view.report
    if report is None or report.done is None:
        return ""
    total = f"/{report.total:g}" if report.total is not None else ""
    return f"{report.done:g}{total} {report.label or ''}".strip()


def job_table(views: Iterable[JobView], now: int) -> Table:
    made = table("ID", "STATUS", "TASK", "PRIO", "TRY", "AGE", "NOTE", flexible=("TASK", "NOTE"))
    for view in views:
        job = view.job
        made.add_row(
            str(job.id),
            status_text(job.status),
            styled(job.task),
            str(job.priority),
            str(job.attempt),
            age(job.created_at, now),
            styled(note(view, now)),
        )
    return made


def queue_table(waiting: Iterable[WaitingJob], now: int) -> Table:
    made = table("RANK", "ID", "TASK", "PRIO", "WAITS", "FOR", flexible=("TASK", "FOR"))
    for entry in waiting:
        job = entry.view.job
        made.add_row(
            str(entry.view.rank or ""),
            str(job.id),
            styled(job.task),
            str(job.priority),
            age(job.queued_at or job.created_at, now),
            styled(reason(entry, now)),
        )
    return made


def reason(waiting: WaitingJob, now: int) -> str:
    """Returns the first blocker of a waiting job in a few words."""
    if not waiting.blockers:
        return "next"
    first = waiting.blockers[0]
    by = f": {first.by}" if first.kind == "behind" and first.by else ""
    return first.detail + by + (f", {about((first.until - now) / 1e6)} to go" if first.until is not None else "")


def run_table(runs: Iterable[Run], now: int) -> Table:
    made = table("RUN", "STATUS", "TASK", "STARTED", "TOOK", "NOTE", flexible=("TASK", "NOTE"))
    for run in runs:
        made.add_row(
            str(run.job_id),
            status_text(run.status) if run.status is not None else styled("open", "cyan"),
            styled(run.task),
            f"{age(run.started_at, now)} ago",
            age(run.started_at, run.finished_at or now),
            styled((run.error or "").splitlines()[0] if run.error else ""),
        )
    return made


def worker_table(workers: Iterable[tuple[WorkerView, bool]], now: int) -> Table:
    made = table("WORKER", "HOST", "PID", "STATE", "BEAT", "SLOTS", "RUNS", "NOTE", flexible=("HOST", "RUNS", "NOTE"))
    for worker, alive in workers:
        state = worker.shown_state if alive or worker.state == "gone" else "gone"
        made.add_row(
            worker_name(worker.id)[:8],
            styled(worker.host),
            str(worker.pid),
            styled(state, "green" if state == "live" else "dim" if state == "gone" else "yellow"),
            f"{age(worker.beat_at, now)} ago",
            f"{len(worker.running)}/{worker.slots}",
            styled(", ".join(_runs(job_id, task) for _, job_id, task, _ in worker.running)),
            styled(worker.note or ""),
        )
    return made


def _runs(job_id: int | None, task: str | None) -> str:
    """Names a job that a worker runs; a server hides the jobs of other tenants."""
    return f"{job_id} {task}" if job_id is not None else "(another tenant's)"


def line_text(line: LogLine) -> str:
    when = instant_text(line.at)[11:19]
    level = "" if line.level == "INFO" else f"{line.level} "
    return f"{when} {level}{visible(line.message)}"


# --- pages --------------------------------------------------------------------------------------------------------


def pairs(rows: Sequence[tuple[str, object]]) -> Table:
    """Creates a page of names and values; leaves out empty values."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    made.add_column(no_wrap=True, style="bold")
    made.add_column(overflow="fold")
    for name, value in rows:
        if value not in (None, "", "{}", "[]"):
            made.add_row(name, value if isinstance(value, Text) else Text(visible(str(value))))
    return made


def when(instant: int | None, now: int) -> str | None:
    if instant is None:
        return None
    far = (instant - now) / 1e6
    return f"{instant_text(instant)} ({'in ' + about(far) if far > 0 else about(-far) + ' ago'})"


def job_page(view: JobView, now: int) -> Table:
    job, run = view.job, view.run
    return pairs(
        [
            ("job", str(job.id)),
            ("task", job.task),
            ("status", status_text(job.status)),
            ("reason", job.reason),
            ("stop requested", job.stop.value if job.stop else None),
            ("params", job.params),
            *_plan_rows(view),
            ("priority", str(job.priority)),
            ("rank", view.rank),
            ("attempt", f"{job.attempt}" + (f", retry of job {job.retry_of}" if job.retry_of else "")),
            ("key", job.key),
            ("target", view.target),
            ("resources", ", ".join(Options.parse(job.options).resources)),
            ("created", f"{when(job.created_at, now)} by {Actor.parse(job.created_by).shown}"),
            ("not before", when(job.not_before, now)),
            ("expires", when(job.expires_at, now)),
            ("started", when(job.started_at, now)),
            ("finished", when(job.finished_at, now)),
            ("took", _took(run)),
            ("progress", progress_text(view)),
            ("meters", json.dumps(view.report.spent) if view.report else None),
            ("worker", worker_name(job.worker_id) if job.worker_id is not None else None),
            *_run_rows(run),
        ]
    )


def _plan_rows(view: JobView) -> list[tuple[str, object]]:
    """Returns the rows about a job's template, step, and group or execution."""
    job, group = view.job, view.group
    rows: list[tuple[str, object]] = [("template", job.template_id)]
    if group is not None:
        rows += [
            ("step", f"{job.step}, stage {stage_text(job.stage or 0, group.stages)}"),
            (group.kind, f"{group.id} {group.name} ({group.status})"),
        ]
    return rows


def stage_text(stage: int, stages: int) -> str:
    """Formats a stage for display, counted from 1."""
    return f"{stage + 1} of {stages}"


def explain_page(explained: Explanation, *, lost: bool, view: JobView | None = None) -> list[RenderableType]:
    """Renders the blockers of a job in order.

    `lost` means that the job is RUNNING and its worker is dead. `view` is the job if it is RUNNING.
    """
    if lost:
        return [explained.headline, "  its worker is dead: the next recovery ends it as LOST (start `headway up`)"]
    if view is not None:
        return [explained.headline, _running_text(view, explained.now)]
    if not explained.blockers:
        return [explained.headline, "  nothing blocks it: it starts next"]
    rows = [(f"  {blocker.kind}", sentence(blocker, explained.now)) for blocker in explained.blockers]
    return [explained.headline, pairs(rows)]


def _running_text(view: JobView, now: int) -> str:
    """Describes a running job: since when, on which worker, and its progress."""
    job = view.job
    if job.status is not State.RUNNING or job.worker_id is None:
        return f"  it has just stopped running: see `headway jobs show {job.id}`"
    far = f", at {progress}" if (progress := progress_text(view)) else ""
    asked = f"; it was asked to stop ({job.stop.value})" if job.stop else ""
    return f"  running since {when(job.started_at, now)} on worker {worker_name(job.worker_id)}{far}{asked}"


def run_page(run: Run, now: int) -> Table:
    return pairs(
        [
            ("run", str(run.job_id)),
            ("task", run.task),
            ("status", status_text(run.status) if run.status is not None else "open"),
            ("params", run.params),
            ("started", when(run.started_at, now)),
            ("finished", when(run.finished_at, now)),
            ("took", _took(run)),
            *_run_rows(run),
        ]
    )


def _took(run: Run | None) -> str | None:
    if run is None or run.finished_at is None:
        return None
    return duration_text(round((run.finished_at - run.started_at) / 1e6, 3))


def _run_rows(run: Run | None) -> list[tuple[str, object]]:
    if run is None:
        return []
    return [
        ("failure", run.failure_kind.value if run.failure_kind else None),
        ("exit code", run.exit_code),
        ("artifacts", ", ".join(json.loads(run.artifacts)) if run.artifacts else None),
        ("result", run.result),
        ("error", run.error),
    ]


def event_table(events: Iterable[Event], now: int) -> Table:
    made = table("WHEN", "EVENT", "STATUS", "BY", "WHAT", flexible=("BY", "WHAT"))
    for event in events:
        made.add_row(
            f"{age(event.at, now)} ago",
            styled(event.kind),
            status_text(State(event.status)) if event.status is not None else "",
            styled(Actor.parse(event.actor).shown),
            styled(_facts(event.data)),
        )
    return made


def _facts(data: str | None) -> str:
    facts = json.loads(data) if data else {}
    if isinstance(facts.get("stage"), int):
        facts["stage"] += 1  # stages are displayed from 1
    return one_line(", ".join(f"{name} {value}" for name, value in facts.items()))
