"""Pauses and resumes queues and targets, and releases the job that holds a target."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from headway.errors import WrongState
from headway.model.event import NewEvent
from headway.model.jobs.job import JobRecord
from headway.model.jobs.states import State
from headway.model.values.json import check_note
from headway.store import events
from headway.store.db import Tx
from headway.store.queue import targets
from headway.store.queue.lanes import find_target

if TYPE_CHECKING:
    from headway.engine.client.client import Client


def pause_queue(client: Client, *, note: str | None, until: int | None, everybody: bool) -> None:
    facts: dict[str, object] = {"note": check_note(note), "until": until}
    _tenant_event(client, 0 if everybody else client.tenant_id, "pause_tenant", "tenant.paused", facts)


def resume_queue(client: Client, *, everybody: bool) -> None:
    _tenant_event(client, 0 if everybody else client.tenant_id, "resume_tenant", "tenant.resumed", {})


def _tenant_event(client: Client, tenant_id: int, statement: str, kind: str, facts: dict[str, object]) -> None:
    def work(tx: Tx) -> None:
        tx.run("lock_tenant", id=tenant_id)
        tx.run("claim_lock")  # every claim happens either before the pause or after it
        ((version,),) = tx.run(statement, id=tenant_id, **facts)
        data = json.dumps({name: fact for name, fact in facts.items() if fact is not None})
        event = NewEvent(
            kind, client.actor, tenant_id=tenant_id, thing="tenant", thing_id=tenant_id, version=version, data=data
        )
        events.record(tx, event)
        tx.wake()

    database = client.database if tenant_id else client.database.beyond()
    client.transact(kind.replace(".", "_"), work, database=database)


def pause_target(client: Client, name: str, *, note: str | None) -> None:
    client.transact(
        "target_paused", lambda tx: targets.pause(tx, client.tenant_id, name, check_note(note), client.actor)
    )


def resume_target(client: Client, name: str) -> None:
    client.transact("target_resumed", lambda tx: targets.resume(tx, client.tenant_id, name, client.actor))


def release_target(client: Client, name: str) -> JobRecord:
    with client.database.read() as tx:
        target_id = find_target(tx, client.tenant_id, name)[0]
        ((_, _, holder, status, _, _),) = tx.run("target_queues", ids=json.dumps([target_id]))
    if holder is None:
        raise WrongState(f"no job holds the target {name!r}: there is nothing to release", status="free")
    if status not in (State.PAUSED, State.ERROR):
        word, verbs_left = State(status).name, "cancel" if status == State.QUEUED else "interrupt or cancel"
        raise WrongState(f"job {holder} on {name!r} is {word}: {verbs_left} it instead", status=word)
    return client.release(holder)
