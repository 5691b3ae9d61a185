"""Keyset pages, newest first, whose cost does not grow with the number of jobs.

An index is walked for ids, these are filtered, and the rows of the rest are read. A page looks at no more than BUDGET
jobs; where a filter leaves it short of its limit, `next` says where to go on.
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
from headway.model.job import Job, Run
from headway.model.states import State
from headway.store import jobs, rows
from headway.store.db import Tx
from headway.store.lanes import find_target
from headway.store.like import containing, literal

BUDGET = 20_000
MAX_LIMIT = 200
_EVERY = (1 << len(State)) - 1
# States of jobs that an index leads to, whether or not others are many.
_INDEXED = frozenset({State.RUNNING, State.PAUSED, State.ERROR, State.FAILED})
_FIRST, LAST = 0, (1 << 63) - 1
_NUMBER = re.compile("-?[0-9]{1,19}")
# These walk past the jobs of all tenants: there is no index for one tenant's.
_EVERYBODYS = frozenset({"walk_jobs", "walk_runs"})
# Clocks are stepped: a job may be this much out of order among its neighbours by number.
_STEP = micros(3600.0)

T = TypeVar("T")
Walk = Callable[[int, int], list[int]]


@dataclass(frozen=True, slots=True)
class Filters:
    """Which jobs, or runs. `q` is looked for in task, key, reason and error, whatever the case of a-z. `target` is a
    name, and refused if there is no such target. `group_id` is a group or an execution."""

    statuses: frozenset[State] = frozenset()
    task: str | None = None
    key: str | None = None
    failure_kind: str | None = None
    created_by: str | None = None
    since: int | None = None
    until: int | None = None
    q: str | None = None
    target: str | None = None
    group_id: int | None = None
    schedule_id: int | None = None

    def params(self, tenant_id: int) -> dict[str, object]:
        by = json.dumps(self.created_by) if self.created_by is not None else None
        return {
            "tenant_id": tenant_id,
            "mask": sum(1 << status for status in self.statuses) or _EVERY,
            "task": self.task,
            "key": self.key,
            "failure_kind": self.failure_kind,
            # An actor is stored as {"type":…,"id":…,"name":…}, in this order.
            "by_name": f'%"name":{literal(by)}}}' if by is not None else None,
            "by_id": f'%"id":{literal(by)},%' if by is not None else None,
            "since": _FIRST if self.since is None else self.since,
            "until": LAST if self.until is None else self.until,
            "q": containing(self.q) if self.q else None,
            "group_id": self.group_id,
            "schedule_id": self.schedule_id,
        }


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    items: list[T]
    next: str | None = None


# --- cursors ------------------------------------------------------------------------------------------------------


def pack(kind: str, *numbers: int) -> str:
    """A cursor: a place in a list of one kind. Nobody else needs to understand it."""
    text = ":".join([kind, *map(str, numbers)])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def unpack(cursor: str, kind: str, count: int, *, least: int = 0) -> list[int]:
    try:
        found, *numbers = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode().split(":")
    except ValueError:
        found, numbers = "", []
    if found == kind and len(numbers) == count and all(map(_NUMBER.fullmatch, numbers)):
        place = [int(one) for one in numbers]
        if all(least <= one <= LAST for one in place):
            return place
    raise BadInput("cursor is not one that a list gave: begin without it", field="cursor")


def make_cursor(number: int) -> str:
    return pack("id", number)


def read_cursor(cursor: str | None) -> int:
    """Where a page begins: below this number."""
    return LAST if cursor is None else unpack(cursor, "id", 1)[0]


class Place(NamedTuple):
    """Where a job stands in the queue."""

    id: int
    priority: int
    position: int
    created_at: int


def make_place_cursor(at: Job | Place) -> str:
    """The place of a job in the queue."""
    return pack("at", at.priority, at.position, at.created_at, at.id)


def read_place_cursor(cursor: str) -> Place:
    priority, position, created_at, number = unpack(cursor, "at", 4, least=-LAST)
    return Place(number, priority, position, created_at)


def check_limit(limit: int) -> int:
    if not 1 <= limit <= MAX_LIMIT:
        raise BadInput(f"limit must be from 1 to {MAX_LIMIT}, not {limit}", field="limit")
    return limit


# --- pages --------------------------------------------------------------------------------------------------------


def job_rows(tx: Tx, tenant_id: int, filters: Filters, limit: int, cursor: str | None) -> Page[Job]:
    tx.run("pin_plans")
    floor, before = _between(tx, filters)
    params = filter_params(tx, tenant_id, filters)

    def pick(ids: list[int], count: int) -> list[Job]:
        wanted = _picked(tx, ids, count, params)
        found = jobs.find_all(tx, wanted) if wanted else {}
        return [found[job_id] for job_id in wanted if job_id in found]

    walks = _plan_walks(tx, filters) or _job_walks(tx, tenant_id, filters.statuses)
    walk = _merged(tx, walks, tenant_id, floor)
    return fill(walk, pick, lambda job: job.id, min(before, read_cursor(cursor)), limit)


def pick_places(tx: Tx, tenant_id: int, filters: Filters, places: Sequence[Place]) -> list[Place]:
    """Those of these whose jobs fit, in their order."""
    if not places:
        return []
    wanted = set(_picked(tx, [one.id for one in places], len(places), filter_params(tx, tenant_id, filters)))
    return [one for one in places if one.id in wanted]


def _picked(tx: Tx, ids: Sequence[int], count: int, params: Mapping[str, object]) -> list[int]:
    """The newest first."""
    ((found,),) = tx.run("pick_jobs", ids=json.dumps(ids), limit=count, **params)
    return sorted(json.loads(found), reverse=True)


def count_jobs(tx: Tx, tenant_id: int, filters: Filters) -> tuple[dict[State, int], bool]:
    """How many jobs fit, by state, and whether those are all: no more than BUDGET are looked at."""
    tx.run("pin_plans")
    floor, before = _between(tx, filters)
    walks = _plan_walks(tx, filters) or _job_walks(tx, tenant_id, filters.statuses)
    ids = _merged(tx, walks, tenant_id, floor)(before, BUDGET)
    counted = tx.run("count_picked", ids=json.dumps(ids), **filter_params(tx, tenant_id, filters))
    return {State(status): count for status, count in counted}, len(ids) < BUDGET


def run_rows(tx: Tx, tenant_id: int, filters: Filters, limit: int, cursor: str | None) -> Page[Run]:
    tx.run("pin_plans")
    params = filter_params(tx, tenant_id, filters)

    def pick(ids: list[int], count: int) -> list[Run]:
        return [rows.run(row) for row in tx.run("pick_runs", ids=json.dumps(ids), limit=count, **params)]

    walks = _plan_walks(tx, filters) or [("walk_runs", {})]
    walk = _merged(tx, walks, tenant_id, _FIRST)
    before = min(started_below(tx, filters), read_cursor(cursor))
    return fill(walk, pick, lambda run: run.job_id, before, limit)


def started_below(tx: Tx, filters: Filters) -> int:
    """The number below which everything lies that started before `until`: nothing starts before it is created."""
    return _between(tx, Filters(until=filters.until))[1]


def led(tx: Tx, tenant_id: int, filters: Filters) -> Walk | None:
    """The way to those that fit by an index of them alone; None where there is none."""
    indexed = filters.statuses and filters.statuses <= _INDEXED
    walks = _plan_walks(tx, filters) or (_job_walks(tx, tenant_id, filters.statuses) if indexed else [])
    return _merged(tx, walks, tenant_id, _FIRST) if walks else None


def filter_params(tx: Tx, tenant_id: int, filters: Filters) -> dict[str, object]:
    """The filters as the statements take them: a target by its number. One that does not exist is no empty answer."""
    target = None if filters.target is None else find_target(tx, tenant_id, filters.target)[0]
    return {**filters.params(tenant_id), "target_id": target}


def fill(
    walk: Walk, pick: Callable[[list[int], int], list[T]], number: Callable[[T], int], before: int, limit: int
) -> Page[T]:
    """Walks in steps that grow until the page is full, the walk ends, or the budget is used up."""
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
    """Which indexes lead to jobs in these states; one that leads to all of them where there is none."""
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


def _plan_walks(tx: Tx, filters: Filters) -> list[tuple[str, dict[str, int]]]:
    """The way to the jobs of one group, or of a schedule's executions; none where those are many."""
    if filters.group_id is not None:
        return [("walk_group", {"group_id": filters.group_id})]
    if filters.schedule_id is None:
        return []
    ((found,),) = tx.run("count_of_schedule", schedule_id=filters.schedule_id, most=BUDGET)
    return [("walk_schedule", {"schedule_id": filters.schedule_id})] if found < BUDGET else []


