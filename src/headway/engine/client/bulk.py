"""Applies one verb to every job that matches a filter.

The caller confirms the number of jobs first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from headway.errors import BadInput, HeadwayError, Unreachable, WrongState
from headway.model.jobs.filter import JobFilter
from headway.store.paging import BUDGET, MAX_LIMIT, job_rows, make_cursor

if TYPE_CHECKING:
    from headway.engine.client.client import Client

ACTIONS = ("cancel", "interrupt", "resume", "release", "retry")


@dataclass(frozen=True, slots=True)
class Done:
    """The changed (or, by a retry, created) jobs, and the refused ones.

    `left` jobs also match and were not tried; all of them are older than `last`.
    """

    matched: int
    changed: list[int]
    refused: list[tuple[int, HeadwayError]]
    left: int = 0
    last: int | None = None


def matching(client: Client, filters: JobFilter, before: int | None = None) -> list[int]:
    """Returns the ids of the matching jobs, newest first, older than `before`.

    Refuses more than BUDGET.
    """
    found: list[int] = []
    cursor = None if before is None else make_cursor(before)
    while True:
        with client.database.read() as tx:
            page = job_rows(tx, client.tenant_id, filters, MAX_LIMIT, cursor)
        found += [job.id for job in page.items]
        if len(found) > BUDGET:
            raise BadInput(f"more than {BUDGET} jobs fit", hint="narrow the filter", field="filter")
        if page.next is None:
            return found
        cursor = page.next


def act(
    client: Client,
    filters: JobFilter,
    action: str,
    *,
    expected: int,
    most: int | None = None,
    before: int | None = None,
) -> Done:
    """Applies the verb to each matching job, in a transaction per job.

    A job that refuses the verb does not stop the others. `most` limits the number of jobs in this call; `before`
    continues with the jobs older than the last one. Raises WrongState if the number of matching jobs is not `expected`.
    """
    if action not in ACTIONS:
        raise BadInput(f"action must be one of {', '.join(ACTIONS)}, not {action!r}", field="action")
    ids = matching(client, filters, before)
    # On continuation, fewer jobs than expected are fine, because some may have changed state meanwhile. More are
    # refused.
    if len(ids) != expected and (before is None or len(ids) > expected):
        text = f"{len(ids)} jobs fit, not {expected}: check the list again and confirm that number"
        raise WrongState(text, code="count_mismatch", status=str(len(ids)))
    # All jobs of a retry chain may match the filter. Only the last of them is retried.
    verb: Callable[[int], Any] = partial(client.retry, again=False) if action == "retry" else getattr(client, action)
    changed: list[int] = []
    refused: list[tuple[int, HeadwayError]] = []
    now = ids if most is None else ids[:most]
    for job_id in now:
        try:
            changed.append(verb(job_id).id)
        except Unreachable:
            raise
        except HeadwayError as error:
            refused.append((job_id, error))
    return Done(len(ids), changed, refused, len(ids) - len(now), now[-1] if now else None)
