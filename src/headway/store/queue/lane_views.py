"""Views of lanes: their load, reservations and waiting jobs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headway.model.queue.capacity import Bucket
from headway.store.db import Row, Tx
from headway.store.like import containing

# Upper bound of waiting jobs to count, because counting costs as much as the queue is long.
COUNTED = 20_000


@dataclass(frozen=True, slots=True)
class LaneView:
    """A lane as it is now.

    `running` and `reserved` count occupants of all tenants, `waiting` one tenant's jobs that are ready and need the
    lane. `at_least`: the count stopped at its bound. `shared`: the lane belongs to the installation.
    """

    id: int
    name: str
    kind: str
    limit: int | None
    running: int = 0
    reserved: int = 0
    waiting: int = 0
    at_least: bool = False
    shared: bool = True


def listed(tx: Tx, tenant_id: int) -> list[LaneView]:
    """Lists the lanes of the installation and of a tenant, by kind and name."""
    lanes = [row for row in tx.run("lanes") if row[1] in (0, tenant_id)]
    found = _lane_views(tx, tenant_id, lanes, [_bucket(row) for row in tx.run("all_buckets")])
    return sorted(found, key=lambda lane: (lane.kind, lane.name))


def listed_some(tx: Tx, tenant_id: int, kind: str, q: str, limit: int) -> tuple[list[LaneView], int]:
    """Lists the first lanes of a kind by name, and their total number.

    With `q`, only lanes whose names contain that text.
    """
    wanted = {"tenant_id": tenant_id, "kind": kind, "q": containing(q) if q else None}
    ((count,),) = tx.run("count_lanes", **wanted)
    own = [_bucket(row) for row in tx.run("buckets_of_tenant", tenant_id=tenant_id, limit=COUNTED)]
    busy = sorted({row[0] for row in tx.run("running_per_bucket")} - {bucket.id for bucket in own})
    others = [_bucket(row) for row in tx.run("buckets_by_id", ids=json.dumps(busy))] if busy else []
    return _lane_views(tx, tenant_id, tx.run("lanes_named", **wanted, limit=limit), own + others), int(count)


def _bucket(row: Row) -> Bucket:
    return Bucket(row[0], row[1], row[2], tuple(json.loads(row[3])))


def _lane_views(tx: Tx, tenant_id: int, lanes: Sequence[Row], buckets: Sequence[Bucket]) -> list[LaneView]:
    """Returns views of lanes.

    `buckets` are all of this tenant, and at least those of other tenants with running jobs.
    """
    tx.run("pin_plans")
    shown = {row[0] for row in lanes}
    own = [bucket.id for bucket in buckets if bucket.tenant_id == tenant_id and shown.intersection(bucket.lanes)]
    most = COUNTED // max(1, len(own))
    ready: dict[int, int] = dict(tx.run("ready_per_bucket", ids=json.dumps(own), most=most))
    running = _places_taken(tx, buckets, {n for n, _, kind, *_ in lanes if kind == "policy"})
    waiting = _per_lane(buckets, ready)
    more = _per_lane(buckets, {bucket_id: int(count >= most) for bucket_id, count in ready.items()})
    granted = [json.loads(row[2]) for row in tx.run("active_reservations") if row[4] is not None]
    reserved = Counter(lane for some in granted for lane in some)
    return [
        LaneView(n, name, kind, limit, running[n], reserved[n], waiting[n], more[n] > 0, owner == 0)
        for n, owner, kind, name, limit, _ in lanes
    ]


def _places_taken(tx: Tx, buckets: Iterable[Bucket], policy: Collection[int]) -> Counter[int]:
    """Counts the places that running jobs take in each lane.

    The members of a stage take one place together in a lane of the policy.
    """
    lanes_of = {bucket.id: bucket.lanes for bucket in buckets}
    found: Counter[int] = Counter()
    stages: set[tuple[int, int, int]] = set()
    for bucket_id, group_id, stage, count in tx.run("running_per_bucket"):
        for lane in lanes_of.get(bucket_id, ()):
            if group_id is not None and lane in policy:
                stages.add((lane, group_id, stage))
            else:
                found[lane] += count
    return found + Counter(lane for lane, _, _ in stages)


def _per_lane(buckets: Iterable[Bucket], counts: Mapping[int, int]) -> Counter[int]:
    found: Counter[int] = Counter()
    for bucket in buckets:
        for lane in bucket.lanes:
            found[lane] += counts.get(bucket.id, 0)
    return found
