"""Groups and executions as people see them: pages of them, and one with its steps in order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

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
    attempt: int
    started_at: int | None
    finished_at: int | None
    reason: str | None
    error: str | None
    tolerated: bool
    linked: bool


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group with its steps, by stage."""

    group: Group
    steps: tuple[StepView, ...]

    @property
    def held_by(self) -> list[StepView]:
        """The steps for which it waits for a person."""
        return [step for step in self.steps if step.status in (State.PAUSED, State.ERROR)]

    @property
    def counts(self) -> dict[str, int]:
        """How many steps are in each state."""
        return dict(Counter(step.status.name for step in self.steps))

    @property
    def started_at(self) -> int | None:
        """When its first job was claimed."""
        return min((step.started_at for step in self.steps if step.started_at and not step.linked), default=None)


def group_view(tx: Tx, tenant_id: int, group_id: int, kind: str | None = None) -> GroupView:
    return _views(tx, [groups.find(tx, group_id, tenant_id, kind)])[0]


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
    wishes = {"tenant_id": tenant_id, "kind": kind, "status": status, "schedule_id": schedule_id}
    found = [Group(*row) for row in tx.run("groups_before", before=before, limit=limit + 1, **wishes)]
    items = _views(tx, found[:limit])
    return Page(items, make_cursor(found[limit - 1].id) if len(found) > limit else None)


def _views(tx: Tx, found: Sequence[Group]) -> list[GroupView]:
    return [GroupView(group, tuple(_steps(tx, group))) for group in found]


def _steps(tx: Tx, group: Group) -> list[StepView]:
    """Its own steps, and those of the groups it retries that it did not run again; the nearest group speaks."""
    tx.run("pin_plans")
    steps: dict[str, StepView] = {}
    for depth, step, stage, task, job_id, status, attempt, started, finished, reason, error, options in tx.run(
        "group_steps_shown", group_id=group.id
    ):
        tolerated = bool(json.loads(options).get("continue_on_failure"))
        steps[step] = StepView(
            step, stage, task, job_id, State(status), attempt, started, finished, reason, error, tolerated, depth > 0
        )
    return sorted(steps.values(), key=lambda one: one.stage)
