"""Renders groups, executions, schedules and templates as tables and pages, with the next commands."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from headway.api.schemas.groups import in_words
from headway.cli.output import paragraph, styled, table
from headway.cli.tables.jobs import STYLES, about, age, pairs, stage_text, status_text, when
from headway.clock import SECOND
from headway.engine.client.schedules import Preview
from headway.model.jobs.job import Actor
from headway.model.jobs.states import State
from headway.model.schedules.definition import Definition, Schedule, StepWish, Tick, stages_of
from headway.model.templates import WISHES, Template
from headway.model.values.json import duration_text, instant_text
from headway.store.groups.views import GroupView, StepView

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
    """Renders executions. `zones` maps a schedule to the time zone in which its nominal times are shown."""
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
    """Returns the note about a group in a list: the holder, its state, its error or the failed steps."""
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
        return f"not started: waits for the end of {group.after_id}" if group.finished_at is None else None
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
        return "succeeded earlier: not run again"
    if step.status in _WAITING and step.stage > view.group.stage:
        return "its stage is not open yet"
    if step.status is State.COMPLETED:
        return ""
    said = (step.error or step.reason or "").partition("\n")[0]
    tolerated = "may fail" if step.tolerated else ""
    return "; ".join(part for part in (said, tolerated) if part)


def group_remedies(view: GroupView) -> list[str]:
    """Returns the commands that continue or retry a group or execution."""
    group, lines = view.group, []
    for step in view.held_by:
        ways = "cancel" if step.status is State.WAITING else "resolve, retry, release, cancel"
        lines.append(f"{step.step} needs a decision: headway jobs resume {step.job_id}, or {ways}")
    if group.status in ("FAILED", "PARTIAL", "CANCELLED"):
        lines.append(f"to retry the failed steps: headway {group.kind}s retry {group.id}")
    return lines


# --- schedules ----------------------------------------------------------------------------------------------------


def local(instant: int, zone: str) -> str:
    """Formats a time in a time zone, without seconds if they are zero."""
    at = datetime.fromtimestamp(instant // SECOND, ZoneInfo(zone))
    return f"{at:%Y-%m-%d %H:%M}" if instant % (60 * SECOND) == 0 else f"{at:%Y-%m-%d %H:%M:%S}"


def schedule_table(schedules: Iterable[Schedule], now: int) -> Table:
    made = table("ID", "NAME", "STATE", "NEXT", "LAST", "WHEN", flexible=("NAME", "WHEN"))
    for schedule in schedules:
        made.add_row(
            str(schedule.id),
            styled(schedule.name),
            styled("enabled", "green") if schedule.enabled else styled("disabled", "yellow"),
            _soon(schedule.next_at, now),
            f"{age(schedule.last_run_at, now)} ago" if schedule.last_run_at is not None else "",
            styled(in_words(schedule.parsed)),
        )
    return made


def _soon(instant: int | None, now: int) -> str:
    if instant is None:
        return "-"
    return f"in {about((instant - now) / 1e6)}" if instant > now else "now"


def schedule_page(schedule: Schedule, now: int) -> Table:
    made = schedule.parsed
    zone = made.timezone
    return pairs(
        [
            ("schedule", str(schedule.id)),
            ("name", schedule.name),
            ("state", styled("enabled", "green") if schedule.enabled else styled("disabled", "yellow")),
            ("when", in_words(made)),
            ("cron", made.cron),
            ("times", ", ".join(instant_text(time) for time in made.times[:10])),
            ("timezone", zone),
            ("start", local(made.start, zone) if made.start is not None else None),
            ("end", local(made.end, zone) if made.end is not None else None),
            ("jitter", duration_text(made.jitter) if made.jitter else None),
            ("next", _in_zone(schedule.next_at, zone, now)),
            ("last run", _in_zone(schedule.last_run_at, zone, now)),
            ("overlap", made.overlap),
            ("catch-up", _catch_up(made)),
            ("on failure", made.on_failure),
            ("params", json.dumps(dict(made.params), ensure_ascii=False)),
            ("template", made.template),
            ("note", made.note),
            ("origin", schedule.origin),
            ("created", f"{when(schedule.created_at, now)} by {Actor.parse(schedule.created_by).shown}"),
        ]
    )


def _in_zone(instant: int | None, zone: str, now: int) -> str | None:
    if instant is None:
        return None
    far = (instant - now) / 1e6
    return f"{local(instant, zone)} ({'in ' + about(far) if far > 0 else about(-far) + ' ago'})"


def _catch_up(made: Definition) -> str:
    """Describes which missed times fire after downtime."""
    within = f"of the last {duration_text(made.window)}"
    match made.catch_up:
        case "none":
            return "none"
        case "all":
            return f"all: every missed time {within}, at most {made.cap}"
    return f"{made.catch_up}: the latest missed time, if it is {within}"


def wish_table(steps: Sequence[StepWish]) -> Table:
    """Renders the steps of a schedule's definition, by stage."""
    made = table("STAGE", "STEP", "TASK", "WITH", flexible=("STEP", "TASK", "WITH"))
    for step, stage in sorted(zip(steps, stages_of(steps), strict=True), key=lambda pair: pair[1]):
        what = step.task if step.task is not None else f"template {step.template}"
        said = {**({"params": dict(step.params)} if step.params else {}), **step.wishes}
        facts = ", ".join(f"{name} {json.dumps(value, ensure_ascii=False)}" for name, value in said.items())
        made.add_row(str(stage + 1), styled(step.name), styled(what), styled(facts))
    return made


