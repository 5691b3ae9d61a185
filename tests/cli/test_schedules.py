"""Schedules from the command line: making them, looking at their times, switching them, running them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headway.app import App
from headway.engine.scheduler.scheduler import Scheduler
from headway.store.db import Database
from headway.testing import FrozenClock, drain, isolated
from tests.support.cli import Here, program, running

APP = ["--app", "tests.support.shop:app"]


def made(cli: Here, *args: object) -> dict[str, Any]:
    found: dict[str, Any] = cli("schedules", "create", *args, *APP, "--json").done().data
    return found


@pytest.fixture
def nightly(cli: Here, app: App) -> App:
    app.client.schedules.create(
        "nightly",
        {
            "cron": "30 2 * * mon-fri",
            "timezone": "Europe/Berlin",
            "steps": [{"name": "greet", "task": "shop.greet", "params": {"name": "a"}}],
            "note": "for HR",
        },
    )
    return app


# --- making ---


def test_none_yet(cli: Here) -> None:
    said = cli("schedules", "ls").done()
    assert said.out == ""
    assert said.err.splitlines()[0] == "no schedules yet"
    assert "headway schedules create nightly --cron" in said.err
    assert "headway schedules import" in said.err


FOREIGN = (
    '{"moon": "full"}',
    '{"cron": "30 2 * * *", "timezone": "Moon/Tycho", "steps": [{"index": 0, "name": "x", "task": "x"}]}',
)


@pytest.mark.parametrize("definition", FOREIGN)
def test_a_schedule_that_only_another_version_can_read_is_shown(cli: Here, nightly: App, definition: str) -> None:
    nightly.client.schedules.run("nightly")
    script = f"update hw_schedule set definition = '{definition}', version = version + 1;"
    nightly.database.transact("spoil", lambda tx: nightly.database.execute_script(tx, script))
    assert "at times that this version cannot read" in cli("schedules", "ls").done().out
    assert "at times that this version cannot read" in cli("schedules", "show", "nightly").done().out
    assert "nightly" in cli("executions", "ls").done().out
    cli("executions", "show", 1).done()
    assert cli("schedules", "next", "nightly").code == 2
    assert "disabled: at times" in cli("schedules", "disable", "nightly").done().out


def test_the_simple_case(cli: Here, app: App) -> None:
    wishes = ["--timezone", "Europe/Berlin", "--overlap", "queue", "--catch-up", "none", "--jitter", "30s"]
    more = ["--target", "desk-1", "--timeout", "10m", "--note", "for HR"]
    one = made(cli, "nightly", "name=anna", "--cron", "30 2 * * mon-fri", "--task", "shop.greet", *wishes, *more)
    assert (one["schedule_id"], one["name"], one["enabled"], one["origin"]) == (1, "nightly", True, "api")
    assert one["sentence"] == "at 02:30, Monday to Friday, Berlin time"
    assert (one["overlap"], one["catch_up"], one["jitter"], one["note"]) == ("queue", "none", 30, "for HR")
    assert one["params"] == {"name": "anna"}
    step = {"index": 0, "name": "shop.greet", "task": "shop.greet", "target": "desk-1", "timeout": "10m"}
    assert one["steps"] == [step]
    assert one["next_run_at"].endswith("Z")


def test_other_ways_to_say_when_and_what(cli: Here, app: App) -> None:
    cli("templates", "create", "hello", "--task", "shop.greet", "name=anna", *APP).done()
    one = made(cli, "pulse", "--interval", "10m", "--template", "hello")
    assert (one["interval"], one["template"], one["steps"], one["sentence"]) == (600, "hello", None, "every 10m")
    two = made(cli, "twice", "--time", "2099-01-01T00:00:00Z", "--time", "2099-01-02T00:00:00Z", "--template", "1")
    assert (two["times"][0], two["template"]) == ("2099-01-01T00:00:00Z", 1)
    off = made(cli, "off", "--cron", "@daily", "--task", "command", 'argv=["true"]', "--disabled")
    assert (off["enabled"], off["next_run_at"]) == (False, None)
    said = cli("schedules", "create", "word", "--cron", "@hourly", "--task", "command", 'argv=["true"]').done().out
    assert said.startswith("word created: every hour, on the hour, UTC; next ")
    assert said.endswith("00 (UTC)\n")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--cron", "0 0 31 2 *", "--task", "command"], ["cron"]),
        (["--cron", "* * * *", "--task", "command"], ["cron", "five fields"]),
        (
            ["--cron", "@daily", "--timezone", "Berlin", "--task", "command"],
            ["timezone", "did you mean Europe/Berlin?"],
        ),
        (["--task", "command"], ["give one of cron, interval or times"]),
        (["--cron", "@daily"], ["--task or --template"]),
        (["--cron", "@daily", "--task", "a", "--template", "b"], ["--task or --template"]),
        (["--cron", "@daily", "--interval", "5m", "--task", "command"], ["interval", "cannot be combined with cron"]),
        (
            ["--cron", "@daily", "--task", "shop.gret", *APP],
            ["no task is named 'shop.gret'", "did you mean shop.greet?"],
        ),
        (["--cron", "@daily", "--task", "command", "--overlap", "skpi"], ["overlap", "did you mean skip?"]),
        (["--cron", "@daily", "--task", "command", "--catch-up", "some"], ["catch_up must be last, none or all"]),
        (["--cron", "@daily", "--template", "nothing"], ["there is no template 'nothing'"]),
        (["--cron", "@daily", "--task", "shop.greet", *APP], ["name"]),
        (["--interval", "500ms", "--task", "command"], ["interval must be at least 1s"]),
        (["--cron", "@daily", "--task", "command", 'argv=["true"]', "--resource", "gpu"], ["gpu"]),
    ],
)
def test_impossible_values(cli: Here, app: App, args: list[str], words: list[str]) -> None:
    cli("schedules", "create", "bad", *args).refused(2, *words)
    assert cli("schedules", "ls", "--json").done().data["items"] == []


def test_a_name_is_taken_once(cli: Here, nightly: App) -> None:
    args = ["--cron", "@daily", "--task", "command", 'argv=["true"]']
    cli("schedules", "create", "nightly", *args).refused(2, "there is a schedule 'nightly' already")
    cli("schedules", "create", "", *args).refused(2, "name")


def test_a_bad_wish_makes_no_database(here: Here) -> None:
    here("schedules", "create", "x", "--cron", "@daily", "--task", "nobody.knows").refused(2, "no task is named")
    here("schedules", "create", "x", "--cron", "nonsense", "--task", "command").refused(2, "cron")
    assert list(here.folder.iterdir()) == []


# --- looking ---


def test_lists_and_pages(cli: Here, nightly: App) -> None:
    for name in ("b", "a", "c"):
        nightly.client.schedules.create(
            name, {"interval": "1h", "steps": [{"task": "shop.give_up"}]}, enabled=name != "c"
        )
    lines = cli("schedules", "ls").done().out.splitlines()
    assert lines[0].split() == ["ID", "NAME", "STATE", "NEXT", "LAST", "WHEN"]
    assert [line.split()[1:3] for line in lines[1:]] == [
        ["a", "enabled"],
        ["b", "enabled"],
        ["c", "disabled"],
        ["nightly", "enabled"],
    ]
    assert lines[4].endswith("at 02:30, Monday to Friday, Berlin time")
    first = cli("schedules", "ls", "-n", 3, "--json").done().data
    rest = cli("schedules", "ls", "--cursor", first["next"], "--json").done().data
    assert [one["name"] for one in first["items"] + rest["items"]] == ["a", "b", "c", "nightly"]
    assert rest["next"] is None
    cli("schedules", "ls", "--cursor", "nonsense").refused(2, "cursor is not valid: list again")


def test_everything_about_one(cli: Here, nightly: App) -> None:
    nightly.client.schedules.run("nightly")
    drain(nightly)
    page = cli("schedules", "show", "nightly").done()
    assert "when        at 02:30, Monday to Friday, Berlin time" in page.out
    assert "timezone    Europe/Berlin" in page.out
    assert 'greet  shop.greet  params {"name": "a"}' in page.out
    assert "COMPLETED  nightly   manual" in page.out
    assert "schedule.created" in page.out
    assert page.err == ""
    one = cli("schedules", "show", 1, "--json").done().data
    assert [run["status"] for run in one["executions"]] == ["COMPLETED"]
    assert [event["kind"] for event in one["events"]] == ["schedule.created"]
    # Its times are those of its own clocks: 02:30, whatever that is in UTC.
    assert " 02:30 (in " in next(line for line in page.out.splitlines() if line.startswith("next"))


def test_next_times(cli: Here, nightly: App) -> None:
    said = cli("schedules", "next", "nightly", "-n", 2).done().out.splitlines()
    assert said[0] == "at 02:30, Monday to Friday, Berlin time"
    assert len(said) == 4
    assert all(" 02:30 +0" in line for line in said[2:])
    found = cli("schedules", "next", "1", "--json").done().data
    assert (found["schedule_id"], len(found["items"])) == (1, 5)
    cli("schedules", "next", "nightly", "-n", 0).refused(2, "count must be from 1 to 1000")
    cli("schedules", "disable", "nightly").done()
    assert "headway schedules enable nightly" in cli("schedules", "next", "nightly").done().err


def test_preview_needs_no_database(here: Here) -> None:
    args = ["schedules", "preview", "30 2 * * *", "--timezone", "Europe/Berlin", "--after", "2026-03-28", "-n", "3"]
    said = here(*args).done().out
    assert said.splitlines()[0] == "at 02:30, every day, Berlin time"
    assert "2026-03-29 01:00  Sun 2026-03-29 03:00 +0200  moved by the clock change" in said
    found = here(*args, "--json").done().data
    assert [one["at"] for one in found["items"]] == [
        "2026-03-28T01:30:00Z",
        "2026-03-29T01:00:00Z",
        "2026-03-30T00:30:00Z",
    ]
    assert found["items"][1]["note"] == "moved by the clock change from 02:30 to 03:00"
    assert found["items"][1]["local"] == "2026-03-29T03:00:00+02:00"
    assert list(here.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["0 0 31 2 *"], ["cron"]),
        (["* * * * * *"], ["cron has 6 fields", "leave out seconds"]),
        (["@daily", "--timezone", "Mars/Base"], ["timezone"]),
        (["@daily", "--count", "0"], ["--count must be from 1 to 1000"]),
        (["@daily", "--after", "soon"], ["--after 'soon' is not a time"]),
    ],
)
def test_schedules_that_cannot_be_previewed(here: Here, args: list[str], words: list[str]) -> None:
    here("schedules", "preview", *args).refused(2, *words)


@pytest.fixture
def fired(cli: Here) -> None:
    """Since 1 March 2026: fired at 02:30 in Berlin, then skipped twice, because that one does not end."""
    clock = FrozenClock("2026-03-01T00:00:00Z")
    with isolated(App(), str(cli.database), clock=clock) as app:
        steps = [{"name": "x", "task": "command", "params": {"argv": ["true"]}}]
        app.client.schedules.create("nightly", {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "steps": steps})
        scheduler = Scheduler(app.client)
        for _ in range(3):
            clock.advance("1d")
            scheduler.tick()


def test_what_became_of_its_times(cli: Here, fired: None) -> None:
    lines = cli("schedules", "ticks", "nightly").done().out.splitlines()
    assert lines[0].split() == ["FOR", "TIMES", "OUTCOME", "EXECUTION", "WHY"]
    assert [line.split()[1:5] for line in lines[1:]] == [
        ["02:30", "1", "SKIPPED", "overlap"],
        ["02:30", "1", "SKIPPED", "overlap"],
        ["02:30", "1", "FIRED", "1"],
    ]
    first = cli("schedules", "ticks", 1, "-n", 1, "--json").done().data
    assert first["items"][0]["nominal_at"] == "2026-03-03T01:30:00Z"
    rest = cli("schedules", "ticks", 1, "--cursor", first["next"], "--json").done().data
    assert [one["outcome"] for one in rest["items"]] == ["SKIPPED", "FIRED"]
    assert rest["items"][1]["execution_id"] == 1
    page = cli("schedules", "show", "nightly").done()
    assert "its last tick was skipped: overlap; see `headway schedules ticks nightly`" in page.err
    assert "2026-03-01 02:30" in cli("executions", "ls").done().out
    assert "for         2026-03-01 02:30" in cli("executions", "show", 1).done().out


def test_no_time_has_come_yet(cli: Here, nightly: App) -> None:
    said = cli("schedules", "ticks", "nightly").done()
    assert said.out == ""
    assert "no tick is decided yet" in said.err


# --- switching ---


def test_disable_enable_delete(cli: Here, nightly: App) -> None:
    said = cli("schedules", "disable", "nightly", "--reason", "the source is down").done().out
    assert said == "nightly disabled: at 02:30, Monday to Friday, Berlin time\n"
    page = cli("schedules", "show", "nightly").done()
    assert "reason the source is down" in page.out
    assert page.err == "it is disabled: enable it with `headway schedules enable nightly`\n"
    said = cli("schedules", "enable", 1).done().out
    assert said.startswith("nightly enabled: at 02:30, Monday to Friday, Berlin time; next ")
    assert said.endswith(" 02:30 (Europe/Berlin)\n")
    cli("schedules", "delete", "nightly").refused(2, "this would delete the schedule 'nightly'", "add --yes")
    assert cli("schedules", "delete", "nightly", "--yes").done().out.startswith("nightly deleted: ")
    cli("schedules", "show", "nightly").refused(3, "there is no schedule 'nightly'", "headway schedules ls")
    assert cli("verify", "--json").done().data["findings"] == []


# --- running ---


def test_a_schedule_that_a_wrong_clock_silenced(cli: Here, nightly: App, database: Database) -> None:
    cli("schedules", "reset", "nightly").refused(4, "there is nothing to put right")
    with database.transaction("ahead") as tx:  # the clock was years ahead when its ticks were decided
        database.execute_script(tx, "update hw_schedule set decided_until = decided_until + 315360000000000;")
    shown = cli("schedules", "show", "nightly").done()
    assert "it does not fire: a clock that was ahead decided its times up to 20" in shown.err
    assert "to repair it: headway schedules reset nightly" in shown.err
    made = cli("schedules", "reset", "nightly", "--json").done().data
    assert (made["name"], made["enabled"], made["schedule_id"]) == ("nightly", True, 2)
    assert "silent" not in cli("schedules", "show", "nightly").done().err


def test_missed_ticks_are_told_until_they_are_seen(cli: Here, nightly: App, database: Database) -> None:
    none = cli("schedules", "seen", "--all").done()
    assert (none.out, none.err) == ("", "no tick was missed that was not seen before\n")
    assert "missed" not in cli("status").done().out
    with database.transaction("missed") as tx:
        text = "insert into hw_tick (tenant_id, schedule_id, nominal_at, until, count, outcome, decided_at)"
        database.execute_script(tx, f"{text} values (1, 1, 5, 9, 3, 'MISSED', {database.clock.now()});")
    told = "3 ticks of nightly were missed while no scheduler ran"
    remedy = (
        "see them with `headway schedules ticks nightly`, then mark them as seen with `headway schedules seen nightly`"
    )
    said = " ".join(cli("status").done().out.split())
    assert f"missed {told}: {remedy}" in said
    cli("schedules", "seen").refused(2, "give either the NAME of a schedule or --all")
    cli("schedules", "seen", "nightly", "--all").refused(2, "give either the NAME")
    marked = cli("schedules", "seen", "--all").done()
    assert marked.out == "nightly: its missed ticks are marked as seen\n"
    assert "missed" not in cli("status").done().out


def test_run_now(cli: Here, nightly: App) -> None:
    cli("schedules", "disable", "nightly").done()
    said = cli("schedules", "run", "nightly", "times=2", *APP).done()
    assert said.out == "1\n"
    assert "no worker is alive" in said.err
    assert json.loads(nightly.client.get(1).params) == {"name": "a", "times": 2}
    cli("schedules", "run", "nightly", *APP).refused(4, "has an unfinished execution, 1")
    forced = cli("schedules", "run", 1, "--force", "--json", *APP).done().data
    assert (forced["execution_id"], forced["kind"], forced["status"]) == (2, "manual", "IN_PROGRESS")
    assert [step["status"] for step in forced["steps"]] == ["QUEUED"]


def test_follow_until_it_ends(cli: Here, app: App) -> None:
    """By processes of their own: a worker does what the other one follows."""
    steps = [{"name": "ok", "task": "command", "params": {"argv": ["true"]}}]
    bad = {"name": "bad", "task": "command", "params": {"argv": ["false"]}, "retry_policy": {"max_attempts": 0}}
    app.client.schedules.create("good", {"cron": "@daily", "steps": steps})
    app.client.schedules.create("poor", {"cron": "@daily", "steps": [*steps, bad]})
    with running("work", cwd=cli.folder, database=cli.database):
        good, poor = (
            program("schedules", "run", name, "--follow", cwd=cli.folder, database=cli.database)
            for name in ("good", "poor")
        )
    assert (good.code, poor.code) == (0, 1)
    assert "ok: job 1 COMPLETED" in good.err
    assert "execution 1 COMPLETED" in good.err
    assert "execution 2 FAILED: step bad:" in poor.err
    assert "headway executions retry 2" in poor.err
    assert "FAILED" in poor.out


def test_backfill(cli: Here, fired: None) -> None:
    since = ["--since", "2026-03-01", "--until", "2026-03-05"]
    said = cli("schedules", "backfill", "nightly", *since, "--dry-run").done()
    assert said.out.splitlines() == [f"2026-03-0{day} 02:30 (Europe/Berlin)" for day in (2, 3, 4)]
    assert "3 executions would be created" in said.err
    assert [one["execution_id"] for one in cli("executions", "ls", "--json").data["items"]] == [1]
    said = cli("schedules", "backfill", "nightly", *since).done()
    assert said.out.splitlines() == ["2", "3", "4"]
    assert "one after another" in said.err
    found = cli("executions", "ls", "--json").done().data["items"]
    assert [(one["execution_id"], one["kind"], one["after"]) for one in found] == [
        (4, "backfill", 3),
        (3, "backfill", 2),
        (2, "backfill", 1),
        (1, "tick", None),
    ]
    assert "after 3" in cli("executions", "ls").done().out
    assert "not started: waits for the end of 3" in cli("executions", "show", 4).done().out


def test_backfills_that_cannot_be(cli: Here, nightly: App) -> None:
    cli("schedules", "backfill", "nightly", "--since", "2015-01-01", *APP).refused(2, "the limit is 1000")
    cli("schedules", "backfill", "nightly", "--since", "1d", "--until", "2d", *APP).refused(2, "until is before since")
    cli("schedules", "backfill", "nightly", "--since", "2026-02-31", *APP).refused(2, "not a day that exists")
    cli("schedules", "backfill", "nightly", "--since", "soon", *APP).refused(2, "--since 'soon' is not a time")
    cli("schedules", "backfill", "nightly", "--since", "1d", "--until", "2099-01-01", *APP).refused(2, "in the future")
    cli("schedules", "backfill", "nightly").refused(2, "--since")


@pytest.mark.parametrize("verb", ["show", "next", "ticks", "enable", "disable", "run", "delete"])
def test_unknown_ones(cli: Here, nightly: App, verb: str) -> None:
    yes = ["--yes"] if verb == "delete" else []
    cli("schedules", verb, "nihgtly", *yes).refused(3, "there is no schedule 'nihgtly': did you mean nightly?")
    cli("schedules", verb, 7, *yes).refused(3, "there is no schedule 7", "headway schedules ls")