def _few_wait(tx: Tx, tenant_id: int) -> bool:
    """Few enough to be sorted. Where many wait, the newest jobs are likely to be among them."""
    waiting: int = sum(count for _, count in tx.run("count_waiting", tenant_id=tenant_id, most=BUDGET))
    return waiting < BUDGET


def _merged(tx: Tx, walks: Sequence[tuple[str, dict[str, int]]], tenant_id: int, floor: int) -> Walk:
    def walk(before: int, count: int) -> list[int]:
        found: set[int] = set()
        for name, more in walks:
            scope = {"tenant_id": tenant_id, "before": before, "floor": floor, "limit": count, **more}
            ((ids,),) = tx.run_beyond(name, **scope) if name in _EVERYBODYS else tx.run(name, **scope)
            found.update(json.loads(ids))
        return sorted(found, reverse=True)[:count]

    return walk


def _between(tx: Tx, filters: Filters) -> tuple[int, int]:
    """The numbers between which jobs of the wanted time lie."""
    floor = _FIRST if filters.since is None else _number_at(tx, filters.since - _STEP)
    before = LAST if filters.until is None else _number_at(tx, filters.until + _STEP)
    return floor, before


def _number_at(tx: Tx, instant: int) -> int:
    """The first number whose job was created at an instant or later."""
    last = tx.run_beyond("last_job")
    return first_at(tx, "job_from", last[0][0] if last else 0, instant)


def first_at(tx: Tx, statement: str, last: int, instant: int) -> int:
    """The first number up to the last whose time is an instant or later, by halving: both rise together. The statement
    tells number and time of the first at or after a number, whoever it belongs to."""
    low, high = 0, last + 1
    while low < high:
        middle = (low + high) // 2
        found = tx.run_beyond(statement, id=middle)
        if found and found[0][1] < instant:
            low = max(middle, found[0][0]) + 1
        else:
            high = middle
    return low
