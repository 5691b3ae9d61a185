"""`headway tenants`, and acting for one with --tenant or HEADWAY_TENANT."""

from __future__ import annotations

import pytest

from tests.support.cli import Here


def test_a_tenant_is_made_listed_limited_and_switched(cli: Here) -> None:
    made = cli("tenants", "create", "shop", "--max-running", "2", "--json").done().data
    assert (made["name"], made["active"], made["max_running"], made["max_queued"]) == ("shop", True, 2, None)
    edited = cli("tenants", "edit", "shop", "--max-queued", "10", "--max-running", "none", "--json").done().data
    assert (edited["max_running"], edited["max_queued"], edited["version"]) == (None, 10, 2)
    assert "inactive" in cli("tenants", "deactivate", "shop").done().out
    listed = cli("tenants", "ls", "--json").done().data
    assert [(one["name"], one["active"]) for one in listed["items"]] == [("default", True), ("shop", False)]
    table = cli("tenants", "ls").done().out
    assert [line.split()[1:3] for line in table.splitlines()[1:]] == [["default", "active"], ["shop", "inactive"]]
    assert "active" in cli("tenants", "activate", "shop").done().out
    page = cli("tenants", "ls", "-n", "1", "--json").done().data
    assert page["next"] == "default"
    assert [one["name"] for one in cli("tenants", "ls", "--after", "default", "--json").done().data["items"]] == [
        "shop"
    ]


def test_what_cannot_be_is_said(cli: Here) -> None:
    cli("tenants", "create", "shop").done()
    cli("tenants", "create", "shop").refused(2, "already")
    cli("tenants", "edit", "shop").refused(2, "say what to change")
    cli("tenants", "edit", "shop", "--max-queued", "many").refused(2, "--max-queued", "many")
    cli("tenants", "deactivate", "shopp").refused(3, "did you mean shop")
    cli("queue", "ls", "--tenant", "nobody").refused(3, "nobody")


def test_commands_act_for_another_tenant(cli: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("tenants", "create", "shop").done()
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
