"""Checks the job whose stored params a verb runs again: a retry without new params, and a resume.

The check reads tokens, tenants and origins outside the verb's transaction. The transaction compares what it found with
what was checked, and the verb is repeated if the two differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from headway.engine.client.authority import check_retries
from headway.model.jobs.job import JobRecord
from headway.store.db import Tx

if TYPE_CHECKING:
    from headway.engine.client.client import Client

T = TypeVar("T")


class _Changed(Exception):
    """Ends a transaction whose job is not the checked one."""


def placed_again(client: Client, find: Callable[[Tx], JobRecord], place: Callable[[JobRecord | None], T]) -> T:
    """Checks the job that `find` returns, then calls `place` with it.

    The transaction of `place` asks `still_checked` about the job that it runs again. Without a visitor nothing is
    checked, and `place` gets None.
    """
    while True:
        checked = None
        if client.visitor is not None:
            with client.database.read() as tx:
                checked = find(tx)
            check_retries(client, [checked])
        try:
            return place(checked)
        except _Changed:
            continue  # another request changed the job between the check and the transaction


def still_checked(checked: JobRecord | None, job: JobRecord) -> None:
    """Ends the transaction if its job, or the job's params, are not those that were checked."""
    if checked is not None and _decided(checked) != _decided(job):
        raise _Changed


def _decided(job: JobRecord) -> tuple[int, str, str | None]:
    return job.id, job.params, job.unfilled
