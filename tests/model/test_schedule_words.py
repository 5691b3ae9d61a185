"""A schedule in words: what its settings mean, what comes next, and why a time did not run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headway.model.schedules.definition import CATCH_UPS, ORIGINS, OVERLAPS, Definition
from headway.model.schedules.schedule import Schedule, Tick
from headway.model.schedules.ticks import INACTIVE, LIMITED, OUTSIDE, OVERLAP, TOLERANCE
from headway.text.schedules import (
    FAILURE_WORDS,
    ORIGIN_WORDS,
    OVERLAP_WORDS,
    catch_up_words,
    change_words,
    failure_words,
    jitter_words,
    outlook,
    overwritten,
    tick_words,
)

NOW = 1_770_000_000_000_000
HOUR = 3_600_000_000


def definition(**fields: Any) -> Definition:
    return Definition.parse({"cron": "0 3 * * *", "steps": [{"task": "sync"}], **fields})


def schedule(next_at: int | None = NOW + HOUR, *, enabled: int = 1, **fields: Any) -> Schedule:
    text = definition(**fields).text()
    return Schedule(1, 1, "nightly", text, enabled, "api", NOW - HOUR, next_at, None, NOW - HOUR, "{}", None, 1)


def tick(outcome: str, reason: str | None = None) -> Tick:
    return Tick(1, 1, 1, NOW, NOW, 1, outcome, reason, None, NOW)


def test_every_choice_is_explained() -> None:
    assert set(OVERLAP_WORDS) == set(OVERLAPS)
    assert set(ORIGIN_WORDS) == set(ORIGINS)
    said = {catch_up_words(definition(catch_up=name)) for name in CATCH_UPS}
    assert len(said) == len(CATCH_UPS)
    assert {failure_words(name) for name in ("stop", "continue", "skip")} == set(FAILURE_WORDS.values())


def test_window_and_cap_are_said_only_where_they_count() -> None:
    """`last` looks back as far as the downtime was, whatever the window."""
    assert "2h" in catch_up_words(definition(catch_up="all", window="2h", cap=7))
    assert "last 7 of them" in catch_up_words(definition(catch_up="all", window="2h", cap=7))
    assert "2h" not in catch_up_words(definition(catch_up="last", window="2h"))


def test_jitter_and_a_policy_of_ones_own() -> None:
    assert "10m late" in jitter_words(definition(jitter="10m"))
    assert jitter_words(definition()) == "Each time fires when it comes."
    assert "policies:gentle" in failure_words("policies:gentle")


def test_an_origin_limits_edits() -> None:
    assert overwritten("api") is None
    assert "until a scheduler with that code starts" in str(overwritten("code"))
    assert "applied again" in str(overwritten("file"))


@pytest.mark.parametrize(
    ("one", "tone", "part"),
    [
        (schedule(), "good", "It fires in 60 min."),
        (schedule(enabled=0), "held", "disabled"),
        (schedule(None), "quiet", "times are over"),
        (schedule(NOW), "runs", "due now"),
        (schedule(NOW - TOLERANCE), "runs", "due now"),
        (schedule(NOW - TOLERANCE - 1), "bad", "no scheduler is at work"),
        (replace(schedule(), definition='{"moon": "full"}'), "bad", "cannot read"),
    ],
)
def test_the_next_states(one: Schedule, tone: str, part: str) -> None:
    found, text = outlook(one, NOW, active=False)
    assert found == tone
    assert part in text


@pytest.mark.parametrize(
    ("overlap", "part"),
    [("skip", "unless"), ("queue", "waits for its end"), ("allow", "60 min."), ("cancel_running", "cancelled first")],
)
def test_an_execution_under_way_may_be_in_the_way(overlap: str, part: str) -> None:
    assert part in outlook(schedule(overlap=overlap), NOW, active=True)[1]


def test_why_a_time_did_not_run() -> None:
    reasons = [
        tick_words(tick("SKIPPED", reason)) for reason in (OVERLAP, OUTSIDE, INACTIVE, LIMITED, "no task 'x'", None)
    ]
    others = [tick_words(tick(outcome)) for outcome in ("FIRED", "MISSED", "COALESCED")]
    assert len({*reasons, *others}) == 9
    assert tick_words(tick("SKIPPED", "no task 'x'")) == "It could not run: no task 'x'"


def test_the_changes_of_an_edit() -> None:
    before = {"name": "a", "definition": definition().facts()}
    after = {"name": "b", "definition": definition(cron="0 4 * * *").facts()}
    assert change_words("schedule.changed", before, after) == ["name a → b", "cron 0 3 * * * → 0 4 * * *"]
    assert change_words("schedule.created", None, after) == []
    assert change_words("schedule.enabled", before, before) == []
