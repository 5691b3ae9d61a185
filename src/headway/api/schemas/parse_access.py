"""Reads tokens, tenants, webhooks and applied files from the API's JSON."""

from __future__ import annotations

from headway.api.schemas.jobs import Json
from headway.engine.client.apply import Applying, ManifestChange


def applied_of(found: Json) -> tuple[Applying, dict[str, str]]:
    """Reads the changes of an applied file, and the secrets of created webhooks."""
    changes = [
        ManifestChange(change["change"], change["thing"], change["name"], tuple(change["differences"]), None)
        for change in found["items"]
    ]
    return Applying(tuple(changes), tuple(found["left"])), found.get("secrets", {})
