"""Stores tenants, and enforces their limits on new jobs and schedules."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from headway.errors import BadInput, NotFound
from headway.model.access.tenants import DEFAULT, Allowance, Tenant, Usage, inactive, over_limit
from headway.model.event import NewEvent
from headway.model.jobs.job import Actor
from headway.model.values.suggestions import closest
from headway.store import events
from headway.store.db import Row, Tx

SUGGESTED_FROM = 1_000
# Upper bound of a count for display.
COUNTED = 10_000
Statement = Callable[..., list[Row]]  # runs a statement by its name


def find(tx: Tx, name: str) -> Tenant:
    found = tx.run("tenant_named", name=name)
    if not found:
        near = closest(name, [tenant.name for tenant in page(tx, limit=SUGGESTED_FROM)])
        hint = f"did you mean {near}?" if near else "create it with `headway tenants create`"
        raise NotFound(f"there is no tenant {name!r}", hint=hint, code="unknown_tenant")
    return _tenant(found[0])


def by_id(tx: Tx, number: int) -> Tenant:
    found = tx.run("tenant_numbered", id=number)
    if not found:
        raise NotFound(f"there is no tenant {number}", noun="tenant", code="unknown_tenant")
    return _tenant(found[0])


def page(tx: Tx, *, after: str = "", limit: int = 200) -> list[Tenant]:
    """Lists tenants by name, after a given name."""
    return [_tenant(row) for row in tx.run("tenants_after", after=after, limit=limit)]


def several(tx: Tx) -> bool:
    """Returns True if there is more than one tenant."""
    return len(page(tx, limit=2)) > 1


def usage(tx: Tx, tenant_id: int) -> Usage:
    """Returns how much of its allowance a tenant uses."""
    ((queued,),) = tx.run("count_queued", tenant_id=tenant_id, most=COUNTED)
    ((running,),) = tx.run("count_running", tenant_id=tenant_id)
    ((schedules,),) = tx.run("count_schedules", tenant_id=tenant_id, most=COUNTED)
    return Usage(queued, running, schedules)


def lock(tx: Tx, name: str) -> Tenant:
    """Locks a tenant against changes and claims until this transaction ends."""
    tx.run("lock_tenant", id=find(tx, name).id)
    tx.run("claim_lock")  # so that every claim happens either before the change or after it
    return find(tx, name)


def insert(tx: Tx, name: str, allowance: Allowance, actor: Actor, *, allow: Sequence[str] = ()) -> Tenant:
    made = tx.run("add_tenant", name=name, allow=json.dumps(allow), **allowance.facts())
    if not made:
        raise BadInput(f"name: there is a tenant {name!r} already", code="name_taken", field="name")
    record(tx, int(made[0][0]), 1, "created", actor, {"name": name, "allow": list(allow), **allowance.facts()})
    return find(tx, name)


def close_default(tx: Tx, allow: Sequence[str] | None, actor: Actor) -> None:
    """Stores the kinds that the tenant `default` keeps, because a second tenant is made.

    None keeps what was decided for it before, and closes it if nothing was.
    """
    first = lock(tx, DEFAULT)
    if allow is None and first.allow is not None:
        return
    if allow is not None and several(tx):
        text = "default_allow is for the second tenant, and there are more already"
        raise BadInput(text, hint="change it with `headway tenants set default --allow KIND`", field="default_allow")
    closed = replace(first, allow=tuple(allow or ()))
    if closed != first:
        save(tx, closed, "edited", actor, {**first.allowance.facts(), "allow": list(closed.kinds)})


def save(tx: Tx, tenant: Tenant, kind: str, actor: Actor, data: Mapping[str, object]) -> Tenant:
    """Stores a changed, locked tenant with its event."""
    active, limits = int(tenant.active), tenant.allowance.facts()
    allow = None if tenant.allow is None else json.dumps(tenant.allow)
    ((version,),) = tx.run("save_tenant", id=tenant.id, active=active, allow=allow, **limits)
    record(tx, tenant.id, version, kind, actor, data)
    return find(tx, tenant.name)


def record(tx: Tx, number: int, version: int, kind: str, actor: Actor, data: Mapping[str, object]) -> None:
    text = json.dumps(dict(data)) if data else None
    event = NewEvent(f"tenant.{kind}", actor, tenant_id=number, thing_id=number, version=version, data=text)
    events.record(tx, event)


def _tenant(row: Row) -> Tenant:
    number, name, created_at, active, queued, running, schedules, paused_at, paused_until, version, allow = row
    kinds = None if allow is None else tuple(json.loads(allow))
    allowance = Allowance(queued, running, schedules)
    return Tenant(number, name, created_at, bool(active), allowance, paused_at, paused_until, version, kinds)


# --- new jobs and schedules ---------------------------------------------------------------------------------------


@contextmanager
def admitting(run: Statement, tenant_id: int) -> Iterator[None]:
    """Guards the creation of jobs against a tenant's limits.

    Refuses an inactive tenant, and jobs beyond max_queued. Under a limit one transaction at a time creates jobs, so
    that the count is exact; tenants without a limit lock nothing.
    """
    bound = _bound(run, tenant_id)
    if bound is not None:
        run("lock_tenant", id=tenant_id)
        bound = _bound(run, tenant_id)  # read again under the lock
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
    """Returns the tenants with limits: None accepts no jobs, a number that many more.

    The latter are locked.
    """
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
    """Refuses a schedule beyond the tenant's max_schedules.

    Under a limit one transaction at a time creates schedules.
    """
    if not tx.run("schedule_bound", id=tenant_id):
        return
    tx.run("lock_tenant", id=tenant_id)
    for name, most in tx.run("schedule_bound", id=tenant_id):
        ((count,),) = tx.run("count_schedules", tenant_id=tenant_id, most=most)
        if count >= most:
            raise over_limit(name, "max_schedules", most, "schedules")
