"""Reads everything that decides which actions a job allows, with its retry chain."""

from __future__ import annotations

from collections.abc import Sequence

from headway.model.explain.blockers import Explanation
from headway.model.jobs.available_actions import Case
from headway.model.jobs.job import JobRecord
from headway.store.db import Tx
from headway.store.groups import advance as groups
from headway.store.jobs import changes as jobs
from headway.store.jobs.views import JobView, views
from headway.store.workers import worker_name

# Jobs to show on each side of the job in a longer chain.
SHOWN = 25


def case(tx: Tx, view: JobView, *, now: int, explained: Explanation | None = None) -> tuple[Case, list[JobView]]:
    """Returns the facts that decide a job's actions, and the shown jobs of its chain, without their params."""
    job = view.job
    chain = jobs.chain_without_params(tx, job.id)
    holder = None if job.key is None else jobs.with_key(tx, job.tenant_id, job.task, job.key)
    shown = views(tx, job.tenant_id, _nearby(chain, job))
    found = Case(
        job,
        now,
        chain=tuple(chain),
        runs={member.job.id: member.run.status for member in shown if member.run is not None},
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


def _nearby(chain: Sequence[JobRecord], job: JobRecord) -> list[JobRecord]:
    """Returns the jobs around this one, and the last of the chain."""
    place = next((n for n, member in enumerate(chain) if member.id == job.id), 0)
    near = list(chain[max(0, place - SHOWN) : place + SHOWN + 1])
    return near if not chain or near[-1].id == chain[-1].id else [*near, chain[-1]]
