"""Jobs in the order in which they began, the latest first, in stretches of bounded cost.

The order of events is the order of beginnings. Where a filter names few of all jobs, an index of them leads there
instead, and a window of what it leads to is sorted.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from typing import NamedTuple

from headway.clock import micros
from headway.errors import BadInput
from headway.store.db import Tx
from headway.store.pages import BUDGET, Filters, Walk

# A page looks at no more events than this: a job has about five.
EVENTS = 5 * BUDGET
FIRST_STEP = 1_000
# So many jobs that an index leads to are sorted at once.
WINDOW = 5_000
_LAST = (1 << 63) - 1
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
    (before,) = _read(cursor, "event", [_LAST])
    if filters.until is not None:
        before = min(before, _event_at(tx, filters.until + _STEP))
    floor = 0 if filters.since is None else _event_at(tx, filters.since - _STEP)
    step, looked = FIRST_STEP, 0
    top = _newest_below(tx, before)
    while looked < EVENTS and top is not None and top >= floor:
        low = max(floor, top + 1 - step)
        ((found,),) = tx.run("walk_begun", tenant_id=tenant_id, before=top + 1, floor=low)
        top = _newest_below(tx, low)  # past what was pruned
        begun = [Begun(job_id, _cursor("event", event_id)) for event_id, job_id in sorted(json.loads(found))[::-1]]
        yield Stretch(begun, None if top is None or top < floor else _cursor("event", low))
        looked += step
        step = min(4 * step, EVENTS - looked)


def _newest_below(tx: Tx, before: int) -> int | None:
    found = tx.run("event_before", before=before)
    return int(found[0][0]) if found else None


def newest_event(tx: Tx) -> int:
    return _newest_below(tx, _LAST) or 0


def _event_at(tx: Tx, instant: int) -> int:
    """The first number whose event was at an instant or later."""
    low, high = 0, newest_event(tx) + 1
    while low < high:
        middle = (low + high) // 2
        found = tx.run("event_from", id=middle)
        if found and found[0][1] < instant:
            low = max(middle, found[0][0]) + 1
        else:
            high = middle
    return low


# --- by an index of few -------------------------------------------------------------------------------------------


def by_index(tx: Tx, walk: Walk, cursor: str | None) -> Iterator[Stretch]:
    """Those that an index leads to, in windows by their numbers, each in the order of its beginnings."""
    before, *place = _read(cursor, "jobs", [_LAST, _LAST, _LAST])
    for _ in range(BUDGET // WINDOW):
        ids = walk(before, WINDOW)
        ((found,),) = tx.run("begun_of", ids=json.dumps(ids))
        begun = [tuple(one) for one in json.loads(found)]
        onward = _cursor("jobs", ids[-1], _LAST, _LAST) if len(ids) == WINDOW else None
        below = sorted((one for one in begun if one < tuple(place)), reverse=True)
        yield Stretch([Begun(job_id, _cursor("jobs", before, at, job_id)) for at, job_id in below], onward)
        if onward is None:
            return
        before, place = ids[-1], [_LAST, _LAST]


# --- cursors ------------------------------------------------------------------------------------------------------


def _cursor(kind: str, *numbers: int) -> str:
    text = ":".join([kind, *map(str, numbers)])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read(cursor: str | None, kind: str, otherwise: list[int]) -> list[int]:
    if cursor is None:
        return otherwise
    try:
        found, *numbers = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode().split(":")
        whole = all(one.isascii() and one.isdigit() and int(one[:20]) <= _LAST for one in numbers)
        if found == kind and len(numbers) == len(otherwise) and whole:
            return [int(one) for one in numbers]
    except (binascii.Error, ValueError):
        pass
    raise BadInput("cursor is not one that a list gave: begin without it", field="cursor")
