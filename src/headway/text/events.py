"""Turns events of a history into sentences. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass

from headway.model.event import Event
from headway.model.jobs.job import Actor

MOST = 300
# These fields name a thing, or would fill a line of a list.
_WHOLE = frozenset({"name", "lane", "url", "definition", "origin", "decided_until"})


@dataclass(frozen=True, slots=True)
class EventText:
    id: int
    at: int
    word: str
    by: str
    details: str


@dataclass(frozen=True, slots=True)
class AuditText:
    """An event of the audit list, about which thing by which actor."""

    id: int
    at: int
    word: str
    subject: str
    by: str
    details: str


def audit_text(event: Event) -> AuditText:
    """Returns an event's word, its thing, its actor and its details without the whole definition."""
    facts = json.loads(event.data) if event.data else {}
    name = subject(event.thing, event.thing_id, facts)
    by = Actor.parse(event.actor).identified
    return AuditText(event.id, event.at, event_text(event).word, name, by, facts_in_words(facts))


def subject(thing: str, thing_id: int, facts: object) -> str:
    """Names a thing by its number, and by its name or address if the event has it."""
    known = facts if isinstance(facts, dict) else {}
    named = next((known[field] for field in ("name", "lane", "url") if known.get(field)), None)
    if thing in ("concurrency", "history"):
        return thing
    return f"{thing} {thing_id}" if named is None else f"{thing} {thing_id} ({named})"


def facts_in_words(facts: object) -> str:
    """Returns the details of an event without its name and whole definition."""
    known = facts if isinstance(facts, dict) else {}
    text = ", ".join(f"{name.replace('_', ' ')}: {_value(known[name])}" for name in known if name not in _WHOLE)
    return text if len(text) <= MOST else f"{text[:MOST]}…"


def event_text(event: Event) -> EventText:
    """Returns an event's word, its actor and its details."""
    word = event.kind.removeprefix(f"{event.thing}.").replace("_", " ")
    return EventText(event.id, event.at, word, Actor.parse(event.actor).shown, _details(event))


def _details(event: Event) -> str:
    facts = json.loads(event.data) if event.data else {}
    if not isinstance(facts, dict):
        return str(facts)[:MOST]
    if facts.keys() == {"stage"}:
        return f"stage {facts['stage'] + 1} is open"  # people count from one
    text = ", ".join(f"{name.replace('_', ' ')}: {_value(value)}" for name, value in facts.items())
    return text if len(text) <= MOST else f"{text[:MOST]}…"


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
