"""One verb for every job that fits a filter, after the caller has seen how many those are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headway.errors import BadInput, HeadwayError, Unreachable, WrongState
from headway.store.pages import BUDGET, MAX_LIMIT, Filters, job_rows

if TYPE_CHECKING:
    from headway.engine.client import Client

ACTIONS = ("cancel", "interrupt", "resume", "release", "retry")


@dataclass(frozen=True, slots=True)
class Done:
    """What became of each job: those that were changed (or made, by a retry), and those whose state refused it."""

    matched: int
    changed: list[int]
    refused: list[tuple[int, HeadwayError]]


def matching(client: Client, filters: Filters) -> list[int]:
    """The numbers of the jobs that fit, newest first; too many are refused."""
    found: list[int] = []
    cursor: str | None = None
    while True:
        with client.database.read() as tx:
            page = job_rows(tx, client.tenant_id, filters, MAX_LIMIT, cursor)
        found += [job.id for job in page.items]
        if len(found) > BUDGET:
            raise BadInput(f"more than {BUDGET} jobs fit: narrow the filter", field="filter")
        if page.next is None:
            return found
        cursor = page.next


def act(client: Client, filters: Filters, action: str, *, expected: int) -> Done:
    """Each job is a transaction of its own: what one refuses does not keep the others from it."""
    if action not in ACTIONS:
        raise BadInput(f"action must be one of {', '.join(ACTIONS)}, not {action!r}", field="action")
    ids = matching(client, filters)
    if len(ids) != expected:
        text = f"{len(ids)} jobs fit, not {expected}: look again, and say that number"
        raise WrongState(text, code="count_mismatch", status=str(len(ids)))
    verb: Callable[[int], Any] = getattr(client, action)
    changed: list[int] = []
    refused: list[tuple[int, HeadwayError]] = []
    for job_id in ids:
        try:
            changed.append(verb(job_id).id)
        except Unreachable:
            raise
        except HeadwayError as error:
            refused.append((job_id, error))
    return Done(len(ids), changed, refused)
