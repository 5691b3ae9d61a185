"""What the next claims would do, without a lock and without a change: the claim's own rules over what is stored and
what it would settle first (times that have come, first jobs of targets, lanes of an older policy, reservations)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from heapq import merge
from typing import NamedTuple

from headway.errors import BadInput
from headway.model.lanes import Bucket, Place, Queue, Rooms, head, shut_targets
from headway.model.picking import Aged, Levels, Others, Pick, Source, told
from headway.model.policies import GLOBAL
from headway.model.scene import Hand
from headway.model.states import State
from headway.store import choosing, claim_view
from headway.store.choosing import Sight
from headway.store.db import Tx
from headway.store.lanes import Lanes
from headway.store.reservations import Active

# Claims take away what is touched as fast as it comes; while nobody can claim, nobody needs to know.
MOST_TOUCHED = 10_000


class Spot(NamedTuple):
    """A job that a claim would find open, with its place."""

    id: int
    bucket_id: int
    target_id: int | None
    priority: int
    position: int
    created_at: int
    queued_at: int
    group_id: int | None
    stage: int | None

    @property
    def place(self) -> Place:
        return (-self.priority, self.position, self.created_at, self.id, self.group_id, self.stage)

    @property
    def aged(self) -> Aged:
        return (self.position, self.created_at, self.id, self.queued_at, self.group_id, self.stage)


class Lane(NamedTuple):
    owner: int
    kind: str
    name: str
    capacity: int | None


class Foresight(Sight):
    """The queue as it will be when everything is settled. `play` plays the next claims; what they take is gone then.

    `hidden` are the jobs that only seem open, `added` those that only seem closed. Where the first job of a target is
    chosen anew, `firsts` has who is first in its queue and `fronts` who may be claimed. Buckets of an older policy have
    the lanes of now.
    """

    def __init__(self, tx: Tx, hands: Sequence[Hand], *, targets: Collection[int] = ()) -> None:
        super().__init__(tx, claim_view.look(tx), Lanes(tx.database))
        self.hands = list(hands)
        self.hidden: set[int] = set()
        self.added: dict[int, list[Spot]] = {}
        self.fronts: dict[int, int | None] = {}
        self.firsts: dict[int, int | None] = {}
        self.described: dict[int, Lane] = {row[0]: Lane(*row[1:5]) for row in tx.run("lanes")}
        self.shifted: dict[int, Bucket] = {}
        self.taken: list[Pick] = []
        self.taken_targets: set[int] = set()
        self.turned: dict[int, int] = {}
        self.shut: set[int] = set()
        self.waited: tuple[set[int], set[int]] = (set(), set())
        self._choose_heads(*self._settle_times(), targets)
        self.view.ready.update(dict.fromkeys(self.added, 0))
        self.buckets(self.view.ready)
        found = super().active() if self.view.reservations else []
        self.reserved = [one for one in found if one.expires_at is None or one.expires_at > self.view.now]

    # --- settling ---

    def _settle_times(self) -> tuple[list[Spot], set[int]]:
        """What expires is hidden, what is promoted is open; on a target it has yet to be chosen. As many at once as a
        claim moves. Returns what is promoted on targets, and the targets of what expires."""
        if not self.view.due_now:
            return [], set()
        gone = self.tx.run("lapsed_jobs")
        self.hidden |= {job_id for job_id, _ in gone}
        due = [Spot(*row) for row in self.tx.run("due_jobs") if row[0] not in self.hidden]
        for spot in due:
            if spot.target_id is None:
                self._add(spot)
        left = {target for _, target in gone if target is not None}
        return [spot for spot in due if spot.target_id is not None], left

    def _add(self, spot: Spot) -> None:
        self.added.setdefault(spot.bucket_id, []).append(spot)

    def _choose_heads(self, due: Sequence[Spot], left: Collection[int], asked: Collection[int]) -> None:
        """The first jobs of the targets that a claim would choose anew, and of those that are asked about."""
        wanted = {*asked, *left, *(spot.target_id for spot in due if spot.target_id is not None)}
        if self.view.touched and any(hand.free > 0 for hand in self.hands):
            wanted |= {target for (target,) in self.tx.run("touched_targets", limit=MOST_TOUCHED)}
        if not wanted:
            return
        found = self.tx.run("target_fronts", ids=json.dumps(sorted(wanted)))
        known = self._spots({job_id for _, _, *ids, _ in found for job_id in ids if job_id is not None})
        lines: dict[int | None, list[Spot]] = {}
        for spot in due:
            known[spot.id] = spot
            lines.setdefault(spot.target_id, []).append(spot)
        for target, paused, holder, first, opened, status in found:
            line = [*lines.get(target, ()), *([known[first]] if first is not None else ())]
            self.firsts[target] = min(line, key=lambda spot: spot.place).id if line else None
            queue = Queue(target, paused is not None, holder, status == State.QUEUED, self.firsts[target], opened)
            self._open(target, head(queue), opened, known)

    def _open(self, target: int, chosen: int | None, opened: int | None, known: dict[int, Spot]) -> None:
        self.fronts[target] = chosen
        if opened is not None and opened != chosen:
            self.hidden.add(opened)
        if chosen is not None and chosen != opened:
            self._add(known[chosen])

    def _spots(self, ids: Collection[int]) -> dict[int, Spot]:
        found = self.tx.run("spots_of", ids=json.dumps(sorted(ids))) if ids else []
        return {row[0]: Spot(*row) for row in found}

    def buckets(self, ids: Collection[int]) -> dict[int, Bucket]:
        """Kinds of work, those of an older policy with the lanes that their jobs get before they are claimed."""
        try:
            stale = self.lanes.stale(self.tx, self.view.version, [one for one in ids if one not in self.shifted])
        except BadInput:  # a policy of the users' own that this process cannot import: as it is stored, then
            stale = []
        for bucket in stale:
            self.shifted[bucket.id] = replace(bucket, lanes=self._lanes_now(bucket))
        return {bucket.id: self.shifted.get(bucket.id, bucket) for bucket in self.lanes.load(self.tx, ids)}

    def _lanes_now(self, bucket: Bucket) -> tuple[int, ...]:
        resources = [lane for lane in bucket.lanes if self.described[lane].kind == "resource"]
        names = tuple(sorted(self.described[lane].name for lane in resources))
        wanted = self.lanes.concurrency.lanes(bucket.task, names, on_target=bucket.on_target)
        return tuple(sorted([*(self._policy_lane(bucket.tenant_id, name) for name in wanted), *resources]))

    def _policy_lane(self, tenant_id: int, name: str) -> int:
        """One that does not exist yet has a number below 0."""
        owner = 0 if name == GLOBAL else tenant_id
        found = [n for n, one in self.described.items() if (one.owner, one.kind, one.name) == (owner, "policy", name)]
        if found:
            return found[0]
        number, capacity = -1 - len(self.described), self.lanes.concurrency.capacity(name)
        self.described[number] = Lane(owner, "policy", name, capacity)
        if capacity is not None:
            self.view.capacity[number] = capacity
            self.view.policy.add(number)
        return number

    # --- seeing ---

    def ready(self) -> list[Bucket]:
        return [self.shifted.get(bucket.id, bucket) for bucket in self.lanes.load(self.tx, self.view.ready)]

    def places(self, buckets: Sequence[Bucket], count: int, others: Others) -> Source:
        stored = super().places(buckets, count, others)

        def of(bucket: Bucket) -> Iterator[Place]:
            kept = (place for place in stored(bucket) if place[3] not in self.hidden)
            return merge(kept, sorted(spot.place for spot in self._more(bucket)))

        return of

    def front(self, tenant_id: int, most: int) -> None:
        """What is stored is not in the order of what is added and hidden here."""

    def levels(self, buckets: Collection[Bucket]) -> Levels:
        levels: dict[int, list[tuple[Bucket, Iterator[Aged]]]] = {}
        for priority, sources in super().levels(buckets).items():
            levels[priority] = [(bucket, self._kept(source)) for bucket, source in sources]
        for bucket in buckets:
            for spot in sorted(self._more(bucket), key=lambda spot: spot.place):
                levels.setdefault(spot.priority, []).append((bucket, iter([spot.aged])))
        return levels

    def _kept(self, source: Iterator[Aged]) -> Iterator[Aged]:
        return (place for place in source if place[2] not in self.hidden)

    def _more(self, bucket: Bucket) -> list[Spot]:
        return [spot for spot in self.added.get(bucket.id, ()) if spot.id not in self.hidden]

    def heads(self, targets: Collection[int]) -> list[tuple[int, int]]:
        stored = [one for one in super().heads(targets) if one[1] not in self.fronts]
        chosen = [(self.fronts[target], target) for target in targets if target in self.fronts]
        found = [*stored, *((job_id, target) for job_id, target in chosen if job_id is not None)]
        return [one for one in found if one[0] not in self.hidden]

    def busy(self, targets: Collection[int]) -> set[int]:
        return super().busy(targets) | (self.taken_targets & set(targets))

    def resumed(self, targets: Collection[int]) -> set[int]:
        return super().resumed(targets) - self.taken_targets

    def served(self) -> tuple[set[str], int]:
        free = [hand for hand in self.hands if hand.left > 0]
        return {task for hand in free for task in hand.tasks}, sum(hand.left for hand in free)

    def rooms(self) -> Rooms:
        rooms = super().rooms()
        for one in self.taken:
            rooms.enter(one.bucket, one.stage)
        return rooms

    def turns(self, tenants: Collection[int]) -> dict[int, int]:
        return {**self.stored_turns(tenants), **self.turned}

    def stored_turns(self, tenants: Collection[int]) -> dict[int, int]:
        """As they are before the next claims."""
        return super().turns(tenants) if len(tenants) > 1 else {}

    def active(self) -> list[Active]:
        return self.reserved

    def settle(self) -> list[Active]:
        given = choosing.grantable(self, self.reserved)
        self.waited = self.awaited([one for one in self.reserved if one.id in given])
        self.reserved = [one._replace(granted_at=self.view.now) if one.id in given else one for one in self.reserved]
        return self.reserved

    # --- claiming ---

    def play(self) -> tuple[Rooms, list[Pick]]:
        """Every worker with a free slot claims, those that know least first. Returns what was free before, and what
        they take."""
        free = [number for number, hand in enumerate(self.hands) if hand.free > 0]
        before: Rooms | None = None
        picks: list[Pick] = []
        done: list[frozenset[str]] = []
        for number in sorted(free, key=lambda number: len(self.hands[number].tasks)):
            tasks = self.hands[number].tasks
            if not self.reserved and not self._shares() and any(tasks <= others for others in done):
                continue  # somebody who knows as much had slots to spare: nothing is left
            granted = {one.id for one in self.reserved if one.granted_at is not None}
            rooms = self._rooms_now()
            before = before or _copy(rooms)
            picks += self._claim(number, rooms, granted)
            if self.hands[number].left > 0:
                done.append(tasks)
        return before or self._rooms_now(), picks

    def _shares(self) -> bool:
        """Whether stages run: who looks anew may join where the one before kept off."""
        return bool(self.view.members) or any(one.stage is not None for one in self.taken)

    def _rooms_now(self) -> Rooms:
        rooms = choosing.open_rooms(self, grant=True)
        if not self.taken:
            self.shut = shut_targets(choosing.closing(self, self.reserved), self.view.target_streaks)
        return rooms

    def _claim(self, number: int, rooms: Rooms, granted: Collection[int]) -> list[Pick]:
        hand = self.hands[number]
        picks = choosing.pick_open(self, rooms, hand.tasks.__contains__, hand.left)
        self.hands[number] = replace(hand, left=hand.left - len(picks))
        for one in self.reserved:
            if one.granted_at is not None and one.id not in granted:
                self._count(one)
        self._happen(picks)
        return picks

    def _count(self, one: Active) -> None:
        """One more direct call in a row, where a job waits."""
        streaks, target_streaks = self.view.streaks, self.view.target_streaks
        for lane in one.reserved.lanes:
            streaks[lane] = streaks.get(lane, 0) + 1 if lane in self.waited[0] else 0
        if one.target_id is not None:
            count = target_streaks.get(one.target_id, 0) + 1 if one.target_id in self.waited[1] else 0
            target_streaks[one.target_id] = count

    def _happen(self, picks: Sequence[Pick]) -> None:
        self.hidden |= {one.job_id for one in picks}
        self.taken += picks
        self.turned |= told(picks)
        for one in picks:
            for lane in one.bucket.lanes:
                self.view.streaks.pop(lane, None)
        for spot in self._spots([one.job_id for one in picks if one.bucket.on_target]).values():
            assert spot.target_id is not None
            self.taken_targets.add(spot.target_id)
            self.view.target_streaks.pop(spot.target_id, None)


def _copy(rooms: Rooms) -> Rooms:
    stages = {lane: set(inside) for lane, inside in rooms.stages.items()}
    free, tenants = dict(rooms.free), dict(rooms.tenants)
    return Rooms(free, set(rooms.closed), set(rooms.turns), set(rooms.barred), stages, set(rooms.joins), tenants)
