"""Reads what a group's page shows: attempts, forecast, blockers and retries."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headway.model.explain.blockers import Explanation
from headway.model.explain.forecast import quantile
from headway.model.groups import group as group_group
from headway.model.groups.group import Group, Member
from headway.model.groups.progress import (
    Attempt,
    JobEvent,
    Planned,
    UnfinishedStep,
    foresee,
    no_cancel,
    no_retry,
    phases,
    stops_after,
)
from headway.model.jobs.states import State
from headway.store.db import Tx
from headway.store.groups import advance as groups
from headway.store.groups.views import GroupView, StepView
from headway.store.queue import queue_views
from headway.store.queue.explain import history
from headway.store.worker_views import Lives

# Upper bounds of a chart's rows, attempts and events, and of queued steps to explain.
ROWS, ATTEMPTS, CHANGES, ASKED = 60, 600, 6_000, 8


class _Job(NamedTuple):
    id: int
    step: str
    stage: int
    status: int
    task: str
    hold: int
    claimed_at: int | None
    ran: int


@dataclass(frozen=True, slots=True)
class Chart:
    """The chart of a group; `attempts` and `planned` are by step.

    `waiting` are queued steps of the open stage with their blockers. `again` are the members that a retry would run,
    `retries` the groups that retry this one.
    """

    attempts: dict[str, list[Attempt]]
    planned: dict[str, Planned]
    waiting: list[tuple[StepView, Explanation]]
    again: list[Member]
    retries: list[Group]
    no_cancel: str | None
    no_retry: str | None


def chart(tx: Tx, tenant_id: int, view: GroupView, now: int, *, lives: Lives) -> Chart:
    group = view.group
    tx.run("pin_plans")
    first = first_row(view)
    found = _jobs(tx, group.id, [step for step in view.steps[first : first + ROWS] if not step.linked])
    members = groups.members(tx, group.id)
    again = group_group.retried(members)
    retries = [Group(*row) for row in tx.run("retries_of_group", id=group.id)]
    waiting = _waiting(tx, tenant_id, view, lives)
    return Chart(
        _attempts(tx, found),
        _planned(tx, view, members, {one.id: one for one in found}, waiting, now) if group.finished_at is None else {},
        waiting,
        again,
        retries,
        no_cancel(group),
        no_retry(group, again, _rivals(tx, group, retries)),
    )


def first_row(view: GroupView) -> int:
    """Returns the first step to show: a long chart begins with the open stage."""
    before = sum(step.stage < view.group.stage for step in view.steps)
    return max(0, min(before, len(view.steps) - ROWS))


def _jobs(tx: Tx, group_id: int, shown: Sequence[StepView]) -> list[_Job]:
    names = json.dumps([[step.step] for step in shown])
    return [_Job(*row) for row in tx.run("jobs_of_steps", group_id=group_id, rows=names, limit=ATTEMPTS)]


def _attempts(tx: Tx, found: Sequence[_Job]) -> dict[str, list[Attempt]]:
    changes: dict[int, list[JobEvent]] = {one.id: [] for one in found}
    for job_id, at, status, kind in tx.run("status_changes", ids=json.dumps(list(changes)), limit=CHANGES):
        changes[job_id].append(JobEvent(at, State(status), kind))
    attempts: dict[str, list[Attempt]] = {}
    for one in found:
        attempt = Attempt(one.id, one.step, State(one.status), phases(changes[one.id]))
        attempts.setdefault(one.step, []).append(attempt)
    return attempts


# --- what is to come ----------------------------------------------------------------------------------------------


def _waiting(tx: Tx, tenant_id: int, view: GroupView, lives: Lives) -> list[tuple[StepView, Explanation]]:
    queued = [step for step in view.steps if step.status in (State.QUEUED, State.SCHEDULED)][:ASKED]
    asked = queue_views.explain_all(tx, tenant_id, [step.job_id for step in queued], lives=lives)
    return [(step, asked[step.job_id]) for step in queued]


def _planned(
    tx: Tx,
    view: GroupView,
    members: Sequence[Member],
    jobs: dict[int, _Job],
    waiting: Sequence[tuple[StepView, Explanation]],
    now: int,
) -> dict[str, Planned]:
    """Forecasts the steps of the chart.

    If a step of the open stage is not in the chart, later stages have no forecast.
    """
    group = view.group
    last = stops_after(group, members)
    open_steps = [step for step in view.steps if not step.status.terminal]
    usual = usual_times(tx, group.tenant_id, {step.task for step in open_steps})
    starts = {step.job_id: asked.start_estimate.p50 for step, asked in waiting if asked.start_estimate is not None}
    held = {step.job_id for step in view.held_by}
    ahead = [
        UnfinishedStep(
            step.step,
            step.stage,
            step.status,
            _left(usual.get(step.task), jobs.get(step.job_id), now),
            starts.get(step.job_id),
            step.job_id in held or step.hold,
        )
        for step in open_steps
        if last is None or step.stage <= last
    ]
    return foresee(ahead, now, begun=group.stage >= 0)


def _left(usual: int | None, job: _Job | None, now: int) -> int | None:
    if usual is None or job is None:
        return None
    running = job.status == State.RUNNING and job.claimed_at is not None
    return usual - job.ran - (max(0, now - (job.claimed_at or now)) if running else 0)


def usual_times(tx: Tx, tenant_id: int, tasks: Collection[str]) -> dict[str, int]:
    """Returns the median duration of the latest completed runs of these tasks."""
    found = history(tx) if tasks else {}
    return {task: quantile(took, 0.5) for (owner, task), took in found.items() if owner == tenant_id and task in tasks}


# --- retrying -----------------------------------------------------------------------------------------------------


def _rivals(tx: Tx, group: Group, retries: Sequence[Group]) -> dict[int, str]:
    found = {one.id: "retries it already" for one in retries if one.finished_at is None}
    if group.schedule_id is not None:
        for one in groups.active(tx, group.schedule_id):
            found.setdefault(one.id, "of the same schedule is in progress: wait for it, or cancel it first")
    return found
