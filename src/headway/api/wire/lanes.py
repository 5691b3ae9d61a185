"""Lanes, limits, pauses, targets and reservations as JSON, by the field names of the API."""

from __future__ import annotations

import json
from collections.abc import Sequence

from headway.api.wire.jobs import Json, actor_json, blocker_json, job_json, time_or_none
from headway.model.job import Reservation
from headway.model.policies import Concurrency
from headway.model.scene import Pause
from headway.model.targets import TargetView
from headway.store.lanes_reading import LaneView
from headway.store.queue_reading import Waiting


def waiting_json(one: Waiting) -> Json:
    """A job in the queue, with what is in its way."""
    return {**job_json(one.view), "blockers": [blocker_json(blocker) for blocker in one.blockers]}


def pause_json(own: Pause | None, everybody: Pause | None = None) -> Json:
    """How the queue stands; `everybody` is the pause of all queues, if there is one."""
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
    """What limits concurrency, and every lane as it is."""
    return {**concurrency_json(concurrency), "items": [lane_json(lane) for lane in found], "next": None}


def target_json(one: TargetView) -> Json:
    """**Target** of the API. `direct` is the reservation of a direct call that has it now. `resumed`: the job that
    holds it goes on by itself."""
    return {
        "name": one.name,
        "state": one.state.value,
        "held_by": one.held_by,
        "resumed": one.resumed,
        "since": time_or_none(one.since),
        "reason": one.reason,
        "running": one.running,
        "direct": one.direct,
        "waiting": one.waiting,
        "waiting_at_least": one.at_least,
        "note": one.note,
    }


def reservation_json(one: Reservation, *, lanes: Sequence[str], target: str | None) -> Json:
    """**Reservation** of the API. `lanes` are their names; a target is none of them. `outcome` and `error` are those of
    the work that was done with it, as far as we know of it."""
    return {
        "reservation_id": one.id,
        "lanes": list(lanes),
        "target": target,
        "status": one.status,
        "holder": one.holder,
        "task": one.task,
        "params": json.loads(one.params) if one.params else None,
        "created_at": time_or_none(one.created_at),
        "granted_at": time_or_none(one.granted_at),
        "finished_at": time_or_none(one.finished_at),
        "expires_at": time_or_none(one.expires_at),
        "outcome": one.outcome,
        "error": one.error,
        "created_by": actor_json(one.created_by),
    }
