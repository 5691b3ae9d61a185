"""Views of jobs and runs: lists, history, logs, files, tasks and counts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headway.clock import micros
from headway.model.event import Event
from headway.model.groups.group import Group
from headway.model.jobs.filter import JobFilter
from headway.model.jobs.job import JobRecord, Run
from headway.model.jobs.states import State
from headway.store import rows
from headway.store.db import Row, Tx
from headway.store.events import PAGE_BYTES
from headway.store.jobs import changes as jobs
from headway.store.paging import BUDGET, Page, check_limit, job_rows, pack, run_rows, unpack
from headway.store.queue import targets
from headway.store.queue.explain import RANKED


@dataclass(frozen=True, slots=True)
class WorkReport:
    """The latest progress and meters that a job reported."""

    at: int
    done: float | None
    total: float | None
    label: str | None
    spent: dict[str, float]


@dataclass(frozen=True, slots=True)
class JobView:
    """A job with everything that is shown with it."""

    job: JobRecord
    run: Run | None = None
    rank: int | None = None
    report: WorkReport | None = None
    lease_until: int | None = None
    retries_used: int = 0
    target: str | None = None
    group: Group | None = None


def list_jobs(
    tx: Tx, tenant_id: int, filters: JobFilter | None = None, limit: int = 50, cursor: str | None = None
) -> Page[JobView]:
    page = job_rows(tx, tenant_id, filters or JobFilter(), check_limit(limit), cursor)
    return Page(views(tx, tenant_id, page.items), page.next)


def list_runs(
    tx: Tx, tenant_id: int, filters: JobFilter | None = None, limit: int = 50, cursor: str | None = None
) -> Page[Run]:
    """Returns runs by job id, newest first.

    `since` and `until` filter by start time; RUNNING means that the run is open.
    """
    return run_rows(tx, tenant_id, filters or JobFilter(), check_limit(limit), cursor)


def view(tx: Tx, tenant_id: int, job_id: int) -> JobView:
    return views(tx, tenant_id, [jobs.find(tx, job_id, tenant_id)])[0]


def views_of(tx: Tx, tenant_id: int, ids: Sequence[int]) -> list[JobView]:
    """Returns the views of these jobs, in this order."""
    stored = jobs.find_all(tx, ids)
    own = {job_id: job for job_id, job in stored.items() if job.tenant_id == tenant_id}
    return views(tx, tenant_id, [own.get(job_id) or jobs.find(tx, job_id, tenant_id) for job_id in ids])


def views(tx: Tx, tenant_id: int, found: Sequence[JobRecord]) -> list[JobView]:
    """Returns the views of jobs, reading related rows for all of them at once."""
    if not found:
        return []
    # Most queued jobs were never claimed. They have no run, and a report only if they carry a parent's.
    claimed, reporting = [job.id for job in found if job.fence], [job.id for job in found if job.fence or job.carries]
    runs = {run.job_id: run for run in map(rows.run, _of(tx, "runs_of", claimed))}
    reports = {job_id: _report(*report) for job_id, *report in _of(tx, "reports_of", reporting)}
    used: dict[int, int] = dict(_of(tx, "paid_of", [job.id for job in found if job.retry_auto]))
    owners = sorted({job.worker_id for job in found if job.worker_id is not None})
    leases: dict[int, int] = dict(_of(tx, "leases_of", owners))
    ranked = ranks(tx, tenant_id, [job.id for job in found if job.status is State.QUEUED])
    named = targets.names(tx, [job.target_id for job in found])
    member_of = _groups(tx, {job.group_id for job in found if job.group_id is not None})
    return [
        JobView(
            job,
            runs.get(job.id),
            ranked.get(job.id),
            reports.get(job.id),
            leases.get(job.worker_id) if job.worker_id is not None else None,
            used.get(job.id, 0),
            named.get(job.target_id) if job.target_id is not None else None,
            member_of.get(job.group_id) if job.group_id is not None else None,
        )
        for job in found
    ]


def _of(tx: Tx, statement: str, ids: Sequence[int]) -> list[Row]:
    """Runs a statement for these ids; without ids, nothing."""
    return tx.run(statement, ids=json.dumps(ids)) if ids else []


def _groups(tx: Tx, ids: set[int]) -> dict[int, Group]:
    return {group.id: group for group in (Group(*row) for row in _of(tx, "groups_of", sorted(ids)))}


def _report(at: int, done: float | None, total: float | None, label: str | None, spent: str | None) -> WorkReport:
    return WorkReport(at, done, total, label, json.loads(spent) if spent else {})


def ranks(tx: Tx, tenant_id: int, ids: Sequence[int]) -> dict[int, int]:
    """Returns the ranks, in claim order, of these jobs among the first of the queue."""
    if not ids:
        return {}
    ((order,),) = tx.run("queue_order", tenant_id=tenant_id, limit=RANKED)
    wanted = set(ids)
    return {job_id: n for n, job_id in enumerate(json.loads(order), 1) if job_id in wanted}


def last_of_chain(tx: Tx, tenant_id: int, job_id: int) -> JobRecord:
    """Returns the last automatic retry of a job, or the job itself."""
    job = jobs.find(tx, job_id, tenant_id)
    return [job, *_retries_after(tx, job)][-1]


def chain_page(tx: Tx, tenant_id: int, job_id: int, limit: int, cursor: str | None) -> Page[JobView]:
    """Returns the whole retry chain that a job belongs to, first job first."""
    jobs.find(tx, job_id, tenant_id)
    after = 0 if cursor is None else unpack(cursor, "chain", 1)[0]
    found = [rows.job(row) for row in tx.run("chain_page", id=job_id, after=after, limit=check_limit(limit) + 1)]
    return Page(views(tx, tenant_id, found[:limit]), pack("chain", found[limit - 1].id) if len(found) > limit else None)


def chain_after(tx: Tx, tenant_id: int, job_id: int) -> list[JobView]:
    """Returns the automatic retries after a job, oldest first."""
    return views(tx, tenant_id, _retries_after(tx, jobs.find(tx, job_id, tenant_id)))


def _retries_after(tx: Tx, job: JobRecord) -> list[JobRecord]:
    return jobs.automatic_retries(tx, job.id) if job.status is State.FAILED else []


def retried(tx: Tx, ids: Iterable[int]) -> set[int]:
    """Returns the jobs that have a retry."""
    return {job_id for job_id in ids if tx.run("any_retry", id=job_id)}


def events(tx: Tx, job_id: int, *, after: int = 0, limit: int = 1_000) -> list[Event]:
    """Returns a job's events, oldest first, after the version `after`."""
    return history(tx, "job", job_id, after=after, limit=limit)


