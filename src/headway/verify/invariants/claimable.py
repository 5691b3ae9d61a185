"""Checks the derived column `gate`.

It is open exactly for the jobs that their own state and their target allow to be claimed. A gate that is wrongly open
could break a limit (I-05). A gate that is wrongly closed makes claims pass the job over (I-11).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headway.verify.history import History
from headway.verify.report import Finding, about_job
from headway.verify.transitions import QUEUED


class LineRow(NamedTuple):
    """The queue of a target.

    Its holder runs, is held, or was resumed and waits for its next claim.
    """

    target_id: int
    paused_at: int | None
    holder: int | None
    status: int | None
    first: int | None
    open: int | None


def check(history: History) -> Iterator[Finding]:
    for (job_id,) in history.tx.run("verify_shut"):
        yield about_job("I-11", job_id, "it is QUEUED without a target and its gate is closed")
    # Touched targets are left out, because the next claim chooses their first job again.
    for line in map(LineRow._make, history.tx.run("verify_lines")):
        chosen = _chosen(line)
        if line.open is not None and line.open != chosen:
            invariant = "I-05" if chosen is None or line.holder is not None else "I-11"
            yield about_job(invariant, line.open, f"its gate is open, but {_state(line)}")
        elif chosen is not None and line.open is None:
            yield about_job("I-11", chosen, f"it may be claimed on target {line.target_id} and its gate is closed")


def _chosen(line: LineRow) -> int | None:
    """Returns the one job of a target that may be claimed; None if there is none."""
    if line.paused_at is not None:
        return None
    if line.holder is not None:
        return line.holder if line.status == QUEUED else None
    return line.first


def _state(line: LineRow) -> str:
    if line.paused_at is not None:
        return f"target {line.target_id} is paused"
    if line.holder is not None:
        return f"job {line.holder} has target {line.target_id}"
    return f"job {line.first} is first on target {line.target_id}"
