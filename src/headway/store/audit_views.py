"""Lists what people and programs changed: everything about administered things, and the actions of people on jobs.

A page walks the index `hw_event_audit` for numbers and filters their events. It examines at most `paging.BUDGET` events
of each tenant; if a filter leaves the page short of its limit, `next` is the cursor to continue from.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from headway.clock import micros
from headway.model.audit import AuditFilter
from headway.model.event import Event
from headway.store import events
from headway.store.db import Tx
from headway.store.paging import LAST, Page, actor_patterns, check_limit, fill, first_at, read_cursor

# Events that concern the whole installation are recorded under this tenant.
SYSTEM_TENANT = 0
# Clocks are stepped, so an event's time may be out of order by this much.
_STEP = micros(3600.0)


def listed(tx: Tx, tenants: Sequence[int], wanted: AuditFilter, limit: int, cursor: str | None) -> Page[Event]:
    """Returns a page of these tenants' events, newest first."""
    tx.run("pin_plans")
    last = events.newest(tx)
    floor = 0 if wanted.since is None else first_at(tx, "event_from", last, wanted.since - _STEP)
    before = LAST if wanted.until is None else first_at(tx, "event_from", last, wanted.until + _STEP)
    of_one = wanted.thing_id is not None
    subject = {"thing": wanted.thing, "thing_id": wanted.thing_id} if of_one else {}

    def walk(before: int, count: int) -> list[int]:
        found: list[int] = []
        for tenant_id in tenants:
            scope = {"tenant_id": tenant_id, "before": before, "floor": floor, "limit": count}
            # Row-level security would keep the walk off its index. It names the tenant and reads numbers only.
            ((ids,),) = tx.run_beyond("walk_thing" if of_one else "walk_audit", **scope, **subject)
            found += json.loads(ids)
        return sorted(found, reverse=True)[:count]

    def pick(ids: list[int], count: int) -> list[Event]:
        name, number = actor_patterns(wanted.actor)
        facts = {"by_name": name, "by_id": number, "thing": wanted.thing, "kind": wanted.kind}
        times = {"since": wanted.since or 0, "until": LAST if wanted.until is None else wanted.until}
        rows = tx.run("pick_events", ids=json.dumps(ids), limit=count, **facts, **times)
        return [Event(*row) for row in rows]

    return fill(walk, pick, lambda event: event.id, min(before, read_cursor(cursor)), check_limit(limit))


def deleted_by(tx: Tx, thing: str, ids: Collection[int]) -> dict[int, str]:
    """Returns the actors that deleted, archived or revoked these things; without those whose events were pruned."""
    return dict(tx.run("deletions_of", thing=thing, ids=json.dumps(sorted(ids)))) if ids else {}
