"""Tenants as JSON, by the field names of the API."""

from __future__ import annotations

from headway.api.wire.jobs import Json, time_or_none
from headway.model.tenant import Tenant


def tenant_json(one: Tenant) -> Json:
    """**Tenant** of the API. A limit that is null is none."""
    return {
        "tenant_id": one.id,
        "name": one.name,
        "active": one.active,
        "paused_at": time_or_none(one.paused_at),
        "paused_until": time_or_none(one.paused_until),
        **one.allowance.facts(),
        "created_at": time_or_none(one.created_at),
        "version": one.version,
    }
