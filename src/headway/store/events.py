"""Records events; reads the event stream by number; finds open writers and pruned history."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from headway.clock import micros
from headway.model.event import Event, NewEvent
from headway.store.db import Call, Tx

# The events of a transaction have neighbouring numbers, so an open gap lies among the newest so many.
RECENT = 1_000
# Bytes after which a page of a stream ends. One event may have the whole definition of a template.
PAGE_BYTES = 64 * 1024
# Clocks are stepped, and a late write may be recorded some time after the end of its job.
_MARGIN = micros(3600.0)


def record(tx: Tx, *events: NewEvent) -> None:
    """Records events in the transaction that makes the changes."""
    if events:
        name, params = recorded(events)
        tx.run(name, **params)


def recorded(events: Iterable[NewEvent]) -> Call:
    """Returns the statement that records these events."""
    return "add_events", {"rows": json.dumps([_row(event) for event in events])}


def _row(new: NewEvent) -> tuple[object, ...]:
    """Returns the values in the order of the statement's columns."""
    subject = (new.tenant_id, new.thing or new.kind.partition(".")[0], new.thing_id, new.version)
    return (*subject, new.kind, new.status, new.actor.text(), new.fence, new.data)


def newest(tx: Tx) -> int:
    ((number,),) = tx.run("newest_event")
    return int(number)


class EventPage(NamedTuple):
    """Events by number. `full` means that the page ended before the range did."""

    events: list[Event]
    full: bool


def between(tx: Tx, after: int, upto: int, limit: int, tenant_id: int | None = None) -> EventPage:
    """Returns a page of events by number, of one tenant or of all.

    Long events make it shorter, and it has at least one.
    """
    stretch = {"after": after, "upto": upto, "limit": limit, "size": PAGE_BYTES}
    if tenant_id is None:
        rows = tx.run("events_between", **stretch)
    else:
        rows = tx.run("tenant_events_between", **stretch, tenant_id=tenant_id)
    found = rows[0][-1] if rows else 0
    return EventPage([Event(*row[:-1]) for row in rows], found == limit or len(rows) < found)


def writers(tx: Tx) -> frozenset[str]:
    """Returns the transactions that may hold uncommitted event numbers.

    Always empty on SQLite.
    """
    return frozenset(name for (name,) in tx.run("event_writers"))


def settled(tx: Tx) -> int:
    """Returns a recent event number below which no new event can appear."""
    last = newest(tx)
    if not writers(tx):
        return last
    ids = [number for (number,) in tx.run("event_ids_after", after=last - RECENT)]
    return next((number for number, following in pairwise(ids) if following != number + 1), last)


def whole_after(tx: Tx, number: int) -> str | None:
    """Returns why the history after an event is incomplete; None if it is complete."""
    last = newest(tx)
    if number > last:
        return f"there is no event {number}: this is another database, or an older copy of it"
    ((pruned_until,),) = tx.run("pruned_until")
    if number == last or not pruned_until:
        return None
    found = tx.run("event_time", id=number)
    if not found or found[0][0] < pruned_until + _MARGIN:
        return f"the history after event {number} was pruned"
    return None
