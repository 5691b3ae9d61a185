"""Reads what a claim needs: one overview, then the places of jobs on demand."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from headway.model.queue.capacity import Bucket
from headway.model.queue.place import AgedPlace, Place, Stage, aged_place_of, place_of
from headway.store.db import Call, Row, Tx

_FIRST, NEVER = -(1 << 63), (1 << 63) - 1
# Places to read of buckets that are not for this worker; the first mostly decides.
FEW = 2
NOTHING: Mapping[Likely, list[Row]] = {}


class Likely(NamedTuple):
    """The first places of a bucket, read ahead in case the claim needs them."""

    bucket_id: int
    most: int


class View:
    """The overview that a claim reads before single jobs.

    `first` are places that were read ahead with it.
    """

    def __init__(self, answer: list[Row], first: Mapping[Likely, list[Row]] = NOTHING) -> None:
        self.first = first
        self.ready: dict[int, int | None] = {}
        self.capacity: dict[int, int] = {}
        self.running: dict[int, int] = {}
        self.paused: dict[int, int | None] = {}
        self.streaks: dict[int, int] = {}
        self.target_streaks: dict[int, int] = {}
        self.limits: dict[int, int] = {}
        # The limited lanes of the policy, and the running members of each stage in each bucket.
        self.policy: set[int]
        self.members: dict[tuple[int, Stage], int] = {}
        facts = self._decode(answer)
        expires, due, expiry = facts["reservation_expiry"], facts["next_due"], facts["next_expiry"]
        self.now: int = facts["now"] or 0
        self.version: int = facts.get("policy_version") or 0
        self.touched: bool = facts["touched"] is not None
        self.reservations: bool = expires is not None
        # Jobs that are open and no longer first on their target: another transaction had them locked when they were to
        # close.
        self.barred: set[int] = set()
        known = [i for i in (expires, due, expiry, *self.paused.values()) if i is not None and i < NEVER]
        self.due: int | None = min(known) if known else None

    def _decode(self, answer: list[Row]) -> dict[str, int | None]:
        """Fills the tables from the rows of `claim_view`, and returns the rows that are single facts."""
        ready = self.ready
        policy: dict[int, int] = {}
        tables: dict[str, dict[int, Any]] = {
            "lane": self.capacity,
            "policy_lane": policy,
            "running": self.running,
            "paused": self.paused,
            "lane_streak": self.streaks,
            "target_streak": self.target_streaks,
            "tenant_limit": self.limits,
        }
        facts: dict[str, int | None] = {}
        for name, key, number, group_id, stage in answer:
            if name == "bucket":  # first, because there may be hundreds of them
                ready[key] = number
            elif key is None:
                facts[name] = number
            elif group_id is None:
                tables[name][key] = number
            else:
                self.members[key, (group_id, stage)] = number
        self.policy = set(policy)
        self.capacity |= policy
        for (bucket_id, _), count in self.members.items():
            self.running[bucket_id] = self.running.get(bucket_id, 0) + count
        return facts

    @property
    def due_now(self) -> bool:
        """Returns True if a scheduled time, an expiry or a reservation's end has come."""
        return self.due is not None and self.due <= self.now


def look(tx: Tx, *before: Call, likely: Likely | None = None) -> View:
    """Reads the overview in one round trip with the calls before it."""
    if likely is None:
        return View(tx.run_all(*before, ("claim_view", {}))[-1])
    *_, answer, rows = tx.run_all(*before, ("claim_view", {}), ("first_of_bucket", _places(*likely)))
    return View(answer, {likely: rows})


def _places(bucket_id: int, limit: int) -> dict[str, object]:
    return {"bucket_id": bucket_id, "limit": limit}


def glance(tx: Tx) -> View:
    """Reads the overview in a transaction of its own, with the plans of a claim."""
    return look(tx, ("pin_plans", {}))


class Places:
    """The places of the open buckets, in order.

    A first chunk of each bucket is read at once, more on demand. Places of other workers' buckets are read only on
    demand.
    """

    def __init__(self, tx: Tx, view: View, buckets: Sequence[Bucket], count: int, others: Sequence[Bucket]) -> None:
        self.tx, self.view, self.others = tx, view, others
        self.chunk = count if len(buckets) == 1 else min(count, max(2, 2 * count // len(buckets)))
        self.first = self._first_of([bucket.id for bucket in buckets], self.chunk)
        self.first_of_others: dict[int, list[Place]] = {}

    def _of_others(self) -> dict[int, list[Place]]:
        if not self.first_of_others:
            self.first_of_others = self._first_of([bucket.id for bucket in self.others], FEW)
        return self.first_of_others

    def _first_of(self, ids: Sequence[int], chunk: int) -> dict[int, list[Place]]:
        if len(ids) == 1:
            rows = self.view.first.get(Likely(ids[0], chunk))
            rows = self.tx.run("first_of_bucket", **_places(ids[0], chunk)) if rows is None else rows
            return {ids[0]: list(map(place_of, rows))}
        first: dict[int, list[Place]] = {bucket_id: [] for bucket_id in ids}
        for row in sorted(self.tx.run("first_places", ids=json.dumps(ids), limit=chunk)):
            first[row[0]].append(place_of(row[1:]))
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
            places = list(map(place_of, self._after(bucket.id, places[-1], chunk)))

    def _after(self, bucket_id: int, last: Place, limit: int) -> list[Row]:
        after = {"position": last.position, "created_at": last.created_at, "id": last.job_id}
        return self.tx.run("bucket_places", bucket_id=bucket_id, limit=limit, priority=-last.minus_priority, **after)


def levels_of(tx: Tx, buckets: Collection[Bucket]) -> dict[int, list[tuple[Bucket, Iterator[AgedPlace]]]]:
    """Returns the open buckets by priority, each with its jobs in order."""
    by_id = {bucket.id: bucket for bucket in buckets}
    levels: dict[int, list[tuple[Bucket, Iterator[AgedPlace]]]] = {}
    for bucket_id, priority in tx.run("bucket_levels", ids=json.dumps(list(by_id))):
        levels.setdefault(priority, []).append((by_id[bucket_id], _level(tx, bucket_id, priority)))
    return levels


def _level(tx: Tx, bucket_id: int, priority: int) -> Iterator[AgedPlace]:
    last = AgedPlace(_FIRST, 0, 0, 0)
    chunk = 8
    while True:
        after = {"position": last.position, "created_at": last.created_at, "id": last.job_id}
        rows = tx.run("level_places", bucket_id=bucket_id, priority=priority, limit=chunk, **after)
        found = list(map(aged_place_of, rows))
        yield from found
        if len(found) < chunk:
            return
        last, chunk = found[-1], chunk * 4
