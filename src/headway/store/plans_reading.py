"""Groups and executions as people see them: pages of them, and one with its steps in order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headway.model.plan import Group
from headway.model.states import State
from headway.store import groups
from headway.store.db import Tx
from headway.store.pages import Page, check_limit, make_cursor, read_cursor

LAST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class StepView:
    """A step as the last job of its chain stands. `linked`: it succeeded in a group that this one retries."""

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
    """A group, and how many of its steps are in each state. `told` are the steps that a list names: those that may hold
    it up, and some that failed; `steps` are all of them by stage, where one group is looked at."""

    group: Group
    counts: dict[str, int]
    started_at: int | None
    told: tuple[StepView, ...]
    steps: tuple[StepView, ...] = ()

    @property
    def held_by(self) -> list[StepView]:
        """The steps for which it waits for a person. One on hold holds nothing up before its stage is open."""
        return [step for step in self.told if self._holds(step)]

    def _holds(self, step: StepView) -> bool:
        if step.status in (State.PAUSED, State.ERROR):
            return True
        return step.status is State.WAITING and step.hold and step.stage <= self.group.stage

    @property
    def failed(self) -> list[StepView]:
        """The first steps that failed in this group itself."""
        return [step for step in self.told if step.status is State.FAILED and not step.linked]


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
    """Newest first."""
    check_limit(limit)
    before = LAST if cursor is None else read_cursor(cursor)
    wishes = {"tenant_id": tenant_id, "status": status, "before": before, "limit": limit + 1}
    if schedule_id is not None:
        found = [Group(*row) for row in tx.run("executions_before", schedule_id=schedule_id, **wishes)]
    else:
        found = [Group(*row) for row in tx.run("groups_before", kind=kind, **wishes)]
    items = _views(tx, found[:limit])
    return Page(items, make_cursor(found[limit - 1].id) if len(found) > limit else None)


def last_executions(tx: Tx, tenant_id: int, schedules: Sequence[int], count: int) -> dict[int, list[Group]]:
    """Of each of these schedules, oldest first, without their steps."""
    wishes = {"tenant_id": tenant_id, "status": None, "before": LAST, "limit": count}
    answers = tx.run_all(*(("executions_before", {"schedule_id": one, **wishes}) for one in schedules))
    return {one: [Group(*row) for row in reversed(found)] for one, found in zip(schedules, answers, strict=True)}


def _views(tx: Tx, found: Sequence[Group]) -> list[GroupView]:
    """Without their steps, of which there may be thousands: these are counted where they are."""
    if not found:
        return []
    tx.run("pin_plans")
    ids = {"ids": json.dumps([group.id for group in found])}
    counted, told = tx.run_all(("count_steps", ids), ("steps_to_tell", ids))
    counts: dict[int, dict[str, int]] = {group.id: {} for group in found}
    began: dict[int, int] = {}
    for group_id, status, count, first in counted:
        counts[group_id][State(status).name] = count
        if first is not None:
            began[group_id] = min(first, began.get(group_id, first))
    named: dict[int, list[StepView]] = {group.id: [] for group in found}
    for group_id, *step in told:
        named[group_id].append(_step(step))
    return [GroupView(one, counts[one.id], began.get(one.id), tuple(named[one.id])) for one in found]


def _steps(tx: Tx, group: Group) -> list[StepView]:
    """Its own steps, and those of the groups it retries that it did not run again; the nearest group speaks."""
    tx.run("pin_plans")
    found = map(_step, tx.run("group_steps_shown", group_id=group.id))
    return sorted({step.step: step for step in found}.values(), key=lambda one: one.stage)


def _step(row: Sequence[Any]) -> StepView:
    depth, step, stage, task, job_id, status, hold, attempt, started, finished, reason, error, options = row
    tolerated = bool(json.loads(options).get("continue_on_failure"))
    ends = (attempt, started, finished, reason, error, tolerated, depth > 0)
    return StepView(step, stage, task, job_id, State(status), bool(hold), *ends)
