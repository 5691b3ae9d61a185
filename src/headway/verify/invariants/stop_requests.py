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
    wish: str | None = None
    for event in job.events:
        if event.kind == "job.stop_requested":
            # A later request does not replace a cancel.
            wish, asked = (wish, asked) if wish == "cancel" else (facts(event.data).get("stop"), event)
        elif asked is not None and event.status not in (None, RUNNING):
            if not _follows(str(wish), event):
                yield about_job("I-13", job.id, f"{wish} was requested ({asked.where}), but {event.where} followed")
            wish = asked = None
    if job.row is not None and job.events:
        yield from _pending(history, job, wish, asked)


def _follows(wish: str, event: Event) -> bool:
    if event.status in (COMPLETED, SKIPPED):
        return True
    if wish == "cancel":
        return event.status == CANCELLED
    over_budget = facts(event.data).get("failure_kind") == "BUDGET"
    return event.status == PAUSED or (event.status in (ERROR, FAILED) and over_budget)


def _pending(history: History, job: JobHistory, wish: str | None, asked: Event | None) -> Iterator[Finding]:
    assert job.row is not None
    if job.row.stop != wish:
        said = f"the last request is {wish} ({asked.where})" if asked else "it has no stop request"
        yield about_job("I-13", job.id, f"{said}, but its row says {job.row.stop or 'nothing'}")
    elif history.quiet and asked is not None:
        yield about_job("I-13", job.id, f"{wish} was requested ({asked.where}) and it is still {word(job.row.status)}")
