"""Stores concurrency settings, lanes, buckets (kinds of work) and targets."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict

from headway.errors import BadInput, NotFound
from headway.model.event import NewEvent
from headway.model.explain.snapshot import Pause
from headway.model.jobs.job import SYSTEM, Actor
from headway.model.queue.capacity import Bucket
from headway.model.queue.policies import GLOBAL, Concurrency
from headway.model.values.suggestions import closest
from headway.store import events
from headway.store.db import Database, Row, Tx
from headway.store.webhooks.outbox import expect_job_hooks

log = logging.getLogger("headway")
REFRESH_SECONDS = 5.0
SETTING = "concurrency"
# The setting has no number of its own; its events belong to the installation.
SETTING_ID = 0

BucketKey = tuple[int, str, tuple[str, ...], bool]  # tenant, task, resources, on a target


def read_concurrency(tx: Tx) -> tuple[Concurrency, int]:
    """Returns the concurrency settings and their version, 0 before the first change."""
    found = tx.run("read_setting", name=SETTING)
    if not found:
        return Concurrency(), 0
    stored = json.loads(found[0][0])
    return Concurrency(**{**stored, "limits": tuple(sorted(stored["limits"].items()))}), int(found[0][1])


def save_concurrency(tx: Tx, requested: Concurrency, actor: Actor) -> None:
    """Stores the concurrency settings. The claim lock must be held."""
    value = {**asdict(requested), "limits": dict(requested.limits)}
    ((version,),) = tx.run("save_setting", name=SETTING, value=json.dumps(value))
    _record(tx, "concurrency", SETTING_ID, version, "concurrency.changed", actor, value)


def limits_version(tx: Tx, tenant_id: int) -> int:
    """Returns a number that grows with every change of the settings or limits.

    It covers the limits that a tenant sees. Versions never fall, and lanes are never deleted.
    """
    ((lanes,),) = tx.run("lane_versions", tenant_id=tenant_id)
    return read_concurrency(tx)[1] + int(lanes)


def _record(tx: Tx, thing: str, number: int, version: int, kind: str, actor: Actor, data: Mapping[str, object]) -> None:
    event = NewEvent(kind, actor, tenant_id=0, thing=thing, thing_id=number, version=version, data=json.dumps(data))
    events.record(tx, event)


# --- limits -------------------------------------------------------------------------------------------------------


def define(
    tx: Tx, *, tenant_id: int, kind: str, name: str, capacity: int | None, actor: Actor
) -> tuple[int, int | None]:
    """Returns number and capacity of a lane, created with this capacity if missing."""
    found = tx.run("lane_by_name", tenant_id=tenant_id, kind=kind, name=name)
    if not found:
        tx.run("claim_lock")
        for (lane_id,) in tx.run("add_lane", tenant_id=tenant_id, kind=kind, name=name, capacity=capacity):
            data = {"lane": name, "kind": kind, "capacity": capacity}
            _record(tx, "lane", lane_id, 1, "lane.created", actor, data)
        found = tx.run("lane_by_name", tenant_id=tenant_id, kind=kind, name=name)
    return int(found[0][0]), found[0][1]


def set_capacity(tx: Tx, lane_id: int, name: str, capacity: int | None, actor: Actor) -> None:
    """Changes a lane's limit. The claim lock must be held.

    A lowered limit stops no running job.
    """
    ((version,),) = tx.run("set_lane_capacity", id=lane_id, capacity=capacity)
    _record(tx, "lane", lane_id, version, "lane.changed", actor, {"lane": name, "capacity": capacity})
    tx.wake()


def resources(tx: Tx) -> dict[str, tuple[int, int]]:
    """Returns the resources as {name: (lane, capacity)}."""
    return {name: (lane, capacity) for lane, _, kind, name, capacity, _ in tx.run("lanes") if kind == "resource"}


def resource_lanes(tx: Tx, names: Sequence[str]) -> list[int]:
    found = [(name, tx.run("lane_by_name", tenant_id=0, kind="resource", name=name)) for name in names]
    for name, lane in found:
        if not lane:
            raise unknown_resource(name, list(resources(tx)))
    return [int(lane[0][0]) for _, lane in found]


def unknown_resource(name: str, known: Sequence[str]) -> BadInput:
    near = closest(name, known)
    hint = f"did you mean {near}?" if near else "define it first, in the settings: [resources]"
    return BadInput(f"no resource is named {name!r}", hint=hint, code="unknown_resource", field="resources")


def pauses(tx: Tx, tenant_id: int) -> tuple[Pause | None, Pause | None]:
    """Returns the pause of a tenant's queue, and the pause of all queues."""
    found = {owner: Pause(since, until, note) for owner, since, until, note in tx.run("pauses", tenant_id=tenant_id)}
    return found.get(tenant_id), found.get(0)


