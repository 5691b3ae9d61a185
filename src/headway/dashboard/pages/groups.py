"""Executions and groups: their lists, and the page of one.

The page shows the stages over time, what the group waits for, and the available actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup
from starlette.responses import Response

from headway.api.endpoints import executions as executions_api
from headway.api.endpoints import groups as groups_api
from headway.api.endpoints.groups import checked_status
from headway.dashboard import state_styles
from headway.dashboard.charts.gantt import Gantt, GanttRow, gantt
from headway.dashboard.held_jobs import used_up
from headway.dashboard.page import PageRequest, Pages
from headway.dashboard.time_format import clock_zone
from headway.engine.client.limits import lives
from headway.model.explain.blockers import sentence
from headway.model.groups.group import Member
from headway.model.groups.progress import StageStanding, standing, waits_for
from headway.model.jobs.job import Actor
from headway.model.values.names import whole
from headway.store.groups import views as group_views
from headway.store.groups.timeline import ROWS, Chart, chart, first_row
from headway.store.groups.views import GroupView, StepView
from headway.store.jobs import views as job_views
from headway.store.schedules import schedules
from headway.text.events import event_text

pages = Pages("executions")
LISTED, EVENTS, STEPS, ON_RAIL, HELD = 50, 100, 200, 12, 10
# Number of stages that the rail shows at each end, and on each side of the open stage.
ENDS, BESIDE = 3, 2


@dataclass(frozen=True, slots=True)
class GroupKind:
    """Words, paths and statuses that differ between executions and groups."""

    name: str
    path: str
    title: str
    statuses: tuple[str, ...]
    unfinished: str


EXECUTION = GroupKind("execution", "/executions", "Executions", executions_api.STATUSES, "IN_PROGRESS")
GROUP = GroupKind("group", "/groups", "Groups", groups_api.STATUSES, "RUNNING")


# --- lists --------------------------------------------------------------------------------------------------------


@pages.get("/executions")
def ls_executions(page: PageRequest) -> Response:
    return _list(page, EXECUTION)


@pages.get("/groups")
def ls_groups(page: PageRequest) -> Response:
    return _list(page, GROUP)


def _list(page: PageRequest, kind: GroupKind) -> Response:
    status = checked_status(page.asked.given("status"), kind.statuses)
    schedule_id = _number(page, "schedule_id") if kind is EXECUTION else None
    with page.read() as tx:
        found = group_views.groups_page(
            tx,
            page.tenant_id,
            kind=kind.name,
            status=status,
            schedule_id=schedule_id,
            limit=LISTED,
            cursor=page.asked.given("cursor"),
        )
        known = schedules.page(tx, page.tenant_id, limit=200) if kind is EXECUTION else []
    return page.render("groups.html", kind=kind, found=found, known=known, chosen=status, schedule_id=schedule_id)


def _number(page: PageRequest, name: str) -> int | None:
    text = page.asked.given(name)
    return None if text is None else whole(text, field=name)


# --- one group ----------------------------------------------------------------------------------------------------


@pages.get("/executions/{number:int}")
def show_execution(page: PageRequest, number: int) -> Response:
    return _show(page, EXECUTION, number)


@pages.get("/groups/{number:int}")
def show_group(page: PageRequest, number: int) -> Response:
    return _show(page, GROUP, number)


def _show(page: PageRequest, kind: GroupKind, number: int) -> Response:
    begin = _number(page, "from") or 0
    with page.look() as tx:  # the start of a step may depend on other tenants' jobs
        view = group_views.group_view(tx, page.tenant_id, number, kind.name)
        drawn = chart(tx, page.tenant_id, view, page.now, lives=lives)
        events = job_views.history(tx, kind.name, number, after=max(0, view.group.version - EVENTS))
        owner = schedules.kept(tx, page.tenant_id, [view.group.schedule_id]) if view.group.schedule_id else {}
        first_held = view.held_by[:HELD]
        holders = job_views.views_of(tx, page.tenant_id, [step.job_id for step in first_held])
    members = {step.step: _member(step) for step in view.steps}
    held = [members[step.step] for step in view.held_by]
    schedule = owner.get(view.group.schedule_id or 0)
    return page.render(
        "group.html",
        kind=kind,
        view=view,
        chart=drawn,
        picture=_picture(page, view, drawn),
        rail=rail(_stages(view), view.group.stage),
        held=first_held,
        over=used_up(holders, page.now),
        waits=waits_for(view.group, members.values(), held),
        events=[event_text(event) for event in reversed(events)],
        schedule=schedule,
        zone=schedule.parsed.timezone if schedule is not None and schedule.readable else None,
        by=Actor.parse(view.group.created_by).shown,
        cancelled_by=Actor.parse(view.group.cancelled_by).shown if view.group.cancelled_by else None,
        begin=begin,
        size=STEPS,
        first_row=first_row(view),
        rows_shown=ROWS,
        sentence=sentence,
    )


def _member(step: StepView) -> Member:
    ran = step.started_at is not None
    return Member(step.job_id, step.step, step.stage, step.status, step.tolerated, step.reason, step.error, ran)


@dataclass(frozen=True, slots=True)
class StageView:
    """A stage on the rail: its first steps, and the number of further ones."""

    number: int
    standing: StageStanding
    tone: str
    steps: list[StepView]
    more: int


_TONES = {
    StageStanding.DONE: "good",
    StageStanding.FAILED: "bad",
    StageStanding.HELD: "held",
    StageStanding.RUNNING: "runs",
    StageStanding.WAITING: "waits",
}


def _stages(view: GroupView) -> list[StageView]:
    held = {step.stage for step in view.held_by}
    found = []
    for number, some in groupby(view.steps, key=lambda step: step.stage):
        steps = list(some)
        stands = standing([_member(s) for s in steps], held=number in held, is_open=number <= view.group.stage)
        tone = _TONES.get(stands, "quiet")
        found.append(StageView(number, stands, tone, steps[:ON_RAIL], max(0, len(steps) - ON_RAIL)))
    return found


def rail(stages: Sequence[StageView], now_open: int) -> list[StageView | int]:
    """Returns the stages of the rail; a number stands for that many omitted stages."""
    near = range(now_open - BESIDE, now_open + BESIDE + 1)
    last = len(stages) - 1
    shown = {n for n, stage in enumerate(stages) if n < ENDS or n > last - ENDS or stage.number in near}
    found: list[StageView | int] = []
    for left_out, some in groupby(range(len(stages)), key=lambda n: n not in shown):
        numbers = list(some)
        # A single stage takes no more room than the note that it was omitted.
        found += [len(numbers)] if left_out and len(numbers) > 1 else [stages[n] for n in numbers]
    return found


def _picture(page: PageRequest, view: GroupView, drawn: Chart) -> Markup:
    group = view.group
    ends = [phase.until for some in drawn.attempts.values() for job in some for phase in job.phases if phase.until]
    counts = ", ".join(f"{count} {state}" for state, count in sorted(view.counts.items()))
    return gantt(
        Gantt(
            f"The steps of {group.kind} {group.id} over time, by stage: {counts}",
            group.created_at,
            page.now if group.finished_at is None else max(ends, default=group.finished_at),
            page.now if group.finished_at is None else None,
            clock_zone(page.preferences),
            [_row(step, view, drawn) for step in view.steps[first_row(view) : first_row(view) + ROWS]],
        )
    )


def _row(step: StepView, view: GroupView, drawn: Chart) -> GanttRow:
    attempts = drawn.attempts.get(step.step, [])
    planned = drawn.planned.get(step.step)
    tones = [state_styles.tone(attempt.state) for attempt in attempts]
    drawn_already = planned is not None or any(attempt.phases for attempt in attempts)
    return GanttRow(step.step, step.stage, attempts, tones, planned, "" if drawn_already else _note(step, view))


def _note(step: StepView, view: GroupView) -> str:
    if step.linked:
        return f"done in an earlier {view.group.kind}, not run again"
    if step.status.terminal:
        return f"{step.status.name.lower()}: {step.reason}"[:80] if step.reason else step.status.name.lower()
    return "not foreseeable"


# --- actions ------------------------------------------------------------------------------------------------------


@pages.post("/executions/{number:int}/cancel")
def cancel_execution(page: PageRequest, number: int) -> Response:
    return _cancel(page, EXECUTION, number)


@pages.post("/groups/{number:int}/cancel")
def cancel_group(page: PageRequest, number: int) -> Response:
    return _cancel(page, GROUP, number)


def _cancel(page: PageRequest, kind: GroupKind, number: int) -> Response:
    group = page.client.groups.cancel(number, kind.name)
    ended = group.finished_at is not None
    word = kind.name.capitalize()
    text = f"{word} {number} was cancelled."
    if not ended:
        text = f"{word} {number} is being cancelled: its running jobs have been asked to stop."
    return page.done(text)


@pages.post("/executions/{number:int}/retry")
def retry_execution(page: PageRequest, number: int) -> Response:
    return _retry(page, EXECUTION, number)


@pages.post("/groups/{number:int}/retry")
def retry_group(page: PageRequest, number: int) -> Response:
    return _retry(page, GROUP, number)


def _retry(page: PageRequest, kind: GroupKind, number: int) -> Response:
    made = page.client.groups.retry(number, kind.name)
    text = f"This is {kind.name} {made}: it retries {kind.name} {number} from the stage that failed."
    return page.done(text, to=page.address(f"{kind.path}/{made}"))
