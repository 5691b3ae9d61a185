"""I-05: jobs and reservations never exceed the limit of a lane or a worker.

A target has one holder.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from headway.verify.history import History
from headway.verify.replay.state import FIRST_LIMIT, UNKNOWN, Occupant, ReplayState
from headway.verify.report import Finding, about_job, about_reservation
from headway.verify.rows import Moment, facts, worker_of
from headway.verify.transitions import RELANED


def check(history: History) -> Iterator[Finding]:
    """Yields lanes and settings whose events do not lead to their current value."""
    made: dict[int, list[tuple[int, int | None]]] = defaultdict(list)
    for lane, version, data in history.tx.run("verify_lane_events"):
        made[lane].append((version, facts(data).get("capacity")))
    for lane, tenant_id, kind, name, capacity, version in history.tx.run("verify_lanes"):
        changes = made.get(lane, [])
        untouched = version == 1 and not changes and (tenant_id, kind, name) in FIRST_LIMIT
        if changes[-1:] != [(version, capacity)] and not untouched:
            led = f"{changes[-1][1]} (version {changes[-1][0]})" if changes else "none"
            text = f"its limit is {capacity} (version {version}), its events lead to {led}"
            yield Finding("I-05", f"lane {lane}", text)
    for version, last in history.tx.run("verify_settings"):
        if version != last:
            yield Finding("I-05", "concurrency", f"the settings have version {version}, their events lead to {last}")


class Limits:
    """Checks before each event that there is room for it.

    A lowered limit stops no running job.
    """

    def __init__(self, history: History, state: ReplayState) -> None:
        self.history = history
        self.state = state
        self.rows: dict[int, int] = {}

    def see(self, moment: Moment) -> list[Finding]:
        if moment.kind == "job.claimed":
            return [about_job("I-05", moment.thing_id, text) for text in self._claim(moment)]
        if moment.kind == "reservation.granted":
            return [about_reservation("I-05", moment.thing_id, text) for text in self._grant(moment)]
        return self._relane(moment) if moment.kind == RELANED else []

    def end(self) -> list[Finding]:
        """Returns jobs whose row has other lanes than their last event says."""
        pairs = ((job_id, self.state.moved[job_id], bucket_id) for job_id, bucket_id in self.rows.items())
        return [
            about_job("I-05", job_id, f"its events lead to the lanes of bucket {led}, its row has bucket {bucket_id}")
            for job_id, led, bucket_id in pairs
            if led != bucket_id
        ]

    def _claim(self, moment: Moment) -> Iterator[str]:
        self.history.counted["claims"] += 1
        claimed = f"claimed (version {moment.version})"
        for lane, occupant in self.state.places(moment):
            if text := self._full(lane, occupant):
                yield f"{claimed} {text}"
        if text := self._no_slot(moment):
            yield f"{claimed} {text}"
        tenant_id = self.state.tenant(moment)
        most, running = self.state.most.get(tenant_id), self.state.running[tenant_id]
        if most is not None and running >= most:
            yield f"{claimed} as number {running + 1} of tenant {tenant_id}: limit {most}"
        if moment.target_id is not None and (text := self._taken(moment.target_id, moment.thing_id)):
            yield f"{claimed} {text}"

    def _grant(self, moment: Moment) -> Iterator[str]:
        reservation = self.state.reserved.get(moment.thing_id)
        if reservation is None or reservation.granted:
            return  # I-16 checks that it could be granted at all
        for lane in reservation.lanes:
            if text := self._full(lane, (moment.thing_id, -1)):
                yield f"granted (version {moment.version}) {text}"
        if reservation.target_id is not None and (text := self._taken(reservation.target_id, None)):
            yield f"granted (version {moment.version}) {text}"

    def _full(self, lane: int, occupant: Occupant) -> str | None:
        limit = self.state.capacity.get(lane, UNKNOWN)
        if limit is None or limit == UNKNOWN:
            return None
        inside = self.state.inside[lane]
        if occupant in inside or len(inside) < limit:
            return None
        return f"as number {len(inside) + 1} of lane {lane}: limit {limit}"

    def _no_slot(self, moment: Moment) -> str | None:
        name = worker_of(moment.actor)
        worker = self.history.workers.get(name or "")
        if name is None or worker is None or self.state.busy[name] < worker.slots:
            return None
        return f"by worker {name} as its job {self.state.busy[name] + 1} in {worker.slots} slots"

    def _taken(self, target_id: int, job_id: int | None) -> str | None:
        """Describes what occupies a target; None if it is free, or this job holds it."""
        holder = self.state.holders.get(target_id)
        if holder is not None and holder != job_id:
            return f"on target {target_id}, which job {holder} held"
        granted = self.state.granted_targets.get(target_id)
        if granted is not None:
            return f"on target {target_id}, which reservation {granted} had"
        if target_id in self.state.paused_targets:
            return f"on target {target_id}, which was paused at {self.state.paused_targets[target_id]}"
        return None

    def _relane(self, moment: Moment) -> list[Finding]:
        self.rows[moment.thing_id] = moment.bucket_id or 0
        had, left = self.state.bucket_id(moment), facts(moment.data).get("from")
        if had == left:
            return []
        text = f"it had the lanes of bucket {had} and left those of bucket {left} (version {moment.version})"
        return [about_job("I-05", moment.thing_id, text)]