# --- what a process knows of lanes --------------------------------------------------------------------------------


class BucketCache:
    """The buckets and targets that this process has seen, with their policy.

    Rows of `hw_bucket` and names of targets never change, so they may be cached. The policy may change at any time: a
    claim compares its version, an enqueue reads it again after REFRESH_SECONDS. A job created under an older policy
    gets its new lanes before it is claimed.
    """

    def __init__(self, database: Database, *, resources: Mapping[str, int] | None = None) -> None:
        self.database = database.beyond()  # lanes are shared by all tenants
        self.defined = dict(resources or {})
        self.by_id: dict[int, Bucket] = {}
        self.by_kind: dict[BucketKey, int] = {}
        self.targets: dict[tuple[int, str], int] = {}
        self.concurrency = Concurrency()
        self.version = -1
        self.asked_at = float("-inf")
        self.current: dict[int, bool] = {}
        self.hooked = False

    # --- enqueueing ---

    def hook(self, options: str) -> None:
        """Arms the outbox before the first job with a `webhook_url` is created."""
        if not self.hooked and '"webhook_url"' in options:
            expect_job_hooks(self.database)
            self.hooked = True

    def of(self, tenant_id: int, task: str, resources: tuple[str, ...] = (), *, on_target: bool = False) -> int:
        """Returns the bucket of a kind of work.

        A new bucket is created in a transaction of its own.
        """
        if time.monotonic() - self.asked_at > REFRESH_SECONDS:
            self.refresh()
        kind = (tenant_id, task, resources, on_target)
        found = self.by_kind.get(kind)
        if found is None:
            version = self.version
            found = self.database.repeat("intern", lambda tx: self._intern(tx, kind))
            if self.version == version:  # otherwise the bucket may belong to an older policy
                self.by_kind[kind] = found
        return found

    def refresh(self) -> None:
        with self.database.read() as tx:
            self.adopt(*read_concurrency(tx))
        self.asked_at = time.monotonic()

    def adopt(self, concurrency: Concurrency, version: int) -> None:
        """Switches to this policy, if its version is another."""
        if version != self.version:
            self.concurrency, self.version = concurrency, version
            self.by_kind.clear()
            self.current.clear()

    def _intern(self, tx: Tx, kind: BucketKey) -> int:
        tenant_id, task, wanted, on_target = kind
        lanes = self._policy_lanes(tx, kind) + self._resource_lanes(tx, wanted)
        row = {"tenant_id": tenant_id, "task": task, "on_target": int(on_target), "lanes": json.dumps(sorted(lanes))}
        found = tx.run("find_bucket", **row)
        if not found:
            tx.run("add_bucket", **row)
            tx.made_bucket = True
            found = tx.run("find_bucket", **row)
        return int(found[0][0])

    def needed(
        self, tx: Tx, tenant_id: int, task: str | None, resources: Sequence[str], *, on_target: bool
    ) -> list[int]:
        """Returns the lanes of a direct call: those of a job of its task, as of now.

        Without a task (an external program) it needs only its resources; without a resource and a target too, the lanes
        that the policy gives to any task. The claim lock must be held.
        """
        self.adopt(*read_concurrency(tx))
        if task is None and not resources and not on_target:
            return sorted(self.policy_lane(tx, tenant_id, name) for name in self.concurrency.shared_lanes())
        policy = [] if task is None else self._policy_lanes(tx, (tenant_id, task, tuple(resources), on_target))
        return sorted({*policy, *self._resource_lanes(tx, resources)})

    def _policy_lanes(self, tx: Tx, kind: BucketKey) -> list[int]:
        tenant_id, task, wanted, on_target = kind
        names = self.concurrency.lanes(task, wanted, on_target=on_target)
        return [self.policy_lane(tx, tenant_id, name) for name in names]

    def policy_lane(self, tx: Tx, tenant_id: int, name: str) -> int:
        """Returns the number of a policy's lane.

        Task lanes belong to a tenant, the global lane to the installation.
        """
        owner = 0 if name == GLOBAL else tenant_id
        if not tx.run("lane_by_name", tenant_id=owner, kind="policy", name=name):
            tx.run("claim_lock")  # changes of limits need it too: a new lane gets the current limit
            self.adopt(*read_concurrency(tx))
        capacity = self.concurrency.capacity(name)
        return define(tx, tenant_id=owner, kind="policy", name=name, capacity=capacity, actor=SYSTEM)[0]

    def _resource_lanes(self, tx: Tx, wanted: Sequence[str]) -> list[int]:
        """Returns resource lanes, creating those that this process defines."""
        for name in wanted:
            if name in self.defined:
                define(tx, tenant_id=0, kind="resource", name=name, capacity=self.defined[name], actor=SYSTEM)
        return resource_lanes(tx, wanted)

    def target(self, tenant_id: int, name: str) -> int:
        """Returns the number of a target, which is created with its first job."""
        found = self.targets.get((tenant_id, name))
        if found is None:
            found = self.database.repeat("intern_target", lambda tx: add_target(tx, tenant_id, name))
            self.targets[tenant_id, name] = found
        return found

    # --- claiming ---

    def load(self, tx: Tx, ids: Collection[int]) -> list[Bucket]:
        known = self.by_id
        if unknown := [bucket_id for bucket_id in ids if bucket_id not in known]:
            # A bucket created in this transaction disappears if the transaction fails, and SQLite reuses its number:
            # not cached.
            known = dict(known) if tx.made_bucket else known
            for bucket_id, tenant_id, task, lanes, on_target in tx.run("buckets_by_id", ids=json.dumps(unknown)):
                known[bucket_id] = Bucket(bucket_id, tenant_id, task, tuple(json.loads(lanes)), bool(on_target))
        return list(map(known.__getitem__, ids))

    def stale(self, tx: Tx, version: int, ids: Collection[int]) -> list[Bucket]:
        """Returns the buckets whose lanes differ from the current policy's."""
        if version != self.version:
            self.adopt(*read_concurrency(tx))
        if all(map(self.current.get, ids)):  # the common case of every claim
            return []
        doubtful = [bucket_id for bucket_id in ids if not self.current.get(bucket_id)]
        known = _described(tx)
        found: list[Bucket] = []
        for bucket in self.load(tx, doubtful):
            policy = {known[lane][1] for lane in bucket.lanes if known[lane][0] == "policy"}
            try:
                wanted = self.concurrency.lanes(bucket.task, _resources(bucket, known), on_target=bucket.on_target)
            except BadInput as error:
                self._leave_to_others(bucket, error)
                continue
            if policy != set(wanted):
                found.append(bucket)
            if bucket.id in self.by_id:
                self.current[bucket.id] = policy == set(wanted)
        return found

    def _leave_to_others(self, bucket: Bucket, error: BadInput) -> None:
        """Marks a bucket whose policy this process cannot import.

        Its queued jobs are left to workers that can; its running jobs still end here.
        """
        if self.current.get(bucket.id) is None:
            log.warning("jobs of %s are left to other workers: %s", bucket.task, error)
        self.current[bucket.id] = False

    def relane(self, tx: Tx, bucket: Bucket, actor: Actor, *, everything: bool = False) -> int:
        """Moves a bucket's ready jobs to the bucket of the current policy.

        With `everything`, all unclaimed jobs. Returns how many.
        """
        resources = _resources(bucket, _described(tx))
        to_id = self._intern(tx, (bucket.tenant_id, bucket.task, resources, bucket.on_target))
        if everything:
            moved = tx.run("move_bucket", from_id=bucket.id, to_id=to_id)
        else:
            ids = [job_id for (job_id,) in tx.run("ready_of_bucket", bucket_id=bucket.id)]
            moved = tx.run("move_ready", ids=json.dumps(ids), to_id=to_id) if ids else []
        _record_moves(tx, moved, bucket.id, to_id, actor)
        return len(moved)


