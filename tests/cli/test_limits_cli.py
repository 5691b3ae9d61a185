"""Limits, resources, policies and pauses from the command line, in force for every process from one moment on."""

from __future__ import annotations

import re
from typing import Any

import pytest

from headway.app import App
from headway.store.db import Database
from headway.testing import drain
from tests.support.cli import Here, program, until
from tests.support.life import Life

pytestmark = pytest.mark.shown

SHOP = ("--app", "tests.support.shop:app")


def lanes(cli: Here) -> dict[str, tuple[str, int | None, int, int]]:
    items: list[dict[str, Any]] = cli("limits", "ls", "--json").done().data["items"]
    return {one["name"]: (one["kind"], one["limit"], one["running"], one["waiting"]) for one in items}


def work(cli: Here, toml: str, *args: str) -> str:
    """A worker that starts, runs what there is, and ends; what it said."""
    (cli.folder / "headway.toml").write_text(toml)
    return program("work", "--burst", *SHOP, *args, cwd=cli.folder, database=cli.database).done().err


def test_what_limits_a_new_installation(cli: Here) -> None:
    assert lanes(cli) == {"global": ("policy", 1, 0, 0)}
    said = cli("limits", "ls").done()
    assert "policy   global" in said.out
    assert "aging    off" in said.out
    assert "[resources]" in said.err  # how to get one


def test_a_limit_is_changed_while_jobs_wait(cli: Here, app: App) -> None:
    for _ in range(3):
        app.enqueue("shop.greet", {"name": "a"})
    assert cli.database is not None
    with Life(cli.database) as life:
        assert life.pick(9) == [1]
        said = cli("limits", "set", "global", 2).done()
        assert said.out == "the limit of global is now 2: 0 running, 3 waiting\n"
        assert "replaces it with its settings" in said.err
        assert life.pick(9) == [1, 2]
        life.claim(1)
        assert lanes(cli)["global"] == ("policy", 2, 1, 2)
        cli("limits", "set", "global", "none").done()
        assert life.pick(9) == [2, 3]
        cli("limits", "set", "global", 1).done()  # stops nothing that runs
        assert (life.pick(9), life.status(1)) == ([], "RUNNING")
    row = cli("limits", "ls").done().out.splitlines()[-1]
    assert row.split() == ["global", "policy", "1", "1", "0", "2"]


def test_every_change_is_in_the_history(cli: Here, database: Database) -> None:
    cli("limits", "set", "global", 4).done()
    with database.read() as tx:
        (event,) = tx.run("events_of", thing="lane", thing_id=1, after=0, limit=9)
    assert (event[1], event[9]) == ("lane.changed", '{"lane": "global", "capacity": 4}')
    assert cli("verify", "--json").done().data["findings"] == []


def test_resources_of_the_settings(cli: Here, app: App) -> None:
    said = work(cli, "[resources]\nollama = 1\nremote = 2\n")
    assert lanes(cli) == {
        "global": ("policy", 1, 0, 0),
        "ollama": ("resource", 1, 0, 0),
        "remote": ("resource", 2, 0, 0),
    }
    assert "in force" not in said  # they are new: nothing was changed
    said = work(cli, "[resources]\nollama = 3\nremote = 2\n")
    assert "these settings are in force now: the capacity of ollama 3 (was 1)" in said
    assert lanes(cli)["ollama"] == ("resource", 3, 0, 0)


def test_all_or_nothing_of_its_resources(cli: Here, app: App) -> None:
    work(cli, "[concurrency]\npolicy = 'per_resource'\n[resources]\nollama = 1\nremote = 2\n")
    for resources in (["ollama"], ["ollama", "remote"], ["remote"], ["remote"], []):
        app.enqueue("shop.greet", {"name": "a"}, resources=resources)
    assert cli.database is not None
    with Life(cli.database) as life:
        # Job 2 waits for ollama and takes nothing of remote meanwhile; 5 has the global lane for itself.
        assert life.pick(9) == [1, 3, 4, 5]
    assert {name: waiting for name, (_, _, _, waiting) in lanes(cli).items()} == {"global": 1, "ollama": 2, "remote": 3}


