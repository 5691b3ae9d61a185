"""Views of deliveries: one, a page, the latest of each endpoint, and tries."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import NamedTuple

from headway.errors import NotFound
from headway.model.webhooks.webhook import Delivery, Try
from headway.store.db import Tx
from headway.store.paging import Page, check_limit, fill, read_cursor


class LatestDelivery(NamedTuple):
    """A delivery in short."""

    id: int
    event: str
    status: str
    created_at: int
    last_error: str | None


def read(tx: Tx, ids: Collection[int]) -> list[Delivery]:
    return [Delivery(*row) for row in tx.run("deliveries_by_id", ids=json.dumps(sorted(ids)))]


def find(tx: Tx, tenant_id: int, number: int) -> Delivery:
    found = [one for one in read(tx, [number]) if one.tenant_id == tenant_id]
    if not found:
        raise NotFound(f"there is no delivery {number}", noun="delivery", code="unknown_delivery")
    return found[0]


def page(
    tx: Tx,
    tenant_id: int,
    *,
    endpoint_id: int | None = None,
    job_id: int | None = None,
    status: str | None,
    event: str | None = None,
    limit: int,
    cursor: str | None,
) -> Page[Delivery]:
    """Returns the deliveries of an endpoint, a job or a tenant, newest first.

    A page examines at most BUDGET deliveries; if that leaves it short, `next` is the cursor to continue from.
    """
    walks, where = _walk(endpoint_id, job_id)
    wanted = {"tenant_id": tenant_id, "status": status, "event": event}

    def walk(before: int, count: int) -> list[int]:
        run = tx.run if where else tx.run_beyond  # under row-level security it would scan all other tenants' rows
        return [number for (number,) in run(walks, **where, before=before, limit=count)]

    def pick(ids: list[int], count: int) -> list[Delivery]:
        return [Delivery(*row) for row in tx.run("pick_deliveries", ids=json.dumps(ids), limit=count, **wanted)]

    tx.run("pin_plans")
    return fill(walk, pick, lambda one: one.id, read_cursor(cursor), check_limit(limit))


def _walk(endpoint_id: int | None, job_id: int | None) -> tuple[str, dict[str, int]]:
    if endpoint_id is not None:
        return "walk_deliveries_to", {"endpoint_id": endpoint_id}
    if job_id is not None:
        return "walk_deliveries_about", {"job_id": job_id}
    return "walk_deliveries", {}


def latest(tx: Tx, receivers: Collection[int], count: int) -> dict[int, list[LatestDelivery]]:
    """Returns the latest deliveries to each endpoint, newest first."""
    found: dict[int, list[LatestDelivery]] = {}
    tx.run("pin_plans")
    for endpoint_id, *facts in tx.run("last_deliveries", ids=json.dumps(sorted(receivers)), limit=count):
        found.setdefault(endpoint_id, []).append(LatestDelivery(*facts))
    return found


def tries(tx: Tx, delivery_id: int) -> list[Try]:
    return [Try(*row) for row in tx.run("tries_of", delivery_id=delivery_id)]
