"""I-05: replays all claims and their ends; no lane, target or worker ever held more than its limit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from headway.verify.history import History
from headway.verify.moves import FIRST_TERMINAL, RUNNING
from headway.verify.records import Moment, facts, worker_of
from headway.verify.report import Finding, about_job

# The limit of the global lane before anybody changed it, as the schema makes it.
FIRST_LIMIT = {(0, "policy", "global"): 1}

# A job, or a stage whose jobs count once.
Occupant = tuple[int, int | None]


class Limits:
    """What is occupied, between two events. Only what runs is kept, so it stays small."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.kind: dict[int, str] = {}
        self.capacity: dict[int, int | None] = {}
        self.faults: list[Finding] = []
        self._begin()
        self.slots = {f"{worker_id:x}": slots for worker_id, slots in history.tx.run("verify_workers")}
        self.live: dict[int, tuple[str | None, list[tuple[int, Occupant]]]] = {}
        self.lanes: defaultdict[int, Counter[Occupant]] = defaultdict(Counter)
        self.workers: Counter[str] = Counter()
        self.holders: dict[int, int] = {}

    def _begin(self) -> None:
        """The limits before the first event, and whether the events lead to the limits of now."""
        changes: dict[int, list[tuple[int, int | None]]] = defaultdict(list)
        for lane, version, data in self.history.tx.run("verify_lane_events"):
            changes[lane].append((version, facts(data).get("capacity")))
        for lane, tenant_id, kind, name, capacity, version in self.history.tx.run("verify_lanes"):
            self.kind[lane] = kind
            made = changes.get(lane)
            # A limit whose beginning nobody recorded is not judged before its first event.
            self.capacity[lane] = capacity if version == 1 else FIRST_LIMIT.get((tenant_id, kind, name))
            if made[-1] != (version, capacity) if made else version != 1:
                text = f"its limit is {capacity} (version {version}), its events lead to {made[-1] if made else 'none'}"
                self.faults.append(Finding("I-05", f"lane {lane}", text))

    def see(self, moment: Moment) -> list[Finding]:
        if moment.thing == "lane" and moment.kind == "lane.changed":
            self.capacity[moment.thing_id] = facts(moment.data).get("capacity")
        elif moment.thing == "job" and moment.status is not None:
            if moment.kind == "job.claimed":
                return [about_job("I-05", moment.thing_id, text) for text in self._claim(moment)]
            if moment.status != RUNNING:
                self._free(moment)
        return []

    def end(self) -> list[Finding]:
        return self.faults

    def _claim(self, moment: Moment) -> Iterator[str]:
        self.history.counted["claims"] += 1
        worker = worker_of(moment.actor)
        bucket = self.history.buckets.get(moment.bucket_id or 0)
        places = [(lane, self._occupant(lane, moment)) for lane in (bucket.lanes if bucket else ())]
        yield from self._enter_lanes(moment, places)
        if worker is not None:
            self.workers[worker] += 1
            slots = self.slots.get(worker)
            if slots is not None and self.workers[worker] > slots:
                count = self.workers[worker]
                yield f"claimed (version {moment.version}) by worker {worker} as its job {count} in {slots} slots"
        if moment.target_id is not None:
            holder = self.holders.setdefault(moment.target_id, moment.thing_id)
            if holder != moment.thing_id:
                yield f"claimed (version {moment.version}) on target {moment.target_id}, which job {holder} held"
        self.live[moment.thing_id] = (worker, places)

    def _enter_lanes(self, moment: Moment, places: list[tuple[int, Occupant]]) -> Iterator[str]:
        for lane, occupant in places:
            inside = self.lanes[lane]
            joins = occupant in inside
            inside[occupant] += 1
            limit = self.capacity.get(lane)
            if limit is not None and not joins and len(inside) > limit:
                yield f"claimed (version {moment.version}) as number {len(inside)} of lane {lane}: limit {limit}"

    def _occupant(self, lane: int, moment: Moment) -> Occupant:
        """The running jobs of one stage count once on the policy's lane."""
        if moment.group_id is not None and self.kind.get(lane) == "policy":
            return -moment.group_id, moment.stage
        return moment.thing_id, None

    def _free(self, moment: Moment) -> None:
        worker, places = self.live.pop(moment.thing_id, (None, []))
        for lane, occupant in places:
            self.lanes[lane][occupant] -= 1
            if not self.lanes[lane][occupant]:
                del self.lanes[lane][occupant]
        if worker is not None:
            self.workers[worker] -= 1
        # A job that is held, or resumed, keeps its target until it has ended.
        ended = moment.status is not None and moment.status >= FIRST_TERMINAL
        if ended and moment.target_id is not None and self.holders.get(moment.target_id) == moment.thing_id:
            del self.holders[moment.target_id]
