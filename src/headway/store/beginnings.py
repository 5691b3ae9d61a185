"""Jobs in the order in which they began, the latest first, in stretches of bounded cost.

The order of events is the order of beginnings. Where a filter names few of all jobs, an index of them leads there
instead, and a window of what it leads to is sorted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from headway.clock import micros
from headway.store.db import Tx
from headway.store.pages import BUDGET, LAST, Filters, Walk, first_at, pack, started_below, unpack

# A page looks at no more events than this: a job has about five.
EVENTS = 5 * BUDGET
FIRST_STEP = 1_000
# So many jobs that an index leads to are sorted at once.
WINDOW = 5_000
# Clocks are stepped: an event may be this much out of order among its neighbours by number.
_STEP = micros(3600.0)


class Begun(NamedTuple):
    """A job that began. `cursor`: where what began before it is."""

    job_id: int
    cursor: str


class Stretch(NamedTuple):
    """Some that began one after another, the latest first, and where to go on; None: nothing began before them."""

    begun: list[Begun]
    onward: str | None


# --- by events ----------------------------------------------------------------------------------------------------


def by_events(tx: Tx, tenant_id: int, filters: Filters, cursor: str | None) -> Iterator[Stretch]:
    """Those of a tenant, as many as EVENTS events tell of."""
    before = LAST if cursor is None else unpack(cursor, "event", 1)[0]
    if filters.until is not None:
        before = min(before, _event_at(tx, filters.until + _STEP))
    floor = 0 if filters.since is None else _event_at(tx, filters.since - _STEP)
    step, looked = FIRST_STEP, 0
    top = newest_below(tx, before)
    while looked < EVENTS and top is not None and top >= floor:
        low = max(floor, top + 1 - step)
        ((found,),) = tx.run("walk_begun", tenant_id=tenant_id, before=top + 1, floor=low)
        top = newest_below(tx, low)  # past what was pruned
        begun = [Begun(job_id, pack("event", event_id)) for event_id, job_id in sorted(json.loads(found))[::-1]]
        yield Stretch(begun, None if top is None or top < floor else pack("event", low))
        looked += step
        step = min(4 * step, EVENTS - looked)


def newest_below(tx: Tx, before: int = LAST) -> int | None:
    """The number of an event, whoever it belongs to."""
    found = tx.run_beyond("event_before", before=before)
    return int(found[0][0]) if found else None


def _event_at(tx: Tx, instant: int) -> int:
    """The first number whose event was at an instant or later."""
    return first_at(tx, "event_from", newest_below(tx) or 0, instant)


# --- by an index of few -------------------------------------------------------------------------------------------


def by_index(tx: Tx, walk: Walk, filters: Filters, cursor: str | None) -> Iterator[Stretch]:
    """Those that an index leads to, in windows by their numbers, each in the order of its beginnings."""
    high, low, *place = [LAST] * 4 if cursor is None else unpack(cursor, "jobs", 4)
    edge = started_below(tx, filters)
    high, low = min(high, edge), min(low, edge)
    for _ in range(BUDGET // WINDOW):
        ids, high, low = _window(walk, high, low)
        ((found,),) = tx.run("begun_of", ids=json.dumps(ids))
        below = sorted((tuple(one) for one in json.loads(found) if one < place), reverse=True)
        begun = [Begun(job_id, pack("jobs", high, low, at, job_id)) for at, job_id in below]
        yield Stretch(begun, pack("jobs", low, low, LAST, LAST) if low else None)
        if not low:
            return
        high, place = low, [LAST, LAST]


def _window(walk: Walk, high: int, low: int) -> tuple[list[int], int, int]:
    """The numbers of a window, and between which it lies: one with no room in it is yet to be cut.

    One that was cut keeps its bounds, whatever came or went since: pages of it would show some twice, or never. Where
    it has become twice as full, the rest of it is left to the next.
    """
    fresh = low == high
    most = WINDOW if fresh else 2 * WINDOW
    ids = walk(high, most)
    bottom = ids[-1] if len(ids) == most else 0
    if fresh:
        return ids, min(high, ids[0] + 1) if ids else high, bottom
    low = max(low, bottom)
    return [one for one in ids if one >= low], high, low
