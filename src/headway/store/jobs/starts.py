"""Runs by start time, newest first, in bounded batches.

Normally walks `job.claimed` events backwards. With a selective filter, reads candidate ids from that filter's index and
sorts them window by window.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from headway.clock import micros
from headway.model.jobs.filter import JobFilter
from headway.store.db import Tx
from headway.store.paging import BUDGET, LAST, Walk, first_at, pack, started_below, unpack

# Upper bound of events per page; a job has about five.
EVENTS = 5 * BUDGET
FIRST_STEP = 1_000
# Number of candidate ids that are sorted at once.
WINDOW = 5_000
# Clocks are stepped, so an event's time may be out of order by this much.
_STEP = micros(3600.0)


class StartedJob(NamedTuple):
    """A job that started. `cursor` continues with the jobs that started before it."""

    job_id: int
    cursor: str


class StartBatch(NamedTuple):
    """Jobs by start time, newest first. `onward` is None if none started earlier."""

    begun: list[StartedJob]
    onward: str | None


# --- by events ----------------------------------------------------------------------------------------------------


def by_events(tx: Tx, tenant_id: int, filters: JobFilter, cursor: str | None) -> Iterator[StartBatch]:
    """Yields a tenant's started jobs from at most EVENTS events."""
    before = LAST if cursor is None else unpack(cursor, "event", 1)[0]
    if filters.until is not None:
        before = min(before, _event_at(tx, filters.until + _STEP))
    floor = 0 if filters.since is None else _event_at(tx, filters.since - _STEP)
    step, looked = FIRST_STEP, 0
    top = newest_below(tx, before)
    while looked < EVENTS and top is not None and top >= floor:
        low = max(floor, top + 1 - step)
        ((found,),) = tx.run("walk_begun", tenant_id=tenant_id, before=top + 1, floor=low)
        top = newest_below(tx, low)  # skips pruned events
        begun = [StartedJob(job_id, pack("event", event_id)) for event_id, job_id in sorted(json.loads(found))[::-1]]
        yield StartBatch(begun, None if top is None or top < floor else pack("event", low))
        looked += step
        step = min(4 * step, EVENTS - looked)


def newest_below(tx: Tx, before: int = LAST) -> int | None:
    """Returns the highest event number below `before`, of any tenant."""
    found = tx.run_beyond("event_before", before=before)
    return int(found[0][0]) if found else None


def _event_at(tx: Tx, instant: int) -> int:
    """Returns the first event number at an instant or later."""
    return first_at(tx, "event_from", newest_below(tx) or 0, instant)


# --- by an index of few -------------------------------------------------------------------------------------------


def by_index(tx: Tx, walk: Walk, filters: JobFilter, cursor: str | None) -> Iterator[StartBatch]:
    """Yields an index's jobs in windows of ids, each window sorted by start time."""
    high, low, *place = [LAST] * 4 if cursor is None else unpack(cursor, "jobs", 4)
    edge = started_below(tx, filters)
    high, low = min(high, edge), min(low, edge)
    for _ in range(BUDGET // WINDOW):
        ids, high, low = _window(walk, high, low)
        ((found,),) = tx.run("begun_of", ids=json.dumps(ids))
        below = sorted((tuple(one) for one in json.loads(found) if one < place), reverse=True)
        begun = [StartedJob(job_id, pack("jobs", high, low, at, job_id)) for at, job_id in below]
        yield StartBatch(begun, pack("jobs", low, low, LAST, LAST) if low else None)
        if not low:
            return
        high, place = low, [LAST, LAST]


def _window(walk: Walk, high: int, low: int) -> tuple[list[int], int, int]:
    """Returns a window's ids and bounds; low == high means a window not yet cut.

    A cut window keeps its bounds when jobs are added or pruned, so that its pages show each job once. If the window has
    become twice as full, its rest is left to the next window.
    """
    fresh = low == high
    most = WINDOW if fresh else 2 * WINDOW
    ids = walk(high, most)
    bottom = ids[-1] if len(ids) == most else 0
    if fresh:
        return ids, min(high, ids[0] + 1) if ids else high, bottom
    low = max(low, bottom)
    return [job_id for job_id in ids if job_id >= low], high, low
