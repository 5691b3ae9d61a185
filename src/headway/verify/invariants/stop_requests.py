"""I-13: an accepted stop request ends in the transition that it causes.

Another end may come first.
"""

from __future__ import annotations

from collections.abc import Iterator

from headway.verify.history import History
from headway.verify.report import Finding, about_job
from headway.verify.rows import Event, JobHistory, facts
from headway.verify.transitions import CANCELLED, COMPLETED, ERROR, FAILED, PAUSED, RUNNING, SKIPPED, word


def check(history: History, job: JobHistory) -> Iterator[Finding]:
    asked: Event | None = None
    stop: str | None = None
    for event in job.events:
        if event.kind == "job.stop_requested":
            # A later request does not replace a cancel.
            stop, asked = (stop, asked) if stop == "cancel" else (facts(event.data).get("stop"), event)
        elif asked is not None and event.status not in (None, RUNNING):
            if not _follows(str(stop), event):
                yield about_job("I-13", job.id, f"{stop} was requested ({asked.where}), but {event.where} followed")
            stop = asked = None
    if job.row is not None and job.events:
        yield from _pending(history, job, stop, asked)


def _follows(stop: str, event: Event) -> bool:
    if event.status in (COMPLETED, SKIPPED):
        return True
    if stop == "cancel":
        return event.status == CANCELLED
    over_budget = facts(event.data).get("failure_kind") == "BUDGET"
    return event.status == PAUSED or (event.status in (ERROR, FAILED) and over_budget)


def _pending(history: History, job: JobHistory, stop: str | None, asked: Event | None) -> Iterator[Finding]:
    assert job.row is not None
    if job.row.stop != stop:
        recorded = f"the last request is {stop} ({asked.where})" if asked else "it has no stop request"
        yield about_job("I-13", job.id, f"{recorded}, but its row says {job.row.stop or 'nothing'}")
    elif history.quiet and asked is not None:
        yield about_job("I-13", job.id, f"{stop} was requested ({asked.where}) and it is still {word(job.row.status)}")
