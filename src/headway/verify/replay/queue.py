"""The queue between two events: the jobs open to claims, and their places.

SQLite writes events in the order of commits. PostgreSQL does not record when a transaction became visible, so there a
job counts only after it has not changed for `settle`.
"""

from __future__ import annotations

from collections import Counter, deque
from heapq import heappop, heappush
from typing import NamedTuple

from headway.verify.history import History
from headway.verify.replay.state import Occupant, ReplayState
from headway.verify.rows import Bucket, Moment, facts
from headway.verify.transitions import QUEUED, RELANED

_BITS = 64
LOW = (1 << _BITS) - 1
_MIDDLE = 1 << (_BITS - 1)
# The unknown place of a job that was moved later, by an event that does not record the old place.
NOWHERE = -1

Key = tuple[int, int]  # a bucket, and a priority if aging is used


class Standing(NamedTuple):
    """A job in the queue.

    `since` is when it got its place, `queued_at` when it began to wait.
    """

    job_id: int
    place: int
    since: int
    queued_at: int
    expires_at: int | None
    bucket_id: int
    target_id: int | None
    stage: Occupant | None  # its occupant in the policy's lanes, if it is in a group


class Line:
    """The places of the open jobs of one bucket, the best one first.

    Some of the jobs have left since.
    """

    __slots__ = ("bucket", "bucket_id", "places")

    def __init__(self, bucket_id: int, bucket: Bucket) -> None:
        self.bucket_id = bucket_id
        self.bucket = bucket
        self.places: list[int] = []


class Target:
    """The queue of one target.

    `blind` counts jobs at unknown places, `open` is the job that may be claimed.
    """

    __slots__ = ("blind", "open", "places", "since")

    def __init__(self) -> None:
        self.places: list[int] = []
        self.blind = 0
        self.open: Standing | None = None
        self.since = 0


def place_of(priority: int, position: int, moment: Moment) -> int:
    """Returns the place of a job as one integer; smaller is better.

    It consists of priority, position, creation time and id. An integer saves memory, because a million jobs may be
    queued at once.
    """
    first = (100 - priority) << _BITS | (position + _MIDDLE)
    return (first << _BITS | moment.created_at) << _BITS | moment.thing_id


def priority_of(place: int) -> int:
    return 100 - (place >> 3 * _BITS)


Lines = dict[Key, Line]


