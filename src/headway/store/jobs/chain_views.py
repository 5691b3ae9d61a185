"""Views of chains for clients that know no retries: first jobs, and the last job of each of their chains.

A chain continues by automatic and manual retries, and in a group that retries the group of its last job.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from headway.model.jobs.filter import JobFilter
from headway.model.jobs.job import JobRecord
from headway.store.db import Tx
from headway.store.groups import advance as groups
from headway.store.jobs.views import JobView, views_of
from headway.store.paging import LAST, MAX_LIMIT, fill, job_rows, read_cursor, walk_all


def first_jobs(tx: Tx, tenant_id: int, story: str, research: str) -> Iterator[list[int]]:
    """Yields pages of the ids of the first jobs of chains of these two tasks, newest first."""
    tx.run("pin_plans")
    walk, before = walk_all(tx, tenant_id), LAST
    scope = {"tenant_id": tenant_id, "story": story, "research": research}

    def pick(ids: list[int], count: int) -> list[int]:
        ((found,),) = tx.run("pick_first_jobs", ids=json.dumps(ids), limit=count, **scope)
        return sorted(json.loads(found), reverse=True)

    while True:
        page = fill(walk, pick, int, before, MAX_LIMIT)
        yield page.items
        if page.next is None:
            return
        before = read_cursor(page.next)


def first_members(tx: Tx, tenant_id: int, group_id: int) -> list[int]:
    """Returns the first job of each member of a group, by stage. Retries do not change them."""
    group = groups.find(tx, group_id, tenant_id, "group")
    return [job_id for (job_id,) in tx.run("first_members", group_id=group.id)]


def last_views(tx: Tx, tenant_id: int, ids: Sequence[int]) -> list[JobView]:
    """Returns the last job of each of these jobs' chains, in this order."""
    last = {job_id: job_id for job_id in ids}
    pending = dict(last)
    while pending:
        ends: dict[int, int] = dict(tx.run("chain_ends", ids=json.dumps(sorted(set(pending.values())))))
        last |= {job_id: ends.get(at, at) for job_id, at in pending.items()}
        ended = sorted({last[job_id] for job_id in pending})
        again: dict[int, int] = dict(tx.run("steps_again", ids=json.dumps(ended)))
        pending = {job_id: again[last[job_id]] for job_id in pending if last[job_id] in again}
    views = {view.job.id: view for view in views_of(tx, tenant_id, sorted(set(last.values())))}
    return [views[last[job_id]] for job_id in ids]


def every_job(tx: Tx, tenant_id: int, filters: JobFilter) -> Iterator[JobRecord]:
    """Yields the jobs that match, newest first, page after page."""
    cursor: str | None = None
    while True:
        page = job_rows(tx, tenant_id, filters, MAX_LIMIT, cursor)
        yield from page.items
        if (cursor := page.next) is None:
            return
