"""`headway tenants`, and acting for one with --tenant or HEADWAY_TENANT."""

from __future__ import annotations

import pytest

from tests.support.cli import Here
from tests.support.terminal import terminal


def test_a_tenant_is_made_listed_limited_and_switched(cli: Here) -> None:
    made = cli("tenants", "create", "shop", "--max-running", "2", "--default-allow", "none", "--json").done().data
    assert (made["name"], made["active"], made["max_running"], made["max_queued"]) == ("shop", True, 2, None)
    edited = cli("tenants", "edit", "shop", "--max-queued", "10", "--max-running", "none", "--json").done().data
    assert (edited["max_running"], edited["max_queued"], edited["version"]) == (None, 10, 2)
    assert "deactivated" in cli("tenants", "deactivate", "shop").done().out
    listed = cli("tenants", "ls", "--json").done().data
    assert [(one["name"], one["active"]) for one in listed["items"]] == [("default", True), ("shop", False)]
    table = cli("tenants", "ls").done().out
    assert [line.split()[1:3] for line in table.splitlines()[1:]] == [["default", "active"], ["shop", "inactive"]]
    assert "activated" in cli("tenants", "activate", "shop").done().out
    page = cli("tenants", "ls", "-n", "1", "--json").done().data
    assert page["next"] == "default"
    assert [one["name"] for one in cli("tenants", "ls", "--after", "default", "--json").done().data["items"]] == [
        "shop"
    ]


def test_impossible_values_are_said(cli: Here) -> None:
    cli("tenants", "create", "shop", "--default-allow", "none").done()
    cli("tenants", "create", "shop").refused(2, "already")
    cli("tenants", "edit", "shop").refused(2, "no change given")
    cli("tenants", "edit", "shop", "--max-queued", "many").refused(2, "--max-queued", "many")
    cli("tenants", "deactivate", "shopp").refused(3, "did you mean shop")
    cli("queue", "ls", "--tenant", "nobody").refused(3, "nobody")


def test_commands_act_for_another_tenant(cli: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("tenants", "create", "shop", "--default-allow", "none").done()
    theirs = cli("sh", "--tenant", "shop", "--json", "--", "true").done().data["job_id"]
    assert cli("jobs", "ls", "--json").done().data["items"] == []
    cli("jobs", "show", str(theirs)).refused(3, "there is no job")
    monkeypatch.setenv("HEADWAY_TENANT", "shop")
    assert [one["job_id"] for one in cli("jobs", "ls", "--json").done().data["items"]] == [theirs]
    cli("jobs", "cancel", str(theirs)).done()
    cli("jobs", "show", str(theirs), "--tenant", "default").refused(3, "there is no job")
    cli("tenants", "deactivate", "shop").done()
    refused = cli("sh", "--json", "--", "true")
    assert (refused.code, refused.error["code"]) == (4, "tenant_inactive")


def test_the_second_tenant_asks_what_the_first_keeps(cli: Here) -> None:
    cli("tenants", "create", "shop").refused(2, "--default-allow none")
    made = cli("tenants", "create", "shop", "--default-allow", "command", "--json").done()
    assert "runs code as the user of the worker" in made.err
    assert "connections" not in made.err
    opened = cli("tenants", "set", "default", "--allow", "sql").done()
    assert "every database in `connections`" in opened.err
    cli("tenants", "set", "default", "--allow", "command").done()
    kinds = {one["name"]: one["allow"] for one in cli("tenants", "ls", "--json").done().data["items"]}
    assert kinds == {"default": ["command"], "shop": []}
    cli("tenants", "create", "press").done()  # it was decided with the second one
    third = cli("tenants", "create", "third", "--default-allow", "all")
    third.refused(2, "there are more already", "headway tenants set default --allow")
    table = {line.split()[1]: line.split()[-1] for line in cli("tenants", "ls").done().out.splitlines()[1:]}
    assert table == {"default": "command", "press": "none", "shop": "none"}


def test_a_decision_before_the_second_tenant_stays(cli: Here) -> None:
    cli("tenants", "set", "default", "--allow", "none").done()
    cli("tenants", "create", "shop").done()
    assert {one["name"]: one["allow"] for one in cli("tenants", "ls", "--json").done().data["items"]} == {
        "default": [],
        "shop": [],
    }


@pytest.mark.parametrize(("answer", "kept"), [("y", ["command", "powershell", "sql", "policy"]), ("n", [])])
def test_the_question_is_asked_on_a_terminal_with_the_consequence(cli: Here, answer: str, kept: list[str]) -> None:
    with terminal("tenants", "create", "shop", database=cli.database, cwd=cli.folder) as asked:
        asked.until("[y/N]")
        assert "run command, powershell, sql, policy as the user of the worker" in " ".join(asked.text.split())
        assert "can read the jobs and secrets of the new tenant" in " ".join(asked.text.split())
        asked.type(f"{answer}\n")
        assert asked.ended() == 0
    kinds = {one["name"]: one["allow"] for one in cli("tenants", "ls", "--json").done().data["items"]}
    assert kinds == {"default": kept, "shop": []}


def test_json_is_never_asked(cli: Here) -> None:
    with terminal("tenants", "create", "shop", "--json", database=cli.database, cwd=cli.folder) as asked:
        assert asked.ended() == 2
        assert "--default-allow none" in asked.text


def test_a_tenant_is_opened_with_the_consequence(cli: Here) -> None:
    cli("tenants", "create", "shop", "--default-allow", "none").done()
    opened = cli("tenants", "set", "shop", "--allow", "command", "--allow", "sql", "--json").done()
    assert opened.data["allow"] == ["command", "sql"]
    assert "as the user of the worker" in opened.err
    assert cli("tenants", "set", "shop", "--allow", "none", "--json").done().data["allow"] == []
    cli("tenants", "set", "shop", "--allow", "shell").refused(2, "command, powershell, sql or policy")
    cli("tenants", "set", "shop").refused(2, "--allow")
