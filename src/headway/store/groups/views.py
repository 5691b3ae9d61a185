"""Views of groups and executions: pages, and one with its steps in order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headway.model.groups.group import Group
from headway.model.jobs.states import State
from headway.store.db import Tx
from headway.store.groups import advance as groups
from headway.store.paging import Page, check_limit, make_cursor, read_cursor

LAST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class StepView:
    """A step in the state of the last job of its chain.

    `linked`: it succeeded in a group that this one retries.
    """

    step: str
    stage: int
    task: str
    job_id: int
    status: State
    hold: bool
    attempt: int
    started_at: int | None
    finished_at: int | None
    reason: str | None
    error: str | None
    tolerated: bool
    linked: bool


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group with the number of its steps in each state.

    `told` are the steps that a list names: those that may hold the group, and some that failed. `steps` are all steps
    by stage, in the view of a single group.
    """

    group: Group
    counts: dict[str, int]
    started_at: int | None
    listed: tuple[StepView, ...]
    steps: tuple[StepView, ...] = ()

    @property
    def held_by(self) -> list[StepView]:
        """Returns the steps for which the group waits for a person.

        A step on hold counts once its stage is open.
        """
        return [step for step in self.listed if self._holds(step)]

    def _holds(self, step: StepView) -> bool:
        if step.status in (State.PAUSED, State.ERROR):
            return True
        return step.status is State.WAITING and step.hold and step.stage <= self.group.stage

    @property
    def failed(self) -> list[StepView]:
        """Returns the first steps that failed in this group itself."""
        return [step for step in self.listed if step.status is State.FAILED and not step.linked]


def group_view(tx: Tx, tenant_id: int, group_id: int, kind: str | None = None) -> GroupView:
    group = groups.find(tx, group_id, tenant_id, kind)
    steps = tuple(_steps(tx, group))
    counts = dict(Counter(step.status.name for step in steps))
    began = min((step.started_at for step in steps if step.started_at and not step.linked), default=None)
    return GroupView(group, counts, began, steps, steps)


def groups_page(
    tx: Tx,
    tenant_id: int,
    *,
    kind: str = "group",
    status: str | None = None,
    schedule_id: int | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[GroupView]:
    """Returns a page of groups or executions, newest first."""
    check_limit(limit)
    before = LAST if cursor is None else read_cursor(cursor)
    values = {"tenant_id": tenant_id, "status": status, "before": before, "limit": limit + 1}
    if schedule_id is not None:
        found = [Group(*row) for row in tx.run("executions_before", schedule_id=schedule_id, **values)]
    else:
        found = [Group(*row) for row in tx.run("groups_before", kind=kind, **values)]
    items = _views(tx, found[:limit])
    return Page(items, make_cursor(found[limit - 1].id) if len(found) > limit else None)


def last_executions(tx: Tx, tenant_id: int, schedules: Sequence[int], count: int) -> dict[int, list[Group]]:
    """Returns each schedule's last executions, oldest first, without their steps."""
    values = {"tenant_id": tenant_id, "status": None, "before": LAST, "limit": count}
    answers = tx.run_all(*(("executions_before", {"schedule_id": one, **values}) for one in schedules))
    return {one: [Group(*row) for row in reversed(found)] for one, found in zip(schedules, answers, strict=True)}


def _views(tx: Tx, found: Sequence[Group]) -> list[GroupView]:
    """Returns views without steps, which may be thousands: the database counts them."""
    if not found:
        return []
    tx.run("pin_plans")
    ids = {"ids": json.dumps([group.id for group in found])}
    counted, listed = tx.run_all(("count_steps", ids), ("steps_to_tell", ids))
    counts: dict[int, dict[str, int]] = {group.id: {} for group in found}
    began: dict[int, int] = {}
    for group_id, status, count, first in counted:
        counts[group_id][State(status).name] = count
        if first is not None:
            began[group_id] = min(first, began.get(group_id, first))
    named: dict[int, list[StepView]] = {group.id: [] for group in found}
    for group_id, *step in listed:
        named[group_id].append(_step(step))
    return [GroupView(one, counts[one.id], began.get(one.id), tuple(named[one.id])) for one in found]


def _steps(tx: Tx, group: Group) -> list[StepView]:
    """Returns a group's steps, and those linked from the groups it retries.

    Of a step in several groups, the nearest group's counts.
    """
    tx.run("pin_plans")
    found = map(_step, tx.run("group_steps_shown", group_id=group.id))
    return sorted({step.step: step for step in found}.values(), key=lambda one: one.stage)


def _step(row: Sequence[Any]) -> StepView:
    depth, step, stage, task, job_id, status, hold, attempt, started, finished, reason, error, options = row
    tolerated = bool(json.loads(options).get("continue_on_failure"))
    ends = (attempt, started, finished, reason, error, tolerated, depth > 0)
    return StepView(step, stage, task, job_id, State(status), bool(hold), *ends)
