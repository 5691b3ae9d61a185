"""A job with all that decides what may become of it, and its chain: read for one page."""

from __future__ import annotations

from collections.abc import Sequence

from headway.model.job import Job
from headway.model.prospects import Case
from headway.model.waiting import Explanation
from headway.store import groups, jobs
from headway.store.db import Tx
from headway.store.reading import JobView, views
from headway.store.workers import worker_name

# Of a longer chain those nearest to the job are shown.
SHOWN = 25


def case(tx: Tx, view: JobView, *, now: int, explained: Explanation | None = None) -> tuple[Case, list[JobView]]:
    """With the jobs of its chain that are shown, oldest first."""
    job = view.job
    chain = jobs.chain(tx, job.id)
    holder = None if job.key is None else jobs.with_key(tx, job.tenant_id, job.task, job.key)
    shown = views(tx, job.tenant_id, _shown(chain, job))
    found = Case(
        job,
        now,
        chain=tuple(chain),
        runs={one.job.id: one.run.status for one in shown if one.run is not None},
        spent=view.report.spent if view.report is not None else {},
        used=view.retries_used,
        key_holder=None if holder is None else holder.id,
        stage_open=groups.is_open(tx, job),
        target=view.target,
        worker=None if job.worker_id is None else worker_name(job.worker_id),
        lease_until=view.lease_until,
        explained=explained,
    )
    return found, shown


def _shown(chain: Sequence[Job], job: Job) -> list[Job]:
    """Those around it, and the last one: it decides whether the chain can go on."""
    place = next((n for n, one in enumerate(chain) if one.id == job.id), 0)
    near = list(chain[max(0, place - SHOWN) : place + SHOWN + 1])
    return near if not chain or near[-1].id == chain[-1].id else [*near, chain[-1]]