def _described(tx: Tx) -> dict[int, tuple[str, str]]:
    """Returns kind and name of every lane."""
    return {lane: (kind, name) for lane, _, kind, name, *_ in tx.run("lanes")}


def _resources(bucket: Bucket, known: Mapping[int, tuple[str, str]]) -> tuple[str, ...]:
    return tuple(sorted(known[lane][1] for lane in bucket.lanes if known[lane][0] == "resource"))


def _record_moves(tx: Tx, rows: Sequence[Row], from_id: int, to_id: int, actor: Actor) -> None:
    data = json.dumps({"from": from_id, "to": to_id})
    moves = [
        NewEvent("job.relaned", actor, tenant_id=tenant_id, thing_id=job_id, version=version, status=status, data=data)
        for job_id, tenant_id, version, status in rows
    ]
    events.record(tx, *moves)


def relane_all(tx: Tx, lanes: BucketCache, actor: Actor) -> int:
    """Gives every unclaimed job the lanes of a newly adopted policy.

    The claim lock must be held.
    """
    concurrency, version = read_concurrency(tx)
    lanes.adopt(concurrency, version)
    _relane_waiting(tx, lanes, actor)
    every = [row[0] for row in tx.run("all_buckets")]
    return sum(lanes.relane(tx, bucket, actor, everything=True) for bucket in lanes.stale(tx, version, every))


