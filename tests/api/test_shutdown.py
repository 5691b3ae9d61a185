"""SIGTERM while direct calls run and wait: calls are work, and get the shutdown grace like jobs."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.cli import line_of, running, until
from tests.support.deadlines import PATIENCE

PROGRAM = """
import time
from pathlib import Path

from headway import App

app = App()


@app.task("story.generate", direct="/story/generate")
def generate(name: str) -> str:
    Path(f"{name}.began").touch()
    while not Path(f"{name}.go").exists():
        time.sleep(0.02)
    return name
"""


class Stories:
    """A server whose calls run until a file says that they may end."""

    def __init__(
        self, folder: Path, process: subprocess.Popen[str], pool: ThreadPoolExecutor, http: httpx.Client
    ) -> None:
        self.folder = folder
        self.process = process
        self.pool = pool
        self.http = http

    def generate(self, name: str) -> Future[httpx.Response]:
        return self.pool.submit(self.http.post, "/story/generate", json={"name": name})

    def reservations(self) -> int:
        return len(self.http.get("/api/reservations", params={"status": "ACTIVE"}).json()["items"])

    def one_runs_and_one_waits(self) -> tuple[Future[httpx.Response], Future[httpx.Response]]:
        first = self.generate("a")
        until((self.folder / "a.began").exists, "the first call")
        second = self.generate("b")
        until(lambda: self.reservations() == 2, "the second reservation")
        return first, second


@contextmanager
def stories(folder: Path, database: str, *args: str, **more: str) -> Iterator[Stories]:
    (folder / "shutting.py").write_text(PROGRAM, "utf-8")
    with (
        ThreadPoolExecutor(4) as pool,
        running("up", "--json", "--app", "shutting:app", *args, cwd=folder, database=database, **more) as process,
        httpx.Client(base_url=json.loads(line_of(process.stdout, "url"))["url"], timeout=PATIENCE) as http,
    ):
        yield Stories(folder, process, pool, http)


@pytest.mark.parametrize("roles", ["api", "api,scheduler,worker"])
def test_a_running_call_ends_within_the_grace_and_a_waiting_one_at_once(
    database_url: str, tmp_path: Path, roles: str
) -> None:
    with stories(tmp_path, database_url, "--roles", roles) as served:
        first, second = served.one_runs_and_one_waits()
        served.process.send_signal(signal.SIGTERM)
        refused(second.result(PATIENCE))
        ready = served.http.get("/readyz")
        assert (ready.status_code, "draining" in ready.text) == (503, True)
        refused(served.generate("c").result(PATIENCE))
        assert not first.done()
        (tmp_path / "a.go").touch()
        answered = first.result(PATIENCE)
        assert (answered.status_code, answered.json()) == (200, "a")
        assert served.process.wait(PATIENCE) == 0


def test_a_call_that_outlasts_the_grace_is_stopped(database_url: str, tmp_path: Path) -> None:
    with stories(tmp_path, database_url, HEADWAY_SHUTDOWN_GRACE="1s") as served:
        first, second = served.one_runs_and_one_waits()
        served.process.send_signal(signal.SIGTERM)
        refused(second.result(PATIENCE))
        stopped = first.result(PATIENCE)
        assert stopped.status_code in (424, 503)
        assert served.process.wait(PATIENCE) == 0


def refused(answer: Any) -> None:
    assert (answer.status_code, answer.json()["code"]) in ((503, "given_up"), (503, "busy"))
    assert int(answer.headers["Retry-After"]) >= 1
    assert "shutting down" in answer.json()["detail"]
