"""Reads the history: runs as list lines, and the latest failures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from headway.model.jobs import failure_groups
from headway.model.jobs.failure_groups import Failure
from headway.model.jobs.filter import JobFilter
from headway.model.jobs.states import State
from headway.store.db import Tx
from headway.store.jobs.starts import EVENTS, StartBatch, StartedJob, by_events, by_index, newest_below
from headway.store.paging import Page, check_limit, filter_params, led
from headway.store.queue import targets
from headway.text import params as text_params

# Upper bound of failures to compare with each other.
FAILURES = 2_000
# Upper bound of runs to read and filter at once.
PICKED = 2_000


@dataclass(frozen=True, slots=True)
class Record:
    """A run as a list line, with its job's status.

    `error` and `params` are excerpts from their beginning. `ran` is in microseconds, summed over the ended claims of
    the run.
    """

    job_id: int
    task: str
    status: State
    started_at: int
    finished_at: int | None
    ran: int
    attempt: int
    exit_code: int | None
    failure_kind: str | None
    error: str | None
    target: str | None
    group_id: int | None
    params: str

    @property
    def headline(self) -> str | None:
        """Returns the first line of the error."""
        return self.error.strip().split("\n", 1)[0] if self.error else None

    @property
    def given(self) -> str:
        return text_params.excerpt(self.params)


_COLUMNS = [field.name for field in fields(Record)]


def list_records(
    tx: Tx, tenant_id: int, filters: JobFilter | None = None, limit: int = 50, cursor: str | None = None
) -> Page[Record]:
    """Returns runs by start time, newest first.

    `since` and `until` filter by start time, `statuses` by the job's status. `q` is searched in task, error or reason,
    and the beginning of the params.
    """
    tx.run("pin_plans")
    check_limit(limit)
    wanted = filters or JobFilter()
    params, walk = filter_params(tx, tenant_id, wanted), led(tx, tenant_id, wanted)
    batches = by_events(tx, tenant_id, wanted, cursor) if walk is None else by_index(tx, walk, wanted, cursor)
    page = _filled(tx, batches, params, limit)
    named = targets.names(tx, [row[10] for row in page.items])
    return Page([_record(row, named) for row in page.items], page.next)


def _filled(tx: Tx, batches: Iterable[StartBatch], params: Mapping[str, object], limit: int) -> Page[list[Any]]:
    """JobFilter batches until the page is full, the runs end or the bound is reached.

    In the last case `next` is the cursor to continue from.
    """
    found: list[tuple[StartedJob, list[Any]]] = []
    last = StartBatch([], None)
    for last in batches:
        for part in _parts(last.begun, limit + 1):
            picked = _picked(tx, [one.job_id for one in part], params)
            found += [(one, picked[one.job_id]) for one in part if one.job_id in picked]
            if len(found) > limit:
                return Page([row for _, row in found[:limit]], found[limit - 1][0].cursor)
    return Page([row for _, row in found], last.onward)


def _parts(begun: Sequence[StartedJob], step: int) -> Iterator[Sequence[StartedJob]]:
    """Yields growing parts, so that a full page reads few runs."""
    at = 0
    while at < len(begun):
        yield begun[at : at + step]
        at, step = at + step, min(4 * step, PICKED)


def _picked(tx: Tx, ids: Sequence[int], params: Mapping[str, object]) -> dict[int, list[Any]]:
    ((found,),) = tx.run(
        "pick_records", ids=json.dumps(ids), limit=len(ids), looked_at=text_params.LOOKED_AT + 1, **params
    )
    return {row[0]: row for row in json.loads(found)}


def _record(row: Sequence[Any], named: Mapping[int, str]) -> Record:
    values = dict(zip(_COLUMNS, row, strict=True))
    target_id, status = values.pop("target"), State(values.pop("status"))
    return Record(**values, status=status, target=None if target_id is None else named.get(target_id))


# --- failures -----------------------------------------------------------------------------------------------------


class LatestFailures(NamedTuple):
    """Failures, newest job first. `complete` is False if older ones were left out."""

    failures: list[Failure]
    complete: bool


def latest_failures(tx: Tx, tenant_id: int, limit: int = FAILURES) -> LatestFailures:
    """Returns the latest failed runs, at most `limit`.

    They include jobs that wait for a decision and jobs that have succeeded since.
    """
    tx.run("pin_plans")
    looked_at = failure_groups.LOOKED_AT
    ((found,),) = tx.run("latest_failures", tenant_id=tenant_id, limit=limit, looked_at=looked_at)
    ended = [Failure(*facts) for facts in json.loads(found)]
    solved = _solved(tx, [one.job_id for one in ended])
    failures = [replace(one, solved=one.job_id in solved) for one in ended]
    floor = (newest_below(tx) or 0) - EVENTS
    failures += _errors(tx, tenant_id, floor, limit)
    complete = len(failures) < limit and newest_below(tx, floor) is None
    return LatestFailures(sorted(failures, key=lambda one: -one.job_id)[:limit], complete)


def _solved(tx: Tx, ids: Sequence[int]) -> set[int]:
    """Returns the failed jobs whose retry chain has completed.

    A failed retry in such a chain is also included.
    """
    ((found,),) = tx.run("tries_after", ids=json.dumps(ids))
    solved: set[int] = set()
    for before, job_id, status in sorted(json.loads(found), key=lambda one: -one[1]):
        if status == State.COMPLETED or job_id in solved:
            solved.add(before)
    return solved


def _errors(tx: Tx, tenant_id: int, floor: int, limit: int) -> list[Failure]:
    """Returns each job's latest error: those since an event, and all current ones."""
    ((lately,),) = tx.run("latest_errors", tenant_id=tenant_id, floor=floor, limit=limit)
    ((standing,),) = tx.run("standing_errors", tenant_id=tenant_id, limit=limit)
    latest: dict[int, Failure] = {}
    for job_id, task, at, data, status in sorted(
        json.loads(lately) + json.loads(standing), key=lambda one: int(one[2])
    ):
        facts = json.loads(data) if data else {}
        error = str(facts.get("error") or facts.get("reason") or "")
        latest[job_id] = Failure(job_id, task, facts.get("failure_kind"), at, error, status == State.COMPLETED)
    return list(latest.values())
