"""Tenants with one of everything, for tests of what each may see of the other."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from headway.engine.client.client import Client
from headway.model.groups.group import NewGroup
from headway.model.jobs.job import Claim
from headway.model.jobs.outcome import Completed, Outcome, StoppedByRequest
from headway.store import idempotency
from headway.store.db import Tx
from headway.store.groups import advance as groups
from headway.store.idempotency import Key
from headway.store.queue import targets
from tests.support import committed
from tests.support.life import BROKEN, FINAL, Life
from tests.support.plans import member
from tests.support.schedules import teach


@dataclass(frozen=True)
class Things:
    """What belongs to one tenant, by its numbers."""

    tenant: str
    queued: int
    done: int
    failed: int
    paused: int
    error: int
    running: int
    group: int
    failed_group: int
    schedule: int
    execution: int
    template: int
    target: str
    reservation: int
    token: int
    webhook: int
    delivery: int


def add_tenant(life: Life, name: str) -> Client:
    life.client.tenants.create(name)
    return life.client.sibling(life.client.actor, name)


def furnish(life: Life, client: Client) -> Things:
    """One of everything. Nothing is left that a later call would claim."""
    teach(life)
    life.set_limit(None)
    name = client.tenant
    hook = client.webhooks.create("https://example.org/hook", ["job.*"])
    made: dict[str, Outcome] = {"done": Completed('{"ok":true}'), "failed": FINAL}
    ends = {word: _run(life, client, outcome) for word, outcome in made.items()}
    _run(life, client, BROKEN)  # with a retry
    paused, error = _paused(life, client), _run(life, client, FINAL, target=f"desk of {name}")
    running = _claim(life, client.enqueue(life.new())[0]).job_id
    parallel = NewGroup("g", "parallel", "stop", (member(life, 0, "a"),))
    group, failed_group = client.groups.create(parallel), client.groups.create(parallel)
    for number in (group, failed_group):
        (job,) = _members(life, number)
        assert life.end(_claim(life, job), Completed() if number == group else FINAL)
    schedule = client.schedules.create(f"nightly of {name}", {"cron": "* * * * *", "steps": [{"task": "sync"}]})
    execution = client.schedules.run(schedule.id)
    client.schedules.disable(schedule.id)
    (job,) = _members(life, execution)
    assert life.end(_claim(life, job), Completed())
    template = client.templates.create("t", "sync")
    client.lanes.target(client.tenant_id, f"other desk of {name}")
    reservation = client.reserve(target=f"other desk of {name}")
    token, _ = client.tokens.create("ci", "viewer", tenant=name)
    delivery = client.webhooks.test(hook.id)
    _answer(life, client)
    for text in (
        f"insert into hw_tally (tenant_id, name, count) values ({client.tenant_id}, 'jobs', 0)",
        "insert into hw_try (delivery_id, number, tenant_id, at, took, message_id, digest, request)"
        f" values ({delivery.id}, 1, {client.tenant_id}, 1, 1, 'm', 'd', 'r')",
        "insert into hw_tick (tenant_id, schedule_id, nominal_at, until, count, outcome, reason, decided_at)"
        f" values ({client.tenant_id}, {schedule.id}, 60000000, 60000000, 1, 'SKIPPED', 'overlap', 60000000)",
        f"insert into hw_log (job_id, at, lines) values ({ends['done']}, 1, '[]')",
        f"insert into hw_artifact (job_id, name, size, sha256, path, at) values ({ends['done']}, 'a', 1, 'x', 'y', 1)",
        f"insert into hw_turn (tenant_id, turn) values ({client.tenant_id}, 1)",
        f"insert into hw_report (job_id, at) values ({ends['done']}, 1)",
        f"insert into hw_wait (job_id, fence, awaited_id) values ({ends['done']}, 1, {ends['failed']})",
    ):
        life.sql_write(text)
    client.webhooks.secret()
    queued, _ = client.enqueue(life.new(hold=True))
    return Things(
        tenant=name,
        queued=queued,
        done=ends["done"],
        failed=ends["failed"],
        paused=paused,
        error=error,
        running=running,
        group=group,
        failed_group=failed_group,
        schedule=schedule.id,
        execution=execution,
        template=template.id,
        target=f"desk of {name}",
        reservation=reservation.id,
        token=token.id,
        webhook=hook.id,
        delivery=delivery.id,
    )


def _claim(life: Life, job_id: int) -> Claim:
    """Without a look at the tenant that the test's own client is for."""
    slot = next(life.slots)

    def work(tx: Tx) -> list[Claim]:
        if touched := {target for (target,) in tx.run("take_touched")}:
            targets.choose_heads(tx, touched)
        return committed.take(tx, life.worker_id, life.actor(), [job_id], [slot])

    (claim,) = life.database.transact("claim", work)
    return claim


def _run(life: Life, client: Client, outcome: Outcome, **fields: Any) -> int:
    job_id, _ = client.enqueue(life.new(**fields))
    assert life.end(_claim(life, job_id), outcome)
    return job_id


def _paused(life: Life, client: Client) -> int:
    job_id, _ = client.enqueue(life.new())
    claim = _claim(life, job_id)
    client.interrupt(job_id)
    assert life.end(claim, StoppedByRequest())
    return job_id


def _members(life: Life, group_id: int) -> list[int]:
    with life.database.read() as tx:
        return [one.job_id for one in groups.members(tx, group_id)]


def _answer(life: Life, client: Client) -> None:
    key = Key(client.tenant_id, "POST /api/jobs", "k", "digest")

    def work(tx: Tx) -> None:
        assert idempotency.take(tx, key) is None
        tx.run("save_made", **key.place, made=json.dumps([1]))

    life.database.transact("answer", work)
