"""`headway apply`: a file of templates, schedules and targets, what differs in words, all of it or nothing."""

from __future__ import annotations

import pytest

from headway.app import App
from tests.support.cli import Here

pytestmark = pytest.mark.shown

SHOP = ("--app", "tests.support.shop:app")
PLANS = """
[[templates]]
name = "hello"
task = "shop.greet"
params = { name = "anna" }

[[schedules]]
name = "nightly"
cron = "30 2 * * *"
timezone = "Europe/Berlin"
start = 2026-01-01T00:00:00Z

[[schedules.steps]]
name = "load"
template = "hello"

[[schedules.steps]]
name = "check"
task = "shop.greet"
params = { name = "b" }

[[schedules]]
name = "pulse"
interval = "10m"
template = "hello"
enabled = false

[[targets]]
name = "desk-1"
paused = true
note = "the arm is stuck"

[[targets]]
name = "desk-2"
"""


@pytest.fixture
def plans(cli: Here, app: App) -> Here:
    write(cli, PLANS)
    return cli


def write(cli: Here, text: str) -> None:
    (cli.folder / "plans.toml").write_text(text)


def apply(cli: Here, *args: str) -> list[str]:
    return cli("apply", "plans.toml", *SHOP, *args).done().out.splitlines()


def test_it_makes_what_is_not_there(plans: Here) -> None:
    new = [
        "+ template hello",
        "+ schedule nightly",
        "+ schedule pulse: disabled",
        "+ target desk-1: paused",
        "+ target desk-2",
    ]
    said = plans("apply", "plans.toml", "--dry-run", *SHOP).done()
    assert said.out.splitlines() == new
    assert said.err == "5 changes; nothing was stored: run again without --dry-run\n"
    assert plans("schedules", "ls", "--json").done().data["items"] == []
    said = plans("apply", "plans.toml", *SHOP).done()
    assert said.out.splitlines() == new
    assert said.err == "5 changes applied\n"
    one, two = plans("schedules", "ls", "--json").done().data["items"]
    assert (one["name"], one["origin"], one["enabled"], one["start"]) == (
        "nightly",
        "file",
        True,
        "2026-01-01T00:00:00Z",
    )
    assert [(step["name"], step["index"]) for step in one["steps"]] == [("load", 0), ("check", 1)]
    assert (two["name"], two["enabled"], two["template"]) == ("pulse", False, "hello")
    assert plans("targets", "show", "desk-1", "--json").done().data["note"] == "the arm is stuck"
    assert plans("verify", "--json").done().data["findings"] == []


def test_twice_is_as_once(plans: Here) -> None:
    apply(plans)
    said = plans("apply", "plans.toml", *SHOP).done()
    assert [line.split(":")[0] for line in said.out.splitlines()] == [
        "= template hello",
        "= schedule nightly",
        "= schedule pulse",
        "= target desk-1",
        "= target desk-2",
    ]
    assert said.err == "no changes: everything is as in the file\n"
    assert plans("schedules", "show", "nightly", "--json").done().data["version"] == 1
    assert plans("templates", "show", "hello", "--json").done().data["version"] == 1


def test_what_differs_in_words(plans: Here) -> None:
    apply(plans)
    text = PLANS.replace("30 2 * * *", "0 3 * * *").replace('params = { name = "b" }', 'params = { name = "c" }')
    text = text.replace("start = 2026-01-01T00:00:00Z\n", 'overlap = "queue"\n').replace(
        "enabled = false", "enabled = true"
    )
    text = text.replace('{ name = "anna" }', '{ name = "anna", times = 2 }').replace("arm is stuck", "arm is off")
    write(plans, text)
    words = apply(plans, "--dry-run")
    assert words == [
        '~ template hello: params {"name": "anna"} → {"name": "anna", "times": 2}',
        "~ schedule nightly: cron 30 2 * * * → 0 3 * * *; "
        'step check: params {"name": "b"} → {"name": "c"}; overlap skip → queue; start 2026-01-01T00:00:00Z → (none)',
        "~ schedule pulse: disabled → enabled",
        "~ target desk-1: note the arm is stuck → the arm is off",
        "= target desk-2: unchanged",
    ]
    assert apply(plans) == words
    assert apply(plans)[1] == "= schedule nightly: unchanged"
    one = plans("schedules", "show", "nightly", "--json").done().data
    assert (one["cron"], one["overlap"], one["start"]) == ("0 3 * * *", "queue", None)


