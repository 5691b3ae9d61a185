"""Reads the history of one snapshot: jobs with their events and runs in pages by number, and all events in order."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Any, NamedTuple

from headway.clock import SECOND
from headway.store.db import Row, Tx

JOBS_PER_PAGE = 1000
EVENTS_PER_PAGE = 5000
LAST = 2**63 - 1


# Rows are plain tuples with names: millions of them are made.
class Event(NamedTuple):
    job_id: int
    version: int
    kind: str
    status: int | None
    at: int
    actor: str
    fence: int | None
    data: str | None
    tenant_id: int

    @property
    def where(self) -> str:
        return f"version {self.version}, {self.kind}"


class JobRow(NamedTuple):
    id: int
    tenant_id: int
    bucket_id: int
    status: int
    gate: int
    priority: int
    position: int
    fence: int
    version: int
    retry_auto: int
    exhausted: int
    retry_of: int | None
    target_id: int | None
    started_at: int | None
    stop: str | None
    key: str | None
    task: str
    run_tenant: int | None
    run_task: str | None
    run_started: int | None
    run_status: int | None
    run_has_params: int

    @property
    def has_run(self) -> bool:
        return self.run_tenant is not None


class Parent(NamedTuple):
    """The job that a job retries, and its end."""

    child_id: int
    id: int | None
    tenant_id: int
    status: int
    failure_kind: str | None
    priority: int
    position: int
    task: str
    key: str | None
    target_id: int | None
    options: str
    same_params: int
    ended_at: int | None
    end_data: str | None


class Moment(NamedTuple):
    """One event in the order of all, with what the replays need of its job."""

    id: int
    thing: str
    thing_id: int
    version: int
    kind: str
    status: int | None
    at: int
    actor: str
    data: str | None
    bucket_id: int | None
    target_id: int | None
    group_id: int | None
    stage: int | None
    priority: int
    position: int
    created_at: int
    expires_at: int | None


@dataclass(slots=True)
class JobHistory:
    """All that is known of one job number. Without a row only its events are left."""

    id: int
    row: JobRow | None
    events: list[Event]
    parent: Parent | None = None
    paid: int = 0
    automatic: int = 0
    manual: int = 0


class Bucket(NamedTuple):
    tenant_id: int
    task: str
    lanes: tuple[int, ...]


@dataclass
class History:
    """One snapshot and how it is to be judged. Durations are microseconds."""

    tx: Tx
    quiet: bool
    lease: int
    recovery: int
    settle: int
    counted: Counter[str] = field(default_factory=Counter)

    @property
    def dialect(self) -> str:
        return self.tx.database.dialect

    @cached_property
    def now(self) -> int:
        return int(self.tx.run("time")[0][0])

    @cached_property
    def buckets(self) -> dict[int, Bucket]:
        return {row[0]: Bucket(row[1], row[2], tuple(json.loads(row[3]))) for row in self.tx.run("all_buckets")}

    @cached_property
    def tenants(self) -> set[int]:
        return {tenant_id for (tenant_id,) in self.tx.run("verify_tenants")}

    def jobs(self) -> Iterator[JobHistory]:
        """Every job number that a row or an event knows, in order."""
        after = 0
        while rows := [JobRow._make(row) for row in self.tx.run("verify_jobs", after=after, limit=JOBS_PER_PAGE)]:
            upto = rows[-1].id
            yield from self._page(rows, after, upto)
            after = upto
        yield from self._page([], after, LAST)

    def _page(self, rows: list[JobRow], after: int, upto: int) -> Iterator[JobHistory]:
        span = {"after": after, "upto": upto}
        events = map(Event._make, self.tx.run("verify_job_events", **span))
        found = {job_id: list(group) for job_id, group in groupby(events, key=lambda event: event.job_id)}
        page = {row.id: JobHistory(row.id, row, found.pop(row.id, [])) for row in rows}
        page |= {job_id: JobHistory(job_id, None, left) for job_id, left in found.items()}
        self._link(page, rows, span)
        yield from page.values()

    def _link(self, page: dict[int, JobHistory], rows: list[JobRow], span: dict[str, int]) -> None:
        for parent_id, automatic, count in self.tx.run("verify_children", **span):
            if parent_id in page:
                setattr(page[parent_id], "automatic" if automatic else "manual", count)
        if any(row.retry_of is not None for row in rows):
            for parent in map(Parent._make, self.tx.run("verify_links", **span)):
                # A job that ended twice comes twice; its first end is the one that made retries.
                page[parent.child_id].parent = page[parent.child_id].parent or parent
            for child_id, count in self.tx.run("verify_paid", **span):
                page[child_id].paid = count

    def stream(self) -> Iterator[Moment]:
        """All events in the order they were made."""
        after = 0
        while rows := self.tx.run("verify_stream", after=after, limit=EVENTS_PER_PAGE):
            yield from map(Moment._make, rows)
            after = rows[-1][0]

    def once(self, name: str) -> list[Row]:
        """A question that each database is asked in its own words."""
        return self.tx.run(f"{name}_{self.dialect}")


def facts(data: str | None) -> dict[str, Any]:
    found = json.loads(data) if data else None
    return found if isinstance(found, dict) else defaultdict(lambda: None)


@lru_cache(maxsize=4096)
def worker_of(actor: str) -> int | None:
    """The worker that acted, if one did: events name it by its number in hexadecimal."""
    who = json.loads(actor)
    try:
        return int(who["id"], 16) if who["type"] == "worker" else None
    except (KeyError, ValueError):
        return None


def micros_of(seconds: float) -> int:
    return round(seconds * SECOND)
