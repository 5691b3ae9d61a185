"""Templates from the command line: stored defaults, jobs made of them, and that those are snapshots."""

from __future__ import annotations

import json

import pytest

from headway.app import App
from headway.testing import drain
from tests.support.cli import Here

pytestmark = pytest.mark.shown

SHOP = ("--app", "tests.support.shop:app")


@pytest.fixture
def hello(cli: Here, app: App) -> App:
    app.client.templates.create("hello", "shop.greet", params={"name": "anna"}, priority=5, description="says hello")
    return app


def test_none_yet(cli: Here) -> None:
    said = cli("templates", "ls").done()
    assert said.out == ""
    assert "headway templates create NAME --task TASK name=value" in said.err


def test_making_one(cli: Here, app: App) -> None:
    wishes = ["--priority", 7, "--target", "desk-1", "--timeout", "10m", "--retries", 2, "--base-delay", "5s"]
    more = [
        "--budget",
        "tokens=500",
        "--on-lost",
        "hold",
        "--on-error",
        "fail",
        "--open-param",
        "times",
        "--on-shutdown",
        "pause",
    ]
    args = ["hello", "name=anna", "--task", "shop.greet", "--description", "says hello", *wishes, *more, *SHOP]
    one = cli("templates", "create", *args, "--json").done().data
    kept = {name: one[name] for name in ("params", "priority", "target", "timeout", "retry_policy", "budget")}
    assert kept == {
        "params": {"name": "anna"},
        "priority": 7,
        "target": "desk-1",
        "timeout": "10m",
        "retry_policy": {"max_attempts": 2, "base_delay": "5s"},
        "budget": {"tokens": 500},
    }
    assert one["on_shutdown"] == "pause"
    assert (one["template_id"], one["version"], one["archived_at"], one["open_params"]) == (1, 1, None, ["times"])
    said = cli("templates", "create", "bare", "--task", "command").done().out
    assert said == "bare created: template 2 of command, version 1\n"


def test_looking(cli: Here, hello: App) -> None:
    lines = cli("templates", "ls").done().out.splitlines()
    assert lines[0].split() == ["ID", "NAME", "TASK", "VERSION", "ABOUT"]
    assert lines[1].split() == ["1", "hello", "shop.greet", "1", "says", "hello"]
    page = cli("templates", "show", "hello").done().out
    assert 'params       {"name": "anna"}' in page
    assert "priority     5" in page
    assert "template.created" in page
    assert cli("templates", "show", 1, "--json").done().data["events"][0]["kind"] == "template.created"
    hello.client.templates.create("second", "shop.greet")
    first = cli("templates", "ls", "-n", 1, "--json").done().data
    rest = cli("templates", "ls", "--cursor", first["next"], "--json").done().data
    assert [one["name"] for one in first["items"] + rest["items"]] == ["hello", "second"]


def test_jobs_are_snapshots(cli: Here, hello: App) -> None:
    assert cli("templates", "run", "hello", *SHOP).done().out == "1\n"
    cli("templates", "edit", "hello", "times=2", "--priority", 9, *SHOP).done()
    assert cli("run", "--template", "hello", "name=bob", "--priority", 1, *SHOP).done().out == "2\n"
    assert cli("run", "--template", 1, *SHOP).done().out == "3\n"
    found = [(json.loads(hello.client.get(n).params), hello.client.get(n).priority) for n in (1, 2, 3)]
    assert found == [
        ({"name": "anna"}, 5),
        ({"name": "bob", "times": 2}, 1),
        ({"name": "anna", "times": 2}, 9),
    ]
    assert cli("jobs", "show", 1, "--json").done().data["template_id"] == 1
    assert "template  1" in cli("jobs", "show", 1).done().out
    assert drain(hello) == 3


