"""The CPU time of every route that reads, with the worst data that a tenant may store."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from headway import App
from headway.api.app import NOUNS
from headway.dashboard.app import PAGES
from headway.model.jobs.job import NewJob
from headway.testing import isolated
from tests.support import shop
from tests.support.cli import line_of, running
from tests.support.scratch import scratch_directory

# Streams go on; they have limits of their own.
STREAMS = {"/api/events", "/api/jobs/{job_id}/live"}
MOST = 0.05
QUEUED, EACH = 10_000, 1_000
ROUTES = sorted(
    {
        root + one.path
        for root, parts in (("", NOUNS), ("/ui", PAGES))
        for part in parts
        for one in part.declared
        if one.method == "GET" and not one.deprecated
    }
    - STREAMS
)


def longest(kind: str, n: int) -> str:
    return f"{kind}-{n:04}-".ljust(200, "x")


@pytest.fixture(scope="module")
def server(scratch: Path, sqlite_template: Path) -> Iterator[tuple[int, httpx.Client]]:
    """The pid of a server with the worst data, and a client of it."""
    with scratch_directory(root=scratch) as folder:
        database = str(folder / "headway.db")
        shutil.copyfile(sqlite_template, database)
        with isolated(shop.app, database) as app:
            _fill(app)
        args = ("up", "--roles", "api", "--json", "--app", "tests.support.shop:app")
        with running(*args, cwd=folder, database=database) as process:
            url = json.loads(line_of(process.stdout, "started"))["url"]
            with httpx.Client(base_url=url, timeout=60, trust_env=False) as http:
                yield process.pid, http


def _fill(app: App) -> None:
    client = app.client
    jobs = [
        NewJob("shop.greet", json.dumps({"name": longest("name", n)}), "{}", target=longest("target", n))
        for n in range(EACH)
    ]
    client.enqueue_many(jobs)
    for _ in range(QUEUED // EACH - 1):
        client.enqueue_many([NewJob("shop.greet", '{"name":"Ada"}', "{}")] * EACH)
    for n in range(EACH):
        client.templates.create(longest("template", n), "shop.greet")
        client.schedules.create(longest("schedule", n), {"cron": "0 3 * * *", "steps": [{"task": "shop.skip"}]})
        client.webhooks.create(url=f"https://example.com/{n}")


def _path(route: str, *, known: bool) -> str:
    """A route with the worst things in it: the last one of its kind, or none with nearly its name."""
    for part in re.findall(r"{[^}]+}", route):
        name = part.strip("{}").partition(":")[0]
        worst = longest("target", EACH - 1 if known else EACH + 1)
        route = route.replace(part, quote(worst) if name in ("name", "target") else str(EACH if known else 987_654))
    return route


def _cpu(pid: int) -> float:
    """CPU seconds of all threads of a process (clock_getcpuclockid)."""
    return time.clock_gettime((~pid << 3) | 2)


@pytest.mark.parametrize("route", ROUTES)
def test_no_read_costs_more_than_50_ms(server: tuple[int, httpx.Client], route: str) -> None:
    pid, http = server
    for known in (True, False):
        path = _path(route, known=known)
        costs: list[float] = []
        status = 0
        while len(costs) < 3 or (min(costs) > MOST and len(costs) < 6):
            before = _cpu(pid)
            status = http.get(path).status_code
            costs.append(_cpu(pid) - before)
        assert min(costs) < MOST, (path[:80], status, costs)
