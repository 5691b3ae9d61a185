"""Definitions: what is refused and where; and which nominal times fire, are skipped, missed or coalesced."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest

from headway.engine.client.schedules import upcoming
from headway.errors import BadInput
from headway.model.schedules.definition import Definition, stages_of
from headway.model.schedules.schedule import anchor_of
from headway.model.schedules.ticks import (
    OUTSIDE,
    TOLERANCE,
    Decision,
    PlannedTick,
    decide,
    jitter_of,
    next_due,
    times_of,
)
from headway.model.values.times import instant, instant_text

STEPS = [{"task": "sync"}]
MINUTE, HOUR, DAY = 60_000_000, 3_600_000_000, 86_400_000_000


def at(text: str) -> int:
    return instant(f"2026-{text}Z", field="at")


NOON = at("03-02T12:00:00")


def define(**fields: Any) -> Definition:
    when = {} if fields.keys() & {"interval", "times", "cron"} else {"cron": "0 * * * *"}
    return Definition.parse({**when, "steps": STEPS, **fields})


def made(definition: Definition, *, decided_until: int, now: int, **wishes: Any) -> Decision:
    return decide(definition, NOON, schedule_id=7, decided_until=decided_until, now=now, **wishes)


def shown(decision: Decision) -> list[tuple[int, int, str]]:
    """First time, how many, outcome; with the reason where there is one."""
    return [
        (tick.nominal_at, tick.count, tick.outcome + (f": {tick.reason}" if tick.reason else ""))
        for tick in decision.ticks
    ]


# --- definitions ---


@pytest.mark.parametrize(
    ("fields", "field", "hint"),
    [
        ({"cron": "0 0 31 2 *"}, "cron", "never comes"),
        ({"cron": "* * * *"}, "cron", "4 fields"),
        ({"cron": "0 0 * * * *"}, "cron", "five"),
        ({"cron": 5}, "cron", "text"),
        ({"timezone": "Europe/Berln"}, "timezone", "Europe/Berlin"),
        ({"timezone": "Mars/Base"}, "timezone", "IANA"),
        ({"steps": []}, "steps", "at least one step"),
        ({"steps": None}, "steps", "a template or steps"),
        ({"template": "x"}, "steps", "cannot be combined with template"),
        ({"interval": 60}, "interval", "cannot be combined with cron"),
        ({"steps": [{"task": "a"}, {"task": "b", "index": -1}]}, "steps[1].index", "whole number from 0"),
        ({"steps": [{"task": "a", "index": True}]}, "steps[0].index", "whole number"),
        ({"steps": [{"task": "a", "name": "x"}, {"task": "b", "name": "x"}]}, "steps[1].name", "rename one of them"),
        ({"steps": [{"task": "a", "template": "b"}]}, "steps[0].task", "not both"),
        ({"steps": [{"name": "a"}]}, "steps[0].task", "a task or a template"),
        ({"steps": [{"type": "RunProfile"}]}, "steps[0].type", "is a template: give `template`"),
        ({"steps": [{"kind": "Executable"}]}, "steps[0].kind", "the task `command`"),
        ({"steps": [{"task": "a", "tiemout": 5}]}, "steps[0].tiemout", "timeout"),
        ({"steps": [{"task": "a", "continue_on_failure": "no"}]}, "steps[0].continue_on_failure", "true or false"),
        ({"steps": [{"task": "a", "params": [1]}]}, "steps[0].params", "dict"),
        ({"steps": ["a"]}, "steps[0]", "must be a step"),
        ({"steps": {"task": "a"}}, "steps", "list"),
        ({"overlap": "skpi"}, "overlap", "did you mean skip"),
        ({"catch_up": "lst"}, "catch_up", "did you mean last"),
        ({"on_failure": "stpo"}, "on_failure", "did you mean stop"),
        ({"cap": 0}, "cap", "1 to 100"),
        ({"window": 0}, "window", "at least 1s"),
        ({"jitter": "2d"}, "jitter", "1d"),
        ({"cron": "* * * * *", "jitter": "1h"}, "jitter", "which is 1m"),
        ({"cron": "0 9,17 * * *", "jitter": "8h"}, "jitter", "which is 8h"),
        ({"cron": "0 1,23 * * *", "jitter": "2h"}, "jitter", "which is 2h"),
        ({"cron": "0 1,23 28,29 2 *", "jitter": "2h"}, "jitter", "which is 2h"),
        ({"cron": "0 0 * * *", "jitter": "1d"}, "jitter", "which is 1d"),
        ({"start": "9999-01-01T00:00:00Z"}, "start", "9998-12-31"),
        ({"start": "2026-03-02T00:00:00Z", "end": "2026-03-01T00:00:00Z"}, "end", "before start"),
        ({"start": "2026-03-02 00:00"}, "start", "RFC 3339"),
        ({"colour": 1}, "colour", "no such field"),
        ({"overlp": "skip"}, "overlp", "did you mean overlap"),
        ({"params": "a"}, "params", "dict"),
    ],
)
def test_impossible_values_are_refused_with_place_and_remedy(fields: dict[str, Any], field: str, hint: str) -> None:
    with pytest.raises(BadInput) as caught:
        Definition.parse({"cron": "0 * * * *", "steps": STEPS, **fields})
    assert caught.value.field == field
    assert hint in str(caught.value)
    assert field in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"interval": 0.5}, "interval"),
        ({"interval": 60, "jitter": 60}, "jitter"),
        ({"times": []}, "times"),
        ({"times": "2026-03-01T09:00:00Z"}, "times"),
        ({"times": ["2026-03-01T09:00:00"]}, "times[0]"),
        ({"times": ["2026-03-01T09:00:00Z", "9999-12-31T23:59:00Z"], "jitter": "1h"}, "times[1]"),
        ({"times": ["2026-03-01T09:00:00Z", "2026-03-01T10:00:00Z"], "jitter": "1h"}, "jitter"),
        ({"interval": 60, "start": "9999-12-31T23:59:00Z"}, "start"),
        ({}, "times"),
    ],
)
def test_intervals_and_times_are_checked_too(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInput) as caught:
        Definition.parse({"steps": STEPS, **fields})
    assert caught.value.field == field


@pytest.mark.parametrize(
    "fields",
    [
        {"cron": "0 9,17 * * *", "jitter": "7h59m"},
        {"cron": "0 1,23 * * mon", "jitter": "21h"},
        {"cron": "0 0 1 * *", "jitter": "1d"},
        {"times": ["2026-03-01T09:00:00Z"], "jitter": "1d"},
        {"cron": "0 0 * * *", "end": "9999-12-31T23:59:59Z"},
    ],
)
def test_jitter_may_be_as_long_as_no_two_ticks_can_change_places(fields: dict[str, Any]) -> None:
    Definition.parse({"steps": STEPS, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"interval": "1d", "start": "9998-12-31T12:00:00Z", "jitter": "23h"},
        {"times": ["9998-12-31T23:59:59Z"], "jitter": "1d", "timezone": "Pacific/Kiritimati"},
        {"cron": "59 23 * * *", "start": "9998-12-31T12:00:00Z", "jitter": "23h"},
    ],
)
def test_the_last_time_of_all_can_be_told_and_none_comes_after_it(fields: dict[str, Any]) -> None:
    definition = define(**fields)
    anchor = anchor_of(definition, NOON)
    due = next_due(definition, anchor, 7, NOON)
    assert due is not None
    assert instant_text(due) >= "9998-12-31"
    (only,) = upcoming(definition, anchor, NOON, 2)
    assert times_of(definition, anchor).next(only.at) is None


def test_a_definition_is_stored_and_read_back_as_it_was() -> None:
    written = define(
        cron=" 30 2  * * MON-FRI",
        timezone="europe/berlin",
        params={"a": [1, {"b": None}]},
        steps=[
            {"task": "a"},
            {"task": "a", "index": 3, "params": {"n": 1}, "timeout": "5m"},
            {"template": "t", "index": 3},
        ],
        overlap="queue",
        catch_up="all",
        window="2h",
        jitter="30s",
        start="2026-01-01T00:00:00+01:00",
        note="nightly",
    )
    assert Definition.read(written.text()) == written
    assert written.cron == "30 2 * * mon-fri"
    assert written.timezone == "Europe/Berlin"
    assert [step.name for step in written.steps] == ["a", "a 2", "t"]
    assert [step.index for step in written.steps] == [0, 3, 3]
    assert stages_of(written.steps) == [0, 1, 1]


def test_steps_without_an_index_come_one_after_the_other() -> None:
    steps = define(steps=[{"task": "a"}, {"task": "b"}, {"task": "c", "index": 1}, {"task": "d"}]).steps
    assert [step.index for step in steps] == [0, 1, 1, 2]


def test_a_change_keeps_what_it_does_not_name_and_replaces_when_and_what() -> None:
    before = define(overlap="queue", note="x")
    after = before.changed({"interval": "10m", "note": None})
    assert (after.cron, after.interval, after.overlap, after.note) == (None, 600.0, "queue", None)
    assert after.steps == before.steps
    assert after.changed({"template": "t"}).steps == ()


# --- nominal times ---


def test_intervals_count_from_the_anchor() -> None:
    times = times_of(define(interval=90), NOON)
    assert list(times.between(NOON - DAY, NOON + 4 * MINUTE)) == [NOON, NOON + 90_000_000, NOON + 3 * MINUTE]
    assert times.count(NOON, NOON + 4 * MINUTE) == 2
    assert times.last(NOON - DAY, NOON + 4 * MINUTE, 2) == [NOON + 90_000_000, NOON + 3 * MINUTE]
    assert times.next(NOON) == NOON + 90_000_000
    assert times.next(NOON - 1) == NOON


def test_listed_times_come_once_each_in_order() -> None:
    texts = ["2026-03-02T13:00:00Z", "2026-03-02T12:00:00Z", "2026-03-02T14:00:00+01:00"]
    times = times_of(define(times=texts), 0)
    assert list(times.between(0, NOON * 2)) == [NOON, NOON + HOUR]
    assert times.next(NOON + HOUR) is None


def test_start_and_end_bound_the_times() -> None:
    bounded = define(start="2026-03-02T10:30:00Z", end="2026-03-02T12:00:00Z")
    times = times_of(bounded, NOON)
    assert list(times.between(0, NOON + DAY)) == [NOON - HOUR, NOON]
    assert times.next(0) == NOON - HOUR
    assert times.next(NOON) is None
    assert times.count(NOON + HOUR, NOON + DAY) == 0
    assert times.last(NOON + HOUR, NOON + DAY, 3) == []


def test_jitter_is_the_same_for_everybody_and_spread_out() -> None:
    found = [jitter_of(7, NOON + n * HOUR, 60.0) for n in range(200)]
    assert found == [jitter_of(7, NOON + n * HOUR, 60.0) for n in range(200)]
    assert all(0 <= one < 60_000_000 for one in found)
    assert min(found) < 5_000_000 < 55_000_000 < max(found)
    assert jitter_of(8, NOON, 60.0) != jitter_of(7, NOON, 60.0)
    assert jitter_of(7, NOON, 0.0) == 0


# --- decisions ---


def test_a_tick_on_time_fires_and_the_next_one_is_known() -> None:
    decision = made(define(), decided_until=NOON - 1, now=NOON + 5)
    assert decision == Decision(NOON + 5, (PlannedTick(NOON, NOON, 1, "FIRED"),), NOON + HOUR)


def test_nothing_is_decided_twice_and_a_clock_put_back_fires_nothing() -> None:
    decision = made(define(), decided_until=NOON, now=NOON + 10)
    assert shown(decision) == []
    back = made(define(), decided_until=NOON, now=NOON - 5 * HOUR)
    assert back == Decision(NOON, (), NOON + HOUR)


@pytest.mark.parametrize(
    ("overlap", "active", "waiting", "outcome", "waits", "cancels"),
    [
        ("skip", False, False, "FIRED", False, False),
        ("skip", True, False, "SKIPPED", False, False),
        ("queue", False, False, "FIRED", False, False),
        ("queue", True, False, "FIRED", True, False),
        ("queue", True, True, "SKIPPED", False, False),
        ("allow", True, True, "FIRED", False, False),
        ("cancel_running", False, False, "FIRED", False, False),
        ("cancel_running", True, False, "FIRED", True, True),
        ("cancel_running", True, True, "SKIPPED", False, False),
    ],
)
def test_overlap(overlap: str, active: bool, waiting: bool, outcome: str, waits: bool, cancels: bool) -> None:
    decision = made(define(overlap=overlap), decided_until=NOON - 1, now=NOON, active=active, waiting=waiting)
    reason = "overlap" if outcome == "SKIPPED" else None
    assert decision.ticks == (PlannedTick(NOON, NOON, 1, outcome, reason, waits, cancels),)


def test_ticks_of_one_decision_meet_each_other() -> None:
    """The first waited long for its jitter, so that the next one came meanwhile: both are on time."""
    step = 20_000_000
    times = (NOON + n * step for n in range(1_000))
    first = next(nominal for nominal in times if jitter_of(7, nominal, 19) > 15_000_000)
    second, fired, skipped = first + step, "FIRED", "SKIPPED: overlap"
    for overlap, active, outcomes in (
        ("skip", False, (fired, skipped)),
        ("queue", False, (fired, fired)),
        ("queue", True, (fired, skipped)),
        ("allow", True, (fired, fired)),
    ):
        definition = define(interval=20, overlap=overlap, jitter=19)
        decision = made(definition, decided_until=first - 1, now=second + 1_000_000, settle=True, active=active)
        assert shown(decision) == [(first, 1, outcomes[0]), (second, 1, outcomes[1])]


@pytest.mark.parametrize(("interval", "late"), [(2, 1_000_000), (20, 10_000_000), (90, 45_000_000), (3600, TOLERANCE)])
def test_a_tick_is_on_time_up_to_half_its_interval_and_a_minute_at_most(interval: int, late: int) -> None:
    definition, tick = define(interval=interval, catch_up="none"), NOON + interval * 1_000_000
    assert shown(made(definition, decided_until=NOON, now=tick + late)) == [(tick, 1, "FIRED")]
    assert shown(made(definition, decided_until=NOON, now=tick + late + 1)) == [(tick, 1, "MISSED")]


DOWN = {"decided_until": NOON, "now": NOON + 5 * HOUR + 30 * MINUTE}  # five ticks, all late


def test_catch_up_last_fires_the_last_and_coalesces_the_others() -> None:
    decision = made(define(), **DOWN)
    assert shown(decision) == [(NOON + HOUR, 4, "COALESCED"), (NOON + 5 * HOUR, 1, "FIRED")]
    assert decision.ticks[0].until == NOON + 4 * HOUR
    assert decision.next_at == NOON + 6 * HOUR
    assert shown(made(define(), **DOWN, active=True))[1] == (NOON + 5 * HOUR, 1, "SKIPPED: overlap")


def test_catch_up_none_fires_nothing_late() -> None:
    decision = made(define(catch_up="none"), **DOWN)
    assert shown(decision) == [(NOON + HOUR, 5, "MISSED")]
    on_time = made(define(catch_up="none"), decided_until=NOON, now=NOON + 5 * HOUR + TOLERANCE)
    assert shown(on_time) == [(NOON + HOUR, 4, "MISSED"), (NOON + 5 * HOUR, 1, "FIRED")]


def test_catch_up_all_fires_the_oldest_first_one_after_another_within_cap_and_window() -> None:
    decision = made(define(catch_up="all", cap=3), **DOWN)
    assert shown(decision) == [(NOON + HOUR, 2, "MISSED"), *((NOON + n * HOUR, 1, "FIRED") for n in (3, 4, 5))]
    assert [tick.waits for tick in decision.ticks if tick.outcome == "FIRED"] == [True, True, True]
    window = made(define(catch_up="all", window="2h"), **DOWN)
    assert shown(window) == [(NOON + HOUR, 3, "MISSED"), *((NOON + n * HOUR, 1, "FIRED") for n in (4, 5))]


def test_overlap_skip_does_not_apply_to_what_is_caught_up() -> None:
    decision = made(define(catch_up="all", cap=2), **DOWN, active=True, waiting=True)
    assert [tick.outcome for tick in decision.ticks] == ["MISSED", "FIRED", "FIRED"]
    assert all(tick.waits for tick in decision.ticks[1:])
    beside = made(define(catch_up="all", cap=2, overlap="allow"), **DOWN, active=True)
    assert [tick.waits for tick in beside.ticks[1:]] == [False, True]


@pytest.mark.parametrize("overlap", ["skip", "queue", "cancel_running"])
def test_the_newest_tick_joins_the_line_of_its_own_catch_up(overlap: str) -> None:
    definition = define(cron="* * * * *", catch_up="all", overlap=overlap, cap=2)
    decision = made(definition, decided_until=NOON, now=NOON + 3 * MINUTE + 1_000_000)
    assert shown(decision) == [(NOON + n * MINUTE, 1, "FIRED") for n in (1, 2, 3)]
    assert [(tick.waits, tick.cancels) for tick in decision.ticks] == [(True, False)] * 3


def test_a_tick_during_a_catch_up_joins_its_line_up_to_the_cap() -> None:
    """Without a catch-up, and with another policy, the same tick is skipped for overlap."""
    during = {"decided_until": NOON - 1, "now": NOON, "active": True, "waiting": True}
    caught_up = made(define(catch_up="all", cap=3), **during, line=2)
    assert caught_up.ticks == (PlannedTick(NOON, NOON, 1, "FIRED", waits=True),)
    for definition, line in ((define(catch_up="all", cap=3), 3), (define(catch_up="all"), 0), (define(), 2)):
        assert shown(made(definition, **during, line=line)) == [(NOON, 1, "SKIPPED: overlap")]
    beside = made(define(catch_up="all", overlap="allow"), **during, line=2)
    assert beside.ticks == (PlannedTick(NOON, NOON, 1, "FIRED"),)


@pytest.mark.parametrize("catch_up", ["last", "none", "all"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_a_year_of_a_minutely_schedule_is_decided_in_a_moment(catch_up: str, zone: str) -> None:
    definition = define(cron="* * * * *", timezone=zone, catch_up=catch_up)
    began = time.thread_time()  # what others do on this machine does not count
    decision = made(definition, decided_until=NOON, now=NOON + 365 * DAY + 1)
    assert time.thread_time() - began < 0.5
    assert sum(tick.count for tick in decision.ticks) == 365 * 24 * 60
    assert len(decision.ticks) <= 12 + 2


@pytest.mark.parametrize("catch_up", ["last", "none", "all"])
@pytest.mark.parametrize("overlap", ["skip", "queue", "allow", "cancel_running"])
@pytest.mark.parametrize("jitter", [0, 45])
def test_however_often_it_is_asked_every_time_is_decided_once(catch_up: str, overlap: str, jitter: int) -> None:
    """Steps of all sizes, with the clock put back in between; the times, added up, are those of the calendar."""
    definition = define(cron="*/7 * * * *", catch_up=catch_up, overlap=overlap, jitter=jitter)
    decided, now, seen = NOON, NOON, list[PlannedTick]()
    for n, step in enumerate([1, 30, 61, 59, 400, -3000, 2000, 100_000, 5, 86_400 * 3, 60, 1, -1, 5_000] * 3):
        now += step * 1_000_000
        decision = made(definition, decided_until=decided, now=now, active=n % 3 == 0)
        assert decision.until >= decided
        assert decision.next_at is not None
        assert decision.next_at > max(now, decided) - 1
        seen += decision.ticks
        decided = decision.until
    expected = list(times_of(definition, NOON).between(NOON, decided))
    assert sum(tick.count for tick in seen) == len(expected)
    assert seen[-1].until == expected[-1]
    for one, following in pairwise(seen):
        assert one.nominal_at <= one.until < following.nominal_at
        assert times_of(definition, NOON).count(one.nominal_at - 1, one.until) == one.count
        assert times_of(definition, NOON).next(one.until) == following.nominal_at


def test_a_tick_waits_for_its_jitter_and_those_behind_wait_with_it() -> None:
    definition = define(interval=60, jitter=50)
    first = NOON + jitter_of(7, NOON, 50)
    assert next_due(definition, NOON, 7, NOON - 1) == first
    early = made(definition, decided_until=NOON - 1, now=first - 1)
    assert (shown(early), early.next_at) == ([], first)
    assert early.until < NOON
    late = made(definition, decided_until=early.until, now=first)
    assert shown(late) == [(NOON, 1, "FIRED")]
    settled = made(definition, decided_until=NOON - 1, now=NOON, settle=True)
    assert (shown(settled), settled.until) == ([(NOON, 1, "FIRED")], NOON)


def test_times_outside_start_and_end_are_skipped_and_not_waited_for() -> None:
    definition = define(start="2026-03-02T14:00:00Z", end="2026-03-02T15:00:00Z")
    before = made(definition, decided_until=NOON, now=NOON + HOUR)
    assert (shown(before), before.next_at) == ([(NOON + HOUR, 1, f"SKIPPED: {OUTSIDE}")], NOON + 2 * HOUR)
    all_of_it = made(definition, decided_until=NOON, now=NOON + 5 * HOUR)
    assert shown(all_of_it) == [
        (NOON + HOUR, 1, f"SKIPPED: {OUTSIDE}"),
        (NOON + 2 * HOUR, 1, "COALESCED"),
        (NOON + 3 * HOUR, 1, "FIRED"),
        (NOON + 4 * HOUR, 2, f"SKIPPED: {OUTSIDE}"),
    ]
    assert all_of_it.next_at is None


def test_when_nothing_comes_any_more_there_is_no_next_time() -> None:
    definition = define(times=["2026-03-02T12:00:00Z"])
    decision = made(definition, decided_until=NOON - 1, now=NOON)
    assert (shown(decision), decision.next_at) == ([(NOON, 1, "FIRED")], None)
