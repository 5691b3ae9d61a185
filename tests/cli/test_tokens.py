"""Tokens from the command line: printed once, on stdout; listed and revoked without being shown."""

from __future__ import annotations

import hashlib
import json
import re

import pytest

from headway.app import App
from tests.support.cli import Here

pytestmark = pytest.mark.shown

TOKEN = re.compile(r"hw_[A-Za-z0-9_-]{43}")


def test_the_first_one_makes_the_database(here: Here) -> None:
    """Before there is a token nothing is served to other machines, so there may be no database yet."""
    said = here("tokens", "create", "ada", "--role", "admin", "--system").done()
    assert TOKEN.fullmatch(said.out.strip())
    assert "token 1 created for ada, admin of the system; it is shown only this once" in said.err
    assert (here.folder / "headway.db").exists()


def test_a_token_is_printed_once_and_nowhere_else(cli: Here, app: App) -> None:
    made = cli("tokens", "create", "ci", "--role", "operator", "--expires", "90d").done()
    plain = made.out.strip()
    found = app.client.tokens.find(plain)
    assert found is not None
    assert (found.name, found.tenant, found.role.value) == ("ci", "default", "operator")
    asked = [cli("tokens", "create", "two", "--role", "viewer", "--json").done()]
    second = asked[0].data["token"]
    commands: list[list[object]] = [["ls"], ["ls", "--json"], ["revoke", 1], ["revoke", 2, "--json"], ["ls"]]
    asked += [cli("tokens", *command).done() for command in commands]
    asked.append(cli("tokens", "revoke", 1))
    said = [one.out + one.err for one in asked[1:]] + [asked[0].err, made.err]
    for text in (plain, second):
        assert TOKEN.fullmatch(text)
        for secret in (text[10:], hashlib.sha256(text.encode()).hexdigest()):
            assert not any(secret in one for one in said)
    assert app.client.tokens.find(plain) is None


def test_looking(cli: Here) -> None:
    assert "create one: headway tokens create NAME" in cli("tokens", "ls").done().err
    plain = cli("tokens", "create", "ci", "--role", "operator", "--expires", "90d12h").done().out
    cli("tokens", "create", "ada", "--role", "admin", "--system").done()
    lines = cli("tokens", "ls").done().out.splitlines()
    assert lines[0].split() == ["ID", "NAME", "ROLE", "TENANT", "TOKEN", "AGE", "STATE"]
    assert lines[1].split()[:5] == ["1", "ci", "operator", "default", plain[:7] + "…"]
    assert lines[1].split()[-3:] == ["expires", "in", "90d"]
    assert lines[2].split()[1:4] == ["ada", "admin", "(system)"]
    first = cli("tokens", "ls", "-n", 1, "--json").done().data
    rest = cli("tokens", "ls", "--cursor", first["next"], "--json").done().data
    assert [one["name"] for one in first["items"] + rest["items"]] == ["ci", "ada"]
    one = rest["items"][0]
    assert (one["token_id"], one["tenant"], one["state"], one["expires_at"]) == (2, None, "live", None)
    assert "token" not in one


def test_revoking(cli: Here) -> None:
    for name in ("ci", "ada"):
        cli("tokens", "create", name, "--role", "viewer").done()
    said = cli("tokens", "revoke", 1).done()
    assert said.out == "token 1 of ci revoked\n"
    assert "last one" not in said.err
    last = cli("tokens", "revoke", 2, "--json").done()
    assert last.data["state"] == "revoked"
    assert "it was the last token: every user of this machine may now do everything" in last.err
    assert cli("tokens", "revoke", 2).code == 4
    assert cli("tokens", "revoke", 9).code == 3


@pytest.mark.parametrize(
    ("wishes", "code", "words"),
    [
        (["--role", "root"], 2, "role must be viewer, operator, admin"),
        (["--role", "viewer", "--tenant", "nobody"], 3, "no tenant 'nobody'"),
        (["--role", "viewer", "--tenant", "default", "--system"], 2, "exclude each other"),
        (["--role", "viewer", "--expires", "2001-01-01T00:00:00Z"], 2, "must be in the future"),
        (["--role", "viewer", "--expires", "soon"], 2, "not a duration"),
        ([], 2, "--role"),
    ],
)
def test_impossible_values_are_refused(cli: Here, wishes: list[str], code: int, words: str) -> None:
    said = cli("tokens", "create", "ci", *wishes)
    assert said.code == code
    assert words in said.err
    assert json.loads(cli("tokens", "ls", "--json").done().out)["items"] == []
