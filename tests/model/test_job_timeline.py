"""The timeline of a job: each event in words, and the claims that can be read from them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from headway.model.jobs.job import Actor
from headway.model.jobs.states import State
from headway.text.job_timeline import Spell, spells, tell, timeline

S = State
ADA, WORKER = Actor("user", "7", "ada").text(), Actor("worker", "ab", "box:12").text()


@dataclass(frozen=True)
class Event:
    kind: str
    status: int | None
    at: int
    actor: str = ADA
    fence: int | None = None
    data: str | None = None


LIFE = [
    Event("job.created", S.QUEUED, 10),
    Event("job.claimed", S.RUNNING, 20, WORKER, 1),
    Event("job.stop_requested", S.RUNNING, 25, data='{"stop":"interrupt"}'),
    Event("job.paused", S.PAUSED, 30, WORKER, 1, '{"reason":"interrupted by ada"}'),
    Event("job.resumed", S.QUEUED, 40),
    Event("job.claimed", S.RUNNING, 50, WORKER, 2),
]


def test_a_life_is_told_with_who_and_how_long() -> None:
    told = timeline(LIFE)
    assert [one.words for one in told] == [
        "was made",
        "began to run",
        "was asked to stop (interrupt)",
        "was paused: interrupted by ada",
        "was resumed",
        "began to run again (claim 2)",
    ]
    assert [one.by for one in told] == ["ada", "box:12", "ada", "box:12", "ada", "box:12"]
    assert [one.ran for one in told] == [None, None, None, 10, None, None]
    assert [one.status for one in told] == [S.QUEUED, S.RUNNING, None, S.PAUSED, S.QUEUED, S.RUNNING]


def test_claims_have_a_beginning_and_an_end() -> None:
    assert spells(LIFE) == [Spell(1, "box:12", 20, 30, S.PAUSED), Spell(2, "box:12", 50)]


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        ("job.created", {"retry_of": 4}, "was made as a retry of job 4"),
        ("job.promoted", None, "its time came: it was queued"),
        ("job.promoted", {"reason": "retried now"}, "was brought forward"),
        (
            "job.failed",
            {"failure_kind": "EXCEPTION", "error": "no paper\nat line 3", "retry_in": 10.0},
            "failed (EXCEPTION): no paper; it is tried again after 10 s",
        ),
        (
            "job.failed",
            {"reason": "released by ada", "exhausted": True},
            "failed: released by ada; it is not tried again",
        ),
        ("job.edited", {"priority": 5, "position": 3, "params": "changed"}, "was changed: priority 5, its params"),
        ("job.edited", {}, "was changed"),
        ("job.skipped", {"reason": "expired"}, "was skipped: expired"),
        ("job.completed", {"exit_code": 0}, "completed with exit code 0"),
        ("job.invented", {"a": 1}, "job.invented"),
        ("job.error", {"reason": ""}, "failed, and a person has to decide"),
    ],
)
def test_events_in_words(kind: str, data: Any, words: str) -> None:
    assert tell(kind, None if data is None else json.dumps(data)) == words
