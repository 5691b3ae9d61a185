"""The history in lines: what ran, and what failed last. Functions of a transaction; nothing here writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from headway.model.fingerprint import Failure
from headway.model.states import State
from headway.store import targets
from headway.store.db import Tx
from headway.store.pages import Filters, Page, check_limit, record_rows

# How many failures are compared with each other.
FAILURES = 2_000


@dataclass(frozen=True, slots=True)
class Record:
    """One run, as a list shows it: with its job's status, and the beginning of its error. `ran` is in microseconds,
    over all claims of the run that have ended."""

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

    @property
    def headline(self) -> str | None:
        """The first line of its error."""
        return self.error.strip().split("\n", 1)[0] if self.error else None


_COLUMNS = [field.name for field in fields(Record)]


def list_records(
    tx: Tx, tenant_id: int, filters: Filters | None = None, limit: int = 50, cursor: str | None = None
) -> Page[Record]:
    """Runs, those of the newest jobs first. `since` and `until` mean their start, `statuses` those of their jobs."""
    page = record_rows(tx, tenant_id, filters or Filters(), check_limit(limit), cursor)
    named = targets.names(tx, [row[10] for row in page.items])
    return Page([_record(row, named) for row in page.items], page.next)


def _record(row: Sequence[Any], named: Mapping[int, str]) -> Record:
    values = dict(zip(_COLUMNS, row, strict=True))
    target_id, status = values.pop("target"), State(values.pop("status"))
    return Record(**values, status=status, target=None if target_id is None else named.get(target_id))


def latest_failures(tx: Tx, tenant_id: int, limit: int = FAILURES) -> list[Failure]:
    """The runs of failed jobs, the newest first, so many at most."""
    tx.run("pin_plans")
    ((found,),) = tx.run("latest_failures", tenant_id=tenant_id, limit=limit)
    return sorted((Failure(*facts) for facts in json.loads(found)), key=lambda one: -one.job_id)