class Queues:
    def __init__(self, history: History, state: ReplayState) -> None:
        self.state = state
        self.settle = history.settle
        self.placed_by: dict[int, int] = dict(history.tx.run("verify_places"))
        self.ages = any(facts(data).get("aging") for (data,) in history.tx.run("verify_aging"))
        self.standing: dict[int, Standing] = {}
        self.targets: dict[int, Target] = {}
        self.lines: dict[int, Lines] = {}
        self.blind: Counter[int] = Counter()
        self.named: set[int] = set()
        self.arrivals: deque[tuple[int, Standing]] = deque()
        self.shaken: dict[Key, deque[tuple[int, int]]] = {}

    # --- changes ---

    def see(self, moment: Moment) -> Standing | None:
        """Applies a change of a job; returns its earlier standing, or None."""
        before = self.standing.pop(moment.thing_id, None)
        claimed = moment.kind == "job.claimed"
        if before is not None:
            self._leave(before, moment, shakes=not claimed)
        if moment.status == QUEUED and not claimed:
            self._stand(moment, before)
        if moment.target_id is not None:
            self.choose(moment.target_id, moment.at, shakes=not claimed)
        return before

    def _leave(self, one: Standing, moment: Moment, *, shakes: bool) -> None:
        if one.place == NOWHERE:
            self._blind(one, -1)
        elif one.target_id is None and shakes:
            self._shake(one, moment.at)

    def _stand(self, moment: Moment, before: Standing | None) -> None:
        queued_at = before.queued_at if before is not None and _keeps_its_age(moment) else moment.at
        one = Standing(
            moment.thing_id,
            self._place(moment),
            moment.at,
            queued_at,
            moment.expires_at,
            self.state.bucket_id(moment),
            moment.target_id,
            None if moment.group_id is None else (-moment.group_id, moment.stage),
        )
        self.standing[one.job_id] = one
        if one.place == NOWHERE:
            self._blind(one, 1)
        elif one.target_id is None:
            self._open(one, moment.at)
        else:
            heappush(self._target(one.target_id).places, one.place)

    def _blind(self, one: Standing, by: int) -> None:
        self.blind[self._tenant(one)] += by
        if one.target_id is not None:
            self._target(one.target_id).blind += by

    def _place(self, moment: Moment) -> int:
        """Returns the place of a job after this event.

        This is the place in its row, unless the job was moved later; then it is the place in the event.
        """
        if moment.version >= self.placed_by.get(moment.thing_id, 0):
            return place_of(moment.priority, moment.position, moment)
        if moment.kind == "job.moved":
            recorded = facts(moment.data)
            if "priority" in recorded and "position" in recorded:
                return place_of(recorded["priority"], recorded["position"], moment)
        return NOWHERE

    def _tenant(self, one: Standing) -> int:
        bucket = self.state.buckets.get(one.bucket_id)
        return bucket.tenant_id if bucket else 0

    # --- targets ---

    def _target(self, target_id: int) -> Target:
        target = self.targets.get(target_id)
        if target is None:
            target = self.targets[target_id] = Target()
        return target

    def choose(self, target_id: int, at: int, *, shakes: bool = True) -> None:
        """Chooses the job of a target that may be claimed from this time on."""
        target = self._target(target_id)
        head = self._head(target_id, target)
        if head is target.open:
            return
        if target.open is not None and shakes:
            self._shake(target.open, at)
        target.open, target.since = head, at
        if head is not None:
            self._open(head, at)

    def _head(self, target_id: int, target: Target) -> Standing | None:
        """Returns the first job of a free target, or the resumed holder of a held one."""
        if target_id in self.state.paused_targets:
            return None
        holder = self.state.holders.get(target_id)
        if holder is not None:
            one = self.standing.get(holder)
            return one if one is not None and one.place != NOWHERE else None
        while not target.blind and target.places:
            one = self.standing.get(target.places[0] & LOW)
            if one is not None and one.place == target.places[0]:
                return one
            heappop(target.places)
        return None

    def first_of(self, target_id: int, at: int) -> Standing | None:
        """Returns the job of a target that the target allowed to be claimed at this time."""
        target = self.targets.get(target_id)
        one = target.open if target is not None else None
        return one if one is not None and self._ready(one, at) else None

    def since(self, one: Standing) -> int:
        """Returns since when a job has been open to claims."""
        return one.since if one.target_id is None else self.targets[one.target_id].since

    # --- open jobs ---

    def _open(self, one: Standing, at: int) -> None:
        if self.settle:
            self.arrivals.append((at + self.settle, one))
            self._shake(one, at)
        else:
            self._push(one)

    def _push(self, one: Standing) -> None:
        bucket = self.state.buckets.get(one.bucket_id)
        if bucket is None:
            return  # I-18 reports a missing bucket
        lines = self.lines.setdefault(bucket.tenant_id, {})
        key = (one.bucket_id, priority_of(one.place) if self.ages else 0)
        line = lines.get(key)
        if line is None:
            line = lines[key] = Line(one.bucket_id, bucket)
        heappush(line.places, one.place)

    def settle_until(self, at: int) -> None:
        """Opens the jobs that arrived so early that every claim has seen them."""
        while self.arrivals and self.arrivals[0][0] <= at:
            _, one = self.arrivals.popleft()
            if self._is_open(one):
                self._push(one)

    def _is_open(self, one: Standing) -> bool:
        if one.target_id is not None:
            return self.targets[one.target_id].open is one
        return self.standing.get(one.job_id) is one

    def best(self, line: Line, at: int) -> Standing | None:
        """Returns the best placed job of a bucket that could be claimed, or None.

        Room in its lanes is not checked.
        """
        aside: list[int] = []
        best: Standing | None = None
        places = line.places
        while places and best is None:
            one = self.standing.get(places[0] & LOW)
            if one is None or not self._claimable(one, line.bucket_id, places[0], at):
                heappop(places)
            elif one.target_id is not None and self.state.closed(one.target_id):
                aside.append(heappop(places))
            else:
                best = one
        for place in aside:
            heappush(places, place)
        return best

    def _claimable(self, one: Standing, bucket_id: int, place: int, at: int) -> bool:
        if one.place != place or one.bucket_id != bucket_id or not self._is_open(one):
            return False
        return self._ready(one, at)

    def _ready(self, one: Standing, at: int) -> bool:
        """Returns True if a job has its place for long enough and has not expired.

        A job that was reported does not count again, except with aging, where it may hide other jobs.
        """
        # A job that has come back to the same place is in `arrivals` once more.
        if self.settle and self.since(one) + self.settle > at:
            return False
        return (one.expires_at is None or one.expires_at > at) and (self.ages or one.job_id not in self.named)

    # --- recent changes that other transactions may not have seen ---

    def _shake(self, one: Standing, at: int) -> None:
        """Records a recent change at a place of a priority.

        Earlier changes at worse places are dropped.
        """
        if not (self.ages and self.settle) or one.place == NOWHERE:
            return
        recent = self.shaken.setdefault((self._tenant(one), priority_of(one.place)), deque())
        while recent and recent[-1][1] >= one.place:
            recent.pop()
        recent.append((at, one.place))

    def steady(self, tenant_id: int, one: Standing, at: int) -> bool:
        """Returns True if no job before this one in its priority has changed recently."""
        if self.blind[tenant_id]:
            return False
        recent = self.shaken.get((tenant_id, priority_of(one.place)))
        while recent and recent[0][0] + self.settle <= at:
            recent.popleft()
        return not recent or recent[0][1] > one.place


def _keeps_its_age(moment: Moment) -> bool:
    """Returns True if a job keeps its waiting time.

    It does after a move and with other lanes, not with a new time.
    """
    if moment.kind == "job.edited":
        return "not_before" not in facts(moment.data)
    return moment.kind in ("job.moved", RELANED)
