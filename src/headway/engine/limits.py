"""The limit of the global lane: settings write it when no other worker lives, otherwise the database wins."""

from __future__ import annotations

import json
from dataclasses import dataclass

from headway.engine import processes
from headway.model.job import Actor
from headway.model.lanes import GLOBAL
from headway.store import reading
from headway.store.db import Database, Tx
from headway.store.reading import WorkerView


@dataclass(frozen=True, slots=True)
class Limit:
    """What holds from now on. `refused` says that the settings wished for another limit and did not get it."""

    capacity: int | None
    changed: bool = False
    refused: bool = False


def lives(worker: WorkerView) -> bool:
    """Has a lease and, as far as one can see from here, a process."""
    if not worker.has_lease:
        return False
    here = (worker.host, worker.boot) == (processes.host(), processes.boot_id())
    return not here or processes.alive(worker.pid, worker.process_start)


def living(tx: Tx) -> list[WorkerView]:
    return [worker for worker in reading.workers(tx, within=0.0) if lives(worker)]


def settle(database: Database, wished: int | None, *, actor: Actor, adopt: bool = False) -> Limit:
    """Brings the limit in the settings and the one in the database together."""
    return database.transact("limits", lambda tx: _settle(tx, wished, actor, adopt))


def _settle(tx: Tx, wished: int | None, actor: Actor, adopt: bool) -> Limit:
    tx.run("claim_lock")  # so that every claim was made either before the change or after it
    ((lane_id, stored, _),) = tx.run("lane_by_name", tenant_id=0, kind="policy", name=GLOBAL)
    if stored == wished:
        return Limit(stored)
    if not adopt and living(tx):
        return Limit(stored, refused=True)
    ((version,),) = tx.run("set_lane_capacity", id=lane_id, capacity=wished)
    data = json.dumps({"lane": lane_id, "capacity": wished})
    event = (0, "lane", lane_id, version, "lane.changed", None, actor.text(), None, data)
    tx.run("add_events", rows=json.dumps([event]))
    tx.wake()
    return Limit(wished, changed=True)
