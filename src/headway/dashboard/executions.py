"""Executions and groups: lists of them, and the page of one with its stages over time, what it waits for, and what can
be done about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup
from starlette.responses import Response

from headway.api import executions as executions_api
from headway.api import groups as groups_api
from headway.api.groups import checked_status
from headway.dashboard import words
from headway.dashboard.pages import Page, Pages
from headway.dashboard.pictures.gantt import Gantt, Row, gantt
from headway.dashboard.times import clock_zone
from headway.dashboard.told import told, used_up
from headway.engine.limits import lives
from headway.model.job import Actor
from headway.model.outlook import Standing, standing, waits_for
from headway.model.plan import Member
from headway.model.values import whole
from headway.model.waiting import sentence
from headway.store import plans_reading, reading, schedules
from headway.store.charts import ROWS, Chart, chart, first_row
from headway.store.plans_reading import GroupView, StepView

pages = Pages("executions")
LISTED, EVENTS, STEPS, ON_RAIL, HELD = 50, 100, 200, 12, 10
# Stages on the rail: so many at the beginning and at the end, and on each side of the open one.
ENDS, BESIDE = 3, 2


@dataclass(frozen=True, slots=True)
class Kind:
    """Executions are groups of their own kind: how they are called, where they are, how they may stand."""

    name: str
    path: str
    title: str
    statuses: tuple[str, ...]
    unfinished: str


EXECUTION = Kind("execution", "/executions", "Executions", executions_api.STATUSES, "IN_PROGRESS")
GROUP = Kind("group", "/groups", "Groups", groups_api.STATUSES, "RUNNING")


# --- lists --------------------------------------------------------------------------------------------------------


@pages.get("/executions")
def ls_executions(page: Page) -> Response:
    return _list(page, EXECUTION)


@pages.get("/groups")
def ls_groups(page: Page) -> Response:
    return _list(page, GROUP)


def _list(page: Page, kind: Kind) -> Response:
    status = checked_status(page.asked.given("status"), kind.statuses)
    schedule_id = _number(page, "schedule_id") if kind is EXECUTION else None
    with page.read() as tx:
        found = plans_reading.groups_page(
            tx,
            page.tenant_id,
            kind=kind.name,
            status=status,
            schedule_id=schedule_id,
            limit=LISTED,
            cursor=page.asked.given("cursor"),
        )
        known = schedules.page(tx, page.tenant_id, limit=200) if kind is EXECUTION else []
    return page.render("plans.html", kind=kind, found=found, known=known, chosen=status, schedule_id=schedule_id)


def _number(page: Page, name: str) -> int | None:
    text = page.asked.given(name)
    return None if text is None else whole(text, field=name)


# --- one ----------------------------------------------------------------------------------------------------------


@pages.get("/executions/{number:int}")
def show_execution(page: Page, number: int) -> Response:
    return _show(page, EXECUTION, number)


@pages.get("/groups/{number:int}")
def show_group(page: Page, number: int) -> Response:
    return _show(page, GROUP, number)


def _show(page: Page, kind: Kind, number: int) -> Response:
    begin = _number(page, "from") or 0
    with page.look() as tx:  # when a step may start depends on everybody's work
        view = plans_reading.group_view(tx, page.tenant_id, number, kind.name)
        drawn = chart(tx, page.tenant_id, view, page.now, lives=lives)
        events = reading.history(tx, kind.name, number, after=max(0, view.group.version - EVENTS))
        owner = schedules.kept(tx, page.tenant_id, [view.group.schedule_id]) if view.group.schedule_id else {}
        first_held = view.held_by[:HELD]
        holders = reading.views_of(tx, page.tenant_id, [step.job_id for step in first_held])
    members = {step.step: _member(step) for step in view.steps}
    held = [members[step.step] for step in view.held_by]
    schedule = owner.get(view.group.schedule_id or 0)
    return page.render(
        "plan.html",
        kind=kind,
        view=view,
        chart=drawn,
        picture=_picture(page, view, drawn),
        rail=rail(_stages(view), view.group.stage),
        held=first_held,
        over=used_up(holders, page.now),
        waits=waits_for(view.group, members.values(), held),
        events=[told(event) for event in reversed(events)],
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
class Stage:
    """A stage on the rail. `steps` are its first ones, `more` how many there are beside them."""

    number: int
    standing: Standing
    tone: str
    steps: list[StepView]
    more: int


_TONES = {
    Standing.DONE: "good",
    Standing.FAILED: "bad",
    Standing.HELD: "held",
    Standing.RUNNING: "runs",
    Standing.WAITING: "waits",
}


def _stages(view: GroupView) -> list[Stage]:
    held = {step.stage for step in view.held_by}
    found = []
    for number, some in groupby(view.steps, key=lambda step: step.stage):
        steps = list(some)
        stands = standing([_member(s) for s in steps], held=number in held, is_open=number <= view.group.stage)
        tone = _TONES.get(stands, "quiet")
        found.append(Stage(number, stands, tone, steps[:ON_RAIL], max(0, len(steps) - ON_RAIL)))
    return found


def rail(stages: Sequence[Stage], now_open: int) -> list[Stage | int]:
    """The first, those around the open one, and the last; a number stands for so many that are left out."""
    near = range(now_open - BESIDE, now_open + BESIDE + 1)
    last = len(stages) - 1
    shown = {n for n, one in enumerate(stages) if n < ENDS or n > last - ENDS or one.number in near}
    found: list[Stage | int] = []
    for left_out, some in groupby(range(len(stages)), key=lambda n: n not in shown):
        numbers = list(some)
        # Where one alone would be left out its place is as long as what stands for it.
        found += [len(numbers)] if left_out and len(numbers) > 1 else [stages[n] for n in numbers]
    return found


def _picture(page: Page, view: GroupView, drawn: Chart) -> Markup:
    group = view.group
    ends = [one.until for some in drawn.attempts.values() for job in some for one in job.phases if one.until]
    counts = ", ".join(f"{count} {state}" for state, count in sorted(view.counts.items()))
    return gantt(
        Gantt(
            f"The steps of {group.kind} {group.id} over time, by stage: {counts}",
            group.created_at,
            page.now if group.finished_at is None else max(ends, default=group.finished_at),
            page.now if group.finished_at is None else None,
            clock_zone(page.taste),
            [_row(step, view, drawn) for step in view.steps[first_row(view) : first_row(view) + ROWS]],
        )
    )


def _row(step: StepView, view: GroupView, drawn: Chart) -> Row:
    attempts = drawn.attempts.get(step.step, [])
    planned = drawn.planned.get(step.step)
    tones = [words.tone(one.state) for one in attempts]
    drawn_already = planned is not None or any(one.phases for one in attempts)
    return Row(step.step, step.stage, attempts, tones, planned, "" if drawn_already else _note(step, view))


def _note(step: StepView, view: GroupView) -> str:
    if step.linked:
        return f"done in an earlier {view.group.kind}, not run again"
    if step.status.terminal:
        return f"{step.status.name.lower()}: {step.reason}"[:80] if step.reason else step.status.name.lower()
    return "not foreseeable"


# --- verbs --------------------------------------------------------------------------------------------------------


@pages.post("/executions/{number:int}/cancel")
def cancel_execution(page: Page, number: int) -> Response:
    return _cancel(page, EXECUTION, number)


@pages.post("/groups/{number:int}/cancel")
def cancel_group(page: Page, number: int) -> Response:
    return _cancel(page, GROUP, number)


def _cancel(page: Page, kind: Kind, number: int) -> Response:
    group = page.client.groups.cancel(number, kind.name)
    ended = group.finished_at is not None
    word = kind.name.capitalize()
    return page.done(
        f"{word} {number} was cancelled." if ended else f"{word} {number} is being cancelled: what runs has to stop."
    )


@pages.post("/executions/{number:int}/retry")
def retry_execution(page: Page, number: int) -> Response:
    return _retry(page, EXECUTION, number)


@pages.post("/groups/{number:int}/retry")
def retry_group(page: Page, number: int) -> Response:
    return _retry(page, GROUP, number)


def _retry(page: Page, kind: Kind, number: int) -> Response:
    made = page.client.groups.retry(number, kind.name)
    text = f"This is {kind.name} {made}: it retries {kind.name} {number} from the stage that failed."
    return page.done(text, to=page.address(f"{kind.path}/{made}"))
