"""Workers in the database: their registration, lease, processes, and the jobs a dead one leaves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from headway.clock import micros
from headway.model.job import SYSTEM, Actor
from headway.model.states import Stop
from headway.store.db import Tx


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a worker is: an incarnation with a random number, on a host, as a process."""

    id: int
    host: str
    boot: str
    pid: int
    process_start: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A worker as an observer sees it at one moment."""

    identity: Identity
    beat: int
    lease_until: int
    lease: float
    now: int


Known = tuple[str, int, str]  # a task's name, its priority, its options as text


def worker_name(worker_id: int) -> str:
    return f"{worker_id:x}"


def register(
    tx: Tx,
    who: Identity,
    actor: Actor,
    *,
    slots: int,
    tasks: Sequence[str],
    lease: float,
    known: Sequence[Known] = (),
    kind: str = "worker",
) -> None:
    """Makes a worker known, and the tasks it has with their own options. A `caller` makes direct calls only."""
    tx.run(
        "add_worker",
        id=who.id,
        host=who.host,
        boot=who.boot,
        pid=who.pid,
        process_start=who.process_start,
        slots=slots,
        tasks=json.dumps(list(tasks)),
        kind=kind,
        lease=micros(lease),
    )
    facts: dict[str, object] = {"host": who.host, "pid": who.pid}
    _record(tx, who.id, 1, f"{kind}.started", actor, {**facts, "slots": slots} if kind == "worker" else facts)
    told = {name: (name, priority, options) for name, priority, options in known}
    if tasks:
        tx.run("know_tasks", rows=json.dumps([told.get(task, (task, 0, "{}")) for task in tasks]))


def _record(tx: Tx, worker_id: int, version: int, kind: str, actor: Actor, data: dict[str, object]) -> None:
    event = (0, "worker", worker_id, version, kind, None, actor.text(), None, json.dumps(data))
    tx.run("add_events", rows=json.dumps([event]))


def beat(tx: Tx, worker_id: int, lease: float) -> bool:
    """Renews all claims of a worker. False: it was given up, and its work must stop."""
    return bool(tx.run("beat", id=worker_id, lease=micros(lease)))


def lives(tx: Tx, worker_id: int) -> bool:
    """Whether nobody has given it up."""
    return any(gone_at is None for *_, gone_at in tx.run("worker", id=worker_id))


def stop_requests(tx: Tx, worker_id: int) -> list[tuple[int, int, Stop]]:
    """Which of its jobs a worker is asked to stop: (job id, fence, how)."""
    return [(job_id, fence, Stop(stop)) for job_id, fence, stop in tx.run("stop_requests", worker_id=worker_id)]


def set_state(tx: Tx, worker_id: int, state: str, actor: Actor) -> None:
    for (version,) in tx.run("set_worker_state", id=worker_id, state=state):
        _record(tx, worker_id, version, f"worker.{state}", actor, {})


def live(tx: Tx) -> list[Seen]:
    return [
        Seen(Identity(worker_id, host, boot, pid, start), count, until, length / 1e6, now)
        for worker_id, host, boot, pid, start, count, until, length, now in tx.run("live_workers")
    ]


def retire(tx: Tx, worker_id: int, why: str, *, quiet_since_beat: int | None = None, actor: Actor = SYSTEM) -> bool:
    """Gives a worker up. With `quiet_since_beat`, only if it has not beaten since."""
    if quiet_since_beat is None:
        found = tx.run("retire_worker", id=worker_id)
    else:
        found = tx.run("retire_quiet_worker", id=worker_id, beat=quiet_since_beat)
    for (version,) in found:
        _record(tx, worker_id, version, "worker.gone", actor, {"why": why})
    return bool(found)


def adopt(tx: Tx, worker_id: int, *, slot: int, tag: str, pid: int, process_start: int) -> None:
    tx.run("add_process", tag=tag, worker_id=worker_id, slot=slot, pid=pid, process_start=process_start)


def left_tags(tx: Tx, host: str, boot: str) -> list[tuple[str, int]]:
    """Processes that dead workers of this boot of this host may have left: (tag, worker id)."""
    return [(tag, worker_id) for tag, worker_id, its_boot in tx.run("left_processes", host=host) if its_boot == boot]
