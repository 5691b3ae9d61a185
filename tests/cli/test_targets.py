"""Targets from the command line: who has them, why, and every way to let them go."""

from __future__ import annotations

from typing import Any

import pytest

from headway.app import App
from headway.errors import BadInput
from headway.store.db import Database
from headway.testing import drain
from tests.support.cli import Here
from tests.support.life import Life

pytestmark = pytest.mark.shown


def listed(cli: Here, *args: object) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = cli("targets", "ls", "--json", *args).done().data["items"]
    return items


def stands(cli: Here, name: str) -> tuple[str, int | None, int | None, int]:
    one = cli("targets", "show", name, "--json").done().data
    return one["state"], one["held_by"], one["running"], one["waiting"]


def statuses(cli: Here) -> dict[int, str]:
    return {job["job_id"]: job["status"] for job in cli("jobs", "ls", "--json").done().data["items"]}


@pytest.fixture
def held(app: App) -> App:
    """Job 1 failed on desk-1 and holds it, jobs 2 and 3 wait there; job 4 ran on desk-2."""
    app.enqueue("shop.give_up", target="desk-1")
    for name in ("b", "c"):
        app.enqueue("shop.greet", {"name": name}, target="desk-1")
    app.enqueue("shop.greet", {"name": "d"}, target="desk-2")
    assert drain(app) == 2
    return app


def test_a_failed_job_holds_its_target_and_others_go_on(cli: Here, held: App) -> None:
    first, second = listed(cli)
    since = first.pop("since")
    error = next(e for e in cli("jobs", "show", 1, "--json").data["events"] if e["kind"] == "job.error")
    assert since == error["at"]
    assert first == {
        "name": "desk-1",
        "state": "held",
        "held_by": 1,
        "resumed": False,
        "reason": "no retry will help",
        "running": None,
        "direct": None,
        "waiting": 2,
        "waiting_at_least": False,
        "note": None,
    }
    assert (second["name"], second["state"], second["waiting"]) == ("desk-2", "free", 0)
    assert statuses(cli) == {1: "ERROR", 2: "QUEUED", 3: "QUEUED", 4: "COMPLETED"}


def test_for_people(cli: Here, held: App) -> None:
    said = cli("targets", "ls").done().out.splitlines()
    assert said[0].split() == ["TARGET", "STATE", "BY", "SINCE", "WAITING", "WHY"]
    assert said[1].startswith("desk-1  held   job 1 ")
    assert said[1].endswith("2        no retry will help")
    page = cli("targets", "show", "desk-1").done()
    assert "held by  job 1" in page.out
    assert "target.created" in page.out
    assert "headway jobs resume 1" in page.err
    assert "headway targets release desk-1" in page.err


