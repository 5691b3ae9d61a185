"""Lists, counts, the queue and history: what the command line, the API and the dashboard show."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headway.clock import micros
from headway.model.estimate import Estimate
from headway.model.job import Job, Run
from headway.model.plan import Group
from headway.model.states import State
from headway.model.waiting import Blocker, Explanation, Hand, Pause, blockers, stage_blocker
from headway.store import groups, jobs, rows, targets
from headway.store.db import Row, Tx
from headway.store.pages import (
    BUDGET,
    Filters,
    Page,
    Place,
    check_limit,
    job_rows,
    make_place_cursor,
    pick_places,
    read_place_cursor,
    run_rows,
)
from headway.store.surroundings import RANKED, Surroundings

RECENTLY = 3_600.0
# The queue is looked through in steps of so many jobs where only some of them are wanted.
SIFTED = 500


@dataclass(frozen=True, slots=True)
class Report:
    """What the work said about itself last."""

    at: int
    done: float | None
    total: float | None
    label: str | None
    spent: dict[str, float]


@dataclass(frozen=True, slots=True)
class JobView:
    """A job with everything that is shown with it."""

    job: Job
    run: Run | None = None
    rank: int | None = None
    report: Report | None = None
    lease_until: int | None = None
    retries_used: int = 0
    target: str | None = None
    group: Group | None = None


def list_jobs(
    tx: Tx, tenant_id: int, filters: Filters | None = None, limit: int = 50, cursor: str | None = None
) -> Page[JobView]:
    page = job_rows(tx, tenant_id, filters or Filters(), check_limit(limit), cursor)
    return Page(views(tx, tenant_id, page.items), page.next)


def list_runs(
    tx: Tx, tenant_id: int, filters: Filters | None = None, limit: int = 50, cursor: str | None = None
) -> Page[Run]:
    """Runs by the number of their job. `since` and `until` mean their start; RUNNING means not ended."""
    return run_rows(tx, tenant_id, filters or Filters(), check_limit(limit), cursor)


def view(tx: Tx, tenant_id: int, job_id: int) -> JobView:
    return views(tx, tenant_id, [jobs.find(tx, job_id, tenant_id)])[0]


def views_of(tx: Tx, tenant_id: int, ids: Sequence[int]) -> list[JobView]:
    """These jobs, in this order."""
    stored = jobs.find_all(tx, ids)
    own = {job_id: job for job_id, job in stored.items() if job.tenant_id == tenant_id}
    return views(tx, tenant_id, [own.get(job_id) or jobs.find(tx, job_id, tenant_id) for job_id in ids])


def views(tx: Tx, tenant_id: int, found: Sequence[Job]) -> list[JobView]:
    """Jobs with what is shown beside them, read for all of them at once."""
    if not found:
        return []
    # Most of what is shown in a queue was never claimed: it has no run, and a report only if it carries another's.
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
    """What there is of these; nothing is asked about nobody."""
    return tx.run(statement, ids=json.dumps(ids)) if ids else []


def _groups(tx: Tx, ids: set[int]) -> dict[int, Group]:
    return {group.id: group for group in (Group(*row) for row in _of(tx, "groups_of", sorted(ids)))}


def _report(at: int, done: float | None, total: float | None, label: str | None, spent: str | None) -> Report:
    return Report(at, done, total, label, json.loads(spent) if spent else {})


def ranks(tx: Tx, tenant_id: int, ids: Sequence[int]) -> dict[int, int]:
    """Those of these jobs that are among the first of the queue, with their ranks in claim order."""
    if not ids:
        return {}
    ((order,),) = tx.run("queue_order", tenant_id=tenant_id, limit=RANKED)
    wanted = set(ids)
    return {job_id: n for n, job_id in enumerate(json.loads(order), 1) if job_id in wanted}


def last_of_chain(tx: Tx, tenant_id: int, job_id: int) -> Job:
    """The last automatic retry of a job, or the job itself: it speaks for the chain."""
    last = jobs.find(tx, job_id, tenant_id)
    while last.status is State.FAILED and (follower := jobs.automatic_retry(tx, last.id)) is not None:
        last = follower
    return last


def chain_after(tx: Tx, tenant_id: int, job_id: int) -> list[JobView]:
    """The automatic retries after a job, oldest first."""
    found: list[Job] = []
    last = jobs.find(tx, job_id, tenant_id)
    while last.status is State.FAILED and (follower := jobs.automatic_retry(tx, last.id)) is not None:
        found.append(last := follower)
    return views(tx, tenant_id, found)


def retried(tx: Tx, ids: Iterable[int]) -> set[int]:
    """Those of these jobs that were retried already."""
    return {job_id for job_id in ids if tx.run("any_retry", id=job_id)}


@dataclass(frozen=True, slots=True)
class Event:
    id: int
    kind: str
    thing: str
    thing_id: int
    version: int
    status: int | None
    at: int
    actor: str
    fence: int | None
    data: str | None
    tenant_id: int


def events(tx: Tx, job_id: int, *, after: int = 0, limit: int = 1_000) -> list[Event]:
    """The history of a job, oldest first; `after` is the version to go on from."""
    return history(tx, "job", job_id, after=after, limit=limit)


def history(tx: Tx, thing: str, thing_id: int, *, after: int = 0, limit: int = 1_000) -> list[Event]:
    """The same of anything that has events."""
    return [Event(*row) for row in tx.run("events_of", thing=thing, thing_id=thing_id, after=after, limit=limit)]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log. `chunk` is the number to go on from."""

    chunk: int
    at: int
    level: str
    message: str


