"""Targets in the database: which job of each is first, pausing one, letting it go on."""

from __future__ import annotations

import json
from collections.abc import Collection

from headway.model.job import Actor
from headway.model.lanes import Queue, head
from headway.model.states import State
from headway.store.db import Tx
from headway.store.lanes import find_target


def choose_heads(tx: Tx, touched: Collection[int]) -> None:
    """Opens the first job of each of these targets and closes the others. The claim lock must be held.

    A job that somebody is changing right now is left as it is, and its target stays touched.
    """
    answer = tx.run("target_queues", ids=json.dumps(sorted(touched)))
    queues = [Queue(t, p is not None, h, s == State.QUEUED, first, o) for t, p, h, s, first, o in answer]
    chosen = {queue.target_id: head(queue) for queue in queues}
    close = {q.open: q.target_id for q in queues if q.open is not None and q.open != chosen[q.target_id]}
    closed = _set(tx, "close_gates", close) if close else set()
    skipped = {target for job_id, target in close.items() if job_id not in closed}
    wanted = {job_id: target for target, job_id in chosen.items() if job_id is not None and target not in skipped}
    ajar = {queue.open for queue in queues}
    opening = {job_id: target for job_id, target in wanted.items() if job_id not in ajar}
    opened = _set(tx, "open_gates", opening) if opening else set()
    skipped |= {target for job_id, target in opening.items() if job_id not in opened}
    if skipped:
        tx.run("touch", ids=json.dumps(sorted(skipped)))


def _set(tx: Tx, statement: str, ids: Collection[int]) -> set[int]:
    return {job_id for (job_id,) in tx.run(statement, ids=json.dumps(sorted(ids)))}


def pause(tx: Tx, tenant_id: int, name: str, note: str | None, actor: Actor) -> int:
    """Nothing more starts on it; what runs goes on."""
    return _change(tx, tenant_id, name, "target.paused", actor, note=note)


def resume(tx: Tx, tenant_id: int, name: str, actor: Actor) -> int:
    return _change(tx, tenant_id, name, "target.resumed", actor)


def _change(tx: Tx, tenant_id: int, name: str, kind: str, actor: Actor, **facts: object) -> int:
    tx.run("claim_lock")
    target_id: int = find_target(tx, tenant_id, name)[0]
    for (version,) in tx.run("pause_target" if kind == "target.paused" else "resume_target", id=target_id, **facts):
        data = json.dumps({"name": name, **{fact: value for fact, value in facts.items() if value is not None}})
        event = (tenant_id, "target", target_id, version, kind, None, actor.text(), None, data)
        tx.run("add_events", rows=json.dumps([event]))
    tx.touch(target_id)
    tx.wake()
    return target_id
