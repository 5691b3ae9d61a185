"""Claims in the database: what is ready, what has room, taking jobs, and ending the commonest way."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from headway.model.job import Actor, Carried, Claim
from headway.model.lanes import GLOBAL, Bucket, Place, has_room, plan, room
from headway.store.db import Database, Row, Tx


class Buckets:
    """The interned buckets this process has met. Rows of `hw_bucket` never change, so they may be kept."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.by_id: dict[int, Bucket] = {}
        self.by_kind: dict[tuple[int, str], int] = {}

    def of(self, tenant_id: int, task: str) -> int:
        """The bucket of a task, made when it is met for the first time, in a transaction of its own."""
        found = self.by_kind.get((tenant_id, task))
        if found is None:
            found = self.database.transact("intern", lambda tx: self._intern(tx, tenant_id, task))
            self.by_kind[tenant_id, task] = found
        return found

    @staticmethod
    def _intern(tx: Tx, tenant_id: int, task: str) -> int:
        ((lane_id, _, _),) = tx.run("lane_by_name", tenant_id=0, kind="policy", name=GLOBAL)
        kind = {"tenant_id": tenant_id, "task": task, "lanes": json.dumps([lane_id])}
        found = tx.run("find_bucket", **kind)
        if not found:
            tx.run("add_bucket", **kind)
            found = tx.run("find_bucket", **kind)
        return int(found[0][0])

    def load(self, tx: Tx, ids: Collection[int]) -> list[Bucket]:
        unknown = [bucket_id for bucket_id in ids if bucket_id not in self.by_id]
        if unknown:
            for bucket_id, tenant_id, task, lanes in tx.run("buckets_by_id", ids=json.dumps(unknown)):
                self.by_id[bucket_id] = Bucket(bucket_id, tenant_id, task, tuple(json.loads(lanes)))
        return [self.by_id[bucket_id] for bucket_id in ids]


class View:
    """What a claim has to know before it looks at single jobs."""

    def __init__(self, answer: list[Row]) -> None:
        kinds: tuple[dict[int, int], ...] = ({}, {}, {}, {}, {}, {}, {})
        for kind, thing, number in answer:
            kinds[kind][thing] = number
        self.ready, self.capacity, self.running, self.paused = kinds[:4]
        self.now: int = kinds[6][0]
        instants = [kinds[4].get(0), kinds[5].get(0)]
        self.due: int | None = min((instant for instant in instants if instant is not None), default=None)

    @property
    def due_now(self) -> bool:
        """Whether a waiting time or an expiry has come."""
        return self.due is not None and self.due <= self.now


def look(tx: Tx) -> View:
    return View(tx.run("claim_view"))


def lock_and_look(tx: Tx) -> View:
    """Takes the lock that makes limits exact, in a statement of its own, then looks."""
    return View(tx.run_all(("claim_lock", {}), ("claim_view", {}))[1])


def pick(tx: Tx, view: View, buckets: Buckets, knows: Callable[[str], bool], count: int) -> list[int]:
    """The ids of the next jobs that may run, in queue order. The claim lock must be held."""
    waiting = [b for b in buckets.load(tx, view.ready) if b.tenant_id not in view.paused and knows(b.task)]
    if not waiting:
        return []
    rooms: dict[int, int] = {}
    if any(lane in view.capacity for bucket in waiting for lane in bucket.lanes):
        rooms = room(buckets.load(tx, view.running), view.capacity, view.running)
    open_buckets = [bucket for bucket in waiting if has_room(bucket, rooms)]
    return plan(count, open_buckets, rooms, _Places(tx, open_buckets, count).of) if open_buckets else []


class _Places:
    """The places of the open buckets, in order: a first chunk of each at once, more when they are asked for."""

    def __init__(self, tx: Tx, buckets: Sequence[Bucket], count: int) -> None:
        self.tx = tx
        self.chunk = count if len(buckets) == 1 else min(count, max(8, 2 * count // len(buckets)))
        self.first: dict[int, list[Place]] = {bucket.id: [] for bucket in buckets}
        if len(buckets) == 1:
            found = self._more(buckets[0].id, self.chunk, 0)
        else:
            found = sorted(tx.run("first_places", ids=json.dumps(list(self.first)), limit=self.chunk))
        for bucket_id, *place in found:
            self.first[bucket_id].append(tuple(place))

    def _more(self, bucket_id: int, limit: int, skip: int) -> list[Row]:
        return self.tx.run("bucket_places", bucket_id=bucket_id, limit=limit, skip=skip)

    def of(self, bucket: Bucket) -> Iterator[Place]:
        places, chunk, given = self.first[bucket.id], self.chunk, 0
        while places:
            yield from places
            given += len(places)
            if len(places) < chunk:
                return
            chunk *= 4
            places = [tuple(row[1:]) for row in self._more(bucket.id, chunk, given)]


def take(tx: Tx, worker_id: int, actor: Actor, picks: Sequence[int], slots: Sequence[int]) -> list[Claim]:
    """Makes the picked jobs RUNNING in the given slots, commits, and returns the claims in the order of the picks."""
    chosen = json.dumps(dict(zip(picks, slots, strict=False)))
    (answer,) = tx.run_all(("take", {"picks": chosen, "worker_id": worker_id, "actor": actor.text()}), commit=True)
    order = {job_id: n for n, job_id in enumerate(picks)}
    return sorted(map(Claim._make, answer), key=lambda claim: order[claim.job_id])


def own(tx: Tx, worker_id: int) -> list[Claim]:
    """What the database says this worker holds."""
    return [Claim._make(row) for row in tx.run("own_claims", worker_id=worker_id)]


def carried(tx: Tx, ids: Sequence[int]) -> dict[int, Carried]:
    """What earlier claims and jobs of the chain left for these jobs."""
    found = tx.run("carried", ids=json.dumps(list(ids)))
    return {job_id: Carried(checkpoint, json.loads(spent) if spent else {}) for job_id, checkpoint, spent in found}


def complete(tx: Tx, worker_id: int, actor: Actor, ended: Mapping[int, int], results: Mapping[int, str]) -> set[int]:
    """Ends many jobs as COMPLETED: {id: fence}, and their results. Returns the ids that landed."""
    answer = tx.run("complete", ended=json.dumps(ended), worker_id=worker_id, actor=actor.text())
    landed = {job_id for (job_id,) in answer}
    kept = [(job_id, body) for job_id, body in results.items() if job_id in landed]
    if kept:
        tx.run("save_results", rows=json.dumps(kept))
    return landed


def promote(tx: Tx, actor: Actor) -> int:
    """Moves what is due: SCHEDULED to QUEUED, expired to SKIPPED. Returns how many."""
    return len(tx.run("promote", actor=actor.text())) + len(tx.run("expire", actor=actor.text()))


def record_stuck(tx: Tx, tenant_id: int, claim: Claim, version: int, actor: Actor) -> None:
    event = (tenant_id, "job", claim.job_id, version, "job.not_stopping", 3, actor.text(), claim.fence, None)
    tx.run("add_events", rows=json.dumps([event]))
