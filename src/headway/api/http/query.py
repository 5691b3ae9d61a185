"""Query parameters that several lists share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Path, Query

from headway.api.schemas import bodies
from headway.model.values import state_names
from headway.model.values.json import check_name, instant
from headway.store.paging import Filters

LARGEST = (1 << 63) - 1
JobId = Annotated[int, Path(ge=1, le=LARGEST)]
Id = Annotated[int, Path(ge=1, le=LARGEST)]
Limit = Annotated[int, Query(ge=1, le=200, description="How many at most")]
Cursor = Annotated[str | None, Query(max_length=300, description="`next` of the page before")]
Text = Annotated[str | None, Query(max_length=300)]
Number = Annotated[int | None, Query(ge=1, le=LARGEST)]


@dataclass(frozen=True, slots=True)
class JobFilterQuery:
    filters: Filters


def _asked(
    status: Annotated[list[str] | None, Query(description="One or several states; also with commas")] = None,
    task: Text = None,
    target: Text = None,
    group_id: Number = None,
    schedule_id: Number = None,
    key: Text = None,
    failure_kind: Text = None,
    created_by: Text = None,
    since: Annotated[str | None, Query(description="Created at or after, RFC 3339")] = None,
    until: Annotated[str | None, Query(description="Created before, RFC 3339")] = None,
    q: Annotated[str | None, Query(max_length=300, description="In task, key, reason and error")] = None,
) -> JobFilterQuery:
    given: dict[str, Any] = {name: value for name, value in locals().items() if value is not None}
    return JobFilterQuery(filters_of(bodies.JobFilter(**given)))


JobFilters = Annotated[JobFilterQuery, Depends(_asked)]


def filters_of(asked: bodies.JobFilter) -> Filters:
    return Filters(
        state_names.states(asked.status or ()),
        asked.task,
        asked.key,
        state_names.failure_kind(asked.failure_kind),
        asked.created_by,
        None if asked.since is None else instant(asked.since, field="since"),
        None if asked.until is None else instant(asked.until, field="until"),
        asked.q,
        None if asked.target is None else check_name(asked.target, field="target"),
        asked.group_id,
        asked.schedule_id,
    )
