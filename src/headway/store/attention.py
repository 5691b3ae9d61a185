"""What somebody should look at, as far as nothing else reads it. Functions of a transaction; nothing here writes."""

from __future__ import annotations

from headway.model.webhooks import Endpoint
from headway.store.db import Tx


def failing_endpoints(tx: Tx, tenant_id: int, limit: int) -> list[Endpoint]:
    """A tenant's webhooks whose last tries failed, those that are not sent to any more first."""
    return [Endpoint(*row) for row in tx.run("failing_endpoints", tenant_id=tenant_id, limit=limit)]