def log_lines(tx: Tx, job_id: int, *, after: int = 0, limit: int = 1_000) -> list[Line]:
    """The lines of so many chunks that were written after one."""
    return _lines(tx.run("read_log", job_id=job_id, after=after, limit=limit))


def last_lines(tx: Tx, job_id: int, count: int) -> list[Line]:
    """The end of a log. A chunk has at least one line, so as many chunks are enough."""
    lines = _lines(reversed(tx.run("log_end", job_id=job_id, limit=count)))
    return lines[-count:] if count else []


def _lines(chunks: Iterable[tuple[Any, ...]]) -> list[Line]:
    return [Line(chunk, *line) for chunk, _, text in chunks for line in json.loads(text)]


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file a job left behind. `path` is below the artifacts folder."""

    name: str
    size: int
    sha256: str
    path: str
    at: int


def artifacts(tx: Tx, job_id: int) -> list[Artifact]:
    return [Artifact(*row) for row in tx.run("artifacts", job_id=job_id)]


@dataclass(frozen=True, slots=True)
class SeenTask:
    """A task, as the last worker that had it said."""

    name: str
    priority: int
    options: str
    seen_at: int


def seen_tasks(tx: Tx, *, within: float) -> list[SeenTask]:
    return [SeenTask(*row) for row in tx.run("seen_tasks", within=micros(within))]


@dataclass(frozen=True, slots=True)
class Counts:
    """Jobs by status; finished ones since a time. `at_least`: there are more than were counted."""

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


# --- the queue and what surrounds it ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker with what it runs: (slot, job id, task, since) each."""

    id: int
    host: str
    boot: str
    pid: int
    process_start: int
    slots: int
    tasks: tuple[str, ...]
    state: str
    started_at: int
    beat_at: int
    lease_until: int
    gone_at: int | None
    now: int
    running: tuple[tuple[int, int, str, int], ...] = ()

    @property
    def has_lease(self) -> bool:
        return self.gone_at is None and self.lease_until >= self.now

    @property
    def hand(self) -> Hand:
        free = max(0, self.slots - len(self.running))
        return Hand(frozenset(self.tasks), free, free)


Lives = Callable[[WorkerView], bool]


def workers(tx: Tx, *, within: float = RECENTLY) -> list[WorkerView]:
    """Those that were not given up, or only recently, with what they run."""
    running: dict[int, list[tuple[int, int, str, int]]] = {}
    for job_id, _, _, worker_id, slot, task, claimed_at, *_ in tx.run("running_jobs"):
        running.setdefault(worker_id, []).append((slot, job_id, task, claimed_at))
    return [
        WorkerView(*(*row[:6], tuple(json.loads(row[6])), *row[7:], tuple(sorted(running.get(row[0], ())))))
        for row in tx.run("shown_workers", within=micros(within))
    ]


def running_of(tx: Tx, tenant_id: int) -> set[int]:
    """The running jobs of one tenant."""
    return {job_id for job_id, owner_id, *_ in tx.run("running_jobs") if owner_id == tenant_id}


def owner(tx: Tx, job_id: int) -> WorkerView | None:
    """The worker that runs a job, as far as it is known."""
    return next((one for one in workers(tx) if any(job_id == number for _, number, *_ in one.running)), None)


