"""Turns the events of a job into the lines of its timeline. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from headway.model.explain.forecast import span
from headway.model.jobs.job import Actor
from headway.model.jobs.states import State


class StoredEvent(Protocol):
    """An event as it is stored."""

    @property
    def kind(self) -> str: ...
    @property
    def status(self) -> int | None: ...
    @property
    def at(self) -> int: ...
    @property
    def actor(self) -> str: ...
    @property
    def fence(self) -> int | None: ...
    @property
    def data(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One line of a timeline.

    `status` is the new state if the event changed it, `ran` the length of the claim that the event ended.
    """

    at: int
    words: str
    by: str
    kind: str
    status: State | None = None
    claim: int | None = None
    ran: int | None = None


@dataclass(frozen=True, slots=True)
class Spell:
    """A claim: its worker, start, end and final state. `until` is None while the claim lasts."""

    fence: int
    by: str
    since: int
    until: int | None = None
    ended: State | None = None


def timeline(events: Sequence[StoredEvent]) -> list[TimelineEntry]:
    found: list[TimelineEntry] = []
    status: int | None = None
    claimed: int | None = None
    for event in events:
        changed = event.status is not None and event.status != status
        ran = event.at - claimed if claimed is not None and changed and event.kind != "job.claimed" else None
        claimed = event.at if event.kind == "job.claimed" else None if ran is not None else claimed
        status = event.status if event.status is not None else status
        found.append(
            TimelineEntry(
                event.at,
                tell(event.kind, event.data, event.fence),
                Actor.parse(event.actor).shown,
                event.kind,
                State(event.status) if changed and event.status is not None else None,
                event.fence if event.kind == "job.claimed" else None,
                ran,
            )
        )
    return found


def spells(events: Sequence[StoredEvent]) -> list[Spell]:
    """Returns the claims of a job, oldest first."""
    found: list[Spell] = []
    for event in events:
        if event.kind == "job.claimed" and event.fence is not None:
            found.append(Spell(event.fence, Actor.parse(event.actor).shown, event.at))
        elif found and found[-1].until is None and event.status not in (None, State.RUNNING):
            found[-1] = replace(found[-1], until=event.at, ended=State(event.status))
    return found


_PLAIN = {
    "job.claimed": "began to run",
    "job.held": "was put on hold",
    "job.unheld": "is no longer on hold",
    "job.resumed": "was resumed",
    "job.released": "its stage was opened",
    "job.completed": "completed",
    "job.resolved": "was resolved with a result by hand",
    "job.exhausted": "its retries are used up",
    "job.relaned": "needs other lanes since the limits changed",
    "job.not_stopping": "was asked to stop and does not",
    "job.late_write_rejected": "a late write of an earlier claim was refused",
}


def tell(kind: str, data: str | None, fence: int | None = None) -> str:
    """Describes an event without its time and actor; an unknown kind is returned unchanged."""
    facts: Mapping[str, Any] = json.loads(data) if data else {}
    match kind:
        case "job.created":
            return f"was made as a retry of job {facts['retry_of']}" if facts.get("retry_of") else "was made"
        case "job.claimed":
            return _PLAIN[kind] if fence in (None, 1) else f"{_PLAIN[kind]} again (claim {fence})"
        case "job.promoted":
            return "was brought forward" if facts.get("reason") == "retried now" else "its time came: it was queued"
        case "job.stop_requested":
            return f"was asked to stop ({facts.get('stop', 'cancel')})"
        case "job.edited":
            return _changes("was changed", facts)
        case "job.moved":
            return "got another place in the queue"
        case "job.completed" if facts.get("exit_code") is not None:
            return f"completed with exit code {facts['exit_code']}"
        case "job.failed":
            return _failed(facts)
        case "job.skipped":
            return _because("was skipped", facts)
        case "job.cancelled":
            return "was cancelled"
        case "job.paused":
            return _because("was paused", facts)
        case "job.error":
            return _because("failed, and a person has to decide", facts)
    return _PLAIN.get(kind, kind)


def _because(text: str, facts: Mapping[str, Any]) -> str:
    why = facts.get("reason") or facts.get("error")
    kind = f" ({facts['failure_kind']})" if facts.get("failure_kind") else ""
    return f"{text}{kind}: {str(why).splitlines()[0]}" if why else f"{text}{kind}"


def _failed(facts: Mapping[str, Any]) -> str:
    text = _because("failed", facts)
    if facts.get("retry_in") is not None:
        return f"{text}; it is tried again after {span(round(float(facts['retry_in']) * 1e6))}"
    return f"{text}; it is not tried again" if facts.get("exhausted") else text


def _changes(text: str, facts: Mapping[str, Any]) -> str:
    """Names the changed fields. Times have no value here, because the page formats them."""
    words = {"not_before": "its time", "expires_at": "its expiry", "params": "its params", "position": None}
    named = [f"priority {facts['priority']}"] if "priority" in facts else []
    named += [word for name, word in words.items() if word is not None and name in facts]
    return f"{text}: {', '.join(named)}" if named else text
