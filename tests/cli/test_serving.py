"""up, work and dev as programs: they run jobs, wait for their database, settle the limit, and stop when told to."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.app import App
from headway.store.db import Database
from tests.support.cable import cabled
from tests.support.cli import PATIENCE, Here, line_of, program, running, until

pytestmark = pytest.mark.shown

SHOP = ("--app", "tests.support.shop:app")
REST = ["http", "powershell", "sql"]  # of the built-in tasks, beside command


def started(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What a program with --json says when it begins."""
    facts: dict[str, Any] = json.loads(line_of(process.stdout, "started"))
    return facts


def limit(database: Database) -> int | None:
    with database.read() as tx:
        ((_, capacity, _),) = tx.run("lane_by_name", tenant_id=0, kind="policy", name="global")
    return None if capacity is None else int(capacity)


def test_work_in_a_burst_runs_all_there_is(cli: Here, app: App) -> None:
    app.enqueue("shop.greet", {"name": "Ada"})
    app.enqueue("shop.fail")
    app.enqueue("shop.skip")
    said = program("work", "--burst", "--slots", 2, *SHOP, cwd=cli.folder, database=cli.database).done()
    assert said.out == ""
    assert "2 slots for: command, http, powershell, shop.fail" in said.err
    assert "Ctrl-C stops it: running jobs get 30s to end" in said.err
    assert "stopped; 4 jobs ended here" in said.err
    found = {job["job_id"]: job["status"] for job in cli("jobs", "ls", "--json").done().data["items"]}
    assert found == {1: "COMPLETED", 2: "FAILED", 3: "SKIPPED", 4: "FAILED"}
    assert cli("verify", "--quiet").done().out == ""


def test_work_serves_the_tasks_it_is_told_to(cli: Here, app: App) -> None:
    app.enqueue("shop.greet", {"name": "Ada"})
    app.enqueue("shop.skip")
    args = ("work", "--burst", "--tasks", "shop.g*", "--tasks", "nothing", "--json", *SHOP)
    said = program(*args, cwd=cli.folder, database=cli.database).done().records
    assert said[0]["tasks"] == ["shop.give_up", "shop.greet"]
    assert said[-1] == {"event": "stopped", "finished": 1}
    assert app.job(2).status == "QUEUED"
    explained = cli("jobs", "explain", 2, "--json").data["blockers"]
    assert explained[0]["kind"] == "no_worker"


def test_work_serves_the_tenants_it_is_told_to(cli: Here, app: App) -> None:
    for name in ("shop", "mill"):
        app.client.tenants.create(name)
        run = ("run", "shop.greet", "name=Ada", "--tenant", name, *SHOP)
        program(*run, cwd=cli.folder, database=cli.database).done()
    app.enqueue("shop.greet", {"name": "Ada"})
    work = ("work", "--burst", *SHOP)
    said = program(*work, "--tenant", "shop", "--json", cwd=cli.folder, database=cli.database).done().records
    assert (said[0]["tenants"], said[-1]["finished"]) == (["shop"], 1)
    found = {name: cli("jobs", "ls", "--json", "--tenant", name).data["items"] for name in ("shop", "mill", "default")}
    assert {name: job["status"] for name, (job,) in found.items()} == {
        "shop": "COMPLETED", "mill": "QUEUED", "default": "QUEUED",
    }  # fmt: skip
    (left,) = cli("workers", "ls", "--json").data["items"]
    assert left["tenants"] == ["shop"]
    assert "serves only shop" in cli("workers", "ls").done().out
    both = program(*work, "--tenant", "mill", "--tenant", "default", cwd=cli.folder, database=cli.database).done()
    assert "only for the tenants mill, default" in both.err
    assert "2 jobs ended here" in both.err
    program(*work, "--tenant", "mil", cwd=cli.folder, database=cli.database).refused(3, "did you mean mill?")
    args = ("up", "--roles", "scheduler", "--tenant", "mill")
    program(*args, cwd=cli.folder, database=cli.database).refused(2, "this process has no worker")


def test_up_runs_jobs_until_a_signal(cli: Here, app: App) -> None:
    with running("up", "--json", *SHOP, cwd=cli.folder, database=cli.database) as process:
        facts = started(process)
        assert facts["roles"] == ["api", "scheduler", "worker"]
        assert facts["pid"] == process.pid
        listed = httpx.get(f"{facts['url']}/api/jobs", timeout=PATIENCE, trust_env=False)
        assert listed.json() == {"items": [], "next": None}
        job = app.enqueue("shop.greet", {"name": "Ada"})
        assert job.result(timeout=PATIENCE) == {"greeted": "Ada", "times": 1}
        alive = cli("workers", "ls", "--json").data["items"]
        assert [(worker["pid"], worker["state"]) for worker in alive] == [(process.pid, "live")]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    assert [worker["state"] for worker in cli("workers", "ls", "--json").data["items"]] == ["gone"]


