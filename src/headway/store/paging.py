"""Keyset pages, newest first, whose cost does not grow with the number of jobs.

A page walks an index for ids, filters the ids, and reads the rows that are left. It examines at most BUDGET jobs; if a
filter leaves the page short of its limit, `next` is the cursor to continue from.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from headway.clock import micros
from headway.errors import BadInput
from headway.model.jobs.filter import JobFilter
from headway.model.jobs.job import JobRecord, Run
from headway.model.jobs.states import State
from headway.store import rows
from headway.store.db import Tx
from headway.store.jobs import changes as jobs
from headway.store.like import containing, literal
from headway.store.queue.lanes import find_target

BUDGET = 20_000
MAX_LIMIT = 200
_EVERY = (1 << len(State)) - 1
# States with an index of their own, whatever the number of jobs in other states.
_INDEXED = frozenset({State.RUNNING, State.PAUSED, State.ERROR, State.FAILED})
_FIRST, LAST = 0, (1 << 63) - 1
_NUMBER = re.compile("-?[0-9]{1,19}")
# These statements walk past the jobs of all tenants, because no index covers a single tenant's.
_ALL_TENANTS = frozenset({"walk_jobs", "walk_runs"})
# Clocks are stepped, so a job's creation time may be out of order by this much.
_STEP = micros(3600.0)

T = TypeVar("T")
Walk = Callable[[int, int], list[int]]


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    items: list[T]
    next: str | None = None


# --- cursors ------------------------------------------------------------------------------------------------------


def pack(kind: str, *numbers: int) -> str:
    """Encodes a cursor: an opaque place in a list of one kind."""
    text = ":".join([kind, *map(str, numbers)])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def unpack(cursor: str, kind: str, count: int, *, least: int = 0) -> list[int]:
    try:
        found, *numbers = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode().split(":")
    except ValueError:
        found, numbers = "", []
    if found == kind and len(numbers) == count and all(map(_NUMBER.fullmatch, numbers)):
        place = [int(number) for number in numbers]
        if all(least <= number <= LAST for number in place):
            return place
    raise BadInput("cursor is not valid", hint="list again without a cursor", field="cursor")


def make_cursor(number: int) -> str:
    return pack("id", number)


def read_cursor(cursor: str | None) -> int:
    """Returns the number below which a page begins."""
    return LAST if cursor is None else unpack(cursor, "id", 1)[0]


class QueueCursor(NamedTuple):
    """A job's place in the queue."""

    id: int
    priority: int
    position: int
    created_at: int


def make_place_cursor(at: JobRecord | QueueCursor) -> str:
    """Encodes a job's place in the queue as a cursor."""
    return pack("at", at.priority, at.position, at.created_at, at.id)


def read_place_cursor(cursor: str) -> QueueCursor:
    priority, position, created_at, number = unpack(cursor, "at", 4, least=-LAST)
    return QueueCursor(number, priority, position, created_at)


def check_limit(limit: int) -> int:
    if not 1 <= limit <= MAX_LIMIT:
        raise BadInput(f"limit must be from 1 to {MAX_LIMIT}, not {limit}", field="limit")
    return limit


# --- pages --------------------------------------------------------------------------------------------------------


def job_rows(tx: Tx, tenant_id: int, filters: JobFilter, limit: int, cursor: str | None) -> Page[JobRecord]:
    tx.run("pin_plans")
    floor, before = _between(tx, filters)
    params = filter_params(tx, tenant_id, filters)

    def pick(ids: list[int], count: int) -> list[JobRecord]:
        wanted = _picked(tx, ids, count, params)
        found = jobs.find_all(tx, wanted) if wanted else {}
        return [found[job_id] for job_id in wanted if job_id in found]

    walks = _plan_walks(tx, filters) or _job_walks(tx, tenant_id, filters.possible_statuses)
    walk = _merged(tx, walks, tenant_id, floor)
    return fill(walk, pick, lambda job: job.id, min(before, read_cursor(cursor)), limit)


def pick_places(tx: Tx, tenant_id: int, filters: JobFilter, places: Sequence[QueueCursor]) -> list[QueueCursor]:
    """Returns the places whose jobs match the filters, in the given order."""
    if not places:
        return []
    wanted = set(_picked(tx, [place.id for place in places], len(places), filter_params(tx, tenant_id, filters)))
    return [place for place in places if place.id in wanted]


