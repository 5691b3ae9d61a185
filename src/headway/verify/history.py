"""Reads the history of one snapshot in pages.

Jobs come with their events and runs, groups and schedules with their events, and all events in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from headway.store.db import Row, Tx
from headway.verify.rows import (
    Bucket,
    Event,
    Execution,
    GroupEvent,
    GroupHistory,
    GroupRow,
    JobHistory,
    JobRow,
    Member,
    Moment,
    Parent,
    ScheduleEvent,
    ScheduleRow,
    Tick,
    Worker,
    names,
    numbers,
)

JOBS_PER_PAGE = 1000
EVENTS_PER_PAGE = 5000
GROUPS_PER_PAGE = 200
TICKS_PER_PAGE = 5000
LAST = 2**63 - 1
COUNTED = ("jobs", "events", "runs", "claims", "reservations", "running", "groups", "ticks", "pruned")


@dataclass
class History:
    """One snapshot, its time, and the settings of the check.

    Durations are microseconds.
    """

    tx: Tx
    now: int
    quiet: bool
    lease: int
    recovery: int
    settle: int
    counted: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(COUNTED, 0)))

    @cached_property
    def buckets(self) -> dict[int, Bucket]:
        return {
            bucket_id: Bucket(tenant_id, task, numbers(lanes), bool(on_target))
            for bucket_id, tenant_id, task, lanes, on_target in self.tx.run("verify_buckets")
        }

    @cached_property
    def tenants(self) -> set[int]:
        return {tenant_id for (tenant_id,) in self.tx.run("verify_tenants")}

    @cached_property
    def targets(self) -> dict[int, int]:
        """The tenant of each target."""
        return {target_id: tenant_id for target_id, tenant_id, *_ in self.tx.run("verify_targets")}

    @cached_property
    def workers(self) -> dict[str, Worker]:
        """The workers by the name they have as actors.

        Workers that are gone are pruned after a time.
        """
        rows = self.tx.run("verify_workers")
        return {f"{worker_id:x}": Worker(slots, frozenset(names(tasks))) for worker_id, slots, tasks in rows}

    @cached_property
    def pruned(self) -> dict[str, int]:
        """The number of rows that pruning has deleted, by table."""
        return {name: int(count) for name, count in self.tx.run("verify_tally")}

    @cached_property
    def untold_ticks(self) -> int:
        """The number of the last tick that had no event when it was missed, because a version before decided it."""
        return max((int(value) for (value,) in self.tx.run("verify_untold_ticks")), default=0)

    @cached_property
    def whole_from(self) -> int:
        """The id of the first event after the last pruned one; 0 if none was pruned.

        Before it, pruned jobs may have occupied lanes and targets.
        """
        if not any(self.pruned.values()):
            return 0
        ((first,),) = self.tx.run("verify_last_gap")
        return int(first or 0)

    def jobs(self) -> Iterator[JobHistory]:
        """Yields every job that has a row or an event, by id."""
        after = 0
        while rows := [JobRow._make(row) for row in self.tx.run("verify_jobs", after=after, limit=JOBS_PER_PAGE)]:
            upto = rows[-1].id
            yield from self._page(rows, after, upto)
            after = upto
        yield from self._page([], after, LAST)

    def _page(self, rows: list[JobRow], after: int, upto: int) -> Iterator[JobHistory]:
        span = {"after": after, "upto": upto}
        events = map(Event._make, self.tx.run("verify_job_events", **span))
        by_job = {job_id: list(group) for job_id, group in groupby(events, key=lambda event: event.job_id)}
        page = {row.id: JobHistory(row.id, row, by_job.pop(row.id, [])) for row in rows}
        page |= {job_id: JobHistory(job_id, None, left) for job_id, left in by_job.items()}
        self._link(page, rows, span)
        yield from page.values()

    def _link(self, page: dict[int, JobHistory], rows: list[JobRow], span: dict[str, int]) -> None:
        for parent_id, automatic, count in self.tx.run("verify_children", **span):
            if parent_id in page:
                setattr(page[parent_id], "automatic" if automatic else "manual", count)
        if any(row.retry_of is not None for row in rows):
            for parent in map(Parent._make, self.tx.run("verify_links", **span)):
                # A job that ended twice has two rows here; its first end is the one that made retries.
                page[parent.child_id].parent = page[parent.child_id].parent or parent
            for child_id, count in self.tx.run("verify_paid", **span):
                page[child_id].paid = count
            for (child_id,) in self.own("verify_together", **span):
                page[child_id].together = True

    def stream(self) -> Iterator[Moment]:
        """Yields all events in the order of their ids."""
        after = 0
        while rows := self.tx.run("verify_stream", after=after, limit=EVENTS_PER_PAGE):
            yield from map(Moment._make, rows)
            after = rows[-1][0]

    def groups(self) -> Iterator[GroupHistory]:
        """Yields every group and execution, by id."""
        after = 0
        while rows := [GroupRow._make(row) for row in self.tx.run("verify_groups", after=after, limit=GROUPS_PER_PAGE)]:
            span = {"after": after, "upto": rows[-1].id}
            page = {row.id: GroupHistory(row, [], []) for row in rows}
            for event in map(GroupEvent._make, self.tx.run("verify_group_events", **span)):
                if event.group_id in page:
                    page[event.group_id].events.append(event)
            for member in map(Member._make, self.tx.run("verify_members", **span)):
                if member.group_id in page:
                    page[member.group_id].members.append(member)
            yield from page.values()
            after = rows[-1].id

    def schedules(self) -> list[ScheduleRow]:
        return [ScheduleRow._make(row) for row in self.tx.run("verify_schedules")]

    def schedule_events(self) -> Iterator[ScheduleEvent]:
        """Yields the events of all schedules, ordered by schedule.

        `ticks` and `executions` have the same order.
        """
        return map(ScheduleEvent._make, self.tx.run("verify_schedule_events"))

    def ticks(self) -> Iterator[Tick]:
        after = (0, 0, 0)
        while rows := self.tx.run("verify_ticks", **_place(after, "schedule", "at", "id"), limit=TICKS_PER_PAGE):
            yield from map(Tick._make, rows)
            after = rows[-1][:3]

    def executions(self) -> Iterator[Execution]:
        after = (0, 0)
        while rows := self.tx.run("verify_executions", **_place(after, "schedule", "id"), limit=TICKS_PER_PAGE):
            yield from map(Execution._make, rows)
            after = rows[-1][:2]

    def own(self, name: str, **params: int) -> list[Row]:
        """Runs a statement that is written differently for each database."""
        return self.tx.run(f"{name}_{self.tx.database.dialect}", **params)


def _place(after: Sequence[int], *names: str) -> dict[str, int]:
    """Returns the parameters that say where the last page ended."""
    return dict(zip((f"after_{name}" for name in names), after, strict=True))
