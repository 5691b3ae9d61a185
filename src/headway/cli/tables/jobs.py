"""Renders jobs, runs and workers: tables that fit 80 columns, and pages about a single job or run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headway.cli.output import Json, styled, table, visible
from headway.cli.tables.events import status_text
from headway.cli.tables.groups import kind_of, number_of, stage_text
from headway.cli.tables.pages import compact, created, pairs
from headway.cli.tables.times import about, age, moment, time_between, took, when
from headway.model.explain.blockers import Blocker, Explanation, sentence
from headway.model.explain.forecast import Estimate

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def note(job: Json, now: int) -> str:
    """Returns the note about a job in a list: stop request, start, rank, progress, error or reason."""
    status = job["status"]
    if job["stop_requested"] is not None:
        return f"{job['stop_requested']} requested"
    if status == "SCHEDULED" and job["not_before"] is not None:
        return f"in {about((moment(job['not_before']) - now) / 1e6)}"
    if status == "QUEUED" and job["rank"] is not None:
        return f"rank {job['rank']}"
    if status == "RUNNING":
        return progress_text(job)
    why = ending(job)
    return f"exhausted: {why}" if job["exhausted"] and why else "exhausted" if job["exhausted"] else why


def ending(job: Json) -> str:
    """Returns the first line of the error of a job, or its reason."""
    run = job["run"]
    failed = run and run["error"] and job["status"] != "COMPLETED"
    return str(run["error"].splitlines()[0]) if failed else job["reason"] or ""


def progress_text(job: Json) -> str:
    progress = job["progress"]
    if progress is None:
        return ""
    total = f"/{progress['total']:g}" if progress["total"] is not None else ""
    return f"{progress['done']:g}{total} {progress['label'] or ''}".strip()


def job_table(jobs: Iterable[Json], now: int) -> Table:
    made = table("ID", "STATUS", "TASK", "PRIO", "TRY", "AGE", "NOTE", flexible=("TASK", "NOTE"))
    for job in jobs:
        made.add_row(
            str(job["job_id"]),
            status_text(job["status"]),
            styled(job["task"]),
            str(job["priority"]),
            str(job["attempt"]),
            age(job["created_at"], now),
            styled(note(job, now)),
        )
    return made


def chain_table(jobs: Iterable[Json], now: int) -> Table:
    """Renders a retry chain. A star marks the job that the user asked for."""
    made = table("", "ID", "STATUS", "RETRY", "OF", "TASK", "AGE", "NOTE", flexible=("TASK", "NOTE"))
    for job in jobs:
        how = "automatic" if job["automatic"] else "by hand" if job["retry_of"] is not None else ""
        made.add_row(
            "*" if job["asked"] else "",
            str(job["job_id"]),
            status_text(job["status"]),
            how,
            str(job["retry_of"] or ""),
            styled(job["task"]),
            age(job["created_at"], now),
            styled(note(job, now)),
        )
    return made


def queue_table(waiting: Iterable[Json], now: int) -> Table:
    made = table("RANK", "ID", "TASK", "PRIO", "WAITS", "FOR", flexible=("TASK", "FOR"))
    for job in waiting:
        made.add_row(
            str(job["rank"] or ""),
            str(job["job_id"]),
            styled(job["task"]),
            str(job["priority"]),
            age(job["queued_at"] or job["created_at"], now),
            styled(_first_blocker(job, now)),
        )
    return made


def _first_blocker(job: Json, now: int) -> str:
    """Returns the first blocker of a waiting job in a few words."""
    if not job["blockers"]:
        return "next"
    first = job["blockers"][0]
    by = f": {first['by']}" if first["kind"] == "behind" and first["by"] else ""
    left = f", {about((moment(first['until']) - now) / 1e6)} to go" if first["until"] is not None else ""
    return f"{first['detail']}{by}{left}"


def run_table(runs: Iterable[Json], now: int) -> Table:
    made = table("RUN", "STATUS", "TASK", "STARTED", "TOOK", "NOTE", flexible=("TASK", "NOTE"))
    for run in runs:
        made.add_row(
            str(run["run_id"]),
            status_text(run["status"]) if run["status"] is not None else styled("open", "cyan"),
            styled(run["task"]),
            f"{age(run['started_at'], now)} ago",
            time_between(run["started_at"], run["finished_at"], now),
            styled(run["error"].splitlines()[0] if run["error"] else ""),
        )
    return made


def worker_table(workers: Iterable[Json], now: int) -> Table:
    made = table("WORKER", "HOST", "PID", "STATE", "BEAT", "SLOTS", "RUNS", "NOTE", flexible=("HOST", "RUNS", "NOTE"))
    for worker in workers:
        state = worker["state"]
        made.add_row(
            worker["worker_id"][:8],
            styled(worker["host"]),
            str(worker["pid"]),
            styled(state, "green" if state == "live" else "dim" if state == "gone" else "yellow"),
            f"{age(worker['beat_at'], now)} ago",
            f"{len(worker['running'])}/{worker['slots']}",
            styled(", ".join(map(_running_job, worker["running"]))),
            styled("; ".join(filter(None, [_served(worker["tenants"]), worker["note"]]))),
        )
    return made


def _served(tenants: list[str] | None) -> str | None:
    return None if tenants is None else f"serves only {', '.join(tenants) or 'other tenants'}"


def _running_job(job: Json) -> str:
    """Names a job that a worker runs; a server hides the jobs of other tenants."""
    return f"{job['job_id']} {job['task']}" if job["job_id"] is not None else "(another tenant's)"


def line_text(line: Json) -> str:
    level = "" if line["level"] == "INFO" else f"{line['level']} "
    return f"{line['at'][11:19]} {level}{visible(line['message'])}"


# --- pages --------------------------------------------------------------------------------------------------------


def job_page(job: Json, group: Json | None, now: int) -> Table:
    """Renders one job. `group` is the group or execution that it belongs to."""
    retry_of = f", retry of job {job['retry_of']}" if job["retry_of"] else ""
    return pairs(
        [
            ("job", str(job["job_id"])),
            ("task", job["task"]),
            ("status", status_text(job["status"])),
            ("reason", job["reason"]),
            ("stop requested", job["stop_requested"]),
            ("params", compact(job["params"])),
            ("template", job["template_id"]),
            *_group_rows(job, group),
            ("priority", str(job["priority"])),
            ("rank", job["rank"]),
            ("attempt", f"{job['attempt']}{retry_of}"),
            ("exhausted", "yes: it failed and gets no automatic retry" if job["exhausted"] else None),
            ("key", job["key"]),
            ("target", job["target"]),
            ("resources", ", ".join(job["resources"])),
            ("created", created(job, now)),
            ("not before", when(job["not_before"], now)),
            ("expires", when(job["expires_at"], now)),
            ("started", when(job["started_at"], now)),
            ("finished", when(job["finished_at"], now)),
            ("took", _took(job["run"])),
            ("progress", progress_text(job)),
            ("meters", json.dumps(job["meters"])),
            ("worker", job["lease_owner"]),
            *_run_rows(job["run"]),
        ]
    )


def _group_rows(job: Json, group: Json | None) -> list[tuple[str, object]]:
    if group is None:
        return []
    return [
        ("step", f"{job['step']}, stage {stage_text(job['stage'] or 0, group['stages'])}"),
        (kind_of(group), f"{number_of(group)} {group['name']} ({group['status']})"),
    ]


def explain_page(explained: Json, now: int, *, lost: bool, job: Json | None = None) -> list[RenderableType]:
    """Renders the blockers of a job in order.

    `lost` means that the job is RUNNING and its worker is dead. `job` is the job if it is RUNNING.
    """
    explanation = _explanation_of(explained, now)
    if lost:
        return [explanation.headline, "  its worker is dead: the next recovery ends it as LOST (start `headway up`)"]
    if job is not None:
        return [explanation.headline, _running_text(job, now)]
    if not explanation.blockers:
        return [explanation.headline, "  nothing blocks it: it starts next"]
    rows = [(f"  {blocker.kind}", sentence(blocker, now)) for blocker in explanation.blockers]
    return [explanation.headline, pairs(rows)]


def _explanation_of(explained: Json, now: int) -> Explanation:
    """Returns the explanation whose sentences people read."""
    expected = explained["start_estimate"]
    estimate = None if expected is None else Estimate(moment(expected["p50"]), moment(expected["p90"]))
    blockers = tuple(map(_blocker_of, explained["blockers"]))
    return Explanation(explained["job_id"], explained["status"], explained["rank"], blockers, estimate, now)


def _blocker_of(blocker: Json) -> Blocker:
    since, until = (None if blocker[at] is None else moment(blocker[at]) for at in ("since", "until"))
    return Blocker(blocker["kind"], blocker["detail"], blocker["by"], since, until)


def _running_text(job: Json, now: int) -> str:
    """Describes a running job: since when, on which worker, and its progress."""
    if job["status"] != "RUNNING" or job["lease_owner"] is None:
        return f"  it has just stopped running: see `headway jobs show {job['job_id']}`"
    far = f", at {progress}" if (progress := progress_text(job)) else ""
    asked = f"; it was asked to stop ({job['stop_requested']})" if job["stop_requested"] else ""
    return f"  running since {when(job['started_at'], now)} on worker {job['lease_owner']}{far}{asked}"


def run_page(run: Json, now: int) -> Table:
    return pairs(
        [
            ("run", str(run["run_id"])),
            ("task", run["task"]),
            ("status", status_text(run["status"]) if run["status"] is not None else "open"),
            ("params", compact(run["params_snapshot"])),
            ("started", when(run["started_at"], now)),
            ("finished", when(run["finished_at"], now)),
            ("took", _took(run)),
            *_run_rows(run),
        ]
    )


def _took(run: Json | None) -> str | None:
    return None if run is None or run["finished_at"] is None else took(run["started_at"], run["finished_at"])


def _run_rows(run: Json | None) -> list[tuple[str, object]]:
    if run is None:
        return []
    return [
        ("failure", run["failure_kind"]),
        ("exit code", run["exit_code"]),
        ("artifacts", ", ".join(run["artifacts"])),
        ("result", None if run["result"] is None else compact(run["result"])),
        ("error", run["error"]),
    ]


def artifact_table(found: Iterable[Json]) -> Table:
    made = table("NAME", "BYTES", "SHA-256", "AT", flexible=("NAME",))
    for artifact in found:
        made.add_row(styled(artifact["name"]), str(artifact["size"]), artifact["sha256"][:12], artifact["at"])
    return made
