"""Plays the next claims without a lock and without a change.

It applies the claim's own rules to the stored queue and to what a claim would settle first: due times, first jobs of
targets, lanes of an older policy, reservations.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from heapq import merge
from typing import NamedTuple

from headway.errors import BadInput
from headway.model.explain.snapshot import QueuedJob, WorkerSlots
from headway.model.jobs.states import State
from headway.model.queue.capacity import Bucket, Capacity, Queue, head, shut_targets
from headway.model.queue.place import AgedPlace, Place
from headway.model.queue.policies import GLOBAL
from headway.model.queue.select import Pick, ReadPlaces, last_turns
from headway.model.queue.select_aged import Levels
from headway.store.db import Tx
from headway.store.queue import claim_snapshot, select
from headway.store.queue.lanes import BucketCache
from headway.store.queue.reservations import Active
from headway.store.queue.select import ClaimSource

# Upper bound on touched targets to inspect. Claims drain the table; without a free worker the answer does not matter.
MOST_TOUCHED = 10_000


class Lane(NamedTuple):
    owner: int
    kind: str
    name: str
    capacity: int | None


class ClaimDryRun(ClaimSource):
    """The queue once everything is settled; `play` runs the next claims.

    The jobs that `play` takes are gone afterwards. `hidden` are jobs stored as open that a claim would not find open,
    `added` the opposite. For a target whose first job is chosen anew, `firsts` has the first job of its queue and
    `fronts` the job that may be claimed. Buckets of an older policy have the lanes of the current one.
    """

    def __init__(self, tx: Tx, all_slots: Sequence[WorkerSlots], *, targets: Collection[int] = ()) -> None:
        super().__init__(tx, claim_snapshot.look(tx), BucketCache(tx.database))
        self.all_slots = list(all_slots)
        self.hidden: set[int] = set()
        self.added: dict[int, list[QueuedJob]] = {}
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

    def _settle_times(self) -> tuple[list[QueuedJob], set[int]]:
        """Hides expired jobs and opens due ones, as many at once as a claim moves.

        A due job on a target is not opened yet. Returns those jobs, and the targets of expired jobs.
        """
        if not self.view.due_now:
            return [], set()
        gone = self.tx.run("lapsed_jobs")
        self.hidden |= {job_id for job_id, _ in gone}
        due = [QueuedJob(*row) for row in self.tx.run("due_jobs") if row[0] not in self.hidden]
        for job in due:
            if job.target_id is None:
                self._add(job)
        left = {target for _, target in gone if target is not None}
        return [job for job in due if job.target_id is not None], left

    def _add(self, job: QueuedJob) -> None:
        self.added.setdefault(job.bucket_id, []).append(job)

    def _choose_heads(self, due: Sequence[QueuedJob], left: Collection[int], asked: Collection[int]) -> None:
        """Chooses the first jobs of touched, changed and requested targets."""
        wanted = {*asked, *left, *(job.target_id for job in due if job.target_id is not None)}
        if self.view.touched and any(worker_slots.free > 0 for worker_slots in self.all_slots):
            wanted |= {target for (target,) in self.tx.run("touched_targets", limit=MOST_TOUCHED)}
        if not wanted:
            return
        found = self.tx.run("target_fronts", ids=json.dumps(sorted(wanted)))
        known = self._jobs({job_id for _, _, *ids, _ in found for job_id in ids if job_id is not None})
        lines: dict[int | None, list[QueuedJob]] = {}
        for job in due:
            known[job.id] = job
            lines.setdefault(job.target_id, []).append(job)
        for target, paused, holder, first, opened, status in found:
            line = [*lines.get(target, ()), *([known[first]] if first is not None else ())]
            self.firsts[target] = min(line, key=lambda job: job.place).id if line else None
            queue = Queue(target, paused is not None, holder, status == State.QUEUED, self.firsts[target], opened)
            self._open(target, head(queue), opened, known)

    def _open(self, target: int, chosen: int | None, opened: int | None, known: dict[int, QueuedJob]) -> None:
        self.fronts[target] = chosen
        if opened is not None and opened != chosen:
            self.hidden.add(opened)
        if chosen is not None and chosen != opened:
            self._add(known[chosen])

    def _jobs(self, ids: Collection[int]) -> dict[int, QueuedJob]:
        found = self.tx.run("queued_jobs_of", ids=json.dumps(sorted(ids))) if ids else []
        return {row[0]: QueuedJob(*row) for row in found}

    def buckets(self, ids: Collection[int]) -> dict[int, Bucket]:
        """Returns buckets; those of an older policy with the lanes of the current one."""
        try:
            stale = self.lanes.stale(
                self.tx, self.view.version, [bucket_id for bucket_id in ids if bucket_id not in self.shifted]
            )
        except BadInput:  # a user's policy that this process cannot import: keep the stored lanes
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
        """Returns the number of a policy lane, below 0 if it does not exist yet."""
        owner = 0 if name == GLOBAL else tenant_id
        wanted = (owner, "policy", name)
        found = [n for n, lane in self.described.items() if (lane.owner, lane.kind, lane.name) == wanted]
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

    def places(self, buckets: Sequence[Bucket], count: int, others: Sequence[Bucket]) -> ReadPlaces:
        stored = super().places(buckets, count, others)

        def of(bucket: Bucket) -> Iterator[Place]:
            kept = (place for place in stored(bucket) if place.job_id not in self.hidden)
            return merge(kept, sorted(job.place for job in self._more(bucket)))

        return of

    def front(self, tenant_id: int, most: int) -> None:
        """Returns None: the stored order lacks the added and hidden jobs."""

    def levels(self, buckets: Collection[Bucket]) -> Levels:
        levels: dict[int, list[tuple[Bucket, Iterator[AgedPlace]]]] = {}
        for priority, sources in super().levels(buckets).items():
            levels[priority] = [(bucket, self._kept(source)) for bucket, source in sources]
        for bucket in buckets:
            for job in sorted(self._more(bucket), key=lambda job: job.place):
                levels.setdefault(job.priority, []).append((bucket, iter([job.aged(self.view.now)])))
        return levels

    def _kept(self, source: Iterator[AgedPlace]) -> Iterator[AgedPlace]:
        return (place for place in source if place.job_id not in self.hidden)

    def _more(self, bucket: Bucket) -> list[QueuedJob]:
        return [job for job in self.added.get(bucket.id, ()) if job.id not in self.hidden]

    def heads(self, targets: Collection[int]) -> list[tuple[int, int]]:
        stored = [one for one in super().heads(targets) if one[1] not in self.fronts]
        chosen = [(self.fronts[target], target) for target in targets if target in self.fronts]
        found = [*stored, *((job_id, target) for job_id, target in chosen if job_id is not None)]
        return [one for one in found if one[0] not in self.hidden]

    def busy(self, targets: Collection[int]) -> set[int]:
        return super().busy(targets) | (self.taken_targets & set(targets))

    def resumed(self, targets: Collection[int]) -> set[int]:
        return super().resumed(targets) - self.taken_targets

    def free_slots(self) -> list[WorkerSlots]:
        return [worker_slots for worker_slots in self.all_slots if worker_slots.left > 0]

    def capacity(self) -> Capacity:
        capacity = super().capacity()
        for one in self.taken:
            capacity.occupy(one.bucket, one.stage)
        return capacity

    def turns(self, tenants: Collection[int]) -> dict[int, int]:
        return {**self.stored_turns(tenants), **self.turned}

    def stored_turns(self, tenants: Collection[int]) -> dict[int, int]:
        """Returns the turns as they are before the next claims."""
        return super().turns(tenants) if len(tenants) > 1 else {}

    def active(self) -> list[Active]:
        return self.reserved

    def settle(self) -> list[Active]:
        given = select.grantable(self, self.reserved)
        self.waited = self.awaited([one for one in self.reserved if one.id in given])
        self.reserved = [one._replace(granted_at=self.view.now) if one.id in given else one for one in self.reserved]
        return self.reserved

    # --- claiming ---

    def play(self) -> tuple[Capacity, list[Pick]]:
        """Lets every worker with a free slot claim, those with the fewest tasks and tenants first.

        Returns the capacity before the claims, and the jobs that they take.
        """
        free = [number for number, worker_slots in enumerate(self.all_slots) if worker_slots.free > 0]
        before: Capacity | None = None
        picks: list[Pick] = []
        done: list[WorkerSlots] = []
        for number in sorted(free, key=lambda number: self.all_slots[number].breadth):
            worker_slots = self.all_slots[number]
            if not self.reserved and not self._shares() and any(worker_slots.within(other) for other in done):
                continue  # a worker with at least these tasks and tenants left slots free
            granted = {one.id for one in self.reserved if one.granted_at is not None}
            capacity = self._capacity_now()
            before = before or capacity.copy()
            picks += self._claim(number, capacity, granted)
            if self.all_slots[number].left > 0:
                done.append(worker_slots)
        return before or self._capacity_now(), picks

    def _shares(self) -> bool:
        """Returns True if stages run: a later claim may join a lane that an earlier left."""
        return bool(self.view.members) or any(one.stage is not None for one in self.taken)

    def _capacity_now(self) -> Capacity:
        capacity = select.open_capacity(self, grant=True)
        if not self.taken:
            self.shut = shut_targets(select.closing(self, self.reserved), self.view.target_streaks)
        return capacity

    def _claim(self, number: int, capacity: Capacity, granted: Collection[int]) -> list[Pick]:
        worker_slots = self.all_slots[number]
        picks = select.pick_open(
            self, capacity, worker_slots.tasks.__contains__, worker_slots.left, worker_slots.serves
        )
        self.all_slots[number] = replace(worker_slots, left=worker_slots.left - len(picks))
        for one in self.reserved:
            if one.granted_at is not None and one.id not in granted:
                self._count(one)
        self._happen(picks)
        return picks

    def _count(self, one: Active) -> None:
        """Counts another direct call in a row on lanes and targets that a job waits for."""
        streaks, target_streaks = self.view.streaks, self.view.target_streaks
        for lane in one.reserved.lanes:
            streaks[lane] = streaks.get(lane, 0) + 1 if lane in self.waited[0] else 0
        if one.target_id is not None:
            count = target_streaks.get(one.target_id, 0) + 1 if one.target_id in self.waited[1] else 0
            target_streaks[one.target_id] = count

    def _happen(self, picks: Sequence[Pick]) -> None:
        self.hidden |= {one.job_id for one in picks}
        self.taken += picks
        self.turned |= last_turns(picks)
        for one in picks:
            for lane in one.bucket.lanes:
                self.view.streaks.pop(lane, None)
        for job in self._jobs([one.job_id for one in picks if one.bucket.on_target]).values():
            assert job.target_id is not None
            self.taken_targets.add(job.target_id)
            self.view.target_streaks.pop(job.target_id, None)
