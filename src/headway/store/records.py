"""The history in lines: what ran, and what failed last. Functions of a transaction; nothing here writes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from headway.model import excerpt, fingerprint
from headway.model.fingerprint import Failure
from headway.model.states import State
from headway.store import targets
from headway.store.beginnings import EVENTS, Begun, Stretch, by_events, by_index, newest_below
from headway.store.db import Tx
from headway.store.pages import Filters, Page, check_limit, filter_params, led

# How many failures are compared with each other.
FAILURES = 2_000
# No more runs than this are read at once, and filtered.
PICKED = 2_000


@dataclass(frozen=True, slots=True)
class Record:
    """One run, as a list shows it: with its job's status, and the beginning of its error. `ran` is in microseconds,
    over all claims of the run that have ended. `params` is the beginning of what it was given."""

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
        """The first line of its error."""
        return self.error.strip().split("\n", 1)[0] if self.error else None

    @property
    def given(self) -> str:
        return excerpt.excerpt(self.params)


_COLUMNS = [field.name for field in fields(Record)]


def list_records(
    tx: Tx, tenant_id: int, filters: Filters | None = None, limit: int = 50, cursor: str | None = None
) -> Page[Record]:
    """Runs, the latest beginning first. `since` and `until` mean their start, `statuses` those of their jobs; `q` is
    looked for in task, error or reason, and the beginning of the params."""
    tx.run("pin_plans")
    check_limit(limit)
    wanted = filters or Filters()
    params, walk = filter_params(tx, tenant_id, wanted), led(tx, tenant_id, wanted)
    stretches = by_events(tx, tenant_id, wanted, cursor) if walk is None else by_index(tx, walk, wanted, cursor)
    page = _filled(tx, stretches, params, limit)
    named = targets.names(tx, [row[10] for row in page.items])
    return Page([_record(row, named) for row in page.items], page.next)


def _filled(tx: Tx, stretches: Iterable[Stretch], params: Mapping[str, object], limit: int) -> Page[list[Any]]:
    """Until the page is full, nothing is left, or as much was looked at as may be: then `next` says where to go on."""
    found: list[tuple[Begun, list[Any]]] = []
    last = Stretch([], None)
    for last in stretches:
        for part in _parts(last.begun, limit + 1):
            picked = _picked(tx, [one.job_id for one in part], params)
            found += [(one, picked[one.job_id]) for one in part if one.job_id in picked]
            if len(found) > limit:
                return Page([row for _, row in found[:limit]], found[limit - 1][0].cursor)
    return Page([row for _, row in found], last.onward)


def _parts(begun: Sequence[Begun], step: int) -> Iterator[Sequence[Begun]]:
    """Few at first, and more where those were not enough."""
    at = 0
    while at < len(begun):
        yield begun[at : at + step]
        at, step = at + step, min(4 * step, PICKED)


def _picked(tx: Tx, ids: Sequence[int], params: Mapping[str, object]) -> dict[int, list[Any]]:
    ((found,),) = tx.run("pick_records", ids=json.dumps(ids), limit=len(ids), looked_at=excerpt.LOOKED_AT + 1, **params)
    return {row[0]: row for row in json.loads(found)}


def _record(row: Sequence[Any], named: Mapping[int, str]) -> Record:
    values = dict(zip(_COLUMNS, row, strict=True))
    target_id, status = values.pop("target"), State(values.pop("status"))
    return Record(**values, status=status, target=None if target_id is None else named.get(target_id))


# --- failures -----------------------------------------------------------------------------------------------------


class Latest(NamedTuple):
    """The failures, those of the newest jobs first, and whether there are no others."""

    failures: list[Failure]
    complete: bool


def latest_failures(tx: Tx, tenant_id: int, limit: int = FAILURES) -> Latest:
    """The runs that failed, so many at most: also those that a person has to decide on, or that came right since."""
    tx.run("pin_plans")
    looked_at = fingerprint.LOOKED_AT
    ((found,),) = tx.run("latest_failures", tenant_id=tenant_id, limit=limit, looked_at=looked_at)
    ended = [Failure(*facts) for facts in json.loads(found)]
    solved = _solved(tx, [one.job_id for one in ended])
    failures = [replace(one, solved=one.job_id in solved) for one in ended]
    floor = (newest_below(tx) or 0) - EVENTS
    failures += _errors(tx, tenant_id, floor, limit)
    complete = len(failures) < limit and newest_below(tx, floor) is None
    return Latest(sorted(failures, key=lambda one: -one.job_id)[:limit], complete)


def _solved(tx: Tx, ids: Sequence[int]) -> set[int]:
    """Those of these failed jobs whose chain went on and completed. Who failed on the way is one of them too."""
    ((found,),) = tx.run("tries_after", ids=json.dumps(ids))
    solved: set[int] = set()
    for before, job_id, status in sorted(json.loads(found), key=lambda one: -one[1]):
        if status == State.COMPLETED or job_id in solved:
            solved.add(before)
    return solved


def _errors(tx: Tx, tenant_id: int, floor: int, limit: int) -> list[Failure]:
    """Each job once, with its latest error: those from an event on, and those that stand, however old."""
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
