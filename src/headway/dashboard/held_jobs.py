"""Checks which held jobs need a larger budget before they can resume."""

from __future__ import annotations

from collections.abc import Iterable

from headway.model.jobs.available_actions import Case, needs_budget
from headway.store.jobs.views import JobView


def used_up(held: Iterable[JobView], now: int) -> dict[int, str]:
    """Returns the held jobs that need a larger budget, with the exceeded meter."""
    found = {view.job.id: _over(view, now) for view in held}
    return {job_id: over for job_id, over in found.items() if over is not None}


def _over(view: JobView, now: int) -> str | None:
    return needs_budget(Case(view.job, now, spent=view.report.spent if view.report is not None else {}))