def test_steps_come_and_go(plans: Here) -> None:
    apply(plans)
    write(plans, PLANS.replace('name = "check"', 'name = "prove"'))
    assert "~ schedule nightly: without step check; with step prove" in apply(plans)
    write(plans, PLANS.replace("paused = true\nnote", "#").replace('name = "check"', 'name = "prove"'))
    assert "= target desk-1: unchanged" in apply(plans)  # it says nothing about the pause now
    write(plans, PLANS.replace('paused = true\nnote = "the arm is stuck"', "paused = false"))
    assert "~ target desk-1: paused → free" in apply(plans)


def test_a_switch_made_by_a_person_stays(plans: Here) -> None:
    apply(plans)
    plans("schedules", "disable", "nightly").done()
    assert "= schedule nightly: unchanged" in apply(plans)
    assert plans("schedules", "show", "nightly", "--json").data["enabled"] is False


def test_what_the_file_names_no_more_stays_and_is_told(plans: Here) -> None:
    apply(plans)
    write(plans, PLANS[: PLANS.index("[[schedules]]")])
    said = plans("apply", "plans.toml", *SHOP).done()
    assert (
        "schedule nightly is not in this file and stays: delete it with `headway schedules delete nightly`" in said.err
    )
    assert len(plans("schedules", "ls", "--json").data["items"]) == 2
    left = plans("apply", "plans.toml", "--json", *SHOP).done().data
    assert left["left"] == ["nightly", "pulse"]
    assert left["items"] == [{"change": "=", "thing": "template", "name": "hello", "differences": []}]


def test_where_it_came_from(plans: Here, app: App) -> None:
    app.client.templates.create("hello", "shop.greet", params={"name": "anna"})
    app.client.schedules.create("pulse", {"interval": "10m", "template": "hello"}, enabled=False)
    assert "~ schedule pulse: origin api → file" in apply(plans)
    app.client.schedules.create("by-code", {"interval": "10m", "template": "hello"}, origin="code")
    write(plans, '[[schedules]]\nname = "by-code"\ninterval = "5m"\ntemplate = "hello"\n')
    plans("apply", "plans.toml").refused(2, "plans.toml:1: schedules[0] by-code: code declares a schedule of this name")


def test_every_problem_at_once_and_nothing_stored(plans: Here) -> None:
    write(
        plans,
        PLANS.replace("30 2 * * *", "0 0 31 2 *")
        .replace("Europe/Berlin", "Berlin")
        .replace('interval = "10m"', 'interval = "10m"\noverlap = "skpi"')
        .replace('task = "shop.greet"\nparams = { name = "anna" }', 'task = "shop.greet"\ncolour = "red"')
        + '[[targets]]\npaused = "yes"\n[[webhook]]\nurl = "x"\n',
    )
    said = plans("apply", "plans.toml", *SHOP)
    assert (said.code, said.out) == (2, "")
    head, *lines = said.err.splitlines()
    assert head == "headway: plans.toml has 6 problems: correct them"
    for found in (
        "plans.toml: webhook: there is no such table",
        "plans.toml:2: templates[0] hello: colour: a template has no such field",
        "plans.toml:7: schedules[0] nightly: cron",
        "plans.toml:7: schedules[0] nightly: timezone",
        "plans.toml:22: schedules[1] pulse: overlap",
        "plans.toml:36: targets[2]: name",
    ):
        assert any(line.strip().startswith(found) for line in lines), (found, lines)
    facts = plans("apply", "plans.toml", "--json", *SHOP).error
    assert (facts["code"], len(facts["problems"])) == ("bad_file", 6)
    assert plans("templates", "ls", "--json").done().data["items"] == []


