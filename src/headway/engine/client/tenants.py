"""The verbs on tenants, each in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headway.engine.client import idempotency
from headway.errors import WrongState
from headway.model.access.authority import check_kinds
from headway.model.access.tenants import Allowance, Tenant, check_tenant_name
from headway.store.access import tenants
from headway.store.db import Tx

if TYPE_CHECKING:
    from headway.engine.client.client import Client


class Tenants:
    """The verbs on tenants, for one actor, independent of the client's own tenant."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def create(
        self, name: str, *, allow: Sequence[str] = (), default_allow: Sequence[str] | None = None, **limits: int | None
    ) -> Tenant:
        """Creates a tenant; limits are `max_queued`, `max_running` and `max_schedules`.

        A limit that is not given does not apply. `allow` are the admin kinds that its own admins may give. The tenant
        `default` was open for all of them while it was alone; from its first neighbour on it keeps `default_allow`.
        Without that it is closed, unless it was decided before.
        """
        check_tenant_name(name)
        allowance = Allowance().changed(limits)
        kinds = check_kinds(allow)
        kept = None if default_allow is None else check_kinds(default_allow, field="default_allow")
        database, actor = self.client.database.beyond(), self.client.actor

        def work(tx: Tx) -> Tenant:
            tenants.close_default(tx, kept, actor)
            return tenants.insert(tx, name, allowance, actor, allow=kinds)

        return idempotency.create_once(
            self.client,
            "create_tenant",
            work,
            noun=Tenant,
            look="headway tenants ls",
            database=database,
        )

    def get(self, name: str) -> Tenant:
        with self.client.database.beyond().read() as tx:
            return tenants.find(tx, name)

    def list(self, *, after: str = "", limit: int = 200) -> list[Tenant]:
        """Returns the tenants by name, after a given one."""
        with self.client.database.beyond().read() as tx:
            return tenants.page(tx, after=after, limit=limit)

    def edit(self, name: str, changes: Mapping[str, object], if_version: int | None = None) -> Tenant:
        """Changes limits: an unnamed limit stays, None removes one. `allow` replaces the open admin kinds.

        A lowered limit stops no running job and removes no queued one.
        """
        limits = {name: value for name, value in changes.items() if name != "allow"}
        Allowance().changed(limits)
        kinds = check_kinds(changes["allow"]) if "allow" in changes else None

        def change(tenant: Tenant) -> Tenant:
            allow = tenant.allow if kinds is None else kinds
            return replace(tenant, allowance=tenant.allowance.changed(limits), allow=allow)

        return self._change("edit_tenant", "edited", name, change, if_version)

    def deactivate(self, name: str) -> Tenant:
        """Deactivates a tenant: its jobs do not start, its running jobs continue.

        New jobs and its tokens are refused, and its ticks are skipped.
        """
        return self._change("deactivate_tenant", "deactivated", name, lambda tenant: replace(tenant, active=False))

    def activate(self, name: str) -> Tenant:
        """Activates a tenant; its queue continues in its old order."""
        return self._change("activate_tenant", "activated", name, lambda tenant: replace(tenant, active=True))

    def _change(
        self, label: str, kind: str, name: str, change: Callable[[Tenant], Tenant], if_version: int | None = None
    ) -> Tenant:
        def work(tx: Tx) -> Tenant:
            tenant = tenants.lock(tx, name)
            _expect(tenant, if_version)
            wanted = change(tenant)
            if wanted == tenant:
                return tenant
            recorded = {**wanted.allowance.facts(), "allow": None if wanted.allow is None else list(wanted.allow)}
            data = recorded if kind == "edited" else {}
            tx.wake()
            return tenants.save(tx, wanted, kind, self.client.actor, data)

        return self.client.transact(label, work, noun=Tenant, database=self.client.database.beyond())


def _expect(tenant: Tenant, version: int | None) -> None:
    if version is not None and version != tenant.version:
        raise WrongState(
            f"tenant {tenant.name!r} has changed since it was read (version {tenant.version}, not {version})",
            code="version_mismatch",
            status="active" if tenant.active else "inactive",
        )
