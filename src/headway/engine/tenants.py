"""What people do to tenants: each verb one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from headway.errors import WrongState
from headway.model.tenant import Allowance, Tenant, check_tenant_name
from headway.store import tenants
from headway.store.db import Tx

if TYPE_CHECKING:
    from headway.engine.client import Client


class Tenants:
    """The verbs on tenants, for one actor; which tenant the client itself is for does not matter."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def create(self, name: str, **limits: int | None) -> Tenant:
        """`max_queued`, `max_running`, `max_schedules`: none unless given."""
        check_tenant_name(name)
        allowance = Allowance().changed(limits)
        database, actor = self.client.database.beyond(), self.client.actor
        return database.transact("create_tenant", lambda tx: tenants.insert(tx, name, allowance, actor))

    def get(self, name: str) -> Tenant:
        with self.client.database.beyond().read() as tx:
            return tenants.find(tx, name)

    def list(self, *, after: str = "", limit: int = 200) -> list[Tenant]:
        """By name, from one on."""
        with self.client.database.beyond().read() as tx:
            return tenants.page(tx, after=after, limit=limit)

    def edit(self, name: str, changes: Mapping[str, object], if_version: int | None = None) -> Tenant:
        """Other limits. What is not named stays, None takes a limit away. A lowered limit stops nothing and takes
        nothing away."""
        Allowance().changed(changes)

        def change(tenant: Tenant) -> Tenant:
            return replace(tenant, allowance=tenant.allowance.changed(changes))

        return self._change("edit_tenant", "edited", name, change, if_version)

    def deactivate(self, name: str) -> Tenant:
        """Nothing of it starts, it gets no new jobs, its ticks are skipped, its tokens refused. What runs goes on."""
        return self._change("deactivate_tenant", "deactivated", name, lambda one: replace(one, active=False))

    def activate(self, name: str) -> Tenant:
        """Its queue goes on where it stood."""
        return self._change("activate_tenant", "activated", name, lambda one: replace(one, active=True))

    def _change(
        self, label: str, kind: str, name: str, change: Callable[[Tenant], Tenant], if_version: int | None = None
    ) -> Tenant:
        def work(tx: Tx) -> Tenant:
            tenant = tenants.lock(tx, name)
            _expect(tenant, if_version)
            wanted = change(tenant)
            if wanted == tenant:
                return tenant
            data = wanted.allowance.facts() if kind == "edited" else {}
            tx.wake()
            return tenants.save(tx, wanted, kind, self.client.actor, data)

        return self.client.database.beyond().transact(label, work)


def _expect(tenant: Tenant, version: int | None) -> None:
    if version is not None and version != tenant.version:
        raise WrongState(
            f"tenant {tenant.name!r} has changed since it was read (version {tenant.version}, not {version})",
            code="version_mismatch",
            status="active" if tenant.active else "inactive",
        )
