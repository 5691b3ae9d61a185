"""Sets policy, limits, capacities and aging.

A worker's settings are written only if no other worker is alive; otherwise the database wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headway.engine.execution import process_tree
from headway.errors import BadInput, NotFound, Refused, WrongState
from headway.model.access.permissions import may_set_limit
from headway.model.jobs.job import Actor
from headway.model.queue.policies import Concurrency, find
from headway.model.values.suggestions import closest
from headway.model.values.times import duration_text
from headway.store import worker_views
from headway.store.db import Database, Tx
from headway.store.queue import lanes
from headway.store.queue.lanes import BucketCache
from headway.store.worker_views import WorkerView

MOST = 1_000_000


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting that differs from the value in the database."""

    name: str
    stored: object
    requested: object

    def __str__(self) -> str:
        return f"{self.name} {shown(self.stored)}, not {shown(self.requested)}"


def shown(value: object) -> str:
    """Formats a limit, a policy name or a duration."""
    if isinstance(value, float):
        return duration_text(value)
    return "none" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class SettledLimits:
    """The differences that were stored, or refused because another worker is alive."""

    changed: tuple[Difference, ...] = ()
    refused: tuple[Difference, ...] = ()
    relaned: int = 0


def lives(worker: WorkerView) -> bool:
    """True if the worker has a lease and, on this host, a process."""
    if not worker.has_lease:
        return False
    here = (worker.host, worker.boot) == (process_tree.host(), process_tree.boot_id())
    return not here or process_tree.alive(worker.pid, worker.process_start)


def living(tx: Tx) -> list[WorkerView]:
    return [worker for worker in worker_views.workers(tx, within=0.0) if lives(worker)]


def settle(
    database: Database, requested: Concurrency, resources: Mapping[str, int], *, actor: Actor, adopt: bool = False
) -> SettledLimits:
    """Writes the settings to the database, unless another worker is alive.

    With `adopt` the settings are written in any case.
    """
    find(requested.policy)  # refuses an unknown policy before anything changes
    return database.transact("limits", lambda tx: _settle(tx, requested, resources, actor, adopt))


def _settle(tx: Tx, requested: Concurrency, resources: Mapping[str, int], actor: Actor, adopt: bool) -> SettledLimits:
    tx.run("claim_lock")  # every claim happens either before the change or after it
    for name, capacity in resources.items():
        lanes.define(tx, tenant_id=0, kind="resource", name=name, capacity=capacity, actor=actor)
    stored, _ = lanes.read_concurrency(tx)
    found = differences(tx, requested, resources)
    if not found:
        return SettledLimits()
    if not adopt and living(tx):
        return SettledLimits(refused=found)
    for lane_id, name, difference in _capacities(tx, requested, resources):
        lanes.set_capacity(tx, lane_id, name, requested_capacity(difference), actor)
    relaned = 0
    if stored != requested:
        lanes.save_concurrency(tx, requested, actor)
        relaned = lanes.relane_all(tx, BucketCache(tx.database), actor)
    tx.wake()
    return SettledLimits(changed=found, relaned=relaned)


def differences(tx: Tx, requested: Concurrency, resources: Mapping[str, int]) -> tuple[Difference, ...]:
    """Returns the settings that differ from the values in force."""
    stored, _ = lanes.read_concurrency(tx)
    found = (*_rules(stored, requested), *(difference for _, _, difference in _capacities(tx, requested, resources)))
    if found or stored == requested:
        return found
    # The difference is in limits of lanes that do not exist yet.
    if stored.limit != requested.limit:
        return (Difference("concurrency.limit", stored.limit, requested.limit),)
    return (Difference("concurrency.limits", dict(stored.limits), dict(requested.limits)),)


def requested_capacity(difference: Difference) -> int | None:
    assert difference.requested is None or isinstance(difference.requested, int)
    return difference.requested


def _rules(stored: Concurrency, requested: Concurrency) -> Iterator[Difference]:
    for name in ("policy", "targets", "aging"):
        was, will = getattr(stored, name), getattr(requested, name)
        if was != will:
            yield Difference(name if name == "aging" else f"concurrency.{name}", was, will)


