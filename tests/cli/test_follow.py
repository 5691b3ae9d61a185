"""run --follow and sh --follow beside a real worker: the log as it comes, the result, and how it ended."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest

from headway.app import App
from tests.support.cli import PATIENCE, PROGRAM, Here, environment, line_of, program, running, until

pytestmark = pytest.mark.shown

SHOP = ("--app", "tests.support.shop:app")


@pytest.fixture
def worker(cli: Here) -> Iterator[None]:
    with running("work", "--json", *SHOP, cwd=cli.folder, database=cli.database) as process:
        line_of(process.stdout, "started")
        until(lambda: cli("workers", "ls", "--json").data["items"])
        yield


def test_follow_shows_the_log_and_the_result(cli: Here, worker: None) -> None:
    said = program("run", "shop.greet", "name=Ada", "times=2", "--follow", *SHOP, cwd=cli.folder, database=cli.database)
    lines = said.done().out.splitlines()
    assert [line.partition(" ")[2] for line in lines[:2]] == ["hello Ada, 0", "hello Ada, 1"]
    assert json.loads("\n".join(lines[2:])) == {"greeted": "Ada", "times": 2}
    assert said.err == "job 1 COMPLETED\n"


def test_follow_as_json(cli: Here, worker: None) -> None:
    said = program("run", "shop.greet", "name=Ada", "-f", "--json", *SHOP, cwd=cli.folder, database=cli.database).done()
    assert said.data["run"]["result"] == {"greeted": "Ada", "times": 1}
    assert "hello Ada, 0" in said.err


def test_follow_goes_on_with_the_retry_and_tells_the_end(cli: Here, worker: None) -> None:
    said = program("run", "shop.fail", "--follow", *SHOP, cwd=cli.folder, database=cli.database)
    assert said.code == 1
    assert said.out.count("WARNING about to fail") == 2
    assert "job 1 failed: RuntimeError: no luck; retry in 0s as job 2" in said.err
    assert said.err.endswith("job 2 FAILED: RuntimeError: no luck\n")


def test_follow_a_program(cli: Here, worker: None) -> None:
    args = ("sh", "--follow", "--retries", 0, "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    said = program(*args, cwd=cli.folder, database=cli.database)
    assert said.code == 1
    assert sorted(line.partition(" ")[2] for line in said.out.splitlines()) == ["WARNING err", "out"]
    assert said.err == "job 1 FAILED: the command exited with code 3\n"


def test_a_job_may_call_headway_itself(cli: Here, worker: None) -> None:
    env = {name: value for name, value in environment().items() if name in ("PYTHONPATH", "PATH")}
    for named in (True, False):  # a job's programs do not learn the database from their worker
        argv = [*PROGRAM, "config", "check", *(["--database", cli.database] if named else [])]
        params = json.dumps({"argv": argv, "env": env})
        run = ("run", "command", "--params", params, "--retries", 0, "-f")
        said = program(*run, cwd=cli.folder, database=cli.database)
        assert said.code == (0 if named else 1)
        assert (
            "the settings are valid" if named else "name the database in headway.toml or with --database"
        ) in said.out


def test_a_skipped_job_has_not_failed(cli: Here, worker: None) -> None:
    said = program("run", "shop.skip", "--follow", *SHOP, cwd=cli.folder, database=cli.database).done()
    assert said.err == "job 1 SKIPPED: nothing to do today\n"


def test_interrupting_the_follower_leaves_the_job(cli: Here, app: App, worker: None) -> None:
    args = ("run", "shop.wait", "stops_with=seen", "--follow", *SHOP)
    with running(*args, cwd=cli.folder, database=cli.database) as process:
        line_of(process.stdout, "waiting")
        process.send_signal(signal.SIGINT)
        line_of(process.stderr, "job 1 continues: headway jobs logs -f 1, headway jobs cancel 1")
        assert process.wait(PATIENCE) == 130
    assert app.job(1).status == "RUNNING"
    first, then = cli("jobs", "explain", 1).done().out.splitlines()
    assert first == "job 1 is RUNNING"
    assert then.startswith("  running since 20")
    assert f" on worker {cli('jobs', 'show', 1, '--json').data['lease_owner']}" in then
    assert "stop requested" not in cli("jobs", "show", 1).done().out
    assert "job 1 was asked to stop: still RUNNING" in cli("jobs", "cancel", 1).done().out
    (cli.folder / "seen").touch()
    ended = cli("jobs", "wait", 1, "--timeout", f"{PATIENCE:g}s", "--json")
    assert ended.code == 1
    assert ended.data["items"][0]["status"] == "CANCELLED"


def test_a_paused_job_ends_the_following(cli: Here, app: App, worker: None) -> None:
    args = ("run", "shop.wait", "stops_with=seen", "--follow", *SHOP)
    with running(*args, cwd=cli.folder, database=cli.database) as process:
        line_of(process.stdout, "waiting")
        job = cli("jobs", "interrupt", 1, "--json").done().data["items"][0]
        assert (job["status"], job["stop_requested"]) == ("RUNNING", "interrupt")
        (cli.folder / "seen").touch()
        line_of(process.stderr, "it needs a decision: see `headway jobs explain 1`")
        assert process.wait(PATIENCE) == 1
    assert app.job(1).status == "PAUSED"


def test_logs_follow_a_running_job(cli: Here, app: App, worker: None) -> None:
    app.enqueue("shop.wait", {"seconds": 0.5})
    said = program("jobs", "logs", "-f", 1, cwd=cli.folder, database=cli.database).done()
    assert said.out.endswith("waiting\n")
    assert app.job(1).status == "COMPLETED"


def test_without_a_worker_it_says_so(cli: Here) -> None:
    with running("run", "shop.greet", "name=x", "--follow", *SHOP, cwd=cli.folder, database=cli.database) as process:
        assert "start one with `headway work`" in line_of(process.stderr, "job 1 waits: no worker is alive")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130


def test_a_running_job_is_shown_with_its_worker(cli: Here, app: App, worker: None) -> None:
    job = app.enqueue("shop.wait")
    until(lambda: job.status == "RUNNING")
    app.enqueue("shop.greet", {"name": "x"})
    shown = cli("jobs", "show", 1, "--json").data
    (worker_shown,) = cli("workers", "ls", "--json").data["items"]
    assert shown["lease_owner"] == worker_shown["worker_id"]
    assert shown["lease_expires_at"] > shown["started_at"]
    assert (shown["queue_status"], shown["outcome"], shown["run"]["status"]) == ("RUNNING", None, None)
    assert [one["job_id"] for one in worker_shown["running"]] == [1]
    assert "1 shop.wait" in cli("workers", "ls").done().out
    assert [run["run_id"] for run in cli("runs", "ls", "--status", "running", "--json").data["items"]] == [1]
    blockers = cli("jobs", "explain", 2, "--json").data["blockers"]
    assert [(one["kind"], one["by"]) for one in blockers] == [("lane", "job 1")]
    assert "the global lane is full: 1 of 1 run" in cli("queue", "ls").done().out
    assert "shop.wait" in cli("top").done().out
    cli("jobs", "cancel", 1, 2).done()
