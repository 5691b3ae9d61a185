"""Stores targets: choosing first jobs, pausing, resuming, and their views."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from headway.errors import BadInput
from headway.model.event import NewEvent
from headway.model.jobs.job import Actor
from headway.model.jobs.states import State
from headway.model.queue.capacity import Queue, head
from headway.model.queue.target import TargetHolder, TargetState, TargetView, view
from headway.store import events
from headway.store.db import Row, Tx
from headway.store.paging import BUDGET, Page, check_limit, make_cursor, read_cursor
from headway.store.queue import reservations
from headway.store.queue.lanes import find_target


def choose_heads(tx: Tx, touched: Collection[int]) -> set[int]:
    """Opens the first job of each touched target and closes the others.

    The claim lock must be held. A job that another transaction has locked is left alone, and its target stays touched.
    Returns jobs that are still open for this reason alone.
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
    return close.keys() - closed


def _set(tx: Tx, statement: str, ids: Collection[int]) -> set[int]:
    return {job_id for (job_id,) in tx.run(statement, ids=json.dumps(sorted(ids)))}


def pause(tx: Tx, tenant_id: int, name: str, note: str | None, actor: Actor) -> int:
    """Pauses a target: running jobs go on, no further job starts."""
    return _set_pause(tx, tenant_id, name, "target.paused", actor, note=note)


def resume(tx: Tx, tenant_id: int, name: str, actor: Actor) -> int:
    return _set_pause(tx, tenant_id, name, "target.resumed", actor)


def _set_pause(tx: Tx, tenant_id: int, name: str, kind: str, actor: Actor, **facts: object) -> int:
    tx.run("claim_lock")
    target_id: int = find_target(tx, tenant_id, name)[0]
    for (version,) in tx.run("pause_target" if kind == "target.paused" else "resume_target", id=target_id, **facts):
        data = json.dumps({"name": name, **{fact: value for fact, value in facts.items() if value is not None}})
        event = NewEvent(kind, actor, tenant_id=tenant_id, thing_id=target_id, version=version, data=data)
        events.record(tx, event)
    tx.touch(target_id)
    tx.wake()
    return target_id


# --- reading ------------------------------------------------------------------------------------------------------


def names(tx: Tx, ids: Iterable[int | None]) -> dict[int, str]:
    """Returns the names of targets by number."""
    known = sorted({target_id for target_id in ids if target_id is not None})
    return {row[0]: row[1] for row in tx.run("targets_by_id", ids=json.dumps(known))} if known else {}


def listed(
    tx: Tx,
    tenant_id: int,
    *,
    states: Collection[TargetState] = (),
    limit: int = 50,
    cursor: str | None = None,
) -> Page[TargetView]:
    """Lists a tenant's targets by name.

    A page examines at most BUDGET targets and counts at most that many jobs.
    """
    check_limit(limit)
    tx.run("pin_plans")
    after = "" if cursor is None else _named(tx, read_cursor(cursor))
    found: list[TargetView] = []
    step, looked = limit + 1, 0
    while True:
        rows = tx.run("targets_after", tenant_id=tenant_id, after=after, limit=step)
        found += [one for one in _views(tx, rows) if not states or one.state in states]
        if len(found) > limit:
            return Page(with_waiting(tx, found[:limit]), make_cursor(found[limit - 1].id))
        if len(rows) < step:
            return Page(with_waiting(tx, found))
        looked, after = looked + step, rows[-1][1]
        if looked >= BUDGET:
            return Page(with_waiting(tx, found), make_cursor(rows[-1][0]))
        step = min(4 * step, BUDGET)


def _named(tx: Tx, target_id: int) -> str:
    found = names(tx, [target_id])
    if not found:
        raise BadInput("cursor is not valid", hint="list again without a cursor", field="cursor")
    return found[target_id]


def shown(tx: Tx, tenant_id: int, name: str) -> TargetView:
    """Returns the view of a target."""
    target_id, _, _, paused_at, note, _ = find_target(tx, tenant_id, name)
    tx.run("pin_plans")
    return with_waiting(tx, _views(tx, [(target_id, name, paused_at, note)]))[0]


def blocked(tx: Tx, tenant_id: int, limit: int = BUDGET) -> list[TargetView]:
    """Returns the first targets, by name, that are paused or held by a job."""
    tx.run("pin_plans")
    return _views(tx, tx.run("blocked_targets", tenant_id=tenant_id, most=BUDGET, limit=limit))


def count_blocked(tx: Tx, tenant_id: int) -> int:
    tx.run("pin_plans")
    ((count,),) = tx.run("count_blocked", tenant_id=tenant_id, most=BUDGET)
    return int(count)


def paused(tx: Tx, tenant_id: int, limit: int) -> tuple[list[TargetView], int]:
    """Returns the first paused targets by name, and the number of all of them."""
    tx.run("pin_plans")
    ((count,),) = tx.run("count_paused_targets", tenant_id=tenant_id)
    return _views(tx, tx.run("paused_targets", tenant_id=tenant_id, limit=limit)), int(count)


def known(tx: Tx, tenant_id: int, limit: int) -> list[str]:
    """Returns the first names of targets."""
    return [row[1] for row in tx.run("targets_after", tenant_id=tenant_id, after="", limit=limit)]


def _views(tx: Tx, rows: Sequence[Row]) -> list[TargetView]:
    """Returns views, with holders, of targets given as (id, name, paused, note)."""
    ids = json.dumps([row[0] for row in rows])
    answer = tx.run("target_holders", ids=ids) if rows else []
    holders = {target: TargetHolder(job, State(status), since, why) for target, job, status, since, why in answer}
    active = reservations.active(tx)
    direct = {one.target_id: (one.id, one.granted_at) for one in active if one.granted_at is not None}
    return [
        view(target, name, paused_at=paused_at, note=note, holder=holders.get(target), direct=direct.get(target))
        for target, name, paused_at, note in rows
    ]


def with_waiting(tx: Tx, found: Sequence[TargetView]) -> list[TargetView]:
    """Adds the number of jobs that wait behind each target."""
    if not found:
        return []
    most = BUDGET // len(found)
    counts: dict[int, int] = dict(tx.run("waiting_on_targets", ids=json.dumps([one.id for one in found]), most=most))
    return [replace(one, waiting=counts[one.id], at_least=counts[one.id] >= most) for one in found]
