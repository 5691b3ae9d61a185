"""Renders groups and executions as tables and pages, with the next commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headway.cli.output import Json, styled, table
from headway.cli.tables.events import STYLES, status_text
from headway.cli.tables.pages import actor, created, pairs
from headway.cli.tables.times import age, local, time_between, when
from headway.model.jobs.states import State

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_PLAN_STYLES = {**STYLES, "IN_PROGRESS": "cyan", "PARTIAL": "yellow", "FIRED": "green", "MISSED": "yellow"}
_WAITING = ("WAITING", "SCHEDULED", "QUEUED")


def word(status: str) -> Text:
    return styled(status, _PLAN_STYLES.get(status, ""))


def kind_of(group: Json) -> str:
    return "execution" if "execution_id" in group else "group"


def number_of(group: Json) -> int:
    return int(group[f"{kind_of(group)}_id"])


def _stage_of(group: Json) -> int:
    """Returns the open stage, counted from 0; -1 if none is open yet."""
    return int(group["current_stage"] if "current_stage" in group else group["stage"])


def stage_text(stage: int, stages: int) -> str:
    """Formats a stage for display, counted from 1."""
    return f"{stage + 1} of {stages}"


# --- lists --------------------------------------------------------------------------------------------------------


def group_table(groups: Iterable[Json], now: int) -> Table:
    made = table("ID", "STATUS", "NAME", "STAGE", "STEPS", "AGE", "NOTE", flexible=("NAME", "NOTE"))
    for group in groups:
        made.add_row(
            str(group["group_id"]),
            word(group["status"]),
            styled(group["name"]),
            _stage(group),
            _done(group),
            age(group["created_at"], now),
            styled(_note(group)),
        )
    return made


def execution_table(executions: Iterable[Json], zones: Mapping[int, str], now: int) -> Table:
    """Renders executions. `zones` maps a schedule to the time zone in which its nominal times are shown."""
    made = table("ID", "STATUS", "SCHEDULE", "FOR", "STAGE", "STEPS", "AGE", "NOTE", flexible=("SCHEDULE", "NOTE"))
    for execution in executions:
        zone = zones.get(execution["schedule_id"], "UTC")
        nominal = execution["nominal_at"]
        made.add_row(
            str(execution["execution_id"]),
            word(execution["status"]),
            styled(execution["name"]),
            local(nominal, zone) if nominal is not None else execution["kind"] or "",
            _stage(execution),
            _done(execution),
            age(execution["created_at"], now),
            styled(_note(execution)),
        )
    return made


def _stage(group: Json) -> str:
    stage = _stage_of(group)
    return "-" if stage < 0 else f"{stage + 1}/{group['stages']}"


def _done(group: Json) -> str:
    counts: dict[str, int] = group["counts"]
    done = sum(count for status, count in counts.items() if State[status].terminal)
    return f"{done}/{sum(counts.values())}"


def _note(group: Json) -> str:
    """Returns the note about a group in a list: the holder, its state, its error or the failed steps."""
    if group["held_by"]:
        return f"held by {', '.join(step['step'] for step in group['held_by'])}"
    if group["finished_at"] is None and group["cancelled_by"] is not None:
        return "cancelling"
    if group["finished_at"] is None and _stage_of(group) < 0:
        return f"after {group.get('after')}"
    if group.get("error"):
        return str(group["error"])
    failed = [step["step"] for step in group["failed"]]
    return f"failed: {', '.join(failed[:3])}{', …' if len(failed) > 3 else ''}" if failed else ""


# --- one group ----------------------------------------------------------------------------------------------------


def group_page(group: Json, now: int, zone: str = "UTC") -> Table:
    kind, nominal = kind_of(group), group.get("nominal_at")
    held_by = [f"{step['step']} (job {step['job_id']} {step['status']})" for step in group["held_by"]]
    return pairs(
        [
            (kind, str(number_of(group))),
            ("name" if kind == "group" else "schedule", group["name"]),
            ("status", word(group["status"])),
            ("error", group.get("error")),
            ("held by", ", ".join(held_by)),
            ("stage", _open_stage(group)),
            ("kind", group.get("kind")),
            ("for", None if nominal is None else local(nominal, zone)),
            ("mode", group.get("mode")),
            ("on failure", group["on_failure"]),
            ("retry of", group["retry_of"]),
            ("cancelled by", None if group["cancelled_by"] is None else actor(group["cancelled_by"])),
            ("created", created(group, now)),
            ("started", when(group["started_at"], now)),
            ("finished", when(group["finished_at"], now)),
        ]
    )


def _open_stage(group: Json) -> str | None:
    stage = _stage_of(group)
    if stage < 0:
        return f"not started: waits for the end of {group.get('after')}" if group["finished_at"] is None else None
    return stage_text(stage, group["stages"])


def step_table(group: Json, now: int) -> Table:
    made = table("STAGE", "STEP", "STATUS", "JOB", "TRY", "TOOK", "NOTE", flexible=("STEP", "NOTE"))
    for step in group["steps"]:
        made.add_row(
            str(step["stage"] + 1),
            styled(step["step"]),
            status_text(step["status"]),
            str(step["job_id"]),
            str(step["attempt"]),
            time_between(step["started_at"], step["finished_at"], now) if step["started_at"] else "",
            styled(_step_note(step, group)),
        )
    return made


def _step_note(step: Json, group: Json) -> str:
    if step["linked"]:
        return "succeeded earlier: not run again"
    if step["status"] in _WAITING and step["stage"] > _stage_of(group):
        return "its stage is not open yet"
    if step["status"] == "COMPLETED":
        return ""
    failure = (step["error"] or step["reason"] or "").partition("\n")[0]
    tolerated = "may fail" if step["continue_on_failure"] else ""
    return "; ".join(part for part in (failure, tolerated) if part)


def group_remedies(group: Json) -> list[str]:
    """Returns the commands that continue or retry a group or execution."""
    lines = []
    for step in group["held_by"]:
        ways = "cancel" if step["status"] == "WAITING" else "resolve, retry, release, cancel"
        lines.append(f"{step['step']} needs a decision: headway jobs resume {step['job_id']}, or {ways}")
    if group["status"] in ("FAILED", "PARTIAL", "CANCELLED"):
        lines.append(f"to retry the failed steps: headway {kind_of(group)}s retry {number_of(group)}")
    return lines
