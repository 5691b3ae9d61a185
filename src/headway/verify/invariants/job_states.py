"""Checks the states and the fences of one job.

States: I-02 legal path, I-03 one outcome, I-09 no return. Fences: I-06, I-07. An event is reported for at most one of
them, the most specific one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headway.verify import transitions
from headway.verify.history import History
from headway.verify.report import Finding, about_job
from headway.verify.rows import Event, JobHistory, JobRow, facts, worker_of
from headway.verify.transitions import RUNNING, word

Fault = tuple[str, str]


@dataclass(slots=True)
class _Standing:
    """A job between two of its events."""

    state: int | None = None
    version: int = 0
    fence: int = 0

    @property
    def ended(self) -> bool:
        return self.state is not None and self.state >= transitions.FIRST_TERMINAL


def check(history: History, job: JobHistory) -> Iterator[Finding]:
    if job.row is None or not job.events:
        return
    at = _Standing(version=job.events[0].version - 1)
    for event in job.events:
        for invariant, text in (_gap(at, event), _judge(at, event), _plan(job.row, at, event)):
            if invariant:
                yield about_job(invariant, job.id, text)
        _step(at, event)
    for invariant, text in _compare_with_row(job, at):
        yield about_job(invariant, job.id, text)
    if history.quiet and not at.ended:
        yield about_job("I-03", job.id, f"it has not ended: it is {word(at.state)} since version {at.version}")


def _step(at: _Standing, event: Event) -> None:
    at.version = event.version
    if event.status is not None:
        at.state = event.status
    if event.kind == "job.claimed" and event.fence is not None:
        at.fence = event.fence


NONE: Fault = ("", "")


def _gap(at: _Standing, event: Event) -> Fault:
    if event.version == at.version + 1:
        return NONE
    return "I-02", f"version {at.version} is followed by version {event.version} ({event.kind})"


def _judge(at: _Standing, event: Event) -> Fault:
    if event.kind == transitions.LATE:
        return NONE if event.status == at.state else ("I-07", f"{event.where} changed the state {word(at.state)}")
    if at.ended:
        return _after_the_end(at, event)
    return _late(at, event) or _returned(at, event) or _misfenced(at, event) or _illegal(at, event) or NONE


def _plan(row: JobRow, at: _Standing, event: Event) -> Fault:
    """Checks a change that only a group makes, to a member that waits."""
    released = event.kind == transitions.RELEASED
    if not released and (at.state != transitions.WAITING or event.kind not in transitions.ENDINGS):
        return NONE
    if not released and facts(event.data).get("reason") != transitions.PREDECESSOR_FAILED:
        return NONE
    if row.group_id is None:
        return "I-02", f"{event.where} is for members of a group, and it has none"
    return NONE if at.state == transitions.WAITING else ("I-02", f"{event.where}: it was {word(at.state)}, not WAITING")


def _after_the_end(at: _Standing, event: Event) -> Fault:
    ended = f"it ended {word(at.state)} by version {at.version} at the latest"
    if event.kind in transitions.ENDINGS:
        return "I-03", f"{ended} and ends again as {word(event.status)} ({event.where})"
    if event.status != at.state or event.kind in transitions.CHANGES or event.kind in transitions.LEADS_TO:
        return "I-02", f"{ended}, but {event.where} makes it {word(event.status)}"
    return NONE


def _late(at: _Standing, event: Event) -> Fault | None:
    """Finds a write that was accepted although its worker had lost the claim."""
    if at.state == RUNNING and event.fence is not None and event.fence < at.fence and event.kind != "job.claimed":
        return "I-07", f"{event.where} was accepted under fence {event.fence} while fence {at.fence} held the job"
    if at.state not in transitions.HELD:
        return None
    only_from_running = event.kind in ("job.completed", "job.paused", "job.error")
    ends = event.kind in ("job.failed", "job.skipped")
    if only_from_running or (ends and worker_of(event.actor) is not None):
        return "I-07", f"{event.where} was accepted when the job was {word(at.state)} and had no claim"
    return None


def _returned(at: _Standing, event: Event) -> Fault | None:
    if at.state == RUNNING and event.status is not None and event.status < RUNNING:
        return "I-09", f"RUNNING (version {at.version}) was followed by {word(event.status)} ({event.where})"
    if event.kind == "job.resumed" and at.state not in (*transitions.HELD, transitions.WAITING):
        return "I-09", f"it was resumed from {word(at.state)} ({event.where})"
    return None


def _misfenced(at: _Standing, event: Event) -> Fault | None:
    if event.kind == "job.claimed":
        if event.fence != at.fence + 1:
            return "I-06", f"{event.where} has fence {event.fence} after fence {at.fence}: a claim raises it by one"
    elif at.state == RUNNING and event.status not in (None, RUNNING) and event.fence != at.fence:
        return "I-06", f"{event.where} ends the claim under fence {event.fence}, but the claim has fence {at.fence}"
    return None


def _illegal(at: _Standing, event: Event) -> Fault | None:
    if event.status is None:
        return None
    if event.status not in transitions.LEADS_TO.get(event.kind, (event.status,)):
        return "I-02", f"{event.where} cannot lead to {word(event.status)}"
    if at.state is None:
        return None  # I-01 checks the first event
    if event.kind == "job.created":
        return "I-02", f"{event.where}: it is created a second time"
    if event.kind == transitions.RELANED and at.state not in transitions.CREATED:
        return "I-02", f"{event.where}: it got other lanes while it was {word(at.state)}"
    step = f"{word(at.state)} (version {at.version}) was followed by {word(event.status)} ({event.where})"
    if event.status == at.state and event.kind not in transitions.MOVING:
        return None
    if event.kind in transitions.STILL or event.status not in transitions.LEGAL.get(at.state, ()):
        return "I-02", f"{step}: there is no such move"
    if at.fence > 0 and (at.state, event.status) in transitions.ONLY_UNCLAIMED:
        return "I-02", f"{step}, but it had been claimed"
    return None


def _compare_with_row(job: JobHistory, at: _Standing) -> Iterator[Fault]:
    row = job.row
    assert row is not None
    if row.version != at.version:
        yield "I-02", f"its history ends with version {at.version}, its row has version {row.version}"
    if row.status != at.state:
        yield "I-02", f"its history ends {word(at.state)} (version {at.version}), its row says {word(row.status)}"
    if row.fence != at.fence:
        yield "I-06", f"its last claim has fence {at.fence}, its row has fence {row.fence}"