def schedule_remedies(schedule: Schedule, last: Tick | None, now: int) -> list[str]:
    """Returns why a schedule does not fire, with the commands that change it."""
    name, lines = shlex.quote(schedule.name), []
    if schedule.ahead(now):
        until = instant_text(schedule.decided_until)
        lines.append(f"it does not fire: a clock that was ahead decided its times up to {until}")
        lines.append(f"to repair it: headway schedules reset {name}")
    elif not schedule.enabled:
        lines.append(f"it is disabled: enable it with `headway schedules enable {name}`")
    elif schedule.next_at is None:
        lines.append("it does not fire again: its last time has passed")
    if last is not None and last.outcome == "SKIPPED":
        lines.append(f"its last tick was skipped: {last.reason}; see `headway schedules ticks {name}`")
    return lines


def preview_table(found: Iterable[Preview], zone: str) -> Table:
    """Renders times in UTC and in the time zone."""
    made = table("UTC", zone, "NOTE", flexible=("NOTE",))
    for preview in found:
        shown = datetime.fromisoformat(preview.local)
        at, clock = datetime.fromtimestamp(preview.at // SECOND, UTC), "%H:%M" if not shown.second else "%H:%M:%S"
        made.add_row(
            at.strftime(f"%Y-%m-%d {clock}"),
            shown.strftime(f"%a %Y-%m-%d {clock} %z"),
            paragraph(preview.note or "", "yellow"),
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
    for template in templates:
        archived = "archived" if template.archived_at is not None else ""
        about = styled("; ".join(part for part in (archived, template.description) if part))
        name, task = styled(template.name), styled(template.task)
        made.add_row(str(template.id), name, task, str(template.version), about)
    return made


def template_page(template: Template, now: int) -> Table:
    fields = template.fields
    return pairs(
        [
            ("template", str(template.id)),
            ("name", template.name),
            ("task", template.task),
            ("description", template.description),
            ("params", json.dumps(template.params, ensure_ascii=False)),
            *((name.replace("_", " "), _fact(fields[name])) for name in WISHES if name in fields),
            ("open params", ", ".join(template.open_params)),
            ("version", str(template.version)),
            ("created", f"{when(template.created_at, now)} by {Actor.parse(template.created_by).shown}"),
            ("archived", when(template.archived_at, now)),
        ]
    )


def _fact(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
