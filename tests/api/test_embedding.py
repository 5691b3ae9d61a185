"""Headway inside another application: mounted, living and ending with it, in several processes on one database."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from headway import App
from headway.engine.maintenance.recovery import Recovery
from headway.store import worker_views
from headway.verify import check
from tests.support import forms
from tests.support.cli import PATIENCE, until

ROOT = Path(__file__).parents[2]


def address(log: Path) -> str | None:
    """Where it says that it listens."""
    found = re.search(r"running on (http://127\.0\.0\.1:\d+)", log.read_text())
    return found and found[1]


@contextmanager
def embedded(
    database: str, folder: Path, *, processes: int = 1
) -> Iterator[tuple[httpx.Client, subprocess.Popen[bytes]]]:
    command = [sys.executable, "-m", "uvicorn", "tests.support.embedded:fastapi_app", "--port", "0"]
    # It kills processes that do not answer it: none is slower than this.
    command += ["--workers", str(processes), "--timeout-worker-healthcheck", f"{PATIENCE:g}"]
    log = folder / "log"
    with log.open("wb") as written:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | {"HEADWAY_DATABASE": database, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
            stdout=written,
            stderr=written,
        )
    try:
        until(lambda: address(log) or process.poll() is not None, "an address")
        found = address(log)
        assert found is not None, log.read_text()
        with httpx.Client(base_url=found, timeout=PATIENCE, trust_env=False) as http:
            until(lambda: _answers(http), f"an answer of the server ({log})")
            yield http, process
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _answers(http: httpx.Client) -> bool:
    try:
        return http.get("/headway/api/workers").status_code == 200
    except httpx.HTTPError:
        return False


@pytest.mark.parametrize("processes", [1, 2])
def test_it_serves_and_works_inside_another_application(empty_url: str, tmp_path: Path, processes: int) -> None:
    with embedded(empty_url, tmp_path, processes=processes) as (http, process):
        until(lambda: _live(http) == processes, f"{processes} live workers")
        numbers = [http.post(f"/orders/fog-{n}").json()["job_id"] for n in range(20)]
        made = http.post("/headway/api/jobs", json={"task": "story.generate", "params": {"topic": "rain"}})
        assert made.status_code == 201
        assert made.headers["location"] == f"/headway/api/jobs/{made.json()['job_id']}"
        numbers.append(made.json()["job_id"])
        schedule = {"name": "s", "cron": "30 2 * * *", "steps": [{"task": "story.generate", "params": {"topic": "x"}}]}
        assert http.get(http.post("/headway/api/schedules", json=schedule).headers["location"]).status_code == 200
        until(lambda: {_status(http, number) for number in numbers} == {"COMPLETED"})
        assert http.get("/headway/healthz").status_code == 200
        process.send_signal(signal.SIGTERM)
        # A single process ends as its signal says, once everything is closed.
        assert process.wait(PATIENCE) in (0, -signal.SIGTERM), (tmp_path / "log").read_text()
    with App(empty_url) as app, app.database.read() as tx:
        left = [row for row in tx.run("shown_workers", within=10**12) if row[11] is None]
    assert left == []


def test_three_processes_keep_one_limit_and_outlive_one_of_them(database_url: str, tmp_path: Path) -> None:
    """Each has a worker of its own; one that is killed is started anew, and what it ran is recovered by the others."""
    with embedded(database_url, tmp_path, processes=3) as (http, process):
        until(lambda: _live(http) == 3, "3 live workers")
        wish = {"task": "story.slowly", "retry_policy": {"base_delay": "0.1s"}}
        numbers = [http.post("/headway/api/jobs", json=wish).json()["job_id"] for _ in range(12)]
        until(lambda: _running(http), "a worker with a job")
        victim = _running(http)[0]
        os.kill(victim, signal.SIGKILL)
        until(_answered(lambda: all(_chain_ended(http, number) for number in numbers)), "the end of all jobs")
        until(_answered(lambda: _live(http) == 3 and victim not in _pids(http)), "3 live workers again")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, (tmp_path / "log").read_text()
    with App(database_url) as app:
        assert [str(one) for one in check(app.database, quiet=True).findings] == []
        with app.database.read() as tx:
            assert [row for row in tx.run("shown_workers", within=10**12) if row[11] is None] == []


def test_what_the_code_and_the_settings_say_is_in_force(database_url: str, tmp_path: Path) -> None:
    """As with `headway up`: declared schedules, limits, resources."""
    with embedded(database_url, tmp_path) as (http, _):
        (schedule,) = http.get("/headway/api/schedules").json()["items"]
        assert (schedule["name"], schedule["origin"], schedule["enabled"]) == ("nightly", "code", True)
        limits = http.get("/headway/api/limits").json()
        found = {one["name"]: one["limit"] for one in limits["items"]}
        assert found["ollama"] == 3
        assert 2 in found.values()


def test_the_pages_are_served_inside_another_application(sqlite_url: str, tmp_path: Path) -> None:
    with embedded(sqlite_url, tmp_path) as (http, _):
        page = http.get("/headway/", follow_redirects=True)
        assert str(page.url).endswith("/headway/ui/")
        assert page.status_code == 200
        assert 'href="/headway/ui/queue"' in page.text
        assert http.get("/headway/ui/static/headway.js").status_code == 200
        answer = forms.fill_at(http, "/headway", "/", "/queue/pause", note="for the night")
        assert "for the night" in answer.text


def _live(http: httpx.Client) -> int:
    return sum(worker["state"] == "live" for worker in http.get("/headway/api/workers").json()["items"])


def _answered(condition: Callable[[], bool]) -> Callable[[], bool]:
    """A condition that is asked again where the process that answered was killed."""

    def ask() -> bool:
        try:
            return condition()
        except httpx.TransportError:
            return False

    return ask


def _running(http: httpx.Client) -> list[int]:
    """The processes whose worker runs a job."""
    items = http.get("/headway/api/workers").json()["items"]
    return [one["pid"] for one in items if one["running"] and one["state"] == "live"]


def _pids(http: httpx.Client) -> list[int]:
    return [one["pid"] for one in http.get("/headway/api/workers").json()["items"] if one["state"] == "live"]


def _chain_ended(http: httpx.Client, number: int) -> bool:
    """Whether a job, or a retry of it, was COMPLETED."""
    every = http.get("/headway/api/jobs?limit=200").json()["items"]
    by_parent = {one["retry_of"]: one for one in every if one["retry_of"] is not None}
    job = next(one for one in every if one["job_id"] == number)
    while job["status"] != "COMPLETED" and job["job_id"] in by_parent:
        job = by_parent[job["job_id"]]
    return bool(job["status"] == "COMPLETED")


def _status(http: httpx.Client, number: int) -> str:
    return str(http.get(f"/headway/api/jobs/{number}").json()["status"])


def test_making_it_part_of_an_application_opens_nothing(tmp_path: Path) -> None:
    app = App(str(tmp_path / "none.db"))
    app.asgi()
    app.lifespan(None)
    assert list(tmp_path.iterdir()) == []


def _halt(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """The application, and the heartbeats of its workers and callers."""
    for one in [psutil.Process(process.pid), *psutil.Process(process.pid).children()]:
        os.kill(one.pid, number)


def test_a_worker_that_was_given_up_during_a_suspend_is_replaced(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_LEASE", "6s")  # a busy machine takes seconds for a beat
    monkeypatch.setenv("HEADWAY_HEARTBEAT", "1s")
    with embedded(database_url, tmp_path) as (http, process), App(database_url) as app:
        until(lambda: _states(app) == ["live"], "a worker")
        assert http.post("/direct/before").json()["title"] == "Before"
        _halt(process, signal.SIGSTOP)
        recovery = Recovery(app.database, interval=0.5)
        until(lambda: recovery.tick() and _states(app) == ["gone"], "the worker is given up")
        _halt(process, signal.SIGCONT)
        until(lambda: set(_states(app)) == {"gone", "live"}, "another worker")  # on a busy machine the first may go too
        assert "another process recovered this worker as lost: starting a new one" in (tmp_path / "log").read_text()
        job = app.job(http.post("/orders/tea").json()["job_id"])
        until(lambda: job.status == "COMPLETED", "the job")
        assert http.post("/direct/after").json()["title"] == "After"


def _states(app: App) -> list[str]:
    with app.database.read() as tx:
        return [one.state for one in worker_views.workers(tx)]
