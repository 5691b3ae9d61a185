"""The stream of events by number: what is new, who may still be writing, and how far back it is whole."""

from __future__ import annotations

from itertools import pairwise

from headway.clock import micros
from headway.store.db import Tx
from headway.store.reading import Event

# Events of one transaction lie close together: a gap that somebody is about to fill is among the newest so many.
RECENT = 1_000
# Clocks are stepped, and a late write may be told of some time after the end of its job.
_MARGIN = micros(3600.0)


def newest(tx: Tx) -> int:
    ((number,),) = tx.run("newest_event")
    return int(number)


def between(tx: Tx, after: int, upto: int, limit: int, tenant_id: int | None = None) -> list[Event]:
    """By number; of one tenant, or of all."""
    stretch = {"after": after, "upto": upto, "limit": limit}
    if tenant_id is None:
        return [Event(*row) for row in tx.run("events_between", **stretch)]
    return [Event(*row) for row in tx.run("tenant_events_between", **stretch, tenant_id=tenant_id)]


def writers(tx: Tx) -> frozenset[str]:
    """Transactions that may have taken numbers of events and not committed them. Always none on SQLite."""
    return frozenset(name for (name,) in tx.run("event_writers"))


def settled(tx: Tx) -> int:
    """A number near the newest that nothing new can come before."""
    last = newest(tx)
    if not writers(tx):
        return last
    ids = [number for (number,) in tx.run("event_ids_after", after=last - RECENT)]
    return next((one for one, following in pairwise(ids) if following != one + 1), last)


def whole_after(tx: Tx, number: int) -> str | None:
    """Why not everything that followed an event can be told any more; None: it can."""
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
