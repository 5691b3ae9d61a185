"""The state between two events, by which the replays judge.

It has what is occupied, held, reserved and paused.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from headway.clock import micros
from headway.verify.history import History
from headway.verify.rows import Bucket, Moment, facts, worker_of
from headway.verify.transitions import FIRST_TERMINAL, QUEUED, RELANED, RUNNING

# After this many direct calls in a row on a lane or a target, one job goes first.
BURST = 8
# The limit of the global lane that the schema creates, before any change.
FIRST_LIMIT = {(0, "policy", "global"): 1}
# A limit that no event has set yet. Such a lane is not checked.
UNKNOWN = -1

# Counts once in a lane: a job, a stage (minus the group id, and its index), or a reservation (its id, and -1).
Occupant = tuple[int, int | None]


class Reserved(NamedTuple):
    """A reservation that is ACTIVE."""

    lanes: tuple[int, ...]
    target_id: int | None
    granted: bool = False


class Pause(NamedTuple):
    since: int
    until: int | None


class ReplayState:
    """The state at one event. It keeps only live things, so it stays small."""

    def __init__(self, history: History) -> None:
        self.settle = history.settle
        self.whole_from = history.whole_from
        self.buckets = history.buckets
        self.kind: dict[int, str] = {}
        self.capacity: dict[int, int | None] = {}
        self._begin(history)
        # The buckets of jobs before they got other lanes, because a row has only the last one; and how many such
        # changes are still ahead.
        self.moved: dict[int, int] = {}
        self.ahead: Counter[int] = Counter()
        for job_id, data in history.tx.run("verify_relaned"):
            self.moved[job_id] = facts(data).get("from", 0)
            self.ahead[job_id] += 1
        self.live: dict[int, tuple[str | None, int, list[tuple[int, Occupant]]]] = {}
        # By tenant: the number of running jobs, their limit, and since when an inactive tenant is inactive.
        self.running: Counter[int] = Counter()
        self.most: dict[int, int | None] = {}
        self.inactive: dict[int, int] = {}
        self.inside: defaultdict[int, Counter[Occupant]] = defaultdict(Counter)
        self.full: set[int] = set()
        self.busy: Counter[str] = Counter()
        self.holders: dict[int, int] = {}
        self.resumed: set[int] = set()
        self.paused_targets: dict[int, int] = {}
        self.reserved: dict[int, Reserved] = {}
        self.reserved_lanes: Counter[int] = Counter()
        self.reserved_targets: Counter[int] = Counter()
        self.granted_targets: dict[int, int] = {}
        self.streaks: dict[int, int] = {}
        self.target_streaks: dict[int, int] = {}
        self.pauses: dict[int, Pause] = {}
        self.rules = 0
        self.aging: int | None = None
        self._ends: defaultdict[int, deque[tuple[int, str]]] = defaultdict(deque)

    def _begin(self, history: History) -> None:
        for lane, tenant_id, kind, name, capacity, version in history.tx.run("verify_lanes"):
            self.kind[lane] = kind
            first = FIRST_LIMIT.get((tenant_id, kind, name), UNKNOWN)
            self.capacity[lane] = capacity if version == 1 and first != UNKNOWN else first

    # --- questions ---

    def whole(self, moment: Moment) -> bool:
        """Returns True if the state at this event is complete.

        All pruned events came before it.
        """
        return moment.id >= self.whole_from

    def bucket_id(self, moment: Moment) -> int:
        """Returns the bucket of a job at this event."""
        return self.moved.get(moment.thing_id, moment.bucket_id or 0)

    def bucket(self, moment: Moment) -> Bucket | None:
        return self.buckets.get(self.bucket_id(moment))

    def tenant(self, moment: Moment) -> int:
        bucket = self.bucket(moment)
        return bucket.tenant_id if bucket else 0

    def places(self, moment: Moment) -> list[tuple[int, Occupant]]:
        """Returns the lanes of a job, and its occupant in each."""
        bucket = self.bucket(moment)
        return [(lane, self.occupant(lane, moment)) for lane in bucket.lanes] if bucket else []

    def occupant(self, lane: int, moment: Moment) -> Occupant:
        """Returns the occupant of a job in a lane.

        On the policy's lane, its stage counts as one.
        """
        if moment.group_id is not None and self.kind.get(lane) == "policy":
            return -moment.group_id, moment.stage
        return moment.thing_id, None

    def shared(self, lane: int) -> bool:
        """Returns True if a stage is in the lane, so that further jobs of it may join."""
        return any(number < 0 for number, _ in self.inside[lane])

    def turn(self, streaks: dict[int, int], number: int) -> bool:
        """Returns True if it is a job's turn after many direct calls in a row.

        After pruning the number is unknown, and the answer is True.
        """
        return streaks.get(number, BURST if self.whole_from else 0) >= BURST

    def closed(self, target_id: int) -> bool:
        """Returns True if a reservation closes a target to jobs.

        A reservation that waits lets a resumed holder go first.
        """
        if not self.reserved_targets[target_id] or target_id in self.granted_targets:
            return target_id in self.granted_targets
        return target_id not in self.resumed and not self.turn(self.target_streaks, target_id)

    def may_yield(self, lane: int) -> bool:
        """Returns True if a reservation of the lane may wait for a resumed job.

        The job holds the target that the reservation needs.
        """
        return any(
            one.target_id is not None and not one.granted and lane in one.lanes for one in self.reserved.values()
        )

    def leaving(self, lane: int, claim: Moment, enough: int) -> bool:
        """Returns True if this claim may not have seen `enough` ends on a lane.

        They happened just before it, or later. A worker has seen the ends that it recorded itself before.
        """
        ends = self._ends.get(lane)
        if not ends:
            return False
        while ends and ends[0][0] + self.settle <= claim.at:
            ends.popleft()
        for at, actor in ends:
            enough -= actor != claim.actor or at > claim.at
            if enough <= 0:
                return True
        return False

    # --- changes ---

    def apply(self, moment: Moment) -> None:
        """Applies an event to the state."""
        if moment.id == self.whole_from:
            self.streaks.clear()
            self.target_streaks.clear()
        match moment.thing:
            case "job":
                self._apply_job(moment)
            case "lane":
                if moment.kind in ("lane.created", "lane.changed"):
                    self.capacity[moment.thing_id] = facts(moment.data).get("capacity")
                    self._measure(moment.thing_id)
            case "reservation":
                self._apply_reservation(moment)
            case "target":
                self._apply_pause_of_target(moment)
            case "tenant":
                self._apply_tenant(moment)
            case "concurrency":
                self.rules += 1
                aging = facts(moment.data).get("aging")
                self.aging = micros(aging) if aging else None

    def _apply_job(self, moment: Moment) -> None:
        if moment.target_id is not None:
            (self.resumed.add if moment.kind == "job.resumed" else self.resumed.discard)(moment.thing_id)
        if moment.kind == "job.claimed":
            self._occupy(moment)
        elif moment.status is not None and moment.status != RUNNING:
            if moment.thing_id in self.live:
                self._free(moment)
            if moment.target_id is not None and self.holders.get(moment.target_id) == moment.thing_id:
                self._keep(moment.target_id, moment.status)
            if moment.kind == RELANED:
                self.moved[moment.thing_id] = facts(moment.data).get("to", 0)
                self.ahead[moment.thing_id] -= 1

    def _keep(self, target_id: int, status: int) -> None:
        """Updates the holder of a target.

        A job that is held or resumed keeps its target until it ends.
        """
        self.resumed.discard(target_id)
        if status == QUEUED:
            self.resumed.add(target_id)
        elif status >= FIRST_TERMINAL:
            del self.holders[target_id]

    def _occupy(self, moment: Moment) -> None:
        worker = worker_of(moment.actor)
        places = self.places(moment)
        for lane, occupant in places:
            self._enter(lane, occupant)
            self.streaks[lane] = 0
        if worker is not None:
            self.busy[worker] += 1
        if moment.target_id is not None:
            self.holders.setdefault(moment.target_id, moment.thing_id)
            self.resumed.discard(moment.target_id)
            self.target_streaks[moment.target_id] = 0
        tenant_id = self.tenant(moment)
        self.running[tenant_id] += 1
        self.live[moment.thing_id] = (worker, tenant_id, places)

    def _free(self, moment: Moment) -> None:
        worker, tenant_id, places = self.live.pop(moment.thing_id)
        self.running[tenant_id] -= 1
        for lane, occupant in places:
            self._leave(lane, occupant)
            if self.settle:
                self._ends[lane].append((moment.at, moment.actor))
        if worker is not None:
            self.busy[worker] -= 1

    def _enter(self, lane: int, occupant: Occupant) -> None:
        self.inside[lane][occupant] += 1
        self._measure(lane)

    def _leave(self, lane: int, occupant: Occupant) -> None:
        inside = self.inside[lane]
        inside[occupant] -= 1
        if not inside[occupant]:
            del inside[occupant]
            self._measure(lane)

    def _measure(self, lane: int) -> None:
        limit = self.capacity.get(lane, UNKNOWN)
        if limit is None or limit == UNKNOWN or len(self.inside[lane]) < limit:
            self.full.discard(lane)
        else:
            self.full.add(lane)

    def _apply_reservation(self, moment: Moment) -> None:
        number = moment.thing_id
        match moment.kind:
            case "reservation.created":
                recorded = facts(moment.data)
                self.reserved[number] = one = Reserved(tuple(recorded.get("lanes") or ()), recorded.get("target"))
                self._count(one, 1)
            case "reservation.relaned" if number in self.reserved:
                self._relane(number, self.reserved[number], facts(moment.data))
            case "reservation.granted" if number in self.reserved and not self.reserved[number].granted:
                self._grant(number, self.reserved[number])
            case "reservation.released" | "reservation.expired" if number in self.reserved:
                self._end(number, self.reserved.pop(number))

    def _count(self, one: Reserved, by: int) -> None:
        for lane in one.lanes:
            self.reserved_lanes[lane] += by
        if one.target_id is not None:
            self.reserved_targets[one.target_id] += by

    def _relane(self, number: int, one: Reserved, recorded: Mapping[str, Any]) -> None:
        """Changes the lanes of a reservation that waits. A granted one keeps its lanes."""
        if not one.granted:
            self._count(one, -1)
            self.reserved[number] = one = one._replace(lanes=tuple(recorded.get("lanes") or ()))
            self._count(one, 1)

    def _grant(self, number: int, one: Reserved) -> None:
        self.reserved[number] = one._replace(granted=True)
        for lane in one.lanes:
            self._enter(lane, (number, -1))
            self._raise(self.streaks, lane)
        if one.target_id is not None:
            self.granted_targets[one.target_id] = number
            self._raise(self.target_streaks, one.target_id)

    def _raise(self, streaks: dict[int, int], number: int) -> None:
        streaks[number] = streaks.get(number, BURST if self.whole_from else 0) + 1

    def _end(self, number: int, one: Reserved) -> None:
        self._count(one, -1)
        if not one.granted:
            return
        for lane in one.lanes:
            self._leave(lane, (number, -1))
        if one.target_id is not None and self.granted_targets.get(one.target_id) == number:
            del self.granted_targets[one.target_id]

    def _apply_pause_of_target(self, moment: Moment) -> None:
        if moment.kind == "target.paused":
            self.paused_targets.setdefault(moment.thing_id, moment.at)
        elif moment.kind == "target.resumed":
            self.paused_targets.pop(moment.thing_id, None)

    def _apply_tenant(self, moment: Moment) -> None:
        match moment.kind:
            case "tenant.paused":
                self.pauses[moment.thing_id] = Pause(moment.at, facts(moment.data).get("until"))
            case "tenant.resumed":
                self.pauses.pop(moment.thing_id, None)
            case "tenant.deactivated":
                self.inactive[moment.thing_id] = moment.at
            case "tenant.activated":
                self.inactive.pop(moment.thing_id, None)
            case "tenant.created" | "tenant.edited":
                self.most[moment.thing_id] = facts(moment.data).get("max_running")
