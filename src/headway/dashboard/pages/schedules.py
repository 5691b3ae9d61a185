"""Schedules: the list, the page of one, and the actions on it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from starlette.responses import Response

from headway.api.schemas.schedules import in_words
from headway.dashboard import form_tokens
from headway.dashboard.charts.sparkline import MOST, spark
from headway.dashboard.page import PageRequest, Pages
from headway.dashboard.pages.schedule_form import moment
from headway.engine.client.client import Client
from headway.engine.client.schedules import Preview
from headway.errors import HeadwayError, Refused, WrongState
from headway.model.access.permissions import Role
from headway.model.checks import Finding
from headway.model.event import Event
from headway.model.groups.group import Group
from headway.model.jobs.job import Actor
from headway.model.schedules.definition import RequestedStep, stages_of
from headway.model.schedules.schedule import Schedule
from headway.model.values.json import from_json
from headway.model.values.refuse import refuse
from headway.model.values.times import instant_text
from headway.store import audit_views, templates
from headway.store.groups import views as group_views
from headway.store.jobs import views as job_views
from headway.store.schedules import schedules
from headway.text import findings
from headway.text import schedules as text_schedules

pages = Pages("schedules")
LISTED, RECENT, AHEAD = 50, 20, 10
WAITS = 3
UNREADABLE = "at times that this version of Headway cannot read"


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """One line of the list."""

    schedule: Schedule
    sentence: str
    zone: str
    recent: Sequence[Group]
    active: bool


@dataclass(frozen=True, slots=True)
class ScheduleEventText:
    """One event of a schedule, in words."""

    event: Event
    by: str
    words: Sequence[str]
    reason: str | None


# --- looking ------------------------------------------------------------------------------------------------------


@pages.get("/schedules")
def ls(page: PageRequest) -> Response:
    with page.read() as tx:
        found = schedules.listed(tx, page.tenant_id, limit=LISTED, cursor=page.asked.given("cursor"))
        ids = [one.id for one in found.items]
        recent = group_views.last_executions(tx, page.tenant_id, ids, MOST)
        stages = schedules.open_stages(tx, ids)
    rows = [
        ScheduleRow(one, sentence(one), zone(one), recent[one.id], stages[one.id] is not None) for one in found.items
    ]
    return page.render("schedules.html", rows=rows, next=found.next, spark=spark)


@pages.get("/schedules/{schedule_id:int}")
def show(page: PageRequest, schedule_id: int) -> Response:
    with page.read() as tx:
        one = schedules.find_kept(tx, page.tenant_id, schedule_id)
        by = audit_views.deleted_by(tx, "schedule", [one.id] if one.deleted_at is not None else [])
        numbers = templates.numbers(tx, page.tenant_id, [one])
        recent = group_views.groups_page(tx, page.tenant_id, kind="execution", schedule_id=one.id, limit=RECENT)
        ledger = schedules.ledger(tx, one.id, limit=RECENT)
        events = job_views.history(tx, "schedule", one.id, after=max(0, one.version - RECENT - 1))
        active = schedules.open_stages(tx, [one.id])[one.id] is not None
        unseen = schedules.missed(tx, page.tenant_id, schedule_id=one.id)
        _, switched = schedules.last_switch(tx, one.id)
    groups = [view.group for view in reversed(recent.items)]
    return page.render(
        "schedule.html",
        one=one,
        made=one.parsed if one.readable else None,
        sentence=sentence(one),
        zone=zone(one),
        outlook=text_schedules.outlook(one, page.now, active=active),
        why_off=None if one.enabled else switched.get("reason"),
        active=active,
        ahead=coming(page, one) if one.deleted_at is None else [],
        deleted_by=Actor.parse(by[one.id]).identified if one.id in by else None,
        clock=clock,
        brief=brief,
        plain=plain,
        numbers=numbers,
        stages=_stages(one),
        recent=recent,
        ledger=ledger,
        events=_event_texts(events, one)[:RECENT],
        picture=spark(groups, page.now),
        not_yours=_not_yours(page, one),
        waits=_waits(one, recent.items),
        missed=text_schedules.missed_words(one.name, unseen[0].times) if unseen else None,
        says=text_schedules,
    )


@pages.get("/schedules/{schedule_id:int}/ticks")
def ticks(page: PageRequest, schedule_id: int) -> Response:
    with page.read() as tx:
        one = schedules.find_kept(tx, page.tenant_id, schedule_id)
        ledger = schedules.ledger(tx, one.id, limit=LISTED, cursor=page.asked.given("cursor"))
    return page.render("schedule_ticks.html", one=one, zone=zone(one), ledger=ledger, says=text_schedules)


def sentence(one: Schedule) -> str:
    return in_words(one.parsed) if one.readable else UNREADABLE


def zone(one: Schedule) -> str:
    return one.parsed.timezone if one.readable else "UTC"


def clock(at: int, zone: str) -> str:
    """An instant on the clocks of a schedule, with the day of the week."""
    try:
        local = datetime.fromtimestamp(at / 1_000_000, ZoneInfo(zone))
    except (OverflowError, ValueError):  # the ends of the calendar, by clocks that are beyond them
        return instant_text(at)
    seconds = "" if not local.second else f":{local.second:02}"
    return f"{local:%a %d %b %Y %H:%M}{seconds} {'UTC' if zone == 'UTC' else local.tzname()}"


def brief(at: int) -> str:
    """The same in UTC, beside it."""
    return f"{datetime.fromtimestamp(at / 1_000_000, UTC):%d %b %H:%M}"


def plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def coming(page: PageRequest, one: Schedule) -> list[Preview]:
    return page.client.schedules.preview(one.id, AHEAD) if one.readable else []


def _stages(one: Schedule) -> list[list[RequestedStep]]:
    """The steps that run together, stage by stage."""
    steps = one.parsed.steps if one.readable else ()
    found: list[list[RequestedStep]] = [[] for _ in {step.index for step in steps}]
    for step, stage in zip(steps, stages_of(steps), strict=True):
        found[stage].append(step)
    return found


def _waits(one: Schedule, recent: Sequence[group_views.GroupView]) -> list[Finding]:
    """The PAUSED and ERROR steps for which its executions wait.

    Its ticks are skipped meanwhile, unless its overlap says otherwise.
    """
    if not (one.enabled and one.readable):
        return []
    held = [(view.group.id, step) for view in recent if not view.group.finished_at for step in view.held_by]
    return [
        findings.execution_waits(one, number, step.job_id, step.step, step.status, step.reason)
        for number, step in held
        if not step.hold
    ][:WAITS]


def _event_texts(events: Sequence[Event], one: Schedule) -> list[ScheduleEventText]:
    """The newest first, each with what it changed.

    The first that is kept may have changed anything.
    """
    found, before = [], None
    for event in events:
        facts = json.loads(event.data or "{}")
        words = text_schedules.change_words(event.kind, before, facts)
        found.append(ScheduleEventText(event, Actor.parse(event.actor).shown, words, facts.get("reason")))
        before = facts
    return found[::-1]


def _not_yours(page: PageRequest, one: Schedule) -> str | None:
    """Why this visitor may not change what it says."""
    if not one.readable:
        return "this version of Headway cannot read it"
    try:
        page.client.schedules.may_define(one)
    except Refused as error:
        return str(error)
    return None


# --- switching and running ----------------------------------------------------------------------------------------


@pages.post("/schedules/{schedule_id:int}/enable", Role.OPERATOR)
def enable(page: PageRequest, schedule_id: int) -> Response:
    one = page.client.schedules.enable(schedule_id)
    return page.done(f"Schedule {one.name} is enabled: it fires from now on.")


@pages.post("/schedules/{schedule_id:int}/disable", Role.OPERATOR)
def disable(page: PageRequest, schedule_id: int) -> Response:
    one = page.client.schedules.disable(schedule_id, reason=page.form.given("reason"))
    text = f"Schedule {one.name} is disabled: it does not fire. Executions that exist continue."
    return page.done(text, undo=(f"/schedules/{one.id}/enable", {}))


@pages.post("/schedules/{schedule_id:int}/seen", Role.OPERATOR)
def seen(page: PageRequest, schedule_id: int) -> Response:
    one = page.client.schedules.see(schedule_id)
    return page.done(f"The missed ticks of {one.name} are marked as seen.")


@pages.post("/schedules/{schedule_id:int}/run", Role.OPERATOR)
def run(page: PageRequest, schedule_id: int) -> Response:
    one, client = page.client.schedules.get(schedule_id), form_tokens.keyed(page)
    if (made := client.recall()) is None:
        made = _run(page, one, client)
    return page.done(f"Execution {made} of {one.name} was started{form_tokens.already(client)}.")


def _run(page: PageRequest, one: Schedule, client: Client) -> int:
    given = from_json(page.form.get("params") or "{}", field="params")
    if not isinstance(given, dict):
        refuse("params", 'must be an object of names and values, like {"topic": "fog"}')
    # Run exactly the version whose rights were checked.
    return client.schedules.run(one.id, bool(page.form.get("force")), given, if_version=one.version)


@pages.post("/schedules/{schedule_id:int}/delete", Role.OPERATOR)
def delete(page: PageRequest, schedule_id: int) -> Response:
    one = page.client.schedules.get(schedule_id)
    page.client.schedules.delete(one.id, if_version=seen_version(page, one))
    text = f"Schedule {one.name} was deleted. Its executions and its ledger stay; its name is free again."
    return page.done(text, to=page.address("/schedules"))


def seen_version(page: PageRequest, one: Schedule) -> int:
    """The version that the visitor looked at; the rights were judged by this one."""
    given = page.form.get("version")
    if given != str(one.version):
        text = f"schedule {one.name!r} has changed since this page was loaded: reload the page, then change it"
        raise WrongState(text, code="version_mismatch", version=one.version)
    return one.version


# --- filling in ---------------------------------------------------------------------------------------------------


@pages.get("/schedules/{schedule_id:int}/backfill", Role.OPERATOR)
def backfill_ahead(page: PageRequest, schedule_id: int) -> Response:
    """Previews the executions of a backfill."""
    one = page.client.schedules.get(schedule_id)
    times, error = None, None
    if page.asked.get("since") or page.asked.get("until"):
        try:
            times = page.client.schedules.backfill(one.id, *_range(page, one), dry_run=True)
        except HeadwayError as refused:
            error = refused
    facts = {"one": one, "zone": zone(one), "sentence": sentence(one), "times": times, "error": error, "clock": clock}
    return page.render("schedule_backfill.html", status=422 if error else 200, **facts)


@pages.post("/schedules/{schedule_id:int}/backfill", Role.OPERATOR)
def backfill(page: PageRequest, schedule_id: int) -> Response:
    one, client = page.client.schedules.get(schedule_id), form_tokens.keyed(page)
    if (made := client.recall()) is None:
        made = client.schedules.backfill(one.id, *_range(page, one))
    text = f"{len(made)} executions were made" if len(made) != 1 else "1 execution was made"
    text += f" for past times of {one.name}{form_tokens.already(client)}."
    return page.done(text, to=page.address(f"/schedules/{one.id}"))


def _range(page: PageRequest, one: Schedule) -> tuple[str, str]:
    """By the clocks of the schedule, where no zone is named."""
    given = page.form if page.declared.method == "POST" else page.asked
    since, until = (moment(given.get(name), zone(one), field=name) for name in ("since", "until"))
    return since, until
