"""Deliveries as they are shown: one, a page of them, the latest of each endpoint, and the tries of one."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import NamedTuple

from headway.errors import NotFound
from headway.model.webhooks import Delivery, Try
from headway.store.db import Tx
from headway.store.pages import Page, check_limit, fill, read_cursor


class Latest(NamedTuple):
    """A delivery in a few words."""

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
        raise NotFound(f"there is no delivery {number}", code="unknown_delivery")
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
    """Of one endpoint, of one job, or all of a tenant, newest first. A page looks at no more than BUDGET of them: where
    that leaves it short, `next` says where to go on."""
    walks, where = _walk(endpoint_id, job_id)
    wanted = {"tenant_id": tenant_id, "status": status, "event": event}

    def walk(before: int, count: int) -> list[int]:
        run = tx.run if where else tx.run_beyond  # past those of other tenants, to no end if they were not seen
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


def latest(tx: Tx, receivers: Collection[int], count: int) -> dict[int, list[Latest]]:
    """The last few to each endpoint, newest first."""
    found: dict[int, list[Latest]] = {}
    tx.run("pin_plans")
    for endpoint_id, *facts in tx.run("last_deliveries", ids=json.dumps(sorted(receivers)), limit=count):
        found.setdefault(endpoint_id, []).append(Latest(*facts))
    return found


def tries(tx: Tx, delivery_id: int) -> list[Try]:
    return [Try(*row) for row in tx.run("tries_of", delivery_id=delivery_id)]
