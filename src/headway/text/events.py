"""Turns events of a history into sentences. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass

from headway.model.event import Event
from headway.model.jobs.job import Actor

MOST = 300


@dataclass(frozen=True, slots=True)
class EventText:
    id: int
    at: int
    word: str
    by: str
    details: str


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
