"""Reads jobs, runs, workers and events from the API's JSON.

Fields that the API does not show are left empty. Written again, a value gives the same JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from headway.api.schemas.jobs import Json
from headway.model.event import Event
from headway.model.explain.blockers import Blocker, Explanation
from headway.model.explain.forecast import Estimate
from headway.model.groups.group import Group
from headway.model.jobs.job import Actor, JobRecord, Options, Run
from headway.model.jobs.outcome import FailureKind
from headway.model.jobs.retry import RetryPolicy
from headway.model.jobs.states import State, StopRequest
from headway.model.values.json import instant, instant_text
from headway.store.jobs.views import JobView, LogLine, WorkReport
from headway.store.paging import Filters
from headway.store.worker_views import WorkerView

SYSTEM = Actor("system").text()


def moment(text: str | None) -> int | None:
    return None if text is None else at(text)


def at(text: str) -> int:
    return instant(text, field="time")


def actor_text(found: Json) -> str:
    return Actor(found["type"], found["id"], found["name"]).text()


def json_text(value: object) -> str:
    """Returns JSON text in the stored format."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# --- jobs ---------------------------------------------------------------------------------------------------------


def job_view(found: Json) -> JobView:
    run = found["run"]
    return JobView(
        _job(found),
        run_of(run) if run is not None else None,
        found["rank"],
        _report(found),
        moment(found["lease_expires_at"]),
        0,
        found["target"],
        _member_of(found),
    )


def _job(found: Json) -> JobRecord:
    return JobRecord(
        id=found["job_id"],
        tenant_id=0,
        bucket_id=0,
        status=State[found["status"]],
        gate=0,
        priority=found["priority"],
        position=found["position"],
        created_at=at(found["created_at"]),
        fence=0,
        version=found["version"],
        attempt=found["attempt"],
        retry_auto=0,
        exhausted=int(found["exhausted"]),
        hold=0,
        retry_of=found["retry_of"],
        target_id=None,
        group_id=found["execution_id"] or found["group_id"],
        stage=found["stage"],
        not_before=moment(found["not_before"]),
        expires_at=moment(found["expires_at"]),
        queued_at=moment(found["queued_at"]),
        started_at=moment(found["started_at"]),
        finished_at=moment(found["finished_at"]),
        worker_id=int(found["lease_owner"], 16) if found["lease_owner"] is not None else None,
        slot=None,
        claimed_at=None,
        ran=0,
        carries=0,
        stop=StopRequest(found["stop_requested"]) if found["stop_requested"] is not None else None,
        stop_by=None,
        failure_kind=FailureKind(found["failure_kind"]) if found["failure_kind"] is not None else None,
        reason=found["reason"],
        key=found["key"],
        task=found["task"],
        params=json_text(found["params"]),
        options=_options(found),
        created_by=actor_text(found["created_by"]),
        step=found["step"],
        unfilled=None,
        template_id=found["template_id"],
    )


def _options(found: Json) -> str:
    """Returns the options of a job.

    Its retry policy has the remaining retries, because the total is not shown.
    """
    budget, resources = tuple(sorted(found["budget"].items())), tuple(found["resources"])
    return Options(retry=RetryPolicy(found["retries_remaining"]), budget=budget, resources=resources).text()


def _report(found: Json) -> WorkReport | None:
    progress, meters = found["progress"], found["meters"]
    if progress is not None:
        return WorkReport(at(progress["at"]), progress["done"], progress["total"], progress["label"], meters)
    return WorkReport(0, None, None, None, meters) if meters else None


def _member_of(found: Json) -> Group | None:
    """Returns the job's group with the fields that the job shows."""
    if found["execution_id"] is not None:
        return blank_group(found["execution_id"], "execution", schedule_id=found["schedule_id"])
    return None if found["group_id"] is None else blank_group(found["group_id"], "group")


