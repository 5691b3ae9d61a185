"""How long running jobs take compared with earlier ones of their task, and what that means for those that wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headway.model.estimate import History
from headway.model.expecting import Usual, by_progress, is_overdue, usual
from headway.model.states import State
from headway.model.waiting import Blocker
from headway.store import reading
from headway.store.db import Tx
from headway.store.pages import Filters
from headway.store.queue_reading import Waiting
from headway.store.reading import JobView
from headway.store.surroundings import history

# So many running jobs are looked at for those that take long.
LOOKED_AT = 200


@dataclass(frozen=True, slots=True)
class Running:
    """A job at work, and how long jobs like it take. `late`: it takes longer, and does not say itself how long."""

    view: JobView
    since: int
    usual: Usual | None
    compared: str | None
    late: bool


def at_work(tx: Tx, views: Sequence[JobView], now: int) -> list[Running]:
    known: History = history(tx) if views else {}
    return [_running(one, usual(known.get((one.job.tenant_id, one.job.task), ())), now) for one in views]


def _running(view: JobView, known: Usual | None, now: int) -> Running:
    # What it ran before it was paused counts too.
    since = (view.job.claimed_at or now) - view.job.ran
    elapsed = now - since
    told = _by_progress(view, elapsed)
    if told is not None or known is None:
        return Running(view, since, known, told, late=False)
    return Running(view, since, known, known.compared(elapsed), late=known.exceeded(elapsed))


def _by_progress(view: JobView, elapsed: int) -> str | None:
    report = view.report if not view.job.ran else None  # what an earlier claim did is in its progress, not in its time
    return by_progress(elapsed, report.done, report.total) if report is not None else None


# --- those that should have begun ---------------------------------------------------------------------------------


def overdue(tx: Tx, tenant_id: int, waiting: Iterable[Waiting], now: int) -> dict[int, str]:
    """When those start that should have begun: when the job ends that takes longer than usual."""
    found = [one for one in waiting if is_overdue(one.start, one.blockers, now)]
    if not found:
        return {}
    late = late_jobs(tx, tenant_id, now)
    told = {one.view.job.id: behind_late(one.blockers, late) for one in found}
    return {job_id: text for job_id, text in told.items() if text is not None}


def late_jobs(tx: Tx, tenant_id: int, now: int) -> dict[int, str]:
    """Running jobs that take longer than usual, each with how much that is."""
    views = reading.list_jobs(tx, tenant_id, Filters(frozenset({State.RUNNING})), LOOKED_AT).items
    return {one.view.job.id: one.compared or "" for one in at_work(tx, views, now) if one.late}


def behind_late(blockers: Iterable[Blocker], late: Mapping[int, str]) -> str | None:
    """Who of those in the way takes longer than usual."""
    job_id = next((number for one in blockers for number in one.job_ids if number in late), None)
    return None if job_id is None else f"when job {job_id} ends, which runs {late[job_id]}"
