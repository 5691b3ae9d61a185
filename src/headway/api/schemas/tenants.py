"""Tenants as JSON of the API."""

from __future__ import annotations

from headway.api.schemas.jobs import Json, time_or_none
from headway.model.access.tenants import Tenant


def tenant_json(tenant: Tenant) -> Json:
    """**Tenant** of the API. A null limit means no limit."""
    return {
        "tenant_id": tenant.id,
        "name": tenant.name,
        "active": tenant.active,
        "paused_at": time_or_none(tenant.paused_at),
        "paused_until": time_or_none(tenant.paused_until),
        **tenant.allowance.facts(),
        "allow": list(tenant.kinds),
        "created_at": time_or_none(tenant.created_at),
        "version": tenant.version,
    }