def test_problems_that_only_the_database_knows(plans: Here) -> None:
    write(
        plans,
        PLANS.replace('task = "shop.greet"\nparams = { name = "b" }', 'task = "shop.gret"')
        .replace('{ name = "anna" }', '{ times = "many" }')
        .replace('interval = "10m"\ntemplate = "hello"', 'interval = "10m"\ntemplate = "helo"')
        + '[[webhooks]]\nurl = "http://169.254.169.254/"\n',
    )
    said = plans("apply", "plans.toml", *SHOP)
    assert said.code == 2
    assert "templates[0] hello: shop.greet: params.times must be int" in said.err
    assert "schedules[0] nightly: steps[0]" in said.err
    assert "schedules[1] pulse: there is no template 'helo'" in said.err
    assert "webhooks[0]" in said.err
    assert "169.254.169.254 is a link-local address, where nothing is delivered" in said.err
    assert plans("templates", "ls", "--json").done().data["items"] == []
    assert plans("targets", "ls", "--json").done().data["items"] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[schedules]\n", ["is not TOML"]),
        ("schedules = 3\n", ["schedules must be tables: write [[schedules]] above each"]),
        ('[[schedules]]\nname = "x"\ncron = "@daily"\n', ["give a template or steps"]),
        ('[[schedules]]\nname = "x"\ncron = "@daily"\nsteps = []\n', ["at least one step"]),
        (
            '[[schedules]]\nname = "x"\ncron = "@daily"\n[[schedules.steps]]\ntask = "command"\nindex = -1\n',
            ["steps[0].index must be a whole number from 0"],
        ),
        (
            '[[schedules]]\nname = "x"\ncron = "@daily"\ntemplate = "t"\nenabled = 1\n',
            ["enabled must be true or false"],
        ),
        ('[[templates]]\nname = "x"\n', ["task must be text"]),
        ('[[targets]]\nname = "x"\nnote = "why"\n', ["note is the reason of a pause"]),
        ('[[targets]]\nname = "x"\n[[targets]]\nname = "x"\n', ["the name 'x' is used twice"]),
        ('[[targets]]\nname = "x"\ncolour = 1\n', ["a target has no such field"]),
    ],
)
def test_one_problem_is_one_line(plans: Here, text: str, words: list[str]) -> None:
    write(plans, text)
    plans("apply", "plans.toml", *SHOP).refused(2, "plans.toml", *words)


def test_files_that_are_not_there(here: Here) -> None:
    here("apply", "nothing.toml").refused(2, "nothing.toml cannot be read")
    (here.folder / "plans.toml").write_bytes(b"\xff")
    here("apply", "plans.toml").refused(2, "is not UTF-8 text")
    (here.folder / "plans.toml").write_text("[[targets]]\nname = 'x'\n")
    here("apply", "plans.toml", "--dry-run").refused(5, "no database at ./headway.db")
    assert not (here.folder / "headway.db").exists()
    assert here("apply", "plans.toml").done().out == "+ target x\n"


def test_a_template_may_leave_params_open_to_operators(cli: Here, app: App) -> None:
    text = '[[templates]]\nname = "backup"\ntask = "command"\nparams = { argv = ["backup"] }\nopen_params = ["stdin"]\n'
    write(cli, text)
    assert apply(cli) == ["+ template backup"]
    assert cli("templates", "show", "backup", "--json").done().data["open_params"] == ["stdin"]
    assert apply(cli) == ["= template backup: unchanged"]
    write(cli, text.replace("stdin", "cwd"))
    assert apply(cli)[0].startswith("~ template backup")
    assert "open params  cwd" in cli("templates", "show", "backup").done().out