@pytest.mark.parametrize(
    ("verb", "status", "then"),
    [
        (["targets", "release", "desk-1"], "FAILED", {2: "COMPLETED"}),
        (["jobs", "release", "1"], "FAILED", {2: "COMPLETED"}),
        (["jobs", "resolve", "1", "--result", '{"by": "hand"}'], "COMPLETED", {2: "COMPLETED"}),
        (["jobs", "cancel", "1"], "CANCELLED", {2: "COMPLETED"}),
        # It fails again: the same job, or a new one in its place, holds the target as before.
        (["jobs", "resume", "1"], "ERROR", {2: "QUEUED"}),
        (["jobs", "retry", "1"], "FAILED", {5: "ERROR", 2: "QUEUED"}),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else None,
)
def test_every_way_to_let_it_go(cli: Here, held: App, verb: list[str], status: str, then: dict[int, str]) -> None:
    cli(*verb).done()
    drain(held)
    found = statuses(cli)
    assert {1: found[1], **{job_id: found[job_id] for job_id in then}} == {1: status, **then}
    assert cli("verify", "--json").done().data["findings"] == []


def test_release_says_what_became_of_both(cli: Here, held: App) -> None:
    said = cli("targets", "release", "desk-1").done().out
    assert said == "job 1 released: now FAILED\ndesk-1 is free, 2 wait\n"
    answer = cli("targets", "release", "desk-1").refused(4, "no job holds the target 'desk-1'", "nothing to release")
    assert answer.err.count("\n") == 1


def test_a_resumed_job_has_its_target_and_goes_first(cli: Here, held: App) -> None:
    cli("jobs", "resume", 1).done()
    assert stands(cli, "desk-1") == ("held", 1, None, 2)
    assert cli("targets", "show", "desk-1", "--json").data["reason"] == "resumed: it goes first"
    assert cli("targets", "show", "desk-1").err == ""  # nobody has to do anything
    cli("targets", "release", "desk-1").refused(4, "job 1 on 'desk-1' is QUEUED", "cancel it instead")


def test_work_at_an_instant(cli: Here, app: App) -> None:
    app.enqueue("shop.greet", {"name": "a"}, target="desk-1")
    app.enqueue("shop.greet", {"name": "b"}, target="desk-1")
    assert cli.database is not None
    with Life(cli.database) as life:
        life.pick(1)
        life.claim(1)
    assert stands(cli, "desk-1") == ("busy", None, 1, 1)
    assert cli("targets", "ls").done().out.splitlines()[1].startswith("desk-1  busy   job 1 ")
    cli("targets", "release", "desk-1").refused(4, "job 1 on 'desk-1' is RUNNING", "interrupt or cancel it instead")
    said = cli("targets", "pause", "desk-1").done()
    assert said.out == "desk-1 is paused, job 1 keeps running, 1 waits\n"
    assert "headway targets resume desk-1" in said.err


def test_pausing_a_target(cli: Here, app: App, database: Database) -> None:
    app.enqueue("shop.greet", {"name": "a"}, target="desk-1")
    said = cli("targets", "pause", "desk-1", "--note", "the arm is stuck", "--json").done().data
    assert (said["state"], said["note"], said["waiting"]) == ("paused", "the arm is stuck", 1)
    assert drain(app) == 0
    assert cli("targets", "ls").done().out.splitlines()[1].endswith("the arm is stuck")
    assert "1 paused: desk-1 (the arm is stuck)" in cli("status").done().out
    assert cli("targets", "resume", "desk-1").done().out == "desk-1 is free, 1 waits\n"
    assert cli("targets", "resume", "desk-1").done().out == "desk-1 is free, 1 waits\n"  # as if nothing were
    assert drain(app) == 1
    kinds = [event["kind"] for event in cli("targets", "show", "desk-1", "--json").data["events"]]
    assert kinds == ["target.created", "target.paused", "target.resumed"]


def test_held_and_paused(cli: Here, held: App) -> None:
    """Both have to end: the pause is told first, the holder with it."""
    cli("targets", "resume", "desk-1").refused(4, "'desk-1' is not paused: job 1 holds it", "headway targets show")
    cli("targets", "pause", "desk-1", "--note", "later").done()
    assert stands(cli, "desk-1") == ("paused", 1, None, 2)
    said = cli("targets", "show", "desk-1").done()
    assert "headway targets resume desk-1" in said.err
    assert "headway targets release desk-1" in said.err
    cli("targets", "release", "desk-1").done()
    assert drain(held) == 0
    cli("targets", "resume", "desk-1").done()
    assert drain(held) == 2


def test_status_names_what_waits_for_a_person(cli: Here, held: App) -> None:
    assert "targets    1 held: desk-1 by job 1\n" in cli("status").done().out
    cli("targets", "pause", "desk-2", "--note", "dust").done()
    assert "1 held: desk-1 by job 1; 1 paused: desk-2 (dust)" in cli("status").done().out
    blocked = cli("status", "--json").done().data["blocked_targets"]
    assert [(one["name"], one["state"]) for one in blocked] == [("desk-1", "held"), ("desk-2", "paused")]
    cli("targets", "release", "desk-1").done()
    cli("targets", "resume", "desk-2").done()
    assert "targets" not in cli("status").done().out


def test_states_and_pages(cli: Here, held: App) -> None:
    for n in range(5):
        held.enqueue("shop.greet", {"name": "x"}, target=f"rig-{n}")
    cli("targets", "pause", "rig-3").done()
    assert [one["name"] for one in listed(cli, "--state", "held")] == ["desk-1"]
    assert [one["name"] for one in listed(cli, "--state", "held,paused")] == ["desk-1", "rig-3"]
    names: list[str] = []
    cursor: list[str] = []
    while True:
        page = cli("targets", "ls", "-n", 2, "--state", "free", *cursor, "--json").done().data
        names += [one["name"] for one in page["items"]]
        if page["next"] is None:
            break
        cursor = ["--cursor", page["next"]]
    assert names == ["desk-2", "rig-0", "rig-1", "rig-2", "rig-4"]
    assert "there are more: --cursor" in cli("targets", "ls", "-n", 2).done().err


def test_nothing_there_yet(cli: Here, app: App) -> None:
    said = cli("targets", "ls").done()
    assert (said.out, "no targets yet" in said.err, "headway run TASK --target desk-1" in said.err) == ("", True, True)
    app.enqueue("shop.greet", {"name": "a"}, target="desk-1")
    assert "no target matches" in cli("targets", "ls", "--state", "held").done().err


def test_jobs_by_target(cli: Here, held: App) -> None:
    held.enqueue("shop.greet", {"name": "e"})
    ids = [job["job_id"] for job in cli("jobs", "ls", "--target", "desk-1", "--json").done().data["items"]]
    assert ids == [3, 2, 1]
    assert [run["run_id"] for run in cli("runs", "ls", "--target", "desk-2", "--json").done().data["items"]] == [4]
    cli("jobs", "cancel", "--target", "desk-1", "--status", "queued", "--yes").done()
    assert statuses(cli) == {1: "ERROR", 2: "CANCELLED", 3: "CANCELLED", 4: "COMPLETED", 5: "QUEUED"}
    cli("jobs", "ls", "--target", "dsk-1").refused(3, "there is no target 'dsk-1'", "did you mean desk-1?")


def test_run_and_sh_take_target_and_resources(cli: Here) -> None:
    (cli.folder / "headway.toml").write_text("[resources]\nollama = 1\nremote = 2\n")
    args = ("--target", "desk 1", "--resource", "remote", "--resource", "ollama", "--on-error", "fail", "--json")
    made = cli("sh", *args, "--", "true").done().data
    assert (made["target"], made["resources"], made["retries_remaining"]) == ("desk 1", ["ollama", "remote"], 0)
    shown = cli("jobs", "show", made["job_id"]).done().out
    assert "target     desk 1" in shown
    assert "resources  ollama, remote" in shown
    plain = cli("sh", "--json", "--", "true").done().data
    assert (plain["target"], plain["resources"], plain["retries_remaining"]) == (None, [], 3)


def test_with_on_error_fail_nothing_is_held(cli: Here, app: App) -> None:
    cli("run", "shop.give_up", "--target", "desk-1", "--on-error", "fail", "--app", "tests.support.shop:app").done()
    assert drain(app) == 1
    assert stands(cli, "desk-1") == ("free", None, None, 0)


def test_names_are_shown_without_their_tricks(cli: Here, app: App) -> None:
    name = "desk\u202e1 \u00e9 " + "x" * 190
    app.enqueue("shop.greet", {"name": "a"}, target=name)
    assert listed(cli)[0]["name"] == name
    table = cli("targets", "ls").done().out
    assert "\u202e" not in table
    assert all(len(line) <= 80 for line in table.splitlines())
    assert "\u202e" not in cli("targets", "pause", name).done().out
    with pytest.raises(BadInput, match="control characters"):
        app.enqueue("shop.greet", {"name": "a"}, target="desk\x1b1")
