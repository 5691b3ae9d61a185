"""Groups, executions, schedules and templates for people: tables that fit 80 columns, pages, and what to do next."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from headway.api.wire.plans import in_words
from headway.cli.out import paragraph, styled, table
from headway.cli.tables import STYLES, about, age, pairs, stage_text, status_text, when
from headway.clock import SECOND
from headway.engine.schedules import Preview
from headway.model.job import Actor
from headway.model.schedule import Definition, Schedule, StepWish, Tick, stages_of
from headway.model.states import State
from headway.model.template import WISHES, Template
from headway.model.values import duration_text, instant_text
from headway.store.plans_reading import GroupView, StepView

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_PLAN_STYLES = {**STYLES, "IN_PROGRESS": "cyan", "PARTIAL": "yellow", "FIRED": "green", "MISSED": "yellow"}
_WAITING = (State.WAITING, State.SCHEDULED, State.QUEUED)


def word(status: str) -> Text:
    return styled(status, _PLAN_STYLES.get(status, ""))


# --- groups and executions ----------------------------------------------------------------------------------------


def group_table(views: Iterable[GroupView], now: int) -> Table:
    made = table("ID", "STATUS", "NAME", "STAGE", "STEPS", "AGE", "NOTE", flexible=("NAME", "NOTE"))
    for view in views:
        group = view.group
        made.add_row(
            str(group.id),
            word(group.status),
            styled(group.name),
            _stage(view),
            _done(view),
            age(group.created_at, now),
            styled(_note(view)),
        )
    return made


def execution_table(views: Iterable[GroupView], zones: dict[int, str], now: int) -> Table:
    """`zones` are those of the schedules: a nominal time is shown by their clocks."""
    made = table("ID", "STATUS", "SCHEDULE", "FOR", "STAGE", "STEPS", "AGE", "NOTE", flexible=("SCHEDULE", "NOTE"))
    for view in views:
        group = view.group
        zone = zones.get(group.schedule_id or 0, "UTC")
        made.add_row(
            str(group.id),
            word(group.status),
            styled(group.name),
            local(group.nominal_at, zone) if group.nominal_at is not None else group.reason or "",
            _stage(view),
            _done(view),
            age(group.created_at, now),
            styled(_note(view)),
        )
    return made


def _stage(view: GroupView) -> str:
    return "-" if view.group.stage < 0 else f"{view.group.stage + 1}/{view.group.stages}"


def _done(view: GroupView) -> str:
    done = sum(count for state, count in view.counts.items() if State[state].terminal)
    return f"{done}/{sum(view.counts.values())}"


def _note(view: GroupView) -> str:
    """The one thing worth saying about it in a list."""
    group = view.group
    if view.held_by:
        return f"held by {', '.join(step.step for step in view.held_by)}"
    if group.finished_at is None and group.cancelled_by is not None:
        return "cancelling"
    if group.finished_at is None and group.stage < 0:
        return f"after {group.after_id}"
    if group.error:
        return group.error
    failed = [step.step for step in view.failed]
    return f"failed: {', '.join(failed[:3])}{', …' if len(failed) > 3 else ''}" if failed else ""


def group_page(view: GroupView, now: int, zone: str = "UTC") -> Table:
    group = view.group
    return pairs(
        [
            (group.kind, str(group.id)),
            ("name" if group.kind == "group" else "schedule", group.name),
            ("status", word(group.status)),
            ("error", group.error),
            ("held by", ", ".join(f"{step.step} (job {step.job_id} {step.status.name})" for step in view.held_by)),
            ("stage", _open_stage(view)),
            ("kind", group.reason),
            ("for", local(group.nominal_at, zone) if group.nominal_at is not None else None),
            ("mode", group.mode if group.kind == "group" else None),
            ("on failure", group.on_failure),
            ("retry of", group.retry_of),
            ("cancelled by", Actor.parse(group.cancelled_by).shown if group.cancelled_by else None),
            ("created", f"{when(group.created_at, now)} by {Actor.parse(group.created_by).shown}"),
            ("started", when(view.started_at, now)),
            ("finished", when(group.finished_at, now)),
        ]
    )


def _open_stage(view: GroupView) -> str | None:
    group = view.group
    if group.stage < 0:
        return f"not begun: it waits for the end of {group.after_id}" if group.finished_at is None else None
    return stage_text(group.stage, group.stages)


def step_table(view: GroupView, now: int) -> Table:
    made = table("STAGE", "STEP", "STATUS", "JOB", "TRY", "TOOK", "NOTE", flexible=("STEP", "NOTE"))
    for step in view.steps:
        made.add_row(
            str(step.stage + 1),
            styled(step.step),
            status_text(step.status),
            str(step.job_id),
            str(step.attempt),
            age(step.started_at, step.finished_at or now) if step.started_at else "",
            styled(_step_note(step, view)),
        )
    return made


def _step_note(step: StepView, view: GroupView) -> str:
    if step.linked:
        return "from an earlier try: not run again"
    if step.status in _WAITING and step.stage > view.group.stage:
        return "its stage is not open yet"
    if step.status is State.COMPLETED:
        return ""
    said = (step.error or step.reason or "").partition("\n")[0]
    tolerated = "may fail" if step.tolerated else ""
    return "; ".join(part for part in (said, tolerated) if part)


def group_remedies(view: GroupView) -> list[str]:
    """What lets it go on, or tries it again."""
    group, lines = view.group, []
    for step in view.held_by:
        ways = "cancel" if step.status is State.WAITING else "resolve, retry, release, cancel"
        lines.append(f"{step.step} waits for you: headway jobs resume {step.job_id}, or {ways}")
    if group.status in ("FAILED", "PARTIAL", "CANCELLED"):
        lines.append(f"to run what failed again: headway {group.kind}s retry {group.id}")
    return lines


# --- schedules ----------------------------------------------------------------------------------------------------


def local(instant: int, zone: str) -> str:
    """A time on the clocks of a zone, to the minute where that is exact."""
    at = datetime.fromtimestamp(instant // SECOND, ZoneInfo(zone))
    return f"{at:%Y-%m-%d %H:%M}" if instant % (60 * SECOND) == 0 else f"{at:%Y-%m-%d %H:%M:%S}"


def schedule_table(schedules: Iterable[Schedule], now: int) -> Table:
    made = table("ID", "NAME", "STATE", "NEXT", "LAST", "WHEN", flexible=("NAME", "WHEN"))
    for one in schedules:
        made.add_row(
            str(one.id),
            styled(one.name),
            styled("enabled", "green") if one.enabled else styled("disabled", "yellow"),
            _soon(one.next_at, now),
            f"{age(one.last_run_at, now)} ago" if one.last_run_at is not None else "",
            styled(in_words(one.parsed)),
        )
    return made


def _soon(instant: int | None, now: int) -> str:
    if instant is None:
        return "-"
    return f"in {about((instant - now) / 1e6)}" if instant > now else "now"


def schedule_page(one: Schedule, now: int) -> Table:
    made = one.parsed
    zone = made.timezone
    return pairs(
        [
            ("schedule", str(one.id)),
            ("name", one.name),
            ("state", styled("enabled", "green") if one.enabled else styled("disabled", "yellow")),
            ("when", in_words(made)),
            ("cron", made.cron),
            ("times", ", ".join(instant_text(time) for time in made.times[:10])),
            ("timezone", zone),
            ("start", local(made.start, zone) if made.start is not None else None),
            ("end", local(made.end, zone) if made.end is not None else None),
            ("jitter", duration_text(made.jitter) if made.jitter else None),
            ("next", _in_zone(one.next_at, zone, now)),
            ("last run", _in_zone(one.last_run_at, zone, now)),
            ("overlap", made.overlap),
            ("catch-up", _catch_up(made)),
            ("on failure", made.on_failure),
            ("params", json.dumps(dict(made.params), ensure_ascii=False)),
            ("template", made.template),
            ("note", made.note),
            ("origin", one.origin),
            ("created", f"{when(one.created_at, now)} by {Actor.parse(one.created_by).shown}"),
        ]
    )


def _in_zone(instant: int | None, zone: str, now: int) -> str | None:
    if instant is None:
        return None
    far = (instant - now) / 1e6
    return f"{local(instant, zone)} ({'in ' + about(far) if far > 0 else about(-far) + ' ago'})"


def _catch_up(made: Definition) -> str:
    """What is made up for after downtime."""
    within = f"of the last {duration_text(made.window)}"
    match made.catch_up:
        case "none":
            return "none"
        case "all":
            return f"all: every missed time {within}, at most {made.cap}"
    return f"{made.catch_up}: the latest missed time, if it is {within}"


def wish_table(steps: Sequence[StepWish]) -> Table:
    """The steps of a schedule, as they are written."""
    made = table("STAGE", "STEP", "TASK", "WITH", flexible=("STEP", "TASK", "WITH"))
    for step, stage in sorted(zip(steps, stages_of(steps), strict=True), key=lambda one: one[1]):
        what = step.task if step.task is not None else f"template {step.template}"
        said = {**({"params": dict(step.params)} if step.params else {}), **step.wishes}
        facts = ", ".join(f"{name} {json.dumps(value, ensure_ascii=False)}" for name, value in said.items())
        made.add_row(str(stage + 1), styled(step.name), styled(what), styled(facts))
    return made


def schedule_remedies(one: Schedule, last: Tick | None) -> list[str]:
    name, lines = shlex.quote(one.name), []
    if not one.enabled:
        lines.append(f"it does not fire: headway schedules enable {name}")
    elif one.next_at is None:
        lines.append("it fires no more: its times are over")
    if last is not None and last.outcome == "SKIPPED":
        lines.append(f"its last tick was skipped: {last.reason}; see headway schedules ticks {name}")
    return lines


def preview_table(found: Iterable[Preview], zone: str) -> Table:
    """Times in UTC and on the clocks of the zone."""
    made = table("UTC", zone, "NOTE", flexible=("NOTE",))
    for one in found:
        shown = datetime.fromisoformat(one.local)
        at, clock = datetime.fromtimestamp(one.at // SECOND, UTC), "%H:%M" if not shown.second else "%H:%M:%S"
        made.add_row(
            at.strftime(f"%Y-%m-%d {clock}"),
            shown.strftime(f"%a %Y-%m-%d {clock} %z"),
            paragraph(one.note or "", "yellow"),
        )
    return made


def tick_table(ticks: Iterable[Tick], zone: str) -> Table:
    made = table("FOR", "TIMES", "OUTCOME", "EXECUTION", "WHY", flexible=("WHY",))
    for tick in ticks:
        until = f" … {local(tick.until, zone)}" if tick.until != tick.nominal_at else ""
        made.add_row(
            local(tick.nominal_at, zone) + until,
            str(tick.count),
            word(tick.outcome),
            str(tick.execution_id or ""),
            styled(tick.reason or ""),
        )
    return made


# --- templates ----------------------------------------------------------------------------------------------------


def template_table(templates: Iterable[Template]) -> Table:
    made = table("ID", "NAME", "TASK", "VERSION", "ABOUT", flexible=("NAME", "TASK", "ABOUT"))
    for one in templates:
        archived = "archived" if one.archived_at is not None else ""
        said = "; ".join(part for part in (archived, one.description) if part)
        made.add_row(str(one.id), styled(one.name), styled(one.task), str(one.version), styled(said))
    return made


def template_page(one: Template, now: int) -> Table:
    fields = one.fields
    return pairs(
        [
            ("template", str(one.id)),
            ("name", one.name),
            ("task", one.task),
            ("description", one.description),
            ("params", json.dumps(one.params, ensure_ascii=False)),
            *((name.replace("_", " "), _fact(fields[name])) for name in WISHES if name in fields),
            ("open params", ", ".join(one.open_params)),
            ("version", str(one.version)),
            ("created", f"{when(one.created_at, now)} by {Actor.parse(one.created_by).shown}"),
            ("archived", when(one.archived_at, now)),
        ]
    )


def _fact(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
