"""The installation at a glance: status, top, workers, queue, verify, version, config."""

from __future__ import annotations

import re

import headway
from headway.app import App
from headway.store.db import Database, Tx
from headway.store.workers import worker_name
from headway.testing import drain
from tests.support.cli import Here
from tests.support.cramped import WHY, paused_worker


def test_version(here: Here) -> None:
    assert here("--version").done().out == here("version").done().out == f"headway {headway.__version__}\n"
    assert here("version", "--json").done().data == {"version": headway.__version__}


def test_status_of_an_empty_system(cli: Here) -> None:
    page = cli("status").done().out
    assert re.search(r"^workers +none: start one with `headway work`$", page, re.MULTILINE)
    assert re.search(r"^jobs +none$", page, re.MULTILINE)
    data = cli("status", "--json").done().data
    assert data["counts"] == dict.fromkeys(data["counts"], 0)
    assert (data["oldest_wait"], data["queue"]["paused"], data["workers"]) == (None, False, [])


def test_status_of_a_busy_one(cli: Here, app: App) -> None:
    app.enqueue("shop.fail", retry=0)
    app.enqueue("shop.skip")
    drain(app)
    app.enqueue("shop.greet", {"name": "a"})
    app.enqueue("shop.greet", {"name": "b"}, priority=5)
    app.enqueue("shop.greet", {"name": "c"}, delay="1h")
    app.enqueue("shop.greet", {"name": "d"}, hold=True)
    cli("queue", "pause", "--note", "the [disk] is full", "--for", "2h").done()
    page = cli("status").done().out
    assert "2 queued, 1 scheduled, 1 waiting" in page
    assert "1 failed, 1 skipped" in page
    assert re.search(r"^queue +paused for (1|2)h more: the \[disk\] is full$", page, re.MULTILINE)
    data = cli("status", "--json").done().data
    assert (data["counts"]["QUEUED"], data["counts"]["FAILED"], data["counts_at_least"]) == (2, 1, False)
    assert data["oldest_wait"]["job_id"] == 3
    assert data["queue"]["note"] == "the [disk] is full"


def test_top_without_a_terminal_shows_one_page(cli: Here, app: App) -> None:
    app.enqueue("shop.greet", {"name": "a"})
    page = cli("top", "--interval", "1s").done().out
    assert "no worker is alive" in page
    assert cli("top", "--json").done().data["counts"]["QUEUED"] == 1


def test_workers(cli: Here, app: App) -> None:
    assert "no workers: start one with `headway work`" in cli("workers", "ls").done().err
    assert cli("workers", "ls", "--json").done().data == {"items": [], "next": None}
    drain(app)
    assert " gone " in cli("workers", "ls").done().out
    (worker,) = cli("workers", "ls", "--json").done().data["items"]
    assert worker.keys() == {
        *("worker_id", "host", "pid", "started_at", "beat_at", "slots", "running", "tasks", "state", "note", "tenants")
    }
    assert (worker["state"], worker["running"]) == ("gone", [])
    assert "shop.greet" in worker["tasks"]


def test_a_worker_that_cannot_start_work(cli: Here) -> None:
    assert cli.database is not None
    with paused_worker(cli.database) as worker:
        (row,) = cli("workers", "ls", "--json").done().data["items"]
        assert (row["worker_id"], row["state"], row["note"]) == (worker_name(worker.who.id), "paused", WHY)
        page = cli("workers", "ls").done().out
        assert " paused " in page
        assert "no thread could be started" in page


def test_the_queue(cli: Here, app: App) -> None:
    assert "no job is waiting: create one with" in cli("queue", "ls").done().err
    assert cli("queue", "ls", "--json").done().data == {"items": [], "next": None}
    app.enqueue("shop.greet", {"name": "a"})
    app.enqueue("shop.greet", {"name": "b"}, priority=9)
    app.enqueue("shop.greet", {"name": "c"}, priority=9, delay="1h")
    page = cli("queue", "ls").done().out.splitlines()
    assert page[0].split() == ["RANK", "ID", "TASK", "PRIO", "WAITS", "FOR"]
    assert [line.split()[0] for line in page[1:]] == ["1", "3", "2"]  # the second has no rank: its time has not come
    assert re.search("waits for its time, (59m|1h) to go", page[2])
    items = cli("queue", "ls", "--json", "-n", 2).done().data["items"]
    assert [(job["job_id"], job["rank"]) for job in items] == [(2, 1), (3, None)]
    assert items[0]["blockers"][0]["kind"] == "no_worker"


def test_pause_and_resume(cli: Here) -> None:
    assert "the queue is paused" in cli("queue", "pause").done().out
    paused = cli("queue", "pause", "--for", "10m", "--note", "x", "--json").done().data
    assert (paused["paused"], paused["note"]) == (True, "x")
    assert paused["until"] > paused["since"]
    assert "the queue is open" in cli("queue", "resume").done().out
    assert cli("queue", "resume", "--json").done().data["paused"] is False


def test_verify(cli: Here, app: App, database: Database) -> None:
    app.enqueue("shop.fail")
    drain(app)
    clean = cli("verify").done()
    assert clean.out == ""
    assert "checked: " in clean.err
    assert cli("verify", "--json").done().data["findings"] == []
    app.enqueue("shop.greet", {"name": "a"})
    loud = cli("verify", "--quiet", "--json")
    assert loud.code == 4
    assert loud.data["findings"]
    assert loud.data["findings"][0].keys() == {"invariant", "thing", "text"}

    def damage(tx: Tx) -> None:
        database.execute_script(tx, "update hw_lane set capacity = 7, version = 9")

    database.transact("damage", damage)
    broken = cli("verify")
    assert broken.code == 4
    assert "I-05 lane 1: " in broken.out


def test_config(here: Here) -> None:
    (here.folder / "headway.toml").write_text("slots = 8\n[concurrency]\nlimit = 2\n")
    page = here("config", "show").done().out
    assert re.search(r"^slots +8 +headway.toml:1 ", page, re.MULTILINE)
    items = {one["name"]: one for one in here("config", "show", "--json").done().data["items"]}
    assert items["concurrency.limit"]["source"] == "headway.toml:3"
    assert items["database"]["value"] == "headway.db"
    assert "2 given" in here("config", "check").done().out
    assert here("config", "check", "--json").done().data["ok"] is True
    assert list(here.folder.iterdir()) == [here.folder / "headway.toml"]


def test_bad_settings_are_told_all_at_once(here: Here) -> None:
    (here.folder / "headway.toml").write_text('slots = 0\nlimt = 3\nlease = "5s"\n')
    bad = here("config", "check")
    assert bad.code == 2
    lines = bad.err.splitlines()
    assert lines[0] == "headway: the settings have 3 problems: correct them"
    assert len(lines) == 4
    assert here("config", "check", "--json").error["problems"][0].startswith("headway.toml:1: slots: ")
    (here.folder / "headway.toml").write_text("slots = 0\n")
    for args in (["config", "show"], ["up"], ["run", "command"], ["jobs", "ls"]):
        here(*args).refused(2, "headway.toml:1: slots: must be at least 1")


def test_a_password_is_not_shown(here: Here) -> None:
    url = "postgresql://ann:s3cret@127.0.0.1:1/x"
    assert "s3cret" not in here("config", "show", "--database", url).done().out
    assert "s3cret" not in here("status", "--database", url).err
