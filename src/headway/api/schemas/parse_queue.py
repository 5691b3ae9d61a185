"""Reads the queue, limits, targets and the overview from the API's JSON."""

from __future__ import annotations

from headway.api.schemas.jobs import Json
from headway.api.schemas.parse_jobs import at, blocker_of, job_view, moment, worker_of
from headway.engine.monitoring.overview import Overview
from headway.model.explain.snapshot import Pause
from headway.model.queue.policies import Concurrency
from headway.model.queue.target import TargetState, TargetView
from headway.store.jobs.views import Counts
from headway.store.queue.lane_views import LaneView
from headway.store.queue.queue_views import WaitingJob


def waiting_of(found: Json) -> WaitingJob:
    return WaitingJob(job_view(found), [blocker_of(blocker) for blocker in found["blockers"]])


def pauses_of(found: Json) -> tuple[Pause | None, Pause | None]:
    """Reads the pause of the tenant's queue, and the pause of all queues.

    The first is None if the tenant's queue is paused only by the second.
    """
    everybody = _pause(found["everybody"]) if found["everybody"] is not None else None
    own = _pause(found) if found["paused"] else None
    return (None if own == everybody else own), everybody


def _pause(found: Json) -> Pause:
    return Pause(at(found["since"]), moment(found["until"]), found["note"])


def lane_of(found: Json) -> LaneView:
    counts = (found["running"], found["reserved"], found["waiting"], found["waiting_at_least"])
    return LaneView(0, found["name"], found["kind"], found["limit"], *counts)


def limits_of(found: Json) -> tuple[Concurrency, list[LaneView]]:
    rules = Concurrency(policy=found["policy"], targets=found["targets"], aging=found["aging"])
    return rules, [lane_of(lane) for lane in found["items"]]


def target_of(found: Json) -> TargetView:
    return TargetView(
        id=0,
        name=found["name"],
        state=TargetState(found["state"]),
        held_by=found["held_by"],
        since=moment(found["since"]),
        reason=found["reason"],
        running=found["running"],
        direct=found["direct"],
        waiting=found["waiting"],
        at_least=found["waiting_at_least"],
        note=found["note"],
        resumed=found["resumed"],
    )


def overview_of(found: Json) -> Overview:
    wait = found["oldest_wait"]
    oldest = None if wait is None else (wait["job_id"], at(wait["queued_at"]))
    return Overview(
        at(found["at"]),
        Counts(found["counts"], at(found["finished_since"]), found["counts_at_least"], oldest),
        *pauses_of(found["queue"]),
        [target_of(target) for target in found["blocked_targets"]],
        [worker_of(worker) for worker in found["workers"]],
        [job_view(job) for job in found["running"]],
        [waiting_of(job) for job in found["waiting"]],
    )
