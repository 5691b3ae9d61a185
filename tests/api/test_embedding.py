"""Headway inside another application: mounted, living and ending with it, in several processes on one database."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from headway import App
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
        left = [row for row in tx.run("shown_workers", within=10**12) if row[-2] is None]
    assert left == []


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


def _status(http: httpx.Client, number: int) -> str:
    return str(http.get(f"/headway/api/jobs/{number}").json()["status"])


def test_making_it_part_of_an_application_opens_nothing(tmp_path: Path) -> None:
    app = App(str(tmp_path / "none.db"))
    app.asgi()
    app.lifespan(None)
    assert list(tmp_path.iterdir()) == []