def test_a_policy_is_adopted_with_the_jobs_that_wait(cli: Here, app: App) -> None:
    app.enqueue("shop.greet", {"name": "a"}, hold=True)
    said = work(cli, '[concurrency]\npolicy = "per_task"\nlimits = { "shop.greet" = 2 }\n')
    assert "these settings are in force now: concurrency.policy per_task (was global)" in said
    assert "1 waiting job got other lanes" in said
    assert lanes(cli)["task:shop.greet"] == ("policy", 2, 0, 0)
    cli("limits", "set", "shop.greet", 5).done()  # a task's lane by the task's name
    assert lanes(cli)["task:shop.greet"] == ("policy", 5, 0, 0)
    assert cli("limits", "ls", "--json").data["policy"] == "per_task"


def test_a_policy_of_ones_own_in_the_current_folder(cli: Here, app: App) -> None:
    (cli.folder / "own.py").write_text(
        "class ByFirstLetter:\n    def lanes(self, task, resources):\n        return [task[0]]\n"
    )
    work(cli, '[concurrency]\npolicy = "own.ByFirstLetter"\nlimits = { s = 2 }\n')
    program("sh", "--", "true", cwd=cli.folder, database=cli.database).done()
    assert lanes(cli)["c"] == ("policy", 1, 0, 1)
    program("work", "--burst", cwd=cli.folder, database=cli.database).done()
    assert app.job(1).status == "COMPLETED"


def test_a_policy_that_others_adopted_and_that_is_not_here(cli: Here, app: App) -> None:
    (cli.folder / "own.py").write_text("class Mine:\n    def lanes(self, task, resources):\n        return ['x']\n")
    work(cli, '[concurrency]\npolicy = "own.Mine"\n')
    (cli.folder / "own.py").unlink()
    refused = program("sh", "--", "true", cwd=cli.folder, database=cli.database, HEADWAY_CONCURRENCY__POLICY="global")
    refused.refused(2, "own.Mine cannot be imported: ModuleNotFoundError", "run headway where the module is installed")


def test_aging_is_shown(cli: Here) -> None:
    said = work(cli, 'aging = "15m"\n')
    assert "aging 15m (was none)" in said
    assert "aging    one priority for every 15m" in cli("limits", "ls").done().out
    assert cli("limits", "ls", "--json").data["aging"] == 900


# --- pauses -------------------------------------------------------------------------------------------------------


def test_a_pause_of_one_queue_and_of_all(cli: Here, app: App) -> None:
    job = app.enqueue("shop.greet", {"name": "a"})
    said = cli("queue", "pause", "--all", "--note", "power cut", "--for", "2h").done().out
    assert said.startswith("every queue is paused until ")
    assert "headway queue resume --all" in said
    assert drain(app) == 0
    assert re.search(r"paused for all tenants for \dh more: power cut", cli("status").done().out)
    cli("queue", "pause", "--note", "mine").done()
    answer = cli("queue", "resume", "--all", "--json").done().data
    assert (answer["paused"], answer["note"], answer["everybody"]) == (True, "mine", None)
    assert drain(app) == 0
    assert cli("queue", "resume").done().out == "the queue is open: jobs start in their order\n"
    assert drain(app) == 1
    assert job.status == "COMPLETED"


def test_resuming_ones_own_queue_does_not_end_everybodys_pause(cli: Here, app: App) -> None:
    app.enqueue("shop.greet", {"name": "a"})
    cli("queue", "pause", "--all").done()
    said = cli("queue", "resume").done().out
    assert said == "every queue is paused: resume them with `headway queue resume --all`\n"
    shown = cli("status", "--json").done().data["queue"]
    assert (shown["paused"], shown["everybody"]["note"]) == (True, None)
    assert drain(app) == 0


def test_a_pause_ends_by_itself(cli: Here, app: App) -> None:
    app.enqueue("shop.greet", {"name": "a"})
    for scope in ([], ["--all"]):
        cli("queue", "pause", *scope, "--for", "1ms").done()
    until(lambda: not cli("status", "--json").done().data["queue"]["paused"])
    assert drain(app) == 1


@pytest.mark.parametrize("scope", [[], ["--all"]])
def test_a_paused_queue_still_takes_jobs(cli: Here, app: App, scope: list[str]) -> None:
    cli("queue", "pause", *scope).done()
    cli("run", "shop.greet", "name=a", *SHOP).done()
    assert drain(app) == 0
    assert app.job(1).status == "QUEUED"
