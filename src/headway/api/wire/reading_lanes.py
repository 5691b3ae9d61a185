"""The queue, limits, targets and the overview out of the JSON of the API."""

from __future__ import annotations

from headway.api.wire.jobs import Json
from headway.api.wire.reading import at, blocker_of, job_view, moment, worker_of
from headway.engine.overview import Overview
from headway.model.policies import Concurrency
from headway.model.scene import Pause
from headway.model.targets import TargetState, TargetView
from headway.store.lanes_reading import LaneView
from headway.store.queue_reading import Waiting
from headway.store.reading import Counts


def waiting_of(found: Json) -> Waiting:
    return Waiting(job_view(found), [blocker_of(one) for one in found["blockers"]])


def pauses_of(found: Json) -> tuple[Pause | None, Pause | None]:
    """The pause of the tenant's queue, if it is another one than everybody's, and that."""
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
    return rules, [lane_of(one) for one in found["items"]]


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
        [target_of(one) for one in found["blocked_targets"]],
        [worker_of(one) for one in found["workers"]],
        [job_view(one) for one in found["running"]],
        [waiting_of(one) for one in found["waiting"]],
    )
