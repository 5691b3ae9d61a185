"""What a claim reads: what is ready, running and paused at a glance, then the places of jobs as it asks for them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from headway.model.lanes import Bucket, Place, Stage
from headway.model.picking import Aged, Others
from headway.store.db import Call, Row, Tx

_FIRST, NEVER = -(1 << 63), (1 << 63) - 1
# Of jobs that are not for this worker, mostly the first tells all.
FEW = 2
NOTHING: Mapping[Likely, list[Row]] = {}


class Likely(NamedTuple):
    """The first so many places of one bucket, asked for before it is known whether they are needed."""

    bucket_id: int
    most: int


class View:
    """What a claim has to know before it looks at single jobs. `first`: places that were asked for with it."""

    def __init__(self, answer: list[Row], first: Mapping[Likely, list[Row]] = NOTHING) -> None:
        self.first = first
        things: tuple[dict[int, int], ...] = ({}, {}, {}, {}, {}, {}, {})
        facts: list[int | None] = [None] * 6
        # The limited lanes of the policy, and how many of each stage run in each bucket.
        self.policy: set[int] = set()
        self.members: dict[tuple[int, Stage], int] = {}
        for kind, thing, number, group, stage in answer:
            if kind > 6:
                facts[kind - 7] = number
            elif group is None:
                things[kind][thing] = number
            elif kind == 1:
                self.policy.add(thing)
                things[1][thing] = number
            else:
                self.members[thing, (group, stage)] = number
        self.ready, self.capacity, self.running, self.paused, self.streaks, self.target_streaks, self.limits = things
        for (bucket_id, _), count in self.members.items():
            self.running[bucket_id] = self.running.get(bucket_id, 0) + count
        now, version, touched, expires, *instants = facts
        self.now: int = now or 0
        self.version: int = version or 0
        self.touched: bool = touched is not None
        self.reservations: bool = expires is not None
        # Jobs that are open and no longer first on their target: somebody had them in hand when they were to be closed.
        self.barred: set[int] = set()
        # Jobs that were picked and not taken: somebody had them in hand.
        self.missed: set[int] = set()
        known = [i for i in (expires, *instants, *self.paused.values()) if i is not None and i < NEVER]
        self.due: int | None = min(known) if known else None

    @property
    def due_now(self) -> bool:
        """Whether a waiting time, an expiry or the end of a reservation has come."""
        return self.due is not None and self.due <= self.now


def look(tx: Tx, *before: Call, likely: Likely | None = None) -> View:
    """In the round trip of what has to be done before."""
    if likely is None:
        return View(tx.run_all(*before, ("claim_view", {}))[-1])
    *_, answer, rows = tx.run_all(*before, ("claim_view", {}), ("first_of_bucket", _places(*likely)))
    return View(answer, {likely: rows})


def _places(bucket_id: int, limit: int) -> dict[str, object]:
    return {"bucket_id": bucket_id, "limit": limit}


def glance(tx: Tx) -> View:
    """A look in a transaction of its own, with the plans of a claim."""
    return look(tx, ("pin_plans", {}))


class Places:
    """The places of the open buckets, in order: a first chunk of each at once, more when they are asked for. Those of
    others only when one of them is asked for."""

    def __init__(self, tx: Tx, view: View, buckets: Sequence[Bucket], count: int, others: Others) -> None:
        self.tx, self.view, self.others = tx, view, others
        self.chunk = count if len(buckets) == 1 else min(count, max(2, 2 * count // len(buckets)))
        self.first = self._first_of([bucket.id for bucket in buckets], self.chunk)
        self.first_of_others: dict[int, list[Place]] = {}

    def _of_others(self) -> dict[int, list[Place]]:
        if not self.first_of_others:
            self.first_of_others = self._first_of([bucket.id for bucket in self.others()], FEW)
        return self.first_of_others

    def _first_of(self, ids: Sequence[int], chunk: int) -> dict[int, list[Place]]:
        if len(ids) == 1:
            rows = self.view.first.get(Likely(ids[0], chunk))
            rows = self.tx.run("first_of_bucket", **_places(ids[0], chunk)) if rows is None else rows
            return {ids[0]: [row[1:] for row in rows]}
        first: dict[int, list[Place]] = {bucket_id: [] for bucket_id in ids}
        for row in sorted(self.tx.run("first_places", ids=json.dumps(ids), limit=chunk)):
            first[row[0]].append(row[1:])
        return first

    def of(self, bucket: Bucket) -> Iterator[Place]:
        if bucket.id in self.first:
            places, chunk = self.first[bucket.id], self.chunk
        else:
            places, chunk = self._of_others()[bucket.id], FEW
        while places:
            yield from places
            if len(places) < chunk:
                return
            chunk *= 4
            places = [row[1:] for row in self._after(bucket.id, places[-1], chunk)]

    def _after(self, bucket_id: int, last: Place, limit: int) -> list[Row]:
        minus_priority, position, created_at, job_id, *_ = last
        after = {"priority": -minus_priority, "position": position, "created_at": created_at, "id": job_id}
        return self.tx.run("bucket_places", bucket_id=bucket_id, limit=limit, **after)


def levels_of(tx: Tx, buckets: Collection[Bucket]) -> dict[int, list[tuple[Bucket, Iterator[Aged]]]]:
    """The priorities of the open buckets, each with its jobs in order."""
    by_id = {bucket.id: bucket for bucket in buckets}
    levels: dict[int, list[tuple[Bucket, Iterator[Aged]]]] = {}
    for bucket_id, priority in tx.run("bucket_levels", ids=json.dumps(list(by_id))):
        levels.setdefault(priority, []).append((by_id[bucket_id], _level(tx, bucket_id, priority)))
    return levels


def _level(tx: Tx, bucket_id: int, priority: int) -> Iterator[Aged]:
    last: Aged = (_FIRST, 0, 0, 0, None, None)
    chunk = 8
    while True:
        after = {"position": last[0], "created_at": last[1], "id": last[2]}
        found = tx.run("level_places", bucket_id=bucket_id, priority=priority, limit=chunk, **after)
        yield from found
        if len(found) < chunk:
            return
        last, chunk = found[-1], chunk * 4
