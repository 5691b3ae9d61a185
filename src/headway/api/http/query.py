"""Query parameters that several lists share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Path, Query

from headway.api.schemas.common import MOST_TEXT, MOST_TIME, Words
from headway.api.schemas.jobs import JobFilterBody
from headway.model.jobs.filter import JobFilter

LARGEST = (1 << 63) - 1
JobId = Annotated[int, Path(ge=1, le=LARGEST)]
Id = Annotated[int, Path(ge=1, le=LARGEST)]
Limit = Annotated[int, Query(ge=1, le=200, description="How many at most")]
Cursor = Annotated[str | None, Query(max_length=300, description="`next` of the page before")]
Text = Annotated[str | None, Query(max_length=MOST_TEXT)]
Number = Annotated[int | None, Query(ge=1, le=LARGEST)]


@dataclass(frozen=True, slots=True)
class JobFilterQuery:
    filters: JobFilter


def _asked(
    status: Annotated[Words | None, Query(description="One or several states; also with commas")] = None,
    task: Text = None,
    target: Text = None,
    group_id: Number = None,
    schedule_id: Number = None,
    key: Text = None,
    failure_kind: Text = None,
    created_by: Text = None,
    since: Annotated[str | None, Query(max_length=MOST_TIME, description="Created at or after, RFC 3339")] = None,
    until: Annotated[str | None, Query(max_length=MOST_TIME, description="Created before, RFC 3339")] = None,
    exhausted: Annotated[bool | None, Query(description="Failed without an automatic retry, or not")] = None,
    q: Annotated[str | None, Query(max_length=300, description="In task, key, reason and error")] = None,
) -> JobFilterQuery:
    given: dict[str, Any] = {name: value for name, value in locals().items() if value is not None}
    return JobFilterQuery(filters_of(JobFilterBody(**given)))


JobFilters = Annotated[JobFilterQuery, Depends(_asked)]


def filters_of(asked: JobFilterBody) -> JobFilter:
    return JobFilter.from_query(asked.model_dump())