def _picked(tx: Tx, ids: Sequence[int], count: int, params: Mapping[str, object]) -> list[int]:
    """Returns the ids that match the filters, newest first."""
    ((found,),) = tx.run("pick_jobs", ids=json.dumps(ids), limit=count, **params)
    return sorted(json.loads(found), reverse=True)


def count_jobs(tx: Tx, tenant_id: int, filters: JobFilter) -> tuple[dict[State, int], bool]:
    """Counts the matching jobs by state, among at most BUDGET jobs.

    The second value is False if there were more jobs than that.
    """
    tx.run("pin_plans")
    floor, before = _between(tx, filters)
    walks = _plan_walks(tx, filters) or _job_walks(tx, tenant_id, filters.possible_statuses)
    ids = _merged(tx, walks, tenant_id, floor)(before, BUDGET)
    counted = tx.run("count_picked", ids=json.dumps(ids), **filter_params(tx, tenant_id, filters))
    return {State(status): count for status, count in counted}, len(ids) < BUDGET


def run_rows(tx: Tx, tenant_id: int, filters: JobFilter, limit: int, cursor: str | None) -> Page[Run]:
    tx.run("pin_plans")
    params = filter_params(tx, tenant_id, filters)

    def pick(ids: list[int], count: int) -> list[Run]:
        return [rows.run(row) for row in tx.run("pick_runs", ids=json.dumps(ids), limit=count, **params)]

    walks = _plan_walks(tx, filters) or [("walk_runs", {})]
    walk = _merged(tx, walks, tenant_id, _FIRST)
    before = min(started_below(tx, filters), read_cursor(cursor))
    return fill(walk, pick, lambda run: run.job_id, before, limit)


def started_below(tx: Tx, filters: JobFilter) -> int:
    """Returns an id above every job that started before `until`.

    A job starts after its creation, so its creation time bounds its id.
    """
    return _between(tx, JobFilter(until=filters.until))[1]


def led(tx: Tx, tenant_id: int, filters: JobFilter) -> Walk | None:
    """Returns a walk over an index of matching jobs only; None if there is none."""
    statuses = filters.possible_statuses
    indexed = statuses and statuses <= _INDEXED
    walks = _plan_walks(tx, filters) or (_job_walks(tx, tenant_id, statuses) if indexed else [])
    return _merged(tx, walks, tenant_id, _FIRST) if walks else None


def walk_all(tx: Tx, tenant_id: int) -> Walk:
    """Returns the walk over all jobs."""
    return _merged(tx, [("walk_jobs", {})], tenant_id, _FIRST)


def filter_params(tx: Tx, tenant_id: int, filters: JobFilter) -> dict[str, object]:
    """Returns the filter as statement parameters, with the target's number.

    An unknown target raises NotFound instead of matching nothing.
    """
    by_name, by_id = actor_patterns(filters.created_by)
    return {
        "tenant_id": tenant_id,
        "mask": sum(1 << status for status in filters.statuses) or _EVERY,
        "task": filters.task,
        "key": filters.key,
        "failure_kind": filters.failure_kind,
        "stopping": 1 if filters.stopping else None,
        "exhausted": None if filters.exhausted is None else int(filters.exhausted),
        "by_name": by_name,
        "by_id": by_id,
        "since": _FIRST if filters.since is None else filters.since,
        "until": LAST if filters.until is None else filters.until,
        "q": containing(filters.q) if filters.q else None,
        "group_id": filters.group_id,
        "schedule_id": filters.schedule_id,
        "target_id": None if filters.target is None else find_target(tx, tenant_id, filters.target)[0],
    }


def actor_patterns(named: str | None) -> tuple[str | None, str | None]:
    """Returns patterns for the stored actors with this name, and with this id; None matches every actor."""
    if named is None:
        return None, None
    text = literal(json.dumps(named))
    # An actor is stored as {"type":…,"id":…,"name":…}, in this order.
    return f'%"name":{text}}}', f'%"id":{text},%'