def test_editing(cli: Here, hello: App) -> None:
    one = cli("templates", "edit", "hello", "times=3", "--timeout", "1m", "--name", "hi", "--json", *SHOP).done().data
    assert (one["name"], one["params"], one["timeout"], one["version"]) == ("hi", {"name": "anna", "times": 3}, "1m", 2)
    one = cli("templates", "edit", 1, "--params", '{"name": "eve"}', "--clear", "timeout", "--json", *SHOP).done().data
    assert (one["params"], one["timeout"], one["priority"]) == ({"name": "eve"}, None, 5)
    assert (
        cli("templates", "edit", "hi", "--task", "shop.wait", "--clear", "params", *SHOP)
        .done()
        .out.startswith("hi changed: ")
    )


def test_archiving(cli: Here, hello: App) -> None:
    assert cli("templates", "archive", "hello").done().out == "hello archived: template 1 of shop.greet, version 2\n"
    cli("templates", "run", "hello").refused(2, "template 'hello' is archived", "create it again")
    cli("templates", "archive", 1).refused(4, "template 'hello' is archived")
    cli("templates", "edit", "hello", "times=2", *SHOP).refused(4, "template 'hello' is archived")
    assert cli("templates", "ls", "--json").done().data["items"] == []
    assert len(cli("templates", "ls", "--archived", "--json").done().data["items"]) == 1
    again = cli("templates", "create", "hello", "name=b", "--task", "shop.greet", *SHOP, "--json").done().data
    assert again["template_id"] == 2
    assert cli("verify", "--json").done().data["findings"] == []


def test_following_one(cli: Here, hello: App) -> None:
    """A worker of its own is not needed to see that nobody is there."""
    said = cli("templates", "run", "hello", "--json", *SHOP).done().data
    assert (said["task"], said["status"], said["priority"]) == ("shop.greet", "QUEUED", 5)
    said = cli("templates", "run", "hello", "--delay", "1h", "--key", "k", "--retries", 1, "--json", *SHOP).done().data
    assert (said["status"], said["key"], said["retries_remaining"]) == ("SCHEDULED", "k", 1)
    assert "job 2 has this key" in cli("templates", "run", "hello", "--key", "k", *SHOP).done().err


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["create", "x"], 2, ["--task"]),
        (["create", "x", "--task", "no.such"], 2, ["no task is named 'no.such'"]),
        (["create", "hello", "--task", "command"], 2, ["there is a template 'hello' already"]),
        (["create", "x", "--task", "command", "argv=1"], 2, ["argv"]),
        (["create", "x", "--task", "command", "--timeout", "soon"], 2, ["timeout is not a duration"]),
        (["create", "x", "--task", "command", "--resource", "gpu"], 2, ["gpu"]),
        (["edit", "hello"], 2, ["no change given"]),
        (["edit", "hello", "--clear", "colour"], 2, ["a template has no field 'colour'"]),
        (["edit", "hello", "--priority", "101", *SHOP], 2, ["priority"]),
        (["edit", "helo", "times=2"], 3, ["did you mean hello?"]),
        (["show", "helo"], 3, ["there is no template 'helo': did you mean hello?"]),
        (["show", "9"], 3, ["there is no template 9", "headway templates ls"]),
        (["archive", "9"], 3, ["there is no template 9"]),
        (["run", "9"], 3, ["there is no template 9"]),
        (["run", "hello", "name"], 2, ["'name' is not a param"]),
        (["run", "hello", "colour=red", *SHOP], 2, ["colour"]),
        (["ls", "--limit", "0"], 2, ["limit must be from 1 to 200"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_refusals(cli: Here, hello: App, args: list[str], code: int, words: list[str]) -> None:
    cli("templates", *args).refused(code, *words)


def test_run_names_one_thing(cli: Here, hello: App) -> None:
    cli("run").refused(2, "no task given: name a task, or a template with --template")
    cli("run", "shop.greet", "--template", "hello").refused(2, "'shop.greet' is not a param: write it as name=value")
    cli("run", "--template", "helo").refused(3, "did you mean hello?")


def test_looking_makes_no_database(here: Here) -> None:
    here("templates", "run", "hello").refused(5, "no database at ./headway.db")
    here("templates", "ls").refused(5, "no database")
    assert list(here.folder.iterdir()) == []
