"""Tenants in the database, and whether they get more jobs and schedules. Functions of a transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from headway.errors import BadInput, NotFound
from headway.model.job import Actor
from headway.model.tenant import Allowance, Tenant, Usage, inactive, over_limit
from headway.model.values import closest
from headway.store.db import Row, Tx

SUGGESTED_FROM = 1_000
# Counts for people stop here.
COUNTED = 10_000
Statement = Callable[..., list[Row]]  # runs one that it is given the name of


def find(tx: Tx, name: str) -> Tenant:
    found = tx.run("tenant_named", name=name)
    if not found:
        near = closest(name, [one.name for one in page(tx, limit=SUGGESTED_FROM)])
        hint = f"did you mean {near}?" if near else "headway tenants create makes one"
        raise NotFound(f"there is no tenant {name!r}: {hint}", code="unknown_tenant")
    return _tenant(found[0])


def by_id(tx: Tx, number: int) -> Tenant:
    found = tx.run("tenant_numbered", id=number)
    if not found:
        raise NotFound(f"there is no tenant {number}", code="unknown_tenant")
    return _tenant(found[0])


def page(tx: Tx, *, after: str = "", limit: int = 200) -> list[Tenant]:
    """In the order of their names, from one on."""
    return [_tenant(row) for row in tx.run("tenants_after", after=after, limit=limit)]


def several(tx: Tx) -> bool:
    """Whether there is more than one."""
    return len(page(tx, limit=2)) > 1


def usage(tx: Tx, tenant_id: int) -> Usage:
    """How much of what it may have it has."""
    ((queued,),) = tx.run("count_queued", tenant_id=tenant_id, most=COUNTED)
    ((running,),) = tx.run("count_running", tenant_id=tenant_id)
    ((schedules,),) = tx.run("count_schedules", tenant_id=tenant_id, most=COUNTED)
    return Usage(queued, running, schedules)


def lock(tx: Tx, name: str) -> Tenant:
    """A tenant as it is now; nobody changes it, and no claim is made, until this transaction ends."""
    tx.run("lock_tenant", id=find(tx, name).id)
    tx.run("claim_lock")  # so that every claim was made either before the change or after it
    return find(tx, name)


def insert(tx: Tx, name: str, allowance: Allowance, actor: Actor) -> Tenant:
    made = tx.run("add_tenant", name=name, **allowance.facts())
    if not made:
        raise BadInput(f"name: there is a tenant {name!r} already", code="name_taken", field="name")
    record(tx, int(made[0][0]), 1, "created", actor, {"name": name, **allowance.facts()})
    return find(tx, name)


def save(tx: Tx, tenant: Tenant, kind: str, actor: Actor, data: Mapping[str, object]) -> Tenant:
    """Stores a locked tenant as it is to be, with its event."""
    active, limits = int(tenant.active), tenant.allowance.facts()
    ((version,),) = tx.run("save_tenant", id=tenant.id, active=active, **limits)
    record(tx, tenant.id, version, kind, actor, data)
    return find(tx, tenant.name)


def record(tx: Tx, number: int, version: int, kind: str, actor: Actor, data: Mapping[str, object]) -> None:
    text = json.dumps(dict(data)) if data else None
    event = (number, "tenant", number, version, f"tenant.{kind}", None, actor.text(), None, text)
    tx.run("add_events", rows=json.dumps([event]))


def _tenant(row: Row) -> Tenant:
    number, name, created_at, active, queued, running, schedules, paused_at, paused_until, version = row
    allowance = Allowance(queued, running, schedules)
    return Tenant(number, name, created_at, bool(active), allowance, paused_at, paused_until, version)


# --- new jobs and schedules ---------------------------------------------------------------------------------------


@contextmanager
def admitting(run: Statement, tenant_id: int) -> Iterator[None]:
    """Around the making of jobs: refused for an inactive tenant, and where it would be more than may wait. The jobs of
    a tenant with a limit are made by one at a time, so that the count is exact; others lock nothing."""
    bound = _bound(run, tenant_id)
    if bound is not None:
        run("lock_tenant", id=tenant_id)
        bound = _bound(run, tenant_id)  # as it is now that nobody changes it
    yield
    if bound is not None:
        name, most = bound
        ((count,),) = run("count_queued", tenant_id=tenant_id, most=most + 1)
        if count > most:
            raise over_limit(name, "max_queued", most, "jobs that wait")


def _bound(run: Statement, tenant_id: int) -> tuple[str, int] | None:
    for _, name, active, most in run("tenant_bounds", ids=json.dumps([tenant_id])):
        if not active:
            raise inactive(name)
        return name, most
    return None


def check_active(run: Statement, tenant_id: int) -> None:
    _bound(run, tenant_id)


def vacancies(tx: Tx, ids: Collection[int]) -> dict[int, int | None]:
    """Those of these tenants that get no new jobs (None), or only so many more; the latter are locked."""
    bounds = tx.run("tenant_bounds", ids=json.dumps(sorted(ids)))
    found: dict[int, int | None] = {}
    for tenant_id, _, active, most in bounds:
        found[tenant_id] = None
        if active:
            tx.run("lock_tenant", id=tenant_id)
            ((count,),) = tx.run("count_queued", tenant_id=tenant_id, most=most)
            found[tenant_id] = most - count
    return found


def admit_schedule(tx: Tx, tenant_id: int) -> None:
    """Before one is made: refused where the tenant has as many as it may. Where there is a limit, one at a time."""
    if not tx.run("schedule_bound", id=tenant_id):
        return
    tx.run("lock_tenant", id=tenant_id)
    for name, most in tx.run("schedule_bound", id=tenant_id):
        ((count,),) = tx.run("count_schedules", tenant_id=tenant_id, most=most)
        if count >= most:
            raise over_limit(name, "max_schedules", most, "schedules")
