"""Lanes, limits, pauses, targets and reservations as JSON of the API."""

from __future__ import annotations

import json
from collections.abc import Sequence

from headway.api.schemas.jobs import Json, actor_json, blocker_json, job_json, time_or_none
from headway.model.explain.snapshot import Pause
from headway.model.jobs.job import Reservation
from headway.model.queue.policies import Concurrency
from headway.model.queue.target import TargetView
from headway.store.queue.lane_views import LaneView
from headway.store.queue.queue_views import WaitingJob


def waiting_json(waiting: WaitingJob) -> Json:
    """Returns a queued job with its blockers."""
    return {**job_json(waiting.view), "blockers": [blocker_json(blocker) for blocker in waiting.blockers]}


def pause_json(own: Pause | None, everybody: Pause | None = None) -> Json:
    """Returns the pause of a tenant's queue and the pause of all queues."""
    found = own or everybody
    nothing = {"since": None, "until": None, "note": None}
    facts = _pause(found) if found is not None else nothing
    return {"paused": found is not None, **facts, "everybody": _pause(everybody) if everybody is not None else None}


def _pause(found: Pause) -> Json:
    return {"since": time_or_none(found.since), "until": time_or_none(found.until), "note": found.note}


def lane_json(lane: LaneView) -> Json:
    return {
        "name": lane.name,
        "kind": lane.kind,
        "limit": lane.limit,
        "running": lane.running,
        "reserved": lane.reserved,
        "waiting": lane.waiting,
        "waiting_at_least": lane.at_least,
    }


def concurrency_json(concurrency: Concurrency) -> Json:
    return {"policy": concurrency.policy, "targets": concurrency.targets, "aging": concurrency.aging}


def limits_json(concurrency: Concurrency, found: Sequence[LaneView]) -> Json:
    """Returns the concurrency rules and all lanes."""
    return {**concurrency_json(concurrency), "items": [lane_json(lane) for lane in found], "next": None}


def target_json(target: TargetView) -> Json:
    """**Target** of the API.

    `direct` is the reservation of the direct call that runs on it. `resumed` means that its holder has been resumed.
    """
    return {
        "name": target.name,
        "state": target.state.value,
        "held_by": target.held_by,
        "resumed": target.resumed,
        "since": time_or_none(target.since),
        "reason": target.reason,
        "running": target.running,
        "direct": target.direct,
        "waiting": target.waiting,
        "waiting_at_least": target.at_least,
        "note": target.note,
    }


def reservation_json(reservation: Reservation, *, lanes: Sequence[str], target: str | None) -> Json:
    """**Reservation** of the API.

    `lanes` does not include the target. `outcome` and `error` are those of the direct call.
    """
    return {
        "reservation_id": reservation.id,
        "lanes": list(lanes),
        "target": target,
        "status": reservation.status,
        "holder": reservation.holder,
        "task": reservation.task,
        "params": json.loads(reservation.params) if reservation.params else None,
        "created_at": time_or_none(reservation.created_at),
        "granted_at": time_or_none(reservation.granted_at),
        "finished_at": time_or_none(reservation.finished_at),
        "expires_at": time_or_none(reservation.expires_at),
        "outcome": reservation.outcome,
        "error": reservation.error,
        "created_by": actor_json(reservation.created_by),
    }
