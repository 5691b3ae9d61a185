"""What several pages tell in words: events of a history, and what a held job needs before it goes on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from headway.model.job import Actor
from headway.model.prospects import Case, needs_budget
from headway.store.reading import Event, JobView

MOST = 300


@dataclass(frozen=True, slots=True)
class Told:
    id: int
    at: int
    word: str
    by: str
    details: str


def told(event: Event) -> Told:
    """What happened, who did it, and what is known about it."""
    word = event.kind.removeprefix(f"{event.thing}.").replace("_", " ")
    return Told(event.id, event.at, word, Actor.parse(event.actor).shown, _details(event))


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


def used_up(held: Iterable[JobView], now: int) -> dict[int, str]:
    """Those of these held jobs that a plain resume is refused, with the meter that is used up."""
    found = {one.job.id: _over(one, now) for one in held}
    return {job_id: over for job_id, over in found.items() if over is not None}


def _over(one: JobView, now: int) -> str | None:
    return needs_budget(Case(one.job, now, spent=one.report.spent if one.report is not None else {}))