def _relane_waiting(tx: Tx, lanes: BucketCache, actor: Actor) -> None:
    """Gives waiting reservations the lanes of the new policy.

    A granted reservation keeps its lanes, as a running job does. A reservation of the policy's lane is left without a
    lane by a policy that has none for all tasks, and is granted at once.
    """
    known = _described(tx)
    for number, tenant_id, task, held, target_id in tx.run("waiting_reservations"):
        resources = sorted(known[lane][1] for lane in json.loads(held) if known[lane][0] == "resource")
        if task is None and (resources or target_id is not None):
            continue  # it reserves nothing of the policy
        try:
            wanted = lanes.needed(tx, tenant_id, task, resources, on_target=target_id is not None)
        except BadInput as error:
            if error.code != "no_shared_lane":
                raise
            wanted = []  # nothing is left to wait for
        if wanted != json.loads(held):
            ((version,),) = tx.run("relane_reservation", id=number, lanes=json.dumps(wanted))
            data = json.dumps({"lanes": wanted})
            event = NewEvent(
                "reservation.relaned", actor, tenant_id=tenant_id, thing_id=number, version=version, data=data
            )
            events.record(tx, event)


def add_target(tx: Tx, tenant_id: int, name: str) -> int:
    found = tx.run("target_by_name", tenant_id=tenant_id, name=name)
    if not found:
        for (target_id,) in tx.run("add_target", tenant_id=tenant_id, name=name):
            event = NewEvent("target.created", SYSTEM, tenant_id=tenant_id, thing_id=target_id, version=1)
            events.record(tx, event)
        found = tx.run("target_by_name", tenant_id=tenant_id, name=name)
    return int(found[0][0])


def find_target(tx: Tx, tenant_id: int, name: str) -> Row:
    found = tx.run("target_by_name", tenant_id=tenant_id, name=name)
    if not found:
        some = [row[1] for row in tx.run("targets_after", tenant_id=tenant_id, after="", limit=1_000)]
        near = closest(name, some)
        hint = f"did you mean {near}?" if near else "a target is created with its first job"
        raise NotFound(f"there is no target {name!r}", hint=hint, code="unknown_target")
    return found[0]
