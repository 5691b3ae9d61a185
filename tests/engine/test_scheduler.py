"""The scheduler on both databases: what fires, what waits, what is skipped, and what an execution is made of."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway import App
from headway.engine.maintenance.pruner import Pruner
from headway.engine.scheduler import declared
from headway.engine.scheduler.declared import UNDECLARED
from headway.engine.scheduler.scheduler import BATCH, LONGEST, Scheduler
from headway.errors import BadInput, NotFound, WrongState
from headway.model.jobs.job import Actor
from headway.model.schedules.definition import Definition
from headway.model.values.times import instant_text
from headway.testing import FrozenClock
from headway.verify import check
from tests.support.life import BROKEN, FINAL, Life
from tests.support.schedules import DAY, HOUR, MINUTE, Clockwork, teach
from tests.support.waiting import until


@pytest.fixture
def clockwork(database_url: str) -> Iterator[Clockwork]:
    """The checker, with its own idea of the calendar, has to find everything as it should be after each test."""
    with Life(database_url) as life:
        clockwork = Clockwork(life)
        yield clockwork
        life.clock.advance("10m")
        if not clockwork.tampered:
            assert [str(one) for one in check(life.database).findings if one.invariant in ("I-14", "I-15")] == []


# --- firing ---


def test_a_tick_fires_once_when_its_time_has_come(clockwork: Clockwork) -> None:
    made = clockwork.create()
    clockwork.advance(299)
    assert clockwork.ticks() == []
    clockwork.advance(1)
    clockwork.round()
    assert clockwork.ticks() == [(5, 1, "FIRED")]
    assert clockwork.executions() == [(1, "IN_PROGRESS", None)]
    stored = clockwork.schedules.get(made.id)
    assert (stored.decided_until, stored.last_run_at) == (clockwork.life.clock.now(), clockwork.life.clock.now())
    assert stored.next_at == clockwork.began + 10 * MINUTE


def test_an_execution_says_who_made_it_and_for_which_time(clockwork: Clockwork) -> None:
    made = clockwork.create()
    clockwork.advance("5m")
    ((kind, name, reason, nominal_at, by),) = clockwork.life.sql(
        "select kind, name, reason, nominal_at, created_by from hw_group"
    )
    assert (kind, name, reason, nominal_at) == ("execution", "nightly", "tick", clockwork.began + 5 * MINUTE)
    assert Actor.parse(by) == Actor("schedule", str(made.id), "nightly")
    ((execution_id,),) = clockwork.life.sql("select execution_id from hw_tick")
    assert execution_id == 1


def test_steps_with_the_same_index_are_one_stage_and_later_ones_wait(clockwork: Clockwork) -> None:
    steps = [
        {"index": 10, "task": "sync", "name": "import"},
        {"index": 20, "task": "export", "name": "ad"},
        {"index": 20, "task": "export", "name": "ldap"},
        {"index": 7, "task": "sync", "name": "first"},
    ]
    clockwork.create(steps=steps)
    clockwork.advance("5m")
    found = [(step, stage, status) for step, stage, status, _ in clockwork.jobs(1)]
    assert found == [("import", 1, 0), ("ad", 2, 0), ("ldap", 2, 0), ("first", 0, 2)]
    clockwork.work(1)
    assert clockwork.executions() == [(1, "COMPLETED", None)]


def test_params_of_the_schedule_go_to_steps_that_do_not_set_them_and_over_a_templates(clockwork: Clockwork) -> None:
    clockwork.life.client.templates.create("t", "sync", params={"n": 1, "mode": "a", "source": "template"})
    steps = [{"task": "sync"}, {"task": "sync", "params": {"mode": "own"}}, {"template": "t", "params": {"n": 9}}]
    clockwork.create(steps=steps, params={"mode": "shared", "n": 5})
    clockwork.advance("5m")
    assert [json.loads(params) for *_, params in clockwork.jobs(1)] == [
        {"mode": "shared", "n": 5},
        {"mode": "own", "n": 5},
        {"mode": "shared", "n": 9, "source": "template"},
    ]


def test_a_steps_options_are_those_of_using(clockwork: Clockwork) -> None:
    wishes = {"timeout": "5m", "retry_policy": {"max_attempts": 1}, "target": "desk", "continue_on_failure": True}
    clockwork.create(steps=[{"task": "sync", "priority": 7, **wishes}, {"task": "sync"}])
    clockwork.advance("5m")
    ((priority, target, options), (_, _, plain)) = clockwork.life.sql(
        "select priority, target_id, options from hw_job order by id"
    )
    found = json.loads(options)
    assert (priority, target is not None, found["timeout"], found["continue_on_failure"]) == (7, True, 300.0, True)
    assert found["retry"]["max_attempts"] == 1
    assert json.loads(plain)["retry"]["max_attempts"] == 3


def test_what_exists_does_not_change_when_a_template_or_a_schedule_does(clockwork: Clockwork) -> None:
    clockwork.life.client.templates.create("t", "sync", params={"n": 1})
    clockwork.create(template="t", overlap="allow")
    clockwork.advance("5m")
    clockwork.life.client.templates.edit("t", params={"n": 2})
    clockwork.schedules.edit("nightly", {"params": {"mode": "b"}})
    assert json.loads(clockwork.jobs(1)[0][3]) == {"n": 1}
    clockwork.advance("5m")
    assert json.loads(clockwork.jobs(2)[0][3]) == {"n": 2, "mode": "b"}
    assert clockwork.life.sql("select template_id, step from hw_job order by id") == [(1, "t"), (1, "t")]


# --- overlap ---


def test_overlap_skip(clockwork: Clockwork) -> None:
    clockwork.create()
    clockwork.advance("5m")
    clockwork.advance("5m")
    assert clockwork.ticks() == [(5, 1, "FIRED"), (10, 1, "SKIPPED: overlap")]
    ((number,),) = clockwork.life.sql("select id from hw_tick where outcome = 'SKIPPED'")
    assert clockwork.events("tick", number) == [(1, "schedule.tick.skipped")]
    clockwork.work(1)
    clockwork.advance("5m")
    assert clockwork.executions() == [(1, "COMPLETED", None), (2, "IN_PROGRESS", None)]


def test_overlap_queue_lets_one_wait(clockwork: Clockwork) -> None:
    clockwork.create(overlap="queue")
    for _ in range(3):
        clockwork.advance("5m")
    assert clockwork.ticks() == [(5, 1, "FIRED"), (10, 1, "FIRED"), (15, 1, "SKIPPED: overlap")]
    assert clockwork.executions() == [(1, "IN_PROGRESS", None), (2, "IN_PROGRESS", 1)]
    assert [status for _, _, status, _ in clockwork.jobs(2)] == [0]
    clockwork.work(1)
    assert clockwork.executions() == [(1, "COMPLETED", None), (2, "IN_PROGRESS", None)]
    assert [status for _, _, status, _ in clockwork.jobs(2)] == [2]


def test_overlap_allow(clockwork: Clockwork) -> None:
    clockwork.create(overlap="allow")
    clockwork.advance("5m")
    clockwork.advance("5m")
    assert clockwork.executions() == [(1, "IN_PROGRESS", None), (2, "IN_PROGRESS", None)]


def test_overlap_cancel_running_waits_for_the_end_of_what_it_cancels(clockwork: Clockwork) -> None:
    clockwork.create(overlap="cancel_running", steps=[{"task": "sync"}, {"task": "export"}])
    clockwork.advance("5m")
    (job_id,) = clockwork.life.sql("select id from hw_job where status = 2")[0]
    claim = clockwork.life.claim(job_id)
    clockwork.advance("5m")
    assert clockwork.executions() == [(1, "IN_PROGRESS", None), (2, "IN_PROGRESS", 1)]
    assert clockwork.life.job(job_id).stop is not None
    clockwork.advance("5m")
    assert clockwork.ticks()[-1] == (15, 1, "SKIPPED: overlap")
    from headway.model.jobs.outcome import StoppedByRequest

    assert clockwork.life.end(claim, StoppedByRequest())
    assert clockwork.executions() == [(1, "CANCELLED", None), (2, "IN_PROGRESS", None)]
    assert [status for _, _, status, _ in clockwork.jobs(2)] == [2, 0]


def test_overlap_cancel_running_begins_at_once_when_nothing_runs_yet(clockwork: Clockwork) -> None:
    clockwork.create(overlap="cancel_running")
    clockwork.advance("5m")
    clockwork.advance("5m")
    assert clockwork.executions() == [(1, "CANCELLED", None), (2, "IN_PROGRESS", None)]
    assert [status for _, _, status, _ in clockwork.jobs(2)] == [2]


# --- downtime and clocks ---


def test_after_downtime_the_last_one_is_caught_up(clockwork: Clockwork) -> None:
    clockwork.create()
    clockwork.advance(62 * 60)
    assert clockwork.ticks() == [(5, 11, "COALESCED"), (60, 1, "FIRED")]


def test_missed_ticks_have_an_event_and_a_line_in_the_log(
    clockwork: Clockwork, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "headway")
    clockwork.create()
    clockwork.create("hourly", cron="0 * * * *", catch_up="none")
    clockwork.advance(62 * 60)
    told = clockwork.life.sql("select data from hw_event where kind = 'schedule.tick.missed' order by id")
    begun = clockwork.began
    facts = [json.loads(data) for (data,) in told]
    nightly = {"schedule": 1, "nominal_at": begun + 5 * MINUTE, "until": begun + 55 * MINUTE, "count": 11}
    hourly = {"schedule": 2, "nominal_at": begun + 60 * MINUTE, "until": begun + 60 * MINUTE, "count": 1}
    assert {"outcome": "COALESCED", **nightly} in facts
    assert {"outcome": "MISSED", **hourly} in facts
    assert len(facts) == 2
    assert caplog.messages.count("11 ticks of nightly were missed while no scheduler ran") == 1
    assert caplog.messages.count("1 tick of hourly was missed while no scheduler ran") == 1
    clockwork.advance("3m")
    at = instant_text(begun + 65 * MINUTE)
    assert f"schedule nightly: the tick of {at} was SKIPPED: overlap" in caplog.messages
    assert sum("missed" in message for message in caplog.messages) == 2


def test_catch_up_none(clockwork: Clockwork) -> None:
    clockwork.create(catch_up="none")
    clockwork.advance(62 * 60)
    assert clockwork.ticks() == [(5, 12, "MISSED")]
    clockwork.advance(3 * 60)
    assert clockwork.ticks()[1:] == [(65, 1, "FIRED")]


def test_catch_up_all_runs_the_missed_ones_one_after_another(clockwork: Clockwork) -> None:
    clockwork.create(catch_up="all", cap=3)
    clockwork.advance(62 * 60)
    assert clockwork.ticks() == [(5, 9, "MISSED"), (50, 1, "FIRED"), (55, 1, "FIRED"), (60, 1, "FIRED")]
    assert clockwork.executions() == [(1, "IN_PROGRESS", None), (2, "IN_PROGRESS", 1), (3, "IN_PROGRESS", 2)]
    clockwork.work(1, FINAL)
    assert clockwork.executions() == [(1, "FAILED", None), (2, "IN_PROGRESS", None), (3, "IN_PROGRESS", 2)]
    clockwork.work(2)
    clockwork.work(3)
    assert {status for _, status, _ in clockwork.executions()} == {"FAILED", "COMPLETED"}


def test_ticks_that_fall_due_during_a_catch_up_join_its_line(clockwork: Clockwork) -> None:
    """Also the newest of the same decision, until the last late one has ended; then `skip` holds again."""
    clockwork.create(cron="* * * * *", catch_up="all", cap=3)
    clockwork.advance(181)
    assert clockwork.ticks() == [(1, 1, "FIRED"), (2, 1, "FIRED"), (3, 1, "FIRED")]
    clockwork.work(1)
    clockwork.advance(60)
    assert clockwork.ticks()[3:] == [(4, 1, "FIRED")]  # the line has room for three: 2, 3 and this one
    assert clockwork.executions()[1:] == [(2, "IN_PROGRESS", None), (3, "IN_PROGRESS", 2), (4, "IN_PROGRESS", 3)]
    clockwork.advance(60)
    assert clockwork.ticks()[4:] == [(5, 1, "SKIPPED: overlap")]  # and no room for more
    clockwork.work(2)
    clockwork.work(3)
    clockwork.advance(60)
    assert clockwork.ticks()[5:] == [(6, 1, "SKIPPED: overlap")]  # 4 was on time: the catch-up is over
    clockwork.work(4)
    clockwork.advance(60)
    assert clockwork.ticks()[6:] == [(7, 1, "FIRED")]


def test_a_short_interval_does_not_fire_what_it_missed(clockwork: Clockwork) -> None:
    """Seven seconds down, every two seconds: three ticks are missed, and the one half a second ago is on time."""
    clockwork.create(interval=2, catch_up="none", overlap="allow")
    clockwork.life.clock.time += 8_500_000
    clockwork.round()
    outcomes = clockwork.life.sql("select outcome, count from hw_tick order by id")
    assert outcomes == [("MISSED", 3), ("FIRED", 1)]


@pytest.mark.parametrize(("seconds", "outcome"), [(60.0, "MISSED"), (300.0, "FIRED"), (5.0, "MISSED")])
def test_the_settings_say_how_late_a_tick_is_on_time(clockwork: Clockwork, seconds: float, outcome: str) -> None:
    """The checker, which has no settings, judges each decision by what the ledger keeps with it."""
    clockwork.life.client.tick_tolerance = round(seconds * 1_000_000)
    clockwork.create(cron="0 * * * *", catch_up="none")
    clockwork.advance("1h 4m")
    assert clockwork.ticks() == [(60, 1, outcome)]
    assert check(clockwork.life.database).findings == []
    clockwork.life.client.tick_tolerance = 60_000_000
    clockwork.advance("1h")
    assert clockwork.ticks()[1:] == [(120, 1, "MISSED")]


def test_a_long_tolerance_is_at_most_half_the_interval(clockwork: Clockwork) -> None:
    clockwork.life.client.tick_tolerance = HOUR
    clockwork.create(interval=60, catch_up="none", overlap="allow")
    clockwork.advance(99)
    assert clockwork.ticks() == [(1, 1, "MISSED")]
    clockwork.advance(41)
    assert clockwork.ticks()[1:] == [(2, 1, "FIRED")]


@pytest.mark.parametrize("verb", ["disable", "edit"])
def test_a_change_decides_by_the_same_tolerance(clockwork: Clockwork, verb: str) -> None:
    clockwork.life.client.tick_tolerance = 5 * MINUTE
    clockwork.create(cron="0 * * * *", catch_up="none")
    clockwork.life.clock.advance("1h 4m")
    if verb == "disable":
        clockwork.schedules.disable("nightly")
    else:
        clockwork.schedules.edit("nightly", {"note": "other"})
    assert clockwork.ticks() == [(60, 1, "FIRED")]


def test_ticks_caught_up_wait_for_running_executions(clockwork: Clockwork) -> None:
    clockwork.create(catch_up="all", cap=2)
    running = clockwork.schedules.run("nightly")
    clockwork.advance(62 * 60)
    assert clockwork.executions() == [(1, "IN_PROGRESS", None), (2, "IN_PROGRESS", running), (3, "IN_PROGRESS", 2)]


def test_a_clock_put_back_never_fires_again(clockwork: Clockwork) -> None:
    clockwork.create(overlap="allow")
    clockwork.advance("10m")
    clockwork.life.clock.time -= HOUR
    clockwork.round()
    for _ in range(13):
        clockwork.advance("5m")
    assert clockwork.ticks() == [(5, 1, "COALESCED"), (10, 1, "FIRED"), (15, 1, "FIRED")]


def test_a_year_of_a_minutely_schedule_is_settled_in_under_a_second(clockwork: Clockwork) -> None:
    clockwork.create(cron="* * * * *", catch_up="all")
    clockwork.life.clock.time += 365 * DAY + 61_000_000
    began = time.thread_time()  # what others do on this machine does not count
    clockwork.round()
    assert time.thread_time() - began < 1.0
    ticks = clockwork.ticks()
    assert sum(count for _, count, _ in ticks) == 365 * 1440 + 1
    assert [outcome for _, _, outcome in ticks] == ["MISSED", *["FIRED"] * 11]


def test_ten_schedules_more_than_a_batch_fire_in_the_order_of_their_times(clockwork: Clockwork) -> None:
    """Younger ones first in the list of schedules, older ones first in time."""
    wanted = [(n * 7) % 30 for n in range(BATCH + 10)]
    for n, second in enumerate(wanted):
        clockwork.create(f"s{n}", times=[instant_text(clockwork.began + (1 + second) * 1_000_000)])
    clockwork.advance("40s")
    found = clockwork.life.sql("select nominal_at, schedule_id from hw_group order by id")
    assert len(found) == BATCH + 10
    assert found == sorted(found)
    assert clockwork.life.sql("select count(*) from hw_schedule where next_at is not null") == [(0,)]


# --- trouble ---


def test_a_step_that_cannot_be_made_any_more_skips_its_tick_and_stops_nobody_else(clockwork: Clockwork) -> None:
    clockwork.life.client.templates.create("t", "sync")
    clockwork.create("broken", template="t")
    clockwork.create("whole")
    clockwork.life.client.templates.archive("t")
    clockwork.advance("5m")
    (broken,) = clockwork.ticks(1)
    assert broken[2].startswith("SKIPPED: ")
    assert "archived" in broken[2]
    assert clockwork.ticks(2) == [(5, 1, "FIRED")]
    del clockwork.life.client.registry.specs["sync"]
    clockwork.work(1)
    clockwork.advance("5m")
    assert "no task is named 'sync'" in clockwork.ticks(2)[-1][2]


def test_a_definition_that_cannot_be_read_here_is_left_to_others(clockwork: Clockwork) -> None:
    for n in range(BATCH + 1):
        clockwork.create(f"s{n}", times=[instant_text(clockwork.began + (1 + n) * 1_000_000)])
    clockwork.tampered = True
    with clockwork.life.database.transaction("tamper") as tx:
        broken = """update hw_schedule set definition = replace(definition, '"UTC"', '"Sun/Spot"') where id < """
        tx.connection.execute(broken + str(BATCH + 1))  # type: ignore[attr-defined]
    clockwork.life.clock.advance("50s")
    assert clockwork.scheduler.tick() == 1.0
    assert clockwork.scheduler.tick() == 0.0
    assert clockwork.life.sql("select schedule_id from hw_group") == [(BATCH + 1,)]


def test_a_schedule_that_lost_its_next_time_finds_it_when_a_scheduler_starts(clockwork: Clockwork) -> None:
    clockwork.create()
    clockwork.tampered = True
    with clockwork.life.database.transaction("tamper") as tx:
        tx.connection.execute("update hw_schedule set next_at = null")  # type: ignore[attr-defined]
    assert clockwork.scheduler.tick() == LONGEST
    assert clockwork.schedules.get("nightly").next_at == clockwork.began + 5 * MINUTE


def test_an_idle_scheduler_sleeps_until_the_next_time(clockwork: Clockwork) -> None:
    assert clockwork.scheduler.tick() == LONGEST
    clockwork.create()
    assert clockwork.scheduler.tick() == LONGEST
    clockwork.life.clock.advance(290)
    assert clockwork.scheduler.tick() == 10.0


def test_a_sleeping_scheduler_is_woken_by_a_new_schedule(database_url: str) -> None:
    """In real time: it would sleep for half a minute."""
    with App(database_url) as app:
        app.task("sync")(_sync)
        scheduler = Scheduler(app.client)
        scheduler.start()
        try:
            began = time.monotonic()
            app.client.schedules.create("soon", {"interval": 1, "steps": [{"task": "sync"}]})
            until(lambda: app.client.schedules.ticks("soon").items, "that it fires")
            assert time.monotonic() - began < 0.8 * LONGEST
        finally:
            scheduler.stop()
            scheduler.join(10)


async def _sync() -> None: ...


# --- changing ---


def test_every_change_is_an_event_with_the_whole_definition(clockwork: Clockwork) -> None:
    schedules = clockwork.schedules
    clockwork.create()
    schedules.edit("nightly", {"cron": "0 3 * * *", "note": "later"})
    schedules.disable("nightly")
    schedules.disable("nightly")
    schedules.enable("nightly")
    schedules.delete("nightly")
    kinds = [f"schedule.{kind}" for kind in ("created", "changed", "disabled", "enabled", "deleted")]
    assert clockwork.events("schedule") == list(enumerate(kinds, 1))
    data = clockwork.life.sql("select data from hw_event where thing = 'schedule' order by version")
    definitions = [Definition.parse(json.loads(text)["definition"]) for (text,) in data]
    assert [one.cron for one in definitions] == ["*/5 * * * *", *["0 3 * * *"] * 4]
    with pytest.raises(NotFound):
        schedules.get("nightly")
    assert clockwork.create().id == 2


def test_an_edit_first_decides_the_ticks_up_to_now_under_the_old_definition(clockwork: Clockwork) -> None:
    clockwork.create(steps=[{"task": "sync", "name": "old"}])
    clockwork.life.clock.advance("5m")
    clockwork.schedules.edit("nightly", {"cron": "0 0 * * *", "steps": [{"task": "sync", "name": "new"}]})
    assert clockwork.ticks() == [(5, 1, "FIRED")]
    assert [step for step, *_ in clockwork.jobs(1)] == ["old"]
    clockwork.advance("12h")
    assert clockwork.ticks() == [(5, 1, "FIRED")]


@pytest.mark.parametrize("verb", ["disable", "delete", "edit"])
def test_a_change_does_not_wait_for_jitter(clockwork: Clockwork, verb: str) -> None:
    clockwork.create(cron="*/5 * * * *", jitter="4m59s")
    clockwork.life.clock.advance("5m")
    more: tuple[Any, ...] = ({"note": "x"},) if verb == "edit" else ()
    getattr(clockwork.schedules, verb)("nightly", *more)
    assert clockwork.ticks() == [(5, 1, "FIRED")]
    clockwork.advance("4m59s")
    assert clockwork.ticks() == [(5, 1, "FIRED")]


def test_disabled_time_has_no_ticks(clockwork: Clockwork) -> None:
    clockwork.create()
    clockwork.schedules.disable("nightly")
    clockwork.advance("1h")
    clockwork.schedules.edit("nightly", {"note": "still off"})
    clockwork.schedules.enable("nightly")
    assert clockwork.ticks() == []
    clockwork.advance("5m")
    assert clockwork.ticks() == [(65, 1, "FIRED")]


def test_an_edit_of_what_has_changed_since_is_refused(clockwork: Clockwork) -> None:
    made = clockwork.create()
    clockwork.schedules.edit("nightly", {"note": "a"}, made.version)
    with pytest.raises(WrongState, match="has changed"):
        clockwork.schedules.edit("nightly", {"note": "b"}, made.version)


def test_names_are_unique_until_they_are_free_again(clockwork: Clockwork) -> None:
    clockwork.create()
    clockwork.create("other")
    with pytest.raises(BadInput, match="already") as caught:
        clockwork.create()
    assert caught.value.field == "name"
    with pytest.raises(BadInput, match="already"):
        clockwork.schedules.edit("other", {"name": "nightly"})
    assert clockwork.schedules.edit("other", {"name": "second"}).name == "second"
    with pytest.raises(NotFound, match="did you mean nightly"):
        clockwork.schedules.get("nigthly")


@pytest.mark.parametrize(
    ("fields", "field", "hint"),
    [
        ({"steps": [{"task": "sync"}, {"task": "synk"}]}, "steps[1].task", "did you mean sync"),
        ({"steps": [{"task": "sync", "params": {"m": 1}}]}, "steps[0].params.m", "not a parameter"),
        ({"steps": [{"task": "sync", "timeout": -5}]}, "steps[0].timeout", "negative"),
        ({"steps": [{"task": "sync", "retry_policy": {"tries": 1}}]}, "steps[0].retry", "max_attempts"),
        ({"steps": [{"task": "sync", "resources": ["gpu"]}]}, "steps[0].resources", "define it first"),
        ({"steps": [{"task": "sync", "priority": 200}]}, "steps[0].priority", "0 to 100"),
        ({"steps": [{"template": "none"}]}, "steps[0].template", "no template"),
        ({"steps": [{"template": "old"}]}, "steps[0].template", "archived"),
        ({"template": "old"}, "template", "archived"),
        ({"steps": [{"task": "sync", "params": {"source": {"$result": "x"}}}]}, "steps[0].params", "no step is named"),
        ({"on_failure": "no.such.policy"}, "on_failure", "cannot be imported"),
    ],
)
def test_what_could_not_run_is_refused_when_it_is_made(
    clockwork: Clockwork, fields: dict[str, Any], field: str, hint: str
) -> None:
    clockwork.life.client.templates.create("old", "sync")
    clockwork.life.client.templates.archive("old")
    with pytest.raises(BadInput) as caught:
        clockwork.create(**fields)
    assert caught.value.field == field
    assert hint in str(caught.value)
    clockwork.create()
    with pytest.raises(BadInput):
        clockwork.schedules.edit("nightly", fields)


# --- by hand ---


def test_a_manual_run_is_allowed_when_disabled_and_refused_while_one_is_active(clockwork: Clockwork) -> None:
    clockwork.create(params={"mode": "a", "n": 1})
    clockwork.schedules.disable("nightly")
    first = clockwork.schedules.run("nightly", params={"n": 2})
    assert json.loads(clockwork.jobs(first)[0][3]) == {"mode": "a", "n": 2}
    with pytest.raises(WrongState, match=str(first)):
        clockwork.schedules.run("nightly")
    second = clockwork.schedules.run("nightly", force=True)
    assert clockwork.executions() == [(first, "IN_PROGRESS", None), (second, "IN_PROGRESS", None)]
    assert clockwork.ticks() == []
    assert clockwork.life.sql("select reason, created_by from hw_group where id = 1")[0] == (
        "manual",
        clockwork.life.client.actor.text(),
    )


def test_a_manual_run_keeps_the_next_tick_away(clockwork: Clockwork) -> None:
    clockwork.create()
    clockwork.schedules.run("nightly")
    clockwork.advance("5m")
    assert clockwork.ticks() == [(5, 1, "SKIPPED: overlap")]


def test_a_backfill_runs_what_did_not_fire_one_after_another_and_adds_no_ticks(clockwork: Clockwork) -> None:
    clockwork.create(catch_up="none")
    clockwork.advance("10m")
    clockwork.work(1)
    clockwork.advance("20m")
    before = clockwork.ticks()
    assert before == [(5, 1, "MISSED"), (10, 1, "FIRED"), (15, 3, "MISSED"), (30, 1, "FIRED")]
    since, now = clockwork.began, clockwork.life.clock.now()
    wanted = clockwork.schedules.backfill("nightly", since, now, dry_run=True)
    assert [clockwork.minutes(one) for one in wanted] == [0, 5, 15, 20, 25]
    made = clockwork.schedules.backfill("nightly", since + 1, now)
    assert [number for number, *_ in clockwork.executions()] == [1, 2, *made]
    assert [after for *_, after in clockwork.executions()] == [None, None, 2, *made[:-1]]
    assert clockwork.ticks() == before
    for number in (2, *made):
        clockwork.work(number)
    assert {status for _, status, _ in clockwork.executions()} == {"COMPLETED"}
    assert {reason for (reason,) in clockwork.life.sql("select reason from hw_group")} == {"tick", "backfill"}


def test_a_backfill_of_ten_years_and_one_of_the_future_are_refused(clockwork: Clockwork) -> None:
    clockwork.create()
    now = clockwork.life.clock.now()
    with pytest.raises(BadInput, match=r"the limit is 1000: backfill shorter ranges") as caught:
        clockwork.schedules.backfill("nightly", now - 3652 * DAY, now)
    assert caught.value.field == "since"
    with pytest.raises(BadInput, match="in the future"):
        clockwork.schedules.backfill("nightly", now, now + 1)
    with pytest.raises(BadInput, match="before since"):
        clockwork.schedules.backfill("nightly", "2020-01-02T00:00:00Z", "2020-01-01T00:00:00Z")


def test_a_preview_shows_both_clocks_and_what_a_clock_change_did(clockwork: Clockwork) -> None:
    clockwork.life.clock.time = FrozenClock("2026-03-28T12:00:00Z").now()
    shown = clockwork.schedules.preview({"cron": "30 2 * * *", "timezone": "Europe/Berlin"}, 2)
    assert [(instant_text(one.at), one.local) for one in shown] == [
        ("2026-03-29T01:00:00Z", "2026-03-29T03:00:00+02:00"),
        ("2026-03-30T00:30:00Z", "2026-03-30T02:30:00+02:00"),
    ]
    assert "02:30" in (shown[0].note or "")
    assert shown[1].note is None
    clockwork.create(times=["2026-04-01T00:00:00Z"])
    assert len(clockwork.schedules.preview("nightly")) == 1


# --- declared in code ---


def declare(*schedules: tuple[str, dict[str, Any]]) -> list[declared.DeclaredSchedule]:
    return [
        declared.DeclaredSchedule(name, Definition.parse({"steps": [{"task": "sync"}], **fields}))
        for name, fields in schedules
    ]


DAILY, HOURLY = ("a", {"cron": "@daily"}), ("b", {"cron": "@hourly"})


def test_declared_schedules_come_into_being_change_and_are_disabled(clockwork: Clockwork) -> None:
    client = clockwork.life.client
    assert declared.settle(client, declare(DAILY, HOURLY)).created == ("a", "b")
    assert declared.settle(client, declare(DAILY, HOURLY)) == declared.DeclaredChanges()
    changed = declared.settle(client, declare(DAILY, ("b", {"interval": 60})))
    assert changed.changed == ("b",)
    assert clockwork.schedules.get("b").parsed.interval == 60
    gone = declared.settle(client, declare(DAILY))
    assert gone.disabled == ("b",)
    assert UNDECLARED in gone.lines()[0]
    assert not clockwork.schedules.get("b").enabled
    assert declared.settle(client, declare(DAILY)) == declared.DeclaredChanges()
    assert declared.settle(client, declare(DAILY, ("b", {"interval": 60}))).enabled == ("b",)
    assert clockwork.schedules.get("b").enabled


def test_what_a_person_disabled_stays_so_and_what_a_person_made_is_left_alone(clockwork: Clockwork) -> None:
    client = clockwork.life.client
    declared.settle(client, declare(DAILY))
    clockwork.schedules.disable("a")
    changed = declared.settle(client, declare(("a", {"cron": "@weekly"})))
    assert (changed.changed, changed.enabled) == (("a",), ())
    assert not clockwork.schedules.get("a").enabled
    clockwork.create("mine")
    assert declared.settle(client, declare(("mine", {"cron": "@daily"}), DAILY)).kept == ("mine",)
    assert clockwork.schedules.get("mine").parsed.cron == "*/5 * * * *"


def test_an_app_that_declares_nothing_disables_nothing(clockwork: Clockwork) -> None:
    declared.settle(clockwork.life.client, declare(DAILY))
    assert declared.settle(clockwork.life.client, []) == declared.DeclaredChanges()


def test_the_decorator_declares_a_schedule_over_a_task() -> None:
    app = App()

    @app.schedule("30 2 * * mon-fri", timezone="Europe/Berlin", catch_up="all")
    @app.task("nightly", timeout="5m")
    async def nightly(n: int = 1) -> None: ...

    app.schedule(interval="10m", name="often", params={"n": 3})(nightly)
    found = app.schedules["nightly"].definition
    assert (found.cron, found.timezone, found.catch_up) == ("30 2 * * mon-fri", "Europe/Berlin", "all")
    assert [step.task for step in found.steps] == ["nightly"]
    assert app.schedules["often"].definition.interval == 600
    with pytest.raises(BadInput, match="another name"):
        app.schedule("@daily")(nightly)
    with pytest.raises(BadInput, match="five"):
        app.schedule("0 0 * * * *", name="x")(nightly)
    with pytest.raises(BadInput, match=r"write it above @app\.task"):
        app.schedule("@daily", name="x")(_sync)  # type: ignore[arg-type]


# --- retries inside ---


def test_a_failed_try_keeps_the_execution_active(clockwork: Clockwork) -> None:
    clockwork.create(steps=[{"task": "sync", "retry_policy": {"max_attempts": 1, "base_delay": "2h"}}])
    clockwork.advance("5m")
    clockwork.work(1, BROKEN)
    clockwork.advance("5m")
    assert clockwork.ticks()[-1] == (10, 1, "SKIPPED: overlap")


def test_tasks_of_other_processes_are_known_by_their_name(database_url: str) -> None:
    """The life's worker told of story.generate; the person's process does not have it."""
    with Life(database_url) as life:
        life.client.database.transact(
            "know", lambda tx: tx.run("know_tasks", rows=json.dumps([("story.generate", 3, '{"timeout":60}')]))
        )
        clockwork = Clockwork(life)
        clockwork.create(steps=[{"task": "story.generate", "params": {"any": 1}}])
        clockwork.advance("5m")
        ((priority, options),) = life.sql("select priority, options from hw_job")
        assert (priority, json.loads(options)["timeout"]) == (3, 60)


def test_teaching_is_not_needed_twice(clockwork: Clockwork) -> None:
    teach(clockwork.life)
    assert {"sync", "export"} <= set(clockwork.life.client.registry.specs)


# --- what is left of the ledger, other apps, other versions ---


def test_the_ledger_is_pruned_and_what_is_gone_is_not_made_again(clockwork: Clockwork, tmp_path: Path) -> None:
    clockwork.create(overlap="allow")
    for number in range(1, 5):
        clockwork.advance("5m")
        clockwork.work(number)
    clockwork.life.clock.advance("1h")
    clockwork.schedules.disable("nightly")
    pruner = Pruner(clockwork.life.database, retention=1800.0, artifacts=tmp_path)
    for _ in range(2):
        while pruner.tick() == 0.0:
            pass
    first = clockwork.ticks()[0][0]
    assert first > 20, "what fired is not in the ledger any more"
    assert clockwork.life.sql("select name, count from hw_tally where name = 'ticks'")[0][1] >= 4
    with pytest.raises(BadInput, match="ledger of this schedule begins") as refused:
        clockwork.schedules.backfill("nightly", clockwork.began, clockwork.life.clock.now(), dry_run=True)
    assert refused.value.field == "since"


def test_the_last_row_of_many_quiet_schedules_does_not_stop_pruning(clockwork: Clockwork, tmp_path: Path) -> None:
    clockwork.create(overlap="allow")
    clockwork.tampered = True
    clockwork.advance("5m")
    clockwork.advance("5m")
    quiet = range(100, 1300)
    made = ", ".join(f"({n}, 1, 'q{n}', '{{}}', 0, 'api', 0, 0, '')" for n in quiet)
    columns = "id, tenant_id, name, definition, enabled, origin, decided_until, created_at, created_by"
    clockwork.life.sql_write(f"insert into hw_schedule ({columns}) values {made}")
    rows = ", ".join(f"(1, {n}, 5, 5, 1, 'MISSED', 1)" for n in quiet)
    columns = "tenant_id, schedule_id, nominal_at, until, count, outcome, decided_at"
    clockwork.life.sql_write(f"insert into hw_tick ({columns}) values {rows}")
    clockwork.life.clock.advance("1h")
    Pruner(clockwork.life.database, retention=60.0, artifacts=tmp_path).prune_ticks(clockwork.life.clock.now())
    assert len(clockwork.ticks()) == 1


def test_two_apps_on_one_database_leave_each_others_schedules_alone(clockwork: Clockwork) -> None:
    """Each has tasks of its own."""
    client = clockwork.life.client
    declared.settle(client, declare(DAILY))
    other = Life(client.database.url, clock=clockwork.life.clock)
    with other:
        teach(other, "bill")
        wanted = declared.DeclaredSchedule("bills", Definition.parse({"cron": "@daily", "steps": [{"task": "bill"}]}))
        assert declared.settle(other.client, [wanted]).disabled == ()
    assert declared.settle(client, declare(DAILY)) == declared.DeclaredChanges()
    assert clockwork.schedules.get("bills").enabled


@pytest.mark.parametrize("verb", ["disable", "delete"])
def test_what_cannot_be_read_here_can_be_switched_off(clockwork: Clockwork, verb: str) -> None:
    clockwork.create()
    clockwork.tampered = True
    clockwork.life.sql_write("""update hw_schedule set definition = replace(definition, '"UTC"', '"Sun/Spot"')""")
    assert not getattr(clockwork.schedules, verb)(1).enabled
    if verb == "disable":
        with pytest.raises(BadInput, match="Sun/Spot"):
            clockwork.schedules.enable(1)
