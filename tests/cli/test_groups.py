"""Groups from the command line: where they stand, who holds them up, ending them and trying them again."""

from __future__ import annotations

import pytest

from headway.app import App
from headway.testing import drain
from tests.support import shop
from tests.support.cli import Here
from tests.support.life import Life

pytestmark = pytest.mark.shown


def greet(name: str):
    return shop.greet.using(name=name).step(name=name)


@pytest.fixture
def failed(app: App) -> App:
    """Group 1: a, then b and the failing c, then d, which never had its turn."""
    bad = shop.give_up.using(name="c").step()
    app.plan("nightly").then(greet("a")).then(greet("b"), bad).then(greet("d")).start()
    drain(app)
    return app


def test_none_yet(cli: Here) -> None:
    said = cli("groups", "ls").done()
    assert said.out == ""
    assert "no groups yet" in said.err
    assert "app.plan(" in said.err
    assert cli("groups", "ls", "--json").done().data == {"items": [], "next": None}
    assert "no group matches" in cli("groups", "ls", "--status", "partial").done().err


def test_waiting_and_running_jobs(cli: Here, app: App) -> None:
    app.plan("nightly").then(greet("a")).then(greet("b")).start()
    with Life(str(cli.database)) as life:
        life.claim(1)
    one = cli("groups", "show", 1, "--json").done().data
    assert (one["status"], one["stage"], one["stages"], one["counts"]) == (
        "RUNNING",
        0,
        2,
        {"RUNNING": 1, "WAITING": 1},
    )
    assert [(step["step"], step["stage"], step["status"]) for step in one["steps"]] == [
        ("a", 0, "RUNNING"),
        ("b", 1, "WAITING"),
    ]
    assert [event["kind"] for event in one["events"]] == ["group.created"]
    page = cli("groups", "show", 1).done().out
    assert "stage       1 of 2" in page
    assert "its stage is not open yet" in page
    assert "stage 1 of group 1 has not ended" in " ".join(cli("jobs", "explain", 2).done().out.split())
    # The member itself says where it belongs, and why it waits.
    member = cli("jobs", "show", 2).done().out
    assert "step      b, stage 2 of 2" in member
    assert "group     1 nightly (RUNNING)" in member
    shown = cli("jobs", "show", 2, "--json").done().data
    assert (shown["group_id"], shown["execution_id"], shown["stage"], shown["step"]) == (1, None, 1, "b")
    first, *_ = cli("jobs", "explain", 2, "--json").done().data["blockers"]
    assert first["kind"] == "stage"


def test_a_failure_ends_it_partial(cli: Here, failed: App) -> None:
    (line,) = cli("groups", "ls").done().out.splitlines()[1:]
    assert line.split()[:5] == ["1", "PARTIAL", "nightly", "2/3", "4/4"]
    assert line.endswith("failed: c")
    page = cli("groups", "show", 1).done()
    assert "predecessor failed" in page.out
    assert page.err == "to retry the failed steps: headway groups retry 1\n"
    assert [one["group_id"] for one in cli("groups", "ls", "--status", "PARTIAL", "--json").data["items"]] == [1]
    assert cli("groups", "ls", "--status", "running", "--json").data["items"] == []


def test_stages_are_counted_from_one_for_people(cli: Here, failed: App) -> None:
    page = cli("groups", "show", 1).done().out
    stages = [line.split()[-2:] for line in page.splitlines() if "group.advanced" in line]
    assert stages[0] == ["stage", "2"]
    events = cli("groups", "show", 1, "--json").done().data["events"]
    assert next(one for one in events if one["kind"] == "group.advanced")["data"]["stage"] == 1


def test_trying_again(cli: Here, failed: App) -> None:
    said = cli("groups", "retry", 1).done()
    assert said.out == "2\n"
    assert "runs the unfinished steps of 1: c, d; 2 other steps are linked, not run again" in said.err
    steps = cli("groups", "show", 2, "--json").done().data["steps"]
    assert [(step["step"], step["linked"], step["status"]) for step in steps] == [
        ("a", True, "COMPLETED"),
        ("b", True, "COMPLETED"),
        ("c", False, "QUEUED"),
        ("d", False, "WAITING"),
    ]
    assert "succeeded earlier: not run again" in cli("groups", "show", 2).done().out
    cli("groups", "retry", 1).refused(4, "already being retried by 2")
    cli("groups", "retry", 2).refused(4, "group 2 is RUNNING", "cancel it, or wait")
    assert cli("verify", "--json").done().data["findings"] == []


