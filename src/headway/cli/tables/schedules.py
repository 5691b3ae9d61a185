"""Renders schedules, their times and their ticks as tables and pages."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headway.cli.output import Json, paragraph, styled, table
from headway.cli.tables.groups import word
from headway.cli.tables.pages import created, deleted, pairs
from headway.cli.tables.times import about, age, local, moment, relative
from headway.clock import SECOND
from headway.model.values.times import duration_text

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

# The fields of a step that have columns of their own.
_COLUMNS = ("index", "name", "task", "template", "template_id")


def schedule_table(schedules: Iterable[Json], now: int) -> Table:
    made = table("ID", "NAME", "STATE", "NEXT", "LAST", "WHEN", flexible=("NAME", "WHEN"))
    for schedule in schedules:
        last = schedule["last_run_at"]
        made.add_row(
            str(schedule["schedule_id"]),
            styled(schedule["name"]),
            _state(schedule),
            _soon(schedule["next_run_at"], now),
            f"{age(last, now)} ago" if last is not None else "",
            styled(schedule["sentence"]),
        )
    return made


def _state(schedule: Json) -> Text:
    if schedule["deleted_at"] is not None:
        return styled("deleted", "dim")
    return styled("enabled", "green") if schedule["enabled"] else styled("disabled", "yellow")


def _soon(then: str | None, now: int) -> str:
    if then is None:
        return "-"
    return f"in {about((moment(then) - now) / 1e6)}" if moment(then) > now else "now"


def schedule_page(schedule: Json, now: int) -> Table:
    zone = schedule["timezone"]
    return pairs(
        [
            ("schedule", str(schedule["schedule_id"])),
            ("name", schedule["name"]),
            ("state", _state(schedule)),
            ("when", schedule["sentence"]),
            ("cron", schedule["cron"]),
            ("times", ", ".join((schedule["times"] or [])[:10])),
            ("timezone", zone),
            ("start", _local(schedule["start"], zone)),
            ("end", _local(schedule["end"], zone)),
            ("jitter", duration_text(schedule["jitter"]) if schedule["jitter"] else None),
            ("next", _in_zone(schedule["next_run_at"], zone, now)),
            ("last run", _in_zone(schedule["last_run_at"], zone, now)),
            ("overlap", schedule["overlap"]),
            ("catch-up", _catch_up(schedule)),
            ("on failure", schedule["on_failure"]),
            ("on shutdown", schedule["on_shutdown"]),
            ("params", json.dumps(schedule["params"], ensure_ascii=False)),
            ("template", schedule["template"]),
            ("note", schedule["note"]),
            ("origin", schedule["origin"]),
            ("created", created(schedule, now)),
            ("deleted", deleted(schedule, now)),
        ]
    )


def _local(then: str | None, zone: str | None) -> str | None:
    return None if then is None else local(then, zone)


def _in_zone(then: str | None, zone: str | None, now: int) -> str | None:
    return None if then is None else f"{local(then, zone)} ({relative(then, now)})"


def _catch_up(schedule: Json) -> str | None:
    """Describes which missed times fire after downtime; None for a definition that this version cannot read."""
    if schedule["catch_up"] is None or schedule["window"] is None:
        return None
    within = f"of the last {duration_text(schedule['window'])}"
    match schedule["catch_up"]:
        case "none":
            return "none"
        case "all":
            return f"all: every missed time {within}, at most {schedule['cap']}"
    return f"{schedule['catch_up']}: the latest missed time, if it is {within}"


def steps_table(steps: Sequence[Json]) -> Table:
    """Renders the steps of a schedule's definition, by stage."""
    made = table("STAGE", "STEP", "TASK", "WITH", flexible=("STEP", "TASK", "WITH"))
    stages = sorted({step["index"] for step in steps})
    for step in sorted(steps, key=lambda step: step["index"]):
        what = step["task"] if "task" in step else f"template {step['template']}"
        options = {name: value for name, value in step.items() if name not in _COLUMNS}
        facts = ", ".join(f"{name} {json.dumps(value, ensure_ascii=False)}" for name, value in options.items())
        made.add_row(str(stages.index(step["index"]) + 1), styled(step["name"]), styled(what), styled(facts))
    return made


def schedule_remedies(schedule: Json, decided_until: str | None, last: Json | None = None) -> list[str]:
    """Returns why a schedule does not fire, with the commands that change it.

    `decided_until` is the time up to which a clock that was ahead decided its times; None if there was none.
    """
    name, lines = shlex.quote(schedule["name"]), []
    if decided_until is not None:
        lines.append(f"it does not fire: a clock that was ahead decided its times up to {decided_until}")
        lines.append(f"to repair it: headway schedules reset {name}")
    elif not schedule["enabled"]:
        lines.append(f"it is disabled: enable it with `headway schedules enable {name}`")
    elif schedule["next_run_at"] is None:
        lines.append("it does not fire again: its last time has passed")
    if last is not None and last["outcome"] == "SKIPPED":
        lines.append(f"its last tick was skipped: {last['reason']}; see `headway schedules ticks {name}`")
    return lines


def preview_table(times: Iterable[Json], zone: str) -> Table:
    """Renders times in UTC and in the time zone."""
    made = table("UTC", zone, "NOTE", flexible=("NOTE",))
    for preview in times:
        shown = datetime.fromisoformat(preview["local"])
        at = datetime.fromtimestamp(moment(preview["at"]) // SECOND, UTC)
        clock = "%H:%M" if not shown.second else "%H:%M:%S"
        made.add_row(
            at.strftime(f"%Y-%m-%d {clock}"),
            shown.strftime(f"%a %Y-%m-%d {clock} %z"),
            paragraph(preview["note"] or "", "yellow"),
        )
    return made


def tick_table(ticks: Iterable[Json], zone: str) -> Table:
    made = table("FOR", "TIMES", "OUTCOME", "EXECUTION", "WHY", flexible=("WHY",))
    for tick in ticks:
        until = f" … {local(tick['until'], zone)}" if tick["until"] != tick["nominal_at"] else ""
        made.add_row(
            local(tick["nominal_at"], zone) + until,
            str(tick["count"]),
            word(tick["outcome"]),
            str(tick["execution_id"] or ""),
            styled(tick["reason"] or ""),
        )
    return made