def fill(
    walk: Walk, pick: Callable[[list[int], int], list[T]], number: Callable[[T], int], before: int, limit: int
) -> Page[T]:
    """Walks in growing steps until the page is full, or the walk or BUDGET ends."""
    found: list[T] = []
    step, looked = limit + 1, 0
    while True:
        ids = walk(before, step)
        found += pick(ids, limit + 1 - len(found)) if ids else []
        if len(found) > limit:
            return Page(found[:limit], make_cursor(number(found[limit - 1])))
        if len(ids) < step:
            return Page(found)
        looked, before = looked + step, ids[-1]
        if looked >= BUDGET:
            return Page(found, make_cursor(before))
        step = min(4 * step, max(BUDGET - looked, limit + 1))


def _job_walks(tx: Tx, tenant_id: int, statuses: frozenset[State]) -> list[tuple[str, dict[str, int]]]:
    """Returns the index walks for these states, or the walk over all jobs."""
    walks: dict[str, tuple[str, dict[str, int]]] = {}
    for status in sorted(statuses):
        match status:
            case State.RUNNING:
                walks["running"] = ("walk_running", {})
            case State.PAUSED | State.ERROR:
                walks[status.name] = ("walk_held", {"status": int(status)})
            case State.FAILED:
                walks["failed"] = ("walk_failed", {})
            case State.WAITING | State.SCHEDULED | State.QUEUED if _few_wait(tx, tenant_id):
                walks["waiting"] = ("walk_waiting", {"most": BUDGET})
            case _:
                return [("walk_jobs", {})]
    return list(walks.values()) or [("walk_jobs", {})]


def _plan_walks(tx: Tx, filters: JobFilter) -> list[tuple[str, dict[str, int]]]:
    """Returns the index walk for a group's or a schedule's jobs.

    Empty without such a filter, or if the schedule has BUDGET jobs or more.
    """
    if filters.group_id is not None:
        return [("walk_group", {"group_id": filters.group_id})]
    if filters.schedule_id is None:
        return []
    ((found,),) = tx.run("count_of_schedule", schedule_id=filters.schedule_id, most=BUDGET)
    return [("walk_schedule", {"schedule_id": filters.schedule_id})] if found < BUDGET else []


def _few_wait(tx: Tx, tenant_id: int) -> bool:
    """Returns True if few enough jobs wait to be sorted.

    Where many jobs wait, the newest jobs are probably among them.
    """
    waiting: int = sum(count for _, count in tx.run("count_waiting", tenant_id=tenant_id, most=BUDGET))
    return waiting < BUDGET


def _merged(tx: Tx, walks: Sequence[tuple[str, dict[str, int]]], tenant_id: int, floor: int) -> Walk:
    def walk(before: int, count: int) -> list[int]:
        found: set[int] = set()
        for name, more in walks:
            scope = {"tenant_id": tenant_id, "before": before, "floor": floor, "limit": count, **more}
            ((ids,),) = tx.run_beyond(name, **scope) if name in _ALL_TENANTS else tx.run(name, **scope)
            found.update(json.loads(ids))
        return sorted(found, reverse=True)[:count]

    return walk


def _between(tx: Tx, filters: JobFilter) -> tuple[int, int]:
    """Returns the bounds of the ids of jobs created between `since` and `until`."""
    floor = _FIRST if filters.since is None else _number_at(tx, filters.since - _STEP)
    before = LAST if filters.until is None else _number_at(tx, filters.until + _STEP)
    return floor, before


def _number_at(tx: Tx, instant: int) -> int:
    """Returns the first id whose job was created at an instant or later."""
    last = tx.run_beyond("last_job")
    return first_at(tx, "job_from", last[0][0] if last else 0, instant)


def first_at(tx: Tx, statement: str, last: int, instant: int) -> int:
    """Finds by bisection the first id up to `last` with a time of `instant` or later.

    Ids and times rise together. The statement returns id and time of the first row at or after an id, of any tenant.
    """
    low, high = 0, last + 1
    while low < high:
        middle = (low + high) // 2
        found = tx.run_beyond(statement, id=middle)
        if found and found[0][1] < instant:
            low = max(middle, found[0][0]) + 1
        else:
            high = middle
    return low
