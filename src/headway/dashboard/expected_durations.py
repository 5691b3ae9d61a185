"""Compares running jobs with earlier runs of their task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headway.model.explain.blockers import Blocker
from headway.model.explain.durations import Usual, by_progress, is_overdue, usual
from headway.model.explain.forecast import PastDurations
from headway.model.jobs.filter import JobFilter
from headway.model.jobs.states import State
from headway.store.db import Tx
from headway.store.jobs import views as job_views
from headway.store.jobs.views import JobView
from headway.store.queue.explain import history
from headway.store.queue.queue_views import WaitingJob

# Upper bound on the running jobs that are compared.
LOOKED_AT = 200


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A running job and the usual duration of its task.

    `late` means that it takes longer than usual and reports no progress of its own.
    """

    view: JobView
    since: int
    usual: Usual | None
    compared: str | None
    late: bool


def at_work(tx: Tx, views: Sequence[JobView], now: int) -> list[RunningJob]:
    known: PastDurations = history(tx) if views else {}
    return [_running(view, usual(known.get((view.job.tenant_id, view.job.task), ())), now) for view in views]


def _running(view: JobView, known: Usual | None, now: int) -> RunningJob:
    # Time of earlier claims counts too.
    since = (view.job.claimed_at or now) - view.job.ran
    elapsed = now - since
    by_itself = _by_progress(view, elapsed)
    if by_itself is not None or known is None:
        return RunningJob(view, since, known, by_itself, late=False)
    return RunningJob(view, since, known, known.compared(elapsed), late=known.exceeded(elapsed))


def _by_progress(view: JobView, elapsed: int) -> str | None:
    report = view.report if not view.job.ran else None  # progress includes earlier claims, `elapsed` does not
    return by_progress(elapsed, report.done, report.total) if report is not None else None


# --- overdue jobs -------------------------------------------------------------------------------------------------


def overdue(tx: Tx, tenant_id: int, waiting: Iterable[WaitingJob], now: int) -> dict[int, str]:
    """Returns a text for each overdue job that waits for a late one."""
    found = [waiting_job for waiting_job in waiting if is_overdue(waiting_job.start, waiting_job.blockers, now)]
    if not found:
        return {}
    late = late_jobs(tx, tenant_id, now)
    texts = {waiting_job.view.job.id: behind_late(waiting_job.blockers, late) for waiting_job in found}
    return {job_id: text for job_id, text in texts.items() if text is not None}


def late_jobs(tx: Tx, tenant_id: int, now: int) -> dict[int, str]:
    """Returns the running jobs that take longer than usual, each with a text."""
    views = job_views.list_jobs(tx, tenant_id, JobFilter(frozenset({State.RUNNING})), LOOKED_AT).items
    return {running.view.job.id: running.compared or "" for running in at_work(tx, views, now) if running.late}


def behind_late(blockers: Iterable[Blocker], late: Mapping[int, str]) -> str | None:
    """Returns a text about the first late job among the blockers, or None."""
    job_id = next((number for blocker in blockers for number in blocker.job_ids if number in late), None)
    return None if job_id is None else f"when job {job_id} ends, which runs {late[job_id]}"
