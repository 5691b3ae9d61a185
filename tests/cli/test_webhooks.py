"""Webhooks from the command line: made, changed, tested, looked at and sent again; and in files."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from headway import fault_points
from headway.api.schemas.webhooks import render
from headway.app import App
from headway.engine.webhooks.deliverer import Deliverer
from headway.engine.webhooks.http_client import Guard
from headway.errors import Unreachable
from headway.store.db import Database
from headway.testing import drain
from tests.support.cli import PATIENCE, Here
from tests.support.receivers import Receiver, answer, receiver

pytestmark = pytest.mark.shown

URL = "https://hook.example/x"


@pytest.fixture
def bell(cli: Here, app: App) -> App:
    app.client.webhooks.create(URL, ["job.run.*"], description="a bell")
    return app


def send(database: Database) -> None:
    """What a process with the role scheduler does."""
    deliverer = Deliverer(database, render=render, guard=Guard(allow_private=True, deadline=PATIENCE))
    deliverer.tick()
    assert deliverer.settle(PATIENCE)
    deliverer.tick()


def test_none_yet(cli: Here) -> None:
    said = cli("webhooks", "ls").done()
    assert said.out == ""
    assert "headway webhooks create https://" in said.err


def test_making_one_shows_its_secret_once(cli: Here) -> None:
    args = ["--event", "job.run.*", "--event", "target.held", "--description", "a bell", "--max-tries", 2]
    one = cli("webhooks", "create", URL, *args, "--json").done().data
    assert one["secret"].startswith("whsec_")
    assert (one["webhook_id"], one["events"], one["max_tries"]) == (1, ["job.run.*", "target.held"], 2)
    assert (one["state"], one["enabled"], one["version"]) == ("closed", True, 1)
    said = cli("webhooks", "create", URL).done()
    assert said.out.splitlines()[0] == f"webhook 2 created: {URL}"
    assert said.out.splitlines()[1].startswith("whsec_")
    assert "not shown again" in said.err
    secret = said.out.splitlines()[1]
    for shown in (["ls"], ["show", 2], ["ls", "--json"], ["show", 2, "--json"]):
        assert secret not in cli("webhooks", *shown).done().out


def test_looking(cli: Here, bell: App) -> None:
    lines = cli("webhooks", "ls").done().out.splitlines()
    assert lines[0].split() == ["ID", "STATE", "URL", "EVENTS", "ABOUT"]
    assert lines[1].split() == ["1", "ok", URL, "job.run.*", "a", "bell"]
    page = cli("webhooks", "show", 1).done().out
    assert "events       job.run.*" in page
    assert "webhook.created" in page
    bell.client.webhooks.create(URL)
    first = cli("webhooks", "ls", "-n", 1, "--json").done().data
    rest = cli("webhooks", "ls", "--cursor", first["next"], "--json").done().data
    assert [one["webhook_id"] for one in first["items"] + rest["items"]] == [1, 2]


def test_changing(cli: Here, bell: App) -> None:
    args = ["--url", "https://other.example/", "--every-event", "--max-tries", 7, "--disable"]
    one = cli("webhooks", "edit", 1, *args, "--json").done().data
    assert (one["url"], one["events"], one["max_tries"], one["state"]) == ("https://other.example/", [], 7, "disabled")
    assert cli("webhooks", "edit", 1, "--enable", "--event", "job.*", "--json").done().data["events"] == ["job.*"]
    assert cli("webhooks", "edit", 1, "--description", "two").done().out.startswith("webhook 1 changed: ")
    old = bell.client.webhooks.get(1).secret
    said = cli("webhooks", "rotate", 1).done().out.splitlines()
    assert said[0].startswith("webhook 1 has a new secret")
    assert said[1] != old
    assert cli("webhooks", "delete", 1).done().out == "webhook 1 deleted: https://other.example/\n"
    assert "deleted" in cli("webhooks", "show", 1).done().out  # its history stays
    cli("webhooks", "edit", 1, "--max-tries", 3).refused(3, "there is no webhook 1")


def test_the_secret_for_jobs_with_an_address_of_their_own(cli: Here) -> None:
    first = cli("webhooks", "secret").done().out.strip()
    assert first.startswith("whsec_")
    assert cli("webhooks", "secret", "--json").done().data == {"secret": first}
    other = cli("webhooks", "secret", "--rotate").done().out.strip()
    assert other != first
    assert cli("webhooks", "secret").done().out.strip() == other


def test_the_outcome_of_a_delivery(cli: Here, app: App, database: Database) -> None:
    with receiver(answer(500, b"out of paper")) as one:
        app.client.webhooks.create(one.url, max_tries=1)
        app.tasks["shop.greet"].enqueue(name="anna")
        drain(app)
        send(database)
        lines = cli("webhooks", "deliveries", 1).done().out.splitlines()
        assert lines[0].split() == ["ID", "STATUS", "EVENT", "JOB", "TRIES", "AGE", "WHY"]
        assert lines[1].split()[:5] == ["1", "FAILED", "job.run.completed", "1", "1/1"]
        assert "it answered 500" in lines[1]
        shown = cli("webhooks", "tries", 1).done()
        assert "out of paper" in shown.out
        assert "headway webhooks replay 1" in shown.err
        whole = cli("webhooks", "tries", 1, "--json").done().data
        assert json.loads(whole["body"])["data"]["job_id"] == 1
        assert whole["log"][0]["request"]["headers"]["X-Job-Event"] == "job.run.completed"
        assert whole["log"][0]["response"]["body"] == "out of paper"
        one.behave = [answer()]
        assert cli("webhooks", "replay", 1).done().out == "delivery 1 is sent again as delivery 2\n"
        send(database)
        found = cli("webhooks", "deliveries", "--job", 1, "--json").done().data["items"]
    assert [(d["delivery_id"], d["status"], d["replay_of"]) for d in found] == [
        (2, "DELIVERED", 1),
        (1, "FAILED", None),
    ]
    assert cli("webhooks", "deliveries", 1, "--status", "failed", "--json").done().data["items"] == [found[1]]
    fields = ["delivery_id", "event_id", "event", "webhook_id", "status", "tries", "next_try_at", "last_status_code"]
    assert {*fields, "last_error", "created_at", "delivered_at"} <= found[0].keys()
    assert (found[0]["webhook_id"], found[0]["endpoint_id"]) == (1, 1), "the former name is an alias"
    assert cli("verify", "--quiet", "--json").done().data["findings"] == []


def test_a_test(cli: Here, app: App, database: Database) -> None:
    app.client.webhooks.create(URL)
    said = cli("webhooks", "test", 1, "--wait", 0).done()
    assert said.out == "delivery 1 is pending\n"
    assert "role scheduler" in said.err


@pytest.fixture
def one() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


def test_a_test_that_somebody_sends(cli: Here, app: App, database: Database, one: Receiver) -> None:
    app.client.webhooks.create(one.url)
    deliverer = Deliverer(database, render=render, guard=Guard(allow_private=True, deadline=PATIENCE))
    deliverer.start()
    try:
        assert cli("webhooks", "test", 1, "--wait", PATIENCE).done().out == "delivery 1 arrived: 200\n"
        one.behave = [answer(404)]
        failed = cli("webhooks", "test", 1, "--wait", PATIENCE)
        assert (failed.code, failed.out) == (1, "delivery 2 did not arrive: it answered 404 Not Found\n")
    finally:
        deliverer.stop()
        deliverer.join(PATIENCE)


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["create"], 2, ["URL"]),
        (["create", "hook.example"], 2, ["url must be an address such as https://"]),
        (["create", URL, "--event", "job.finished"], 2, ["no event is called 'job.finished'"]),
        (["create", URL, "--max-tries", "0"], 2, ["max_tries must be a whole number from 1 to 20"]),
        (["create", URL, "--secret", "hush"], 2, ["secret must be whsec_"]),
        (["edit", "1"], 2, ["no change given"]),
        (["edit", "1", "--event", "job.*", "--every-event"], 2, ["exclude each other"]),
        (["edit", "1", "--enable", "--disable"], 2, ["exclude each other"]),
        (["edit", "9", "--disable"], 3, ["there is no webhook 9"]),
        (["delete", "9"], 3, ["there is no webhook 9"]),
        (["rotate", "9"], 3, ["there is no webhook 9"]),
        (["test", "9"], 3, ["there is no webhook 9"]),
        (["show", "9"], 3, ["there is no webhook 9"]),
        (["deliveries"], 2, ["by webhook or by job"]),
        (["deliveries", "1", "--job", "1"], 2, ["by webhook or by job"]),
        (["deliveries", "9"], 3, ["there is no webhook 9"]),
        (["deliveries", "--job", "9"], 3, ["there is no job 9"]),
        (["deliveries", "1", "--status", "SENT"], 2, ["status must be one of PENDING, DELIVERED, FAILED"]),
        (["tries", "9"], 3, ["there is no delivery 9"]),
        (["replay", "9"], 3, ["there is no delivery 9"]),
        (["ls", "--limit", "0"], 2, ["limit must be from 1 to 200"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_refusals(cli: Here, bell: App, args: list[str], code: int, words: list[str]) -> None:
    cli("webhooks", *args).refused(code, *words)


def test_looking_makes_no_database(here: Here) -> None:
    here("webhooks", "ls").refused(5, "no database at ./headway.db")
    assert list(here.folder.iterdir()) == []


# --- in files -----------------------------------------------------------------------------------------------------

FILE = """
[[webhooks]]
url = "https://hook.example/x"
events = ["job.run.failed"]
description = "a bell"
"""


def apply(cli: Here, text: str, *args: str) -> dict[str, object]:
    (cli.folder / "plans.toml").write_text(text)
    found: dict[str, object] = cli("apply", "plans.toml", "--json", *args).done().data
    return found


def test_a_file_of_webhooks(cli: Here, app: App) -> None:
    hooks = app.client.webhooks
    first = apply(cli, FILE)
    assert first["secrets"] == {URL: hooks.get(1).secret}
    assert first["items"] == [{"change": "+", "thing": "webhook", "name": URL, "differences": []}]
    again = apply(cli, FILE)
    assert ([one["change"] for one in again["items"]], "secrets" in again) == (["="], False)  # type: ignore[attr-defined]
    changed = apply(cli, FILE.replace("failed", "*") + "max_tries = 2\nenabled = false\n")
    assert changed["items"][0]["differences"] == [  # type: ignore[index]
        'events ["job.run.failed"] → ["job.run.*"]',
        "max_tries 4 → 2",
        "enabled true → false",
    ]
    one = hooks.get(1)
    assert (one.events, one.max_tries, one.enabled, one.version) == ('["job.run.*"]', 2, 0, 2)
    assert [one["change"] for one in apply(cli, FILE, "--dry-run")["items"]] == ["~"]  # type: ignore[attr-defined]
    assert hooks.get(1).version == 2
    said = cli("apply", "plans.toml").done()
    assert f"~ webhook {URL}: events" in said.out


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('url = "ftp://x/"', "url must be an address"),
        ('events = ["job.*"]', "url must be an address"),
        (f'url = "{URL}"\nevents = ["job.finished"]', "no event is called 'job.finished'"),
        (f'url = "{URL}"\nsecret = "whsec_x"', "secret: remove it from the file"),
        (f'url = "{URL}"\ncolour = 1', "colour: a webhook has no such field"),
        (f'url = "{URL}"\nmax_tries = 99', "max_tries must be"),
        (f'url = "{URL}"\nenabled = 1', "enabled must be true or false"),
    ],
)
def test_files_that_are_refused(cli: Here, text: str, problem: str) -> None:
    (cli.folder / "plans.toml").write_text(f"[[webhooks]]\n{text}\n")
    said = cli("apply", "plans.toml")
    assert (said.code, said.out) == (2, "")
    assert "plans.toml:1: webhooks[0]" in said.err
    assert problem in said.err


@pytest.mark.parametrize("as_json", [False, True])
def test_secrets_that_were_made_before_an_error_are_shown(cli: Here, app: App, as_json: bool) -> None:
    left = [1, 2]

    def broken(name: str) -> None:
        if name == "create_webhook.begun":
            left.pop()
            if not left:
                raise Unreachable("the line is cut")

    other = FILE.replace("/x", "/y")
    (cli.folder / "plans.toml").write_text(f"{FILE}enabled = false\n{other}")
    fault_points.arm(broken)
    try:
        said = cli("apply", "plans.toml", *(["--json"] if as_json else []))
    finally:
        fault_points.arm(None)
    (made,) = app.client.webhooks.list()
    assert (said.code, made.enabled) == (5, 0)
    assert "the line is cut" in said.err
    if as_json:
        assert json.loads(said.err)["error"]["secrets"] == {URL: made.secret}
    else:
        assert said.out == f"the secret of {URL}, which is not shown again: {made.secret}\n"