@pytest.mark.parametrize("verb", ["up", "work"])
def test_in_the_background_of_a_script_ctrl_c_is_not_meant_for_it(cli: Here, app: App, verb: str) -> None:
    """The shell ignores SIGINT for such a program, as `nohup` does; SIGTERM stops it, and it says so."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with running(verb, *SHOP, cwd=cli.folder, database=cli.database) as process:
            signal.signal(signal.SIGINT, before)
            line_of(process.stderr, f"  kill {process.pid} stops it: running jobs get 30s to end")
            process.send_signal(signal.SIGINT)
            assert app.enqueue("shop.greet", {"name": "Ada"}).result(timeout=PATIENCE) == {"greeted": "Ada", "times": 1}
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
    finally:
        signal.signal(signal.SIGINT, before)


def test_up_for_people_says_where_what_and_how_to_stop(cli: Here, app: App) -> None:
    with running("up", *SHOP, cwd=cli.folder, database=cli.database) as process:
        assert "headway 0." in line_of(process.stderr, "headway")
        place = line_of(process.stderr, "dashboard at").split()[-1]
        assert place.startswith("http://127.0.0.1:")
        page = httpx.get(place, timeout=PATIENCE, follow_redirects=True)
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert f"{place}api/openapi.json" in line_of(process.stderr, "HTTP API at")
        assert "shop.greet" in line_of(process.stderr, "slots for")
        assert "Ctrl-C" in line_of(process.stderr, "stops it")
        job = app.enqueue("shop.wait")
        # What it logs is there when its worker knows of it; its status is a moment earlier.
        until(lambda: "waiting" in cli("jobs", "logs", job.id).out)
        process.send_signal(signal.SIGTERM)
        line_of(process.stderr, "stopping; running jobs get 30 s to end, a second signal interrupts them")
        process.send_signal(signal.SIGTERM)
        line_of(process.stderr, "stopped; 1 job ended here")
        assert process.wait(PATIENCE) == 0
    assert job.status in ("FAILED", "COMPLETED")  # interrupted: its retry waits
    assert app.job(job.id + 1).status == "QUEUED"


def test_up_without_a_worker_role(cli: Here, app: App) -> None:
    with running("up", "--roles", "scheduler", "--json", cwd=cli.folder, database=cli.database) as process:
        assert started(process)["tasks"] == []
        assert cli("workers", "ls", "--json").data["items"] == []


def test_a_port_that_is_taken_and_an_address_without_a_token_are_refused(cli: Here) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = program("up", "--port", port, cwd=cli.folder, database=cli.database)
    assert said.code == 4
    assert f"port {port} of 127.0.0.1 is in use" in said.err
    said = program("up", "--host", "0.0.0.0", cwd=cli.folder, database=cli.database)
    assert said.code == 4
    assert "there is no token" in said.err
    assert "headway tokens create" in said.err


def test_settings_are_written_when_no_other_worker_lives(cli: Here, database: Database) -> None:
    args = ("work", "--burst", "--json")
    program(*args, cwd=cli.folder, database=cli.database, HEADWAY_CONCURRENCY__LIMIT="3").done()
    assert limit(database) == 3
    program(*args, cwd=cli.folder, database=cli.database, HEADWAY_CONCURRENCY__LIMIT="none").done()
    assert limit(database) is None
    assert cli("verify", "--quiet").done().out == ""


def test_while_a_worker_lives_the_database_wins(cli: Here, database: Database) -> None:
    with running("work", "--json", cwd=cli.folder, database=cli.database, HEADWAY_CONCURRENCY__LIMIT="2") as process:
        started(process)
        until(lambda: cli("workers", "ls", "--json").data["items"])
        args = ("work", "--burst", "--json")
        other = program(*args, cwd=cli.folder, database=cli.database, HEADWAY_CONCURRENCY__LIMIT="5").done()
        assert "the database wins over these settings: the limit of global 2, not 5;" in other.err
        assert "store them: --adopt-settings" in other.err
        assert limit(database) == 2
        adopting = (*args, "--adopt-settings")
        adopted = program(*adopting, cwd=cli.folder, database=cli.database, HEADWAY_CONCURRENCY__LIMIT="5").done()
        assert "these settings are in force now: the limit of global 5 (was 2)" in adopted.err
        assert limit(database) == 5
        quiet = program(*args, cwd=cli.folder, database=cli.database, HEADWAY_CONCURRENCY__LIMIT="5").done()
        assert "limit" not in quiet.err


def test_everything_that_differs_is_named_beside_a_living_worker(cli: Here, database: Database) -> None:
    with running("work", "--json", cwd=cli.folder, database=cli.database) as process:
        started(process)
        until(lambda: cli("workers", "ls", "--json").data["items"])
        (cli.folder / "headway.toml").write_text(
            'aging = "90s"\n[resources]\nollama = 1\n[concurrency]\npolicy = "per_task"\ntargets = "global"\n'
        )
        said = program("work", "--burst", cwd=cli.folder, database=cli.database).done()
        for difference in ("concurrency.policy global, not per_task", "concurrency.targets own, not global"):
            assert difference in said.err
        assert "aging none, not 1m30s" in said.err
        with database.read() as tx:  # a resource that nobody had yet is there from now on
            assert [(row[2], row[3]) for row in tx.run("lanes")] == [("policy", "global"), ("resource", "ollama")]


def test_a_policy_that_cannot_be_imported_here_is_refused_at_start(cli: Here) -> None:
    """Others run by it: a worker without it could not tell which jobs may start."""
    (cli.folder / "own.py").write_text("class Mine:\n    def lanes(self, task, resources):\n        return [task]\n")
    mine = {"HEADWAY_CONCURRENCY__POLICY": "own.Mine"}
    with running("work", "--json", cwd=cli.folder, database=cli.database, **mine) as process:
        started(process)
        until(lambda: cli("workers", "ls", "--json").data["items"])
        (cli.folder / "own.py").unlink()
        other = program("work", "--burst", cwd=cli.folder, database=cli.database)
        assert other.code == 2
        assert "the database wins" in other.err
        assert "own.Mine cannot be imported: ModuleNotFoundError" in other.err
        assert other.err.count("\n") == 2


def test_the_retry_policy_of_the_settings(cli: Here, app: App) -> None:
    (cli.folder / "headway.toml").write_text('[retry]\nmax_attempts = 7\nbase_delay = "3s"\n')
    assert cli("run", "shop.greet", "name=x", "--json", *SHOP).done().data["retries_remaining"] == 7
    assert cli("run", "shop.fail", "--json", *SHOP).done().data["retries_remaining"] == 1  # the task says so itself
    assert cli("run", "shop.greet", "name=x", "--retries", 2, "--json", *SHOP).done().data["retries_remaining"] == 2
    assert cli("sh", "--json", "--", "true").done().data["retries_remaining"] == 7


def test_an_app_in_the_settings_and_in_a_file(cli: Here) -> None:
    (cli.folder / "jobs.py").write_text(
        "from headway import App\n"
        "mine = App(slots=3)\n"
        "@mine.task('mine.double')\n"
        "def double(n: int) -> int:\n"
        "    return 2 * n\n"
    )
    (cli.folder / "headway.toml").write_text('app = "jobs:mine"\n')
    made = program("run", "mine.double", "n=21", "--json", cwd=cli.folder, database=cli.database).done().data
    said = program("work", "--burst", "--json", "--app", "jobs.py:mine", cwd=cli.folder, database=cli.database).done()
    assert said.records[0]["slots"] == 3
    assert cli("runs", "show", made["job_id"], "--json").data["result"] == 42


def test_work_waits_for_its_database(folder: Path) -> None:
    path = folder / "later" / "headway.db"
    with running("work", "--burst", cwd=folder, database=str(path)) as process:
        said = line_of(process.stderr, "does not exist")
        assert "trying again every 2 s" in said
        path.parent.mkdir()
        line_of(process.stderr, "slots for: command")
        assert process.wait(PATIENCE) == 0


def test_work_starts_although_its_connection_breaks_meanwhile(folder: Path, postgres_url: str) -> None:
    """At each commit of its start in turn: it opens the database, settles the limits and registers."""
    cuts = 0
    (folder / "headway.toml").write_text(f'listen = "{postgres_url}"\n')  # as behind a pooler: no COMMIT is prepared
    for n in range(4):
        with cabled(postgres_url) as (cable, url):
            cable.passing, cable.lose = n, 1
            said = program("work", "--burst", cwd=folder, database=url)
            assert said.code == 0, said
            cuts += cable.lost
    assert cuts >= 3


@pytest.mark.parametrize("verb", ["up", "work"])
def test_waiting_for_postgres_ends_with_a_signal(folder: Path, verb: str) -> None:
    with running(verb, cwd=folder, database="postgresql://127.0.0.1:1/nothing") as process:
        assert "trying again every 2 s" in line_of(process.stderr, "PostgreSQL cannot be reached")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130


def test_dev_starts_again_when_a_file_changes(cli: Here) -> None:
    text = "from headway import App\napp = App()\n@app.task('dev.{}')\ndef one() -> None: ...\n"
    file = cli.folder / "mine.py"
    file.write_text(text.format("first"))
    with running("dev", "mine:app", "--slots", 1, "--json", cwd=cli.folder, database=cli.database) as process:
        first = started(process)
        assert (first["tasks"], first["slots"]) == (["command", "dev.first", *REST], 1)
        file.write_text(text.format("second") + "# another size\n")
        second = started(process)
        assert second["tasks"] == ["command", "dev.second", *REST]
        assert second["pid"] != first["pid"]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    until(lambda: {worker["state"] for worker in cli("workers", "ls", "--json").data["items"]} == {"gone"})
