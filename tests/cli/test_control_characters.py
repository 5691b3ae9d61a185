"""Untrusted text on a terminal: no command prints a control character or a direction mark, with --json or without."""

from __future__ import annotations

import json
import logging
import re

from headway.app import App
from headway.cli.output import json_text
from headway.cli.stderr_log import VisibleFormatter
from headway.testing import drain
from tests.docs.test_cli_documented import COMMANDS
from tests.support.cli import Here

# Colours and a title by one byte, a line that is written backwards, a line break that only some programs know.
EVIL = "x\x9b31m\x9d0;title\x9c\x85\x7f\u202e\u2066\u2069\u200e\u200f\u061c\u2028\u2029y\x1b[2J"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def test_no_command_prints_a_character_that_a_terminal_obeys(cli: Here, app: App) -> None:
    app.enqueue("shop.greet", {"name": EVIL})
    app.enqueue("shop.fail", {"error": EVIL}, retry=0)
    app.client.templates.create("greeting", "shop.greet", params={"name": EVIL}, description=EVIL)
    app.client.webhooks.create("https://example.org/hook", description=EVIL)
    app.client.pause_queue(note=EVIL)
    app.client.resume_queue()
    drain(app)
    found = 0
    for args in (
        ("jobs", "ls"),
        ("jobs", "show", 1),
        ("jobs", "show", 2),
        ("jobs", "logs", 2),
        ("jobs", "events", 2),
        ("runs", "ls"),
        ("runs", "show", 2),
        ("templates", "ls"),
        ("templates", "show", "greeting"),
        ("webhooks", "ls"),
        ("webhooks", "show", 1),
        ("status",),
        ("run", "shop.greet", "--params", json.dumps({"name": EVIL}), "--app", "tests.support.shop:app"),
        ("jobs", "show", EVIL),
        ("templates", "show", EVIL),
        ("run", EVIL),
    ):
        for more in ((), ("--json",)):
            said = cli(*args, *more)
            assert not OBEYED.search(said.out + said.err), (args, more, said)
            found += EVIL in json.dumps(said.data, ensure_ascii=False) if more and said.out.startswith("{") else 0
            found += r"\u009b31m" in said.out
    assert found >= 5, "the text was there, escaped"


def test_no_list_of_any_noun_prints_a_character_that_a_terminal_obeys(cli: Here, app: App) -> None:
    """Each `ls` of the command tree, also of a noun that is added later."""
    greet = {"task": "shop.greet", "params": {"name": EVIL}}
    app.enqueue("shop.greet", {"name": EVIL}, target="desk")
    app.client.schedules.create("nightly", {"cron": "0 3 * * *", "steps": [greet], "note": EVIL})
    app.client.templates.create("greeting", "shop.greet", description=EVIL)
    app.client.webhooks.create("https://example.org/hook", description=EVIL)
    app.client.pause_target("desk", note=EVIL)
    app.client.tokens.create("ada", "viewer", tenant="default")
    lists = [path.split() for path in COMMANDS if path.split()[-1] == "ls"]
    assert len(lists) >= 10
    for path in lists:
        for more in ((), ("--json",)):
            said = cli(*path, *more)
            assert said.code == 0, (path, said)
            assert not OBEYED.search(said.out + said.err), (path, more, said)


def test_json_says_the_same_escaped() -> None:
    value = {EVIL: [EVIL, {"a": "ü\n\t\\u202e"}]}
    for indent in (None, 2):
        text = json_text(value, indent=indent)
        assert json.loads(text) == value
        assert not OBEYED.search(text)
    assert "ü" in json_text(value)


def test_the_log_of_a_server_is_escaped() -> None:
    record = logging.LogRecord("headway", logging.ERROR, "", 0, "the task %s failed", (EVIL,), None)
    text = VisibleFormatter("%(message)s").format(record)
    assert text.startswith(r"the task x\x9b31m")
    assert not OBEYED.search(text)
