"""The queue as it stood between two events: which jobs were open to claims, each at its place.

SQLite writes events in the order of commits. PostgreSQL does not say when a transaction became visible, so there a job
counts only when it has stood still for `settle`.
"""

from __future__ import annotations

from collections import Counter, deque
from heapq import heappop, heappush
from typing import NamedTuple

from headway.verify.board import Board, Occupant
from headway.verify.history import History
from headway.verify.moves import QUEUED, RELANED
from headway.verify.records import Bucket, Moment, facts

_BITS = 64
LOW = (1 << _BITS) - 1
_MIDDLE = 1 << (_BITS - 1)
# The place of a job that was moved later in a way that does not say from where.
NOWHERE = -1

Key = tuple[int, int]  # a bucket, and a priority where aging tells them apart


class Standing(NamedTuple):
    """A job in the queue: its place, since when it has had it, since when it waits."""

    job_id: int
    place: int
    since: int
    queued_at: int
    expires_at: int | None
    bucket_id: int
    target_id: int | None
    stage: Occupant | None  # as what it counts in the policy's lanes, if it has siblings


class Line:
    """The open jobs of one kind of work: their places, the best one first. Some have left since."""

    __slots__ = ("bucket", "bucket_id", "places")

    def __init__(self, bucket_id: int, bucket: Bucket) -> None:
        self.bucket_id = bucket_id
        self.bucket = bucket
        self.places: list[int] = []


class Target:
    """The queue of one target. `blind` counts the jobs whose place is not known, `open` is who may be claimed."""

    __slots__ = ("blind", "open", "places", "since")

    def __init__(self) -> None:
        self.places: list[int] = []
        self.blind = 0
        self.open: Standing | None = None
        self.since = 0


def place_of(priority: int, position: int, moment: Moment) -> int:
    """Smaller is better: priority, position, creation and number in one integer. A million may stand at once."""
    first = (100 - priority) << _BITS | (position + _MIDDLE)
    return (first << _BITS | moment.created_at) << _BITS | moment.thing_id


def priority_of(place: int) -> int:
    return 100 - (place >> 3 * _BITS)


Lines = dict[Key, Line]


class Queues:
    def __init__(self, history: History, board: Board) -> None:
        self.board = board
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
        """A job was changed. Returns how it stood before."""
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
            self.board.bucket_id(moment),
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
        """Its place after this event: that of its row unless it was moved later, else what the event says."""
        if moment.version >= self.placed_by.get(moment.thing_id, 0):
            return place_of(moment.priority, moment.position, moment)
        if moment.kind == "job.moved":
            said = facts(moment.data)
            if "priority" in said and "position" in said:
                return place_of(said["priority"], said["position"], moment)
        return NOWHERE

    def _tenant(self, one: Standing) -> int:
        bucket = self.board.buckets.get(one.bucket_id)
        return bucket.tenant_id if bucket else 0

    # --- targets ---

    def _target(self, target_id: int) -> Target:
        found = self.targets.get(target_id)
        if found is None:
            found = self.targets[target_id] = Target()
        return found

    def choose(self, target_id: int, at: int, *, shakes: bool = True) -> None:
        """Who of a target may be claimed from here on."""
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
        """The first of a free target; of one that is held, its holder when it was resumed."""
        if target_id in self.board.paused_targets:
            return None
        holder = self.board.holders.get(target_id)
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
        """Who of a target could be claimed at this moment, as far as the target goes."""
        target = self.targets.get(target_id)
        one = target.open if target is not None else None
        return one if one is not None and self._ready(one, at) else None

    def since(self, one: Standing) -> int:
        """Since when a job has been open to claims."""
        return one.since if one.target_id is None else self.targets[one.target_id].since

    # --- what is open ---

    def _open(self, one: Standing, at: int) -> None:
        if self.settle:
            self.arrivals.append((at + self.settle, one))
            self._shake(one, at)
        else:
            self._push(one)

    def _push(self, one: Standing) -> None:
        bucket = self.board.buckets.get(one.bucket_id)
        if bucket is None:
            return  # that there is none is I-18's to say
        lines = self.lines.setdefault(bucket.tenant_id, {})
        key = (one.bucket_id, priority_of(one.place) if self.ages else 0)
        line = lines.get(key)
        if line is None:
            line = lines[key] = Line(one.bucket_id, bucket)
        heappush(line.places, one.place)

    def settle_until(self, at: int) -> None:
        """What came so long before this moment that every claim has seen it."""
        while self.arrivals and self.arrivals[0][0] <= at:
            _, one = self.arrivals.popleft()
            if self._is_open(one):
                self._push(one)

    def _is_open(self, one: Standing) -> bool:
        if one.target_id is not None:
            return self.targets[one.target_id].open is one
        return self.standing.get(one.job_id) is one

    def best(self, line: Line, at: int) -> Standing | None:
        """The best placed job of a kind of work that could be claimed at this moment, as far as it itself goes."""
        aside: list[int] = []
        found: Standing | None = None
        places = line.places
        while places and found is None:
            one = self.standing.get(places[0] & LOW)
            if one is None or not self._claimable(one, line.bucket_id, places[0], at):
                heappop(places)
            elif one.target_id is not None and self.board.closed(one.target_id):
                aside.append(heappop(places))
            else:
                found = one
        for place in aside:
            heappush(places, place)
        return found

    def _claimable(self, one: Standing, bucket_id: int, place: int, at: int) -> bool:
        if one.place != place or one.bucket_id != bucket_id or not self._is_open(one):
            return False
        return self._ready(one, at)

    def _ready(self, one: Standing, at: int) -> bool:
        """Long enough in its place, and not expired. Who was named counts no more, but where it may hide others."""
        # What has come back to the same place is among the arrivals once more.
        if self.settle and self.since(one) + self.settle > at:
            return False
        return (one.expires_at is None or one.expires_at > at) and (self.ages or one.job_id not in self.named)

    # --- what may have looked otherwise to others ---

    def _shake(self, one: Standing, at: int) -> None:
        """Keeps the best places of a priority that were changed of late, but for those that a later one beats."""
        if not (self.ages and self.settle) or one.place == NOWHERE:
            return
        recent = self.shaken.setdefault((self._tenant(one), priority_of(one.place)), deque())
        while recent and recent[-1][1] >= one.place:
            recent.pop()
        recent.append((at, one.place))

    def steady(self, tenant_id: int, one: Standing, at: int) -> bool:
        """Whether all that stands before a job in its priority has stood still."""
        if self.blind[tenant_id]:
            return False
        recent = self.shaken.get((tenant_id, priority_of(one.place)))
        while recent and recent[0][0] + self.settle <= at:
            recent.popleft()
        return not recent or recent[0][1] > one.place


def _keeps_its_age(moment: Moment) -> bool:
    """Another place or other lanes; whoever sets another time begins to wait anew."""
    if moment.kind == "job.edited":
        return "not_before" not in facts(moment.data)
    return moment.kind in ("job.moved", RELANED)