def pause(tx: Tx, tenant_id: int, now: int) -> Pause | None:
    for number, _, since, until, note, _ in tx.run("tenants"):
        if number == tenant_id and since is not None and (until is None or until > now):
            return Pause(since, until, note)
    return None


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job in the queue, what is in its way, and when it may start if that was asked for and can be foreseen."""

    view: JobView
    blockers: list[Blocker]
    start: Estimate | None = None


def queue(
    tx: Tx,
    tenant_id: int,
    limit: int = 50,
    *,
    lives: Lives = lambda worker: worker.has_lease,
    foresee: bool = False,
) -> list[Waiting]:
    """The beginning of the queue in claim order: queued jobs have a rank, the others say what they wait for."""
    return queue_page(tx, tenant_id, limit, lives=lives, foresee=foresee).items


def queue_page(
    tx: Tx,
    tenant_id: int,
    limit: int = 50,
    cursor: str | None = None,
    *,
    lives: Lives = lambda worker: worker.has_lease,
    filters: Filters | None = None,
    foresee: bool = False,
) -> Page[Waiting]:
    """The same in pages, also of those that fit a filter alone. `foresee`: with when each may start."""
    tx.run("pin_plans")
    page = (
        _queued(tx, tenant_id, check_limit(limit), cursor)
        if filters is None
        else _sifted(tx, tenant_id, filters, limit, cursor)
    )
    first = cursor is None and filters is None and not foresee
    return Page(_waiting(tx, tenant_id, page.items, lives, first=first, foresee=foresee), page.next)


def _waiting(
    tx: Tx, tenant_id: int, found: Sequence[Job], lives: Lives, *, first: bool, foresee: bool
) -> list[Waiting]:
    if not found:
        return []
    around = _surroundings(tx, tenant_id, found, lives, first=first)
    starts = around.estimates(found) if foresee else {}
    return [
        Waiting(one, blockers(one.job, around.lanes_of(one.job), around.scene), starts.get(one.job.id))
        for one in views(tx, tenant_id, found)
    ]


def _sifted(tx: Tx, tenant_id: int, filters: Filters, limit: int, cursor: str | None) -> Page[Job]:
    """The queue in growing steps until a page of those that fit is full. No more than BUDGET jobs are looked at."""
    found: list[Place] = []
    last = None if cursor is None else read_place_cursor(cursor)
    step, looked, more = SIFTED, 0, True
    while more and looked < BUDGET and len(found) <= limit:
        places = _places(tx, tenant_id, step, last)
        found += pick_places(tx, tenant_id, filters, places)
        last, more, looked = (places[-1] if places else last), len(places) == step, looked + step
        step = min(4 * step, max(BUDGET - looked, 1))
    if len(found) > limit:
        last, more = found[limit - 1], True
    jobs_by_id = jobs.find_all(tx, [one.id for one in found[:limit]]) if found else {}
    shown = [jobs_by_id[one.id] for one in found[:limit] if one.id in jobs_by_id]
    return Page(shown, make_place_cursor(last) if more and last is not None else None)


def _places(tx: Tx, tenant_id: int, limit: int, after: Place | None) -> list[Place]:
    scope = {"tenant_id": tenant_id, "limit": limit}
    statement = "queue_places" if after is None else "queue_places_after"
    ((found,),) = tx.run(statement, **scope, **({} if after is None else after._asdict()))
    return sorted((Place(*one) for one in json.loads(found)), key=lambda at: (-at.priority, *at[2:], at.id))


def _queued(tx: Tx, tenant_id: int, limit: int, cursor: str | None) -> Page[Job]:
    found = [rows.job(row) for row in _queue_rows(tx, tenant_id, limit + 1, cursor)]
    return Page(found[:limit], make_place_cursor(found[limit - 1]) if len(found) > limit else None)


def _queue_rows(tx: Tx, tenant_id: int, limit: int, cursor: str | None) -> list[Row]:
    if cursor is None:
        return tx.run("queue_jobs", tenant_id=tenant_id, limit=limit)
    place = read_place_cursor(cursor)
    found = tx.run("queue_rest", tenant_id=tenant_id, limit=limit, **place._asdict())
    if len(found) < limit:
        found += tx.run("queue_below", tenant_id=tenant_id, priority=place.priority, limit=limit - len(found))
    return found


def explain(tx: Tx, tenant_id: int, job_id: int, *, lives: Lives = lambda worker: worker.has_lease) -> Explanation:
    """One job, everything that is in its way, and when it may start."""
    return explain_all(tx, tenant_id, [job_id], lives=lives)[job_id]


def explain_all(tx: Tx, tenant_id: int, ids: Sequence[int], *, lives: Lives) -> dict[int, Explanation]:
    """Several jobs: what surrounds them is read once."""
    if not ids:
        return {}
    tx.run("pin_plans")
    found = views_of(tx, tenant_id, ids)
    around = _surroundings(tx, tenant_id, [one.job for one in found], lives)
    starts = around.estimates([one.job for one in found])
    return {one.job.id: _explained(tx, one, around, starts.get(one.job.id)) for one in found}


def _explained(tx: Tx, one: JobView, around: Surroundings, start: Estimate | None) -> Explanation:
    found = blockers(one.job, around.lanes_of(one.job), around.scene)
    found = [_closed_stage(tx, one.job) if blocker.kind == "stage" else blocker for blocker in found]
    return Explanation(one.job.id, one.job.status.name, one.rank, tuple(found), start, around.now)


def _closed_stage(tx: Tx, job: Job) -> Blocker:
    group = groups.find(tx, job.group_id or 0, job.tenant_id)
    members = [one for one in groups.members(tx, group.id) if one.stage == group.stage and not one.state.terminal]
    return stage_blocker(group, members)


def _surroundings(tx: Tx, tenant_id: int, asked: Sequence[Job], lives: Lives, *, first: bool = False) -> Surroundings:
    living = [worker for worker in workers(tx, within=0.0) if lives(worker)]
    hands = {worker.id: worker.hand for worker in living if worker.state == "live"}
    known = {one.id for one in living if one.state in ("live", "draining")}
    return Surroundings(tx, tenant_id, asked, hands, known, first=first)