def test_cancelling(cli: Here, app: App) -> None:
    app.plan("one").then(greet("a")).then(greet("b")).start()
    assert cli("groups", "cancel", 1).done().out == "group 1 is CANCELLED\n"
    cli("groups", "cancel", 1).refused(4, "group 1 is CANCELLED: it has already ended")
    app.plan("two").then(greet("a")).then(greet("b")).start()
    with Life(str(cli.database)) as life:
        life.claim(3)
    assert cli("groups", "cancel", 2).done().out == "group 2 is being cancelled: waiting for a (job 3) to stop\n"
    assert "cancelling" in cli("groups", "ls").done().out.splitlines()[1]
    assert cli("groups", "cancel", 2, "--json").done().data["status"] == "RUNNING"


def test_a_held_member_says_what_to_do(cli: Here, app: App) -> None:
    bad = shop.give_up.using(name="press", target="desk-1").step()
    app.plan("desk").then(bad).then(greet("b")).start()
    drain(app)
    assert cli("groups", "ls").done().out.splitlines()[1].endswith("held by press")
    page = cli("groups", "show", 1).done()
    assert "held by     press (job 1 ERROR)" in page.out
    assert "press needs a decision: headway jobs resume 1, or resolve, retry, release, cancel" in page.err
    assert [one["step"] for one in cli("groups", "show", 1, "--json").data["held_by"]] == ["press"]
    cli("jobs", "resolve", 1).done()
    drain(app)
    assert cli("groups", "show", 1, "--json").data["status"] == "COMPLETED"


def test_a_member_on_hold_says_what_to_do(cli: Here, app: App) -> None:
    app.plan("two").then(greet("a"), greet("b")).start()
    cli("jobs", "interrupt", 1).done()
    assert cli("groups", "ls").done().out.splitlines()[1].endswith("held by a")
    page = cli("groups", "show", 1).done()
    assert "held by     a (job 1 WAITING)" in page.out
    assert "a needs a decision: headway jobs resume 1, or cancel" in page.err
    assert [one["step"] for one in cli("groups", "ls", "--json").data["items"][0]["held_by"]] == ["a"]
    cli("jobs", "resume", 1).done()
    assert cli("groups", "show", 1, "--json").data["held_by"] == []


def test_its_jobs_and_runs_by_a_filter(cli: Here, failed: App) -> None:
    failed.enqueue("shop.greet", {"name": "alone"})
    drain(failed)
    assert [job["step"] for job in cli("jobs", "ls", "--group", 1, "--json").done().data["items"]] == [
        "d",
        "c",
        "b",
        "a",
    ]
    found = cli("jobs", "ls", "--group", 1, "--status", "failed", "--json").done().data["items"]
    assert [job["step"] for job in found] == ["c"]
    assert len(cli("runs", "ls", "--group", 1, "--json").done().data["items"]) == 3
    assert cli("jobs", "ls", "--group", 9).done().err.startswith("no job matches")
    first = cli("jobs", "ls", "--group", 1, "-n", 3, "--json").done().data
    rest = cli("jobs", "ls", "--group", 1, "--cursor", first["next"], "--json").done().data
    assert [job["step"] for job in rest["items"]] == ["a"]
    assert (
        cli("jobs", "retry", "--group", 1, "--yes", "--json").done().data["items"][0]["retry_of"] == found[0]["job_id"]
    )


def test_refusals(cli: Here, failed: App) -> None:
    cli("groups", "show", 9).refused(3, "there is no group 9", "headway groups ls")
    cli("groups", "cancel", 9).refused(3, "there is no group 9")
    cli("groups", "retry", 9).refused(3, "there is no group 9")
    cli("groups", "ls", "--status", "partail").refused(2, "did you mean PARTIAL?")
    cli("groups", "ls", "--limit", 0).refused(2, "limit must be from 1 to 200")
    cli("executions", "show", 1).refused(3, "there is no execution 1", "headway executions ls")
    failed.plan("fine").then(greet("a")).start()
    drain(failed)
    cli("groups", "retry", 2).refused(4, "group 2 is COMPLETED: nothing in it failed")
