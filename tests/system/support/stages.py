"""What must be true of groups, executions and ticks in the end, drawn from the stored rows and events alone."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from headway.model.jobs.states import State
from tests.system.support.record import Event, Record

Row = dict[str, Any]
PLANNED = "predecessor failed"
ENDED = State.COMPLETED


def wrong(record: Record) -> Iterator[str]:
    """Every group went through its stages in order, each once, and was concluded once, as its members ended."""
    events = _by_thing(record, "group", "execution")
    for group in record.rows["hw_group"]:
        jobs = [job for job in record.jobs.values() if job["group_id"] == group["id"]]
        name = f"{group['kind']} {group['id']}"
        for text in (*_once(group, events[group["id"]]), *_in_order(record, group, jobs), *_end(group, jobs)):
            yield f"{name}: {text}"
    yield from _ticks(record)


def _by_thing(record: Record, *things: str) -> dict[int, list[Event]]:
    found: dict[int, list[Event]] = defaultdict(list)
    for event in record.events:
        if event.thing in things:
            found[event.thing_id].append(event)
    return found


def _once(group: Row, events: list[Event]) -> Iterator[str]:
    """It was made once, began once, opened each stage after the one before, and was concluded once."""
    kinds = Counter(event.kind.partition(".")[2] for event in events)
    if kinds["created"] != 1 or kinds["finished"] != 1 or kinds["begun"] > 1 or kinds["cancelling"] > 1:
        yield f"its events are {dict(kinds)}"
    opened = [event.data["stage"] for event in events if event.kind.endswith((".begun", ".advanced"))]
    if opened != sorted(set(opened)):
        yield f"its stages were opened as {opened}"
    if group["version"] != len(events):
        yield f"it is at version {group['version']} and has {len(events)} events"
    if events and not events[-1].kind.endswith(".finished"):
        yield f"{events[-1].kind} came after its conclusion"


def _in_order(record: Record, group: Row, jobs: list[Row]) -> Iterator[str]:
    """A stage was released once, after every chain of those before had ended, and nothing was claimed before that."""
    steps = _by_thing(record, "job")
    ended: dict[int, int] = defaultdict(int)
    first: dict[int, int] = {}
    for job in jobs:
        kinds = Counter(event.kind for event in steps[job["id"]])
        if kinds["job.released"] > 1:
            yield f"step {job['step']} was released {kinds['job.released']} times"
        for event in steps[job["id"]]:
            if event.status is not None and event.status >= ENDED:
                ended[job["stage"]] = max(ended[job["stage"]], event.id)
            if event.kind in ("job.released", "job.claimed"):
                first[job["stage"]] = min(first.get(job["stage"], event.id), event.id)
    for stage, begun in first.items():
        late = [before for before, end in ended.items() if before < stage and end > begun]
        if late:
            yield f"stage {stage} began before all of stage {late[0]} had ended"


def _end(group: Row, jobs: list[Row]) -> Iterator[str]:
    last: dict[str, Row] = {}
    for job in sorted(jobs, key=lambda job: job["id"]):
        last[job["step"]] = job
    open_ones = [step for step, job in last.items() if job["status"] < ENDED]
    if group["finished_at"] is None:
        yield f"it never ended: it is {group['status']} in stage {group['stage']}, {len(open_ones)} steps are open"
    elif open_ones:
        yield f"it is {group['status']} although {open_ones[0]} has not ended"
    elif group["status"] != (wanted := _status(group, list(last.values()))):
        states = ", ".join(f"{step} {State(job['status']).name}" for step, job in last.items())
        yield f"it is {group['status']} and should be {wanted}: {states}"


def _status(group: Row, last: list[Row]) -> str:
    if group["cancelled_by"] is not None:
        return "CANCELLED"
    failed = [job for job in last if not _succeeded(job)]
    if group["kind"] == "group":
        return "PARTIAL" if failed else "COMPLETED"
    strict = [job for job in failed if job["reason"] != PLANNED and not _tolerated(job)]
    return "FAILED" if strict else "COMPLETED"


def _succeeded(job: Row) -> bool:
    skipped_itself = job["status"] == State.SKIPPED and job["reason"] != PLANNED
    return bool(job["status"] == State.COMPLETED or skipped_itself)


def _tolerated(job: Row) -> bool:
    return bool(json.loads(job["options"]).get("continue_on_failure"))


def _ticks(record: Record) -> Iterator[str]:
    """Each nominal time is decided once; what fired has its execution."""
    executions = {group["id"]: group for group in record.rows["hw_group"] if group["kind"] == "execution"}
    reached: dict[int, int] = {}
    for tick in sorted(record.rows["hw_tick"], key=lambda tick: (tick["schedule_id"], tick["nominal_at"])):
        schedule = tick["schedule_id"]
        if tick["nominal_at"] <= reached.get(schedule, -1):
            yield f"schedule {schedule}: {tick['nominal_at']} was decided twice"
        reached[schedule] = tick["until"]
        if tick["outcome"] == "FIRED" and tick["execution_id"] not in executions and not record.rows["hw_tally"]:
            yield f"schedule {schedule}: {tick['nominal_at']} fired and there is no execution {tick['execution_id']}"
    for schedule in record.rows["hw_schedule"]:
        if schedule["decided_until"] < reached.get(schedule["id"], 0):
            yield f"schedule {schedule['id']}: decided until {schedule['decided_until']}, a tick is later"


# --- what callers were told ---


def told(record: Record, facts: list[dict[str, Any]]) -> Iterator[str]:
    """Groups exist whole or not at all, those that were acknowledged do, and end as their script expects."""
    groups = {group["id"]: group for group in record.rows["hw_group"]}
    sizes = {
        group_id: len({j["step"] for j in record.jobs.values() if j["group_id"] == group_id}) for group_id in groups
    }
    pruned = bool(record.rows["hw_tally"])
    for fact in facts:
        match fact:
            case {"plan": str(name), "size": int(size)}:
                for group in groups.values():
                    if group["name"] == name and group["retry_of"] is None and sizes[group["id"]] != size:
                        yield f"group {group['id']} ({name}) has {sizes[group['id']]} of {size} steps"
            case {"group": int(group_id), "expect": expect}:
                if group_id not in groups:
                    if not pruned:
                        yield f"group {group_id} was acknowledged and does not exist"
                elif expect not in (None, groups[group_id]["status"]):
                    yield f"group {group_id} was to end {expect} and is {groups[group_id]['status']}"
            case {"group_cancelled": int(group_id)}:
                if groups[group_id]["cancelled_by"] is None:
                    yield f"group {group_id} was cancelled and nothing says so"
            case {"times_of": int(schedule_id), "times": times}:
                yield from _all_decided(record, schedule_id, times)


def _all_decided(record: Record, schedule_id: int, times: list[int]) -> Iterator[str]:
    ledger = [tick for tick in record.rows["hw_tick"] if tick["schedule_id"] == schedule_id]
    for time in times:
        rows = [tick for tick in ledger if tick["nominal_at"] <= time <= tick["until"]]
        if len(rows) != 1:
            yield f"schedule {schedule_id}: {time} was decided {len(rows)} times"
    if sum(tick["count"] for tick in ledger) != len(times):
        yield f"schedule {schedule_id} has {len(times)} times, its ledger counts {sum(t['count'] for t in ledger)}"
