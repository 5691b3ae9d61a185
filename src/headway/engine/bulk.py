"""One verb for every job that fits a filter, after the caller has seen how many those are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from headway.errors import BadInput, HeadwayError, Unreachable, WrongState
from headway.store.pages import BUDGET, MAX_LIMIT, Filters, job_rows, make_cursor

if TYPE_CHECKING:
    from headway.engine.client import Client

ACTIONS = ("cancel", "interrupt", "resume", "release", "retry")


@dataclass(frozen=True, slots=True)
class Done:
    """What became of each job: those that were changed (or made, by a retry), and those whose state refused it. `left`:
    so many more fit, all older than `last`."""

    matched: int
    changed: list[int]
    refused: list[tuple[int, HeadwayError]]
    left: int = 0
    last: int | None = None


def matching(client: Client, filters: Filters, before: int | None = None) -> list[int]:
    """The numbers of the jobs that fit, newest first, older than a given one; too many are refused."""
    found: list[int] = []
    cursor = None if before is None else make_cursor(before)
    while True:
        with client.database.read() as tx:
            page = job_rows(tx, client.tenant_id, filters, MAX_LIMIT, cursor)
        found += [job.id for job in page.items]
        if len(found) > BUDGET:
            raise BadInput(f"more than {BUDGET} jobs fit: narrow the filter", field="filter")
        if page.next is None:
            return found
        cursor = page.next


def act(
    client: Client,
    filters: Filters,
    action: str,
    *,
    expected: int,
    most: int | None = None,
    before: int | None = None,
) -> Done:
    """Each job is a transaction of its own: what one refuses does not keep the others from it. `most`: no more than so
    many of them now; `before`: to go on with those older than the last one."""
    if action not in ACTIONS:
        raise BadInput(f"action must be one of {', '.join(ACTIONS)}, not {action!r}", field="action")
    ids = matching(client, filters, before)
    # Some of those that were left may have gone on by themselves meanwhile; more than were spoken of are too many.
    if len(ids) != expected and (before is None or len(ids) > expected):
        text = f"{len(ids)} jobs fit, not {expected}: look again, and say that number"
        raise WrongState(text, code="count_mismatch", status=str(len(ids)))
    # The jobs of a chain fit the same filter, and each stands for the same work: only the last is tried again.
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
