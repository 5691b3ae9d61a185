"""Executions from the command line: the stages and steps of a firing, what went wrong, and trying it again."""

from __future__ import annotations

import pytest

from headway.app import App
from headway.store import paging
from headway.testing import drain
from tests.support.cli import Here
from tests.support.life import Life

pytestmark = pytest.mark.shown

STEPS = [
    {"name": "load", "task": "shop.greet", "params": {"name": "a"}},
    {"name": "check", "task": "shop.greet", "params": {"name": "b"}},
    {"name": "mail", "index": 1, "task": "shop.give_up", "continue_on_failure": True},
    {"name": "end", "task": "shop.give_up"},
]


@pytest.fixture
def nightly(app: App) -> App:
    app.client.schedules.create("nightly", {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "steps": STEPS})
    app.client.schedules.create("other", {"cron": "@daily", "steps": STEPS[:1]})
    return app


@pytest.fixture
def failed(nightly: App) -> App:
    """Execution 1 failed in its last step; a step that may fail did before."""
    nightly.client.schedules.run("nightly")
    drain(nightly)
    return nightly


def test_none_yet(cli: Here) -> None:
    said = cli("executions", "ls").done()
    assert said.out == ""
    assert "no executions yet" in said.err
    assert "headway schedules run NAME" in said.err


def test_waiting_and_running_told_apart(cli: Here, nightly: App) -> None:
    nightly.client.schedules.run("nightly")
    with Life(str(cli.database)) as life:
        life.claim(1)
    one = cli("executions", "show", 1, "--json").done().data
    assert (one["status"], one["current_stage"], one["kind"], one["schedule_id"]) == ("IN_PROGRESS", 0, "manual", 1)
    assert one["counts"] == {"RUNNING": 1, "WAITING": 3}
    assert [(step["step"], step["stage"]) for step in one["steps"]] == [
        ("load", 0),
        ("check", 1),
        ("mail", 1),
        ("end", 2),
    ]
    lines = cli("executions", "show", 1).done().out.splitlines()
    load, check, *_ = (line for line in lines if line.startswith(("1 ", "2 ")))
    assert load.split()[:3] == ["1", "load", "RUNNING"]
    assert check.split()[:3] == ["2", "check", "WAITING"]
    assert check.endswith("its stage is not open yet")
    shown = cli("jobs", "show", 2, "--json").done().data
    assert (shown["execution_id"], shown["group_id"], shown["schedule_id"], shown["step"]) == (1, None, 1, "check")
    assert "execution  1 nightly (IN_PROGRESS)" in cli("jobs", "show", 2).done().out


def test_the_error_names_the_step(cli: Here, failed: App) -> None:
    (line,) = cli("executions", "ls").done().out.splitlines()[1:]
    assert line.split()[:6] == ["1", "FAILED", "nightly", "manual", "3/3", "4/4"]
    page = cli("executions", "show", 1).done()
    assert "error       step end: no retry will help" in page.out
    assert "no retry will help; may fail" in page.out
    assert page.err == "to retry the failed steps: headway executions retry 1\n"


def test_trying_again_links_what_succeeded(cli: Here, failed: App) -> None:
    said = cli("executions", "retry", 1).done()
    assert said.out == "2\n"
    assert "runs the unfinished steps of 1: end; 3 other steps are linked" in said.err
    one = cli("executions", "show", 2, "--json").done().data
    assert (one["kind"], one["retry_of"], one["current_stage"]) == ("retry", 1, 2)
    assert [step["step"] for step in one["steps"] if step["linked"]] == ["load", "check", "mail"]
    cli("executions", "retry", 1).refused(4, "already being retried by 2")
    cli("executions", "cancel", 2).done()
    cli("executions", "cancel", 2).refused(4, "execution 2 is CANCELLED: it has already ended")


def test_held(cli: Here, app: App) -> None:
    steps = [{"name": "press", "task": "shop.give_up", "target": "desk-1"}, STEPS[0]]
    app.client.schedules.create("desk", {"cron": "@daily", "steps": steps})
    app.client.schedules.run("desk")
    drain(app)
    page = cli("executions", "show", 1).done()
    assert "held by     press (job 1 ERROR)" in page.out
    assert "press needs a decision: headway jobs resume 1" in page.err
    assert cli("executions", "ls").done().out.splitlines()[1].endswith("held by press")


def test_filters(cli: Here, failed: App) -> None:
    failed.client.schedules.run("other")

    def numbers(*args: object) -> list[int]:
        return [one["execution_id"] for one in cli("executions", "ls", "--json", *args).done().data["items"]]

    assert numbers() == [2, 1]
    assert numbers("--schedule", "nightly") == numbers("--schedule", "1") == [1]
    assert numbers("--status", "failed") == [1]
    assert numbers("--status", "in_progress") == numbers("--status", "running") == [2]
    first = cli("executions", "ls", "-n", 1, "--json").done().data
    assert numbers("--cursor", first["next"]) == [1]
    assert [job["step"] for job in cli("jobs", "ls", "--schedule", "other", "--json").done().data["items"]] == ["load"]
    assert len(cli("jobs", "ls", "--schedule", "1", "--json").done().data["items"]) == 4
    assert len(cli("runs", "ls", "--schedule", "nightly", "--json").done().data["items"]) == 4
    cancelled = cli("jobs", "cancel", "--schedule", "other", "--yes", "--json").done().data["items"]
    assert [job["execution_id"] for job in cancelled] == [2]
    # By its number a schedule is still known when it is gone.
    failed.client.schedules.delete("nightly")
    assert numbers("--schedule", "1") == [1]


def test_a_schedule_with_very_many_jobs_is_found_among_the_others(
    cli: Here, failed: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        failed.enqueue("shop.greet", {"name": name})
    monkeypatch.setattr(paging, "BUDGET", 2)
    assert len(cli("jobs", "ls", "--schedule", "nightly", "--json").done().data["items"]) == 4
    assert len(cli("runs", "ls", "--schedule", "nightly", "--json").done().data["items"]) == 4
    assert len(cli("jobs", "ls", "--group", 1, "--json").done().data["items"]) == 4


def test_refusals(cli: Here, failed: App) -> None:
    cli("executions", "show", 9).refused(3, "there is no execution 9", "headway executions ls")
    cli("executions", "cancel", 9).refused(3)
    cli("executions", "retry", 9).refused(3)
    cli("groups", "show", 1).refused(3, "there is no group 1")
    cli("executions", "ls", "--status", "partial").refused(2, "--status: there is no status 'partial'")
    cli("executions", "ls", "--schedule", "nihgtly").refused(3, "did you mean nightly?")
    cli("jobs", "ls", "--schedule", "nihgtly").refused(3, "did you mean nightly?")
    failed.client.schedules.run("nightly")
    cli("executions", "retry", 1).refused(4, "execution 2 of the same schedule is IN_PROGRESS")