def history(tx: Tx, thing: str, thing_id: int, *, after: int = 0, limit: int = 1_000) -> list[Event]:
    """Returns the events of any thing, oldest first, after the version `after`."""
    return [Event(*row) for row in tx.run("events_of", thing=thing, thing_id=thing_id, after=after, limit=limit)]


@dataclass(frozen=True, slots=True)
class LogLine:
    """A log line. `chunk` is the number to continue after."""

    chunk: int
    at: int
    level: str
    message: str


def log_lines(tx: Tx, job_id: int, *, after: int = 0, limit: int = 1_000) -> list[LogLine]:
    """Returns the lines of at most `limit` chunks after a chunk."""
    return _lines(tx.run("read_log", job_id=job_id, after=after, limit=limit))


class LogPage(NamedTuple):
    """Lines of some chunks. `full` means that there are more chunks."""

    lines: list[LogLine]
    full: bool


def log_page(tx: Tx, job_id: int, *, after: int, limit: int) -> LogPage:
    """Returns the lines of at most `limit` chunks after a chunk. Long chunks make the page shorter."""
    chunks = tx.run("read_log_page", job_id=job_id, after=after, limit=limit, size=PAGE_BYTES)
    found = chunks[0][-1] if chunks else 0
    return LogPage(_lines(chunk[:-1] for chunk in chunks), found == limit or len(chunks) < found)


def last_lines(tx: Tx, job_id: int, count: int) -> list[LogLine]:
    """Returns the last lines of a log.

    A chunk has at least one line, so `count` chunks are enough.
    """
    lines = _lines(reversed(tx.run("log_end", job_id=job_id, limit=count)))
    return lines[-count:] if count else []


def _lines(chunks: Iterable[tuple[Any, ...]]) -> list[LogLine]:
    return [LogLine(chunk, *line) for chunk, _, text in chunks for line in json.loads(text)]


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that a job left. `path` is relative to the artifacts folder."""

    name: str
    size: int
    sha256: str
    path: str
    at: int


def artifacts(tx: Tx, job_id: int) -> list[Artifact]:
    return [Artifact(*row) for row in tx.run("artifacts", job_id=job_id)]


@dataclass(frozen=True, slots=True)
class SeenTask:
    """A task, as the last worker that registered it described it."""

    name: str
    priority: int
    options: str
    seen_at: int


def seen_tasks(tx: Tx, *, within: float) -> list[SeenTask]:
    return [SeenTask(*row) for row in tx.run("seen_tasks", within=micros(within))]


@dataclass(frozen=True, slots=True)
class Counts:
    """Jobs by status; finished ones since a time.

    `at_least`: a count stopped at its bound.
    """

    by_status: dict[str, int]
    since: int
    at_least: bool = False
    longest_wait: tuple[int, int] | None = None


def counts(tx: Tx, tenant_id: int, *, since: int) -> Counts:
    tx.run("pin_plans")
    waiting = tx.run("count_waiting", tenant_id=tenant_id, most=BUDGET)
    held = tx.run("count_held", tenant_id=tenant_id, most=BUDGET)
    ended = tx.run("count_finished", tenant_id=tenant_id, since=since, most=BUDGET)
    ((running,),) = tx.run("count_running", tenant_id=tenant_id)
    by_status = {state.name: 0 for state in State}
    for status, count in (*waiting, *held, *ended, (State.RUNNING, running)):
        by_status[State(status).name] += count
    more = any(sum(count for _, count in part) >= BUDGET for part in (waiting, held, ended))
    waits = [(queued_at, job_id) for job_id, queued_at in tx.run("longest_waits", tenant_id=tenant_id)]
    oldest = min(waits, default=None)
    return Counts(by_status, since, more, None if oldest is None else (oldest[1], oldest[0]))
