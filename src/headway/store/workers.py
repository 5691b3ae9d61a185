"""Stores workers: registration, lease, and processes left by dead workers."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from headway.clock import micros
from headway.model.event import NewEvent
from headway.model.jobs.job import SYSTEM, Actor
from headway.model.jobs.states import StopRequest
from headway.store import events
from headway.store.db import Tx


@dataclass(frozen=True, slots=True)
class Identity:
    """A worker's identity: random number, host and process of its incarnation."""

    id: int
    host: str
    boot: str
    pid: int
    process_start: int


@dataclass(frozen=True, slots=True)
class SeenWorker:
    """A worker's row at one moment, as an observer reads it."""

    identity: Identity
    beat: int
    lease_until: int
    lease: float
    now: int


Known = tuple[str, int, str]  # a task's name, its priority, its options as text


def served_tenants(stored: str | None) -> frozenset[int] | None:
    """Returns the tenants that a worker serves, from its row; None means all."""
    return None if stored is None else frozenset(json.loads(stored))


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
    tenants: Collection[int] | None = None,
    kind: str = "worker",
) -> None:
    """Registers a worker once, with its tasks and their options, and the tenants that it serves (None means all).

    A worker of the kind `caller` makes direct calls only.
    """
    made = tx.run(
        "add_worker",
        id=who.id,
        host=who.host,
        boot=who.boot,
        pid=who.pid,
        process_start=who.process_start,
        slots=slots,
        tasks=json.dumps(list(tasks)),
        tenants=None if tenants is None else json.dumps(sorted(tenants)),
        kind=kind,
        lease=micros(lease),
    )
    if not made:
        return
    facts: dict[str, object] = {"host": who.host, "pid": who.pid}
    if kind == "worker":
        facts |= {"slots": slots} if tenants is None else {"slots": slots, "tenants": sorted(tenants)}
    _record(tx, who.id, 1, f"{kind}.started", actor, facts)
    described = {name: (name, priority, options) for name, priority, options in known}
    if tasks:
        tx.run("know_tasks", rows=json.dumps([described.get(task, (task, 0, "{}")) for task in tasks]))


def _record(tx: Tx, worker_id: int, version: int, kind: str, actor: Actor, data: dict[str, object]) -> None:
    event = NewEvent(
        kind, actor, tenant_id=0, thing="worker", thing_id=worker_id, version=version, data=json.dumps(data)
    )
    events.record(tx, event)


def beat(tx: Tx, worker_id: int, lease: float) -> bool:
    """Renews all claims of a worker.

    Returns False if the worker was given up; its work must stop.
    """
    return bool(tx.run("beat", id=worker_id, lease=micros(lease)))


def lives(tx: Tx, worker_id: int) -> bool:
    """Returns True if the worker is registered and was not given up."""
    return any(gone_at is None for *_, gone_at in tx.run("worker", id=worker_id))


def stop_requests(tx: Tx, worker_id: int) -> list[tuple[int, int, StopRequest]]:
    """Returns the stop requests for a worker's jobs as (job id, fence, kind)."""
    return [(job_id, fence, StopRequest(stop)) for job_id, fence, stop in tx.run("stop_requests", worker_id=worker_id)]


def held(tx: Tx, worker_id: int) -> list[tuple[int, int]]:
    """Returns what a worker holds: jobs with their fences, reservations with 0."""
    return [(number, fence) for number, fence in tx.run("held", worker_id=worker_id)]


def set_state(tx: Tx, worker_id: int, state: str, actor: Actor) -> None:
    for (version,) in tx.run("set_worker_state", id=worker_id, state=state):
        _record(tx, worker_id, version, f"worker.{state}", actor, {})


def set_note(tx: Tx, worker_id: int, note: str | None, actor: Actor) -> None:
    """Records why a worker takes no jobs; None records that it takes jobs again."""
    for (version,) in tx.run("set_worker_note", id=worker_id, note=note):
        kind = "worker.live" if note is None else "worker.paused"
        _record(tx, worker_id, version, kind, actor, {} if note is None else {"why": note})


def record_end(tx: Tx, worker_id: int, note: str) -> None:
    """Records why a worker's process ended, also after it was given up."""
    for (version,) in tx.run("note_worker_end", id=worker_id, note=note):
        _record(tx, worker_id, version, "worker.ended", SYSTEM, {"why": note})


def live(tx: Tx) -> list[SeenWorker]:
    return [
        SeenWorker(Identity(worker_id, host, boot, pid, start), count, until, length / 1e6, now)
        for worker_id, host, boot, pid, start, count, until, length, now in tx.run("live_workers")
    ]


def retire(tx: Tx, worker_id: int, why: str, *, quiet_since_beat: int | None = None, actor: Actor = SYSTEM) -> bool:
    """Gives a worker up. Returns False if it was given up before.

    With `quiet_since_beat`, only if the worker sent no heartbeat since then.
    """
    if quiet_since_beat is None:
        found = tx.run("retire_worker", id=worker_id)
    else:
        found = tx.run("retire_quiet_worker", id=worker_id, beat=quiet_since_beat)
    for (version,) in found:
        _record(tx, worker_id, version, "worker.gone", actor, {"why": why})
    return bool(found)


def adopt(tx: Tx, worker_id: int, *, slot: int, tag: str, pid: int, process_start: int) -> None:
    tx.run("add_process", tag=tag, worker_id=worker_id, slot=slot, pid=pid, process_start=process_start)


def forget(tx: Tx, tags: Sequence[str]) -> None:
    """Deletes the records of processes that have ended."""
    tx.run("drop_processes", rows=json.dumps([(tag,) for tag in tags]))


def left_tags(tx: Tx, host: str, boot: str) -> list[tuple[str, int]]:
    """Returns processes that dead workers may have left, as (tag, worker id).

    Only workers of this boot of this host count.
    """
    return [(tag, worker_id) for tag, worker_id, its_boot in tx.run("left_processes", host=host) if its_boot == boot]