def blank_group(number: int, kind: str, **known: Any) -> Group:
    nothing: dict[str, Any] = {"tenant_id": 0, "name": "", "mode": "staged", "on_failure": "stop", "status": ""}
    nothing |= {"stage": 0, "stages": 0, "created_at": 0, "created_by": SYSTEM, "version": 0}
    empty = ("after_id", "cancelled_by", "error", "schedule_id", "reason", "nominal_at", "retry_of", "finished_at")
    return Group(id=number, kind=kind, **{**nothing, **dict.fromkeys(empty), **known})


def run_of(found: Json) -> Run:
    return Run(
        job_id=found["job_id"],
        tenant_id=0,
        task=found["task"],
        params=json_text(found["params_snapshot"]),
        worker_id=0,
        started_at=at(found["started_at"]),
        status=State[found["status"]] if found["status"] is not None else None,
        finished_at=moment(found["finished_at"]),
        exit_code=found["exit_code"],
        error=found["error"],
        artifacts=json_text(found["artifacts"]) if found["artifacts"] else None,
        failure_kind=FailureKind(found["failure_kind"]) if found["failure_kind"] is not None else None,
        result=json_text(found["result"]) if found["result"] is not None else None,
    )


def filter_query(wanted: Filters) -> dict[str, Any]:
    """Returns a filter as query parameters."""
    given: Mapping[str, Any] = {
        "status": sorted(state.name for state in wanted.statuses) or None,
        "task": wanted.task,
        "key": wanted.key,
        "failure_kind": wanted.failure_kind,
        "created_by": wanted.created_by,
        "since": None if wanted.since is None else instant_text(wanted.since),
        "until": None if wanted.until is None else instant_text(wanted.until),
        "q": wanted.q or None,
        "target": wanted.target,
        "group_id": wanted.group_id,
        "schedule_id": wanted.schedule_id,
    }
    return {name: value for name, value in given.items() if value is not None}


# --- events, logs, explanations, workers --------------------------------------------------------------------------


def event_of(found: Json) -> Event:
    return Event(
        id=found["event_id"],
        kind=found["kind"],
        thing=found["thing"],
        thing_id=found["thing_id"],
        version=found["version"],
        status=int(State[found["status"]]) if found["status"] is not None else None,
        at=at(found["at"]),
        actor=actor_text(found["actor"]),
        fence=found["fence"],
        data=json_text(found["data"]) if found["data"] is not None else None,
        tenant_id=0,
    )


def lines_of(found: list[Json], position: int) -> list[LogLine]:
    """Reads log lines; all of them get the position of the page."""
    return [LogLine(position, at(line["at"]), line["level"], line["message"]) for line in found]


def blocker_of(found: Json) -> Blocker:
    return Blocker(found["kind"], found["detail"], found["by"], moment(found["since"]), moment(found["until"]))


def explanation_of(found: Json, now: int) -> Explanation:
    expected = found["start_estimate"]
    estimate = None if expected is None else Estimate(at(expected["p50"]), at(expected["p90"]))
    blockers = tuple(map(blocker_of, found["blockers"]))
    return Explanation(found["job_id"], found["status"], found["rank"], blockers, estimate, now)


def worker_of(found: Json) -> tuple[WorkerView, bool]:
    """Reads a worker, and whether it is alive.

    Jobs of other tenants have neither id nor task.
    """
    running = [(job["slot"], job["job_id"], job["task"], at(job["since"])) for job in found["running"]]
    worker = WorkerView(
        id=int(found["worker_id"], 16),
        host=found["host"],
        boot="",
        pid=found["pid"],
        process_start=0,
        slots=found["slots"],
        tasks=tuple(found["tasks"]),
        state=found["state"],
        started_at=at(found["started_at"]),
        beat_at=at(found["beat_at"]),
        lease_until=0,
        gone_at=None,
        now=0,
        note=found.get("note"),
        running=cast("tuple[tuple[int, int, str, int], ...]", tuple(running)),
    )
    return worker, found["state"] != "gone"