def _capacities(tx: Tx, requested: Concurrency, resources: Mapping[str, int]) -> list[tuple[int, str, Difference]]:
    """Returns id, name and difference of each lane whose limit is not as configured."""
    found: list[tuple[int, str, Difference]] = []
    for lane_id, _, kind, name, capacity, _ in tx.run("lanes"):
        wanted = resources.get(name, capacity) if kind == "resource" else requested.capacity(name)
        if wanted != capacity:
            shown = f"the capacity of {name}" if kind == "resource" else f"the limit of {name}"
            found.append((lane_id, name, Difference(shown, capacity, wanted)))
    return found


def change(database: Database, name: str, capacity: int | None, *, tenant_id: int, actor: Actor) -> None:
    """Sets the limit of a resource, the global lane or a task lane at run time."""
    adjust(database, {name: capacity}, {}, tenant_id=tenant_id, actor=actor)


def adjust(
    database: Database,
    limits: Mapping[str, int | None],
    rules: Mapping[str, Any],
    *,
    tenant_id: int,
    actor: Actor,
    installation: bool = True,
    if_version: int | None = None,
) -> None:
    """Sets limits of lanes, and rules (policy, targets, aging), at run time.

    Without `installation` only the tenant's own lanes may change: rules, resources and the global lane are shared by
    all tenants.
    """
    for capacity in limits.values():
        if capacity is not None and not 1 <= capacity <= MOST:
            raise BadInput(f"a limit must be a whole number from 1, or none, not {capacity}", field="limit")
    if rules and not installation:
        raise _not_yours(", ".join(rules))
    _check_rules(rules)

    def work(tx: Tx) -> None:
        tx.run("claim_lock")
        _expect(tx, tenant_id, if_version)
        for name, capacity in limits.items():
            _set_limit(tx, name, capacity, tenant_id, actor, installation)
        stored, _ = lanes.read_concurrency(tx)
        requested = replace(stored, **rules)
        if requested != stored:
            lanes.save_concurrency(tx, requested, actor)
            lanes.relane_all(tx, BucketCache(tx.database), actor)
            tx.wake()

    database.transact("limits", work)


def _check_rules(rules: Mapping[str, Any]) -> None:
    if "policy" in rules:
        find(rules["policy"])
    if rules.get("aging") == 0:
        raise BadInput("aging must be more than 0, or none to turn it off", field="aging")
    if rules.get("targets", "own") not in ("own", "global"):
        raise BadInput("targets must be own or global", field="targets")


def _expect(tx: Tx, tenant_id: int, version: int | None) -> None:
    if version is not None and version != (found := lanes.limits_version(tx, tenant_id)):
        text = f"the limits have changed since they were read (version {found}, not {version}): read them again"
        raise WrongState(text, code="version_mismatch")


def _set_limit(tx: Tx, name: str, capacity: int | None, tenant_id: int, actor: Actor, installation: bool) -> None:
    found = [row for row in tx.run("lanes") if row[1] in (0, tenant_id)]
    known = {lane: (lane_id, owner, kind) for lane_id, owner, kind, lane, _, _ in found}
    lane = name if name in known else f"task:{name}"
    if lane not in known:
        near = closest(name, known)
        hint = f"did you mean {near}?" if near else "see `headway limits ls`, or name it in the settings"
        raise NotFound(f"there is no lane {name!r}", hint=hint, code="unknown_lane")
    lane_id, owner, kind = known[lane]
    if not may_set_limit(system=installation, shared=owner == 0):
        raise _not_yours(f"the limit of {name}")
    if kind == "resource" and capacity is None:
        raise BadInput(f"{name} is a resource: its capacity must be a number from 1", field="limit")
    lanes.set_capacity(tx, lane_id, lane, capacity, actor)


def _not_yours(what: str) -> Refused:
    return Refused(f"{what} is shared by all tenants: only a token of the system may change it", code="not_allowed")
