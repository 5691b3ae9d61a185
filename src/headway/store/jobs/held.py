"""Reads PAUSED and ERROR jobs, their targets, and the jobs that wait behind them."""

from __future__ import annotations

import json
from dataclasses import dataclass

from headway.model.jobs.filter import JobFilter
from headway.model.jobs.states import State
from headway.store.db import Tx
from headway.store.jobs import views as job_views
from headway.store.jobs.views import JobView
from headway.store.paging import BUDGET

HELD = frozenset({State.PAUSED, State.ERROR})


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A held job, the start of its hold, and the number of jobs behind its target.

    `at_least`: the count stopped at its bound.
    """

    view: JobView
    since: int | None = None
    waiting: int = 0
    at_least: bool = False


def held(tx: Tx, tenant_id: int, limit: int = 50) -> list[HeldJob]:
    """Returns held jobs, newest first."""
    found = job_views.list_jobs(tx, tenant_id, JobFilter(HELD), limit).items
    if not found:
        return []
    since: dict[int, int] = dict(tx.run("held_since", ids=json.dumps([one.job.id for one in found])))
    targets = sorted({one.job.target_id for one in found if one.job.target_id is not None})
    most = BUDGET // max(1, len(targets))
    waiting: dict[int, int] = dict(tx.run("waiting_on_targets", ids=json.dumps(targets), most=most)) if targets else {}
    return [_held(one, since, waiting.get(one.job.target_id or 0, 0), most) for one in found]


def _held(view: JobView, since: dict[int, int], waiting: int, most: int) -> HeldJob:
    return HeldJob(view, since.get(view.job.id), waiting, waiting >= most)
