"""The CPU time of every route that reads, with the worst data that a tenant may store."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from headway.api.app import NOUNS
from headway.dashboard.app import PAGES
from headway.testing import isolated
from tests.support import shop
from tests.support.cli import line_of, running
from tests.support.scratch import scratch_directory
from tests.support.worst_data import EACH, fill, longest

# Streams go on; they have limits of their own.
STREAMS = {"/api/events", "/api/jobs/{job_id}/live"}
MOST = 0.05
# Work that is long by its nature, with a bound of its own: the route and, for a read, the first field of its query.
LONG: dict[tuple[str, str], float] = {
    # 200 waiting jobs, each with the reasons why it waits, beside as many reservations as a tenant may have.
    ("GET", "/api/queue?limit"): 0.15,
    ("GET", "/api/overview?listed"): 0.15,
    ("GET", "/ui/queue"): 0.15,
    ("GET", "/ui/queue?q"): 0.15,
    ("GET", "/ui/queue?task"): 0.15,
    # The first page shows the queue's head with its reasons, and everything else at a glance.
    ("GET", "/ui/"): 0.15,
    # The largest job: 200 KB of params and of result, written out with their indents.
    ("GET", "/ui/jobs/{job_id:int}"): 0.15,
    # 1,000 jobs or steps are checked, stored and answered: a tenth of a millisecond and more for each.
    ("POST", "a batch of 1,000"): 1.5,
    ("POST", "a batch of 1,000 in stages"): 2.5,
    ("POST", "a plan of 1,000 results"): 2.5,
    # 256 KiB of numbers or brackets are parsed, and looked at one by one.
    ("POST", "the largest body"): 0.8,
    ("POST", "apply of numbers"): 1.5,
    ("POST", "apply of 1,000 templates"): 5.0,
}
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


@pytest.fixture(scope="module")
def server(scratch: Path, sqlite_template: Path) -> Iterator[tuple[int, httpx.Client, dict[str, int]]]:
    """The pid of a server with the worst data, a client of it as an admin of the system, and numbers of things."""
    with scratch_directory(root=scratch) as folder:
        database = str(folder / "headway.db")
        shutil.copyfile(sqlite_template, database)
        with isolated(shop.app, database) as app:
            token, ids = fill(app, database)
        args = ("up", "--roles", "api", "--json", "--app", "tests.support.shop:app")
        with running(*args, cwd=folder, database=database) as process:
            url = json.loads(line_of(process.stdout, "started"))["url"]
            headers = {"Authorization": f"Bearer {token}"}
            with httpx.Client(base_url=url, timeout=60, trust_env=False, headers=headers) as http:
                yield process.pid, http, ids


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


Ask = Callable[[], httpx.Response]


def cheapest(pid: int, ask: Ask, most: float, *, tries: int = 6) -> tuple[float, httpx.Response]:
    """The least CPU time of a few requests, and the last answer; more tries only while it is too much."""
    costs: list[float] = []
    answer = ask()
    while len(costs) < 2 or (min(costs) > most and len(costs) < tries):
        before = _cpu(pid)
        answer = ask()
        costs.append(_cpu(pid) - before)
    return min(costs), answer


@pytest.mark.parametrize("route", ROUTES)
def test_no_read_costs_more_than_50_ms(server: tuple[int, httpx.Client, dict[str, int]], route: str) -> None:
    pid, http, ids = server
    paths = [_path(route, known=known) for known in (True, False)]
    if "{job_id" in route:
        paths.append(re.sub(r"{job_id[^}]*}", str(ids["large"]), route).partition("{")[0])
    if "{schedule_id" in route:
        paths.append(re.sub(r"{schedule_id[^}]*}", str(ids["often"]), route))
    for path in [*paths, *(paths[0] + query for query in extremes(http, route))]:
        most = LONG.get(("GET", route + ("?" + path.partition("?")[2].partition("=")[0] if "?" in path else "")), MOST)
        cost, answer = cheapest(pid, lambda path=path: http.get(path), most)  # type: ignore[misc]
        assert answer.status_code < 500, (path[:120], answer.text[-2_000:])
        assert cost < most, (path[:120], answer.status_code, cost)


# Values that find nothing, so that everything is looked at, and values that find the most.
VALUES: dict[str, list[str]] = {
    "q": ["zzzz", "x", "%", "the disc broke"],
    "task": ["shop.nope", "shop.greet"],
    "target": [longest("target", EACH - 1)],
    "key": ["nope"],
    "created_by": ["nobody"],
    "status": ["failed", "completed,failed,cancelled", "queued"],
    "since": ["2020-01-01T00:00:00Z"],
    "until": ["2020-01-01T00:00:00Z"],
    "failure_kind": ["timeout"],
    "retried": ["true", "false"],
    "exhausted": ["true", "false"],
    "after": ["true"],
    "group_id": ["987654"],
    "schedule_id": ["987654"],
    "state": ["free", "held"],
    "archived": ["true"],
    "actor": ["nobody"],
}
# Queries of the pages, which are in no document.
PAGE_QUERIES: dict[str, list[str]] = {
    "/ui/history": [f"?{name}={value}" for name in ("q", "task", "status", "key") for value in VALUES[name]],
    "/ui/history/errors": ["?within=30d", "?within=7d"],
    "/ui/queue": ["?q=zzzz", "?task=shop.nope"],
    "/ui/schedules/preview": [
        "?when=cron&cron=0+0+29+2+*&timezone=Europe/Berlin",
        "?when=cron&cron=*+*+*+*+*&timezone=Africa/Casablanca",
        "?when=cron&cron=0+0+29+2+*/6&timezone=America/Lima",
    ],
}


def extremes(http: httpx.Client, route: str) -> list[str]:
    """Queries of a route: each number at its most, and with that each filter at its worst."""
    if route.startswith("/ui"):
        return PAGE_QUERIES.get(route, [])
    described = http.get("/api/openapi.json").json()["paths"].get(route.replace(":path", ""), {}).get("get", {})
    queries = [one for one in described.get("parameters", []) if one["in"] == "query"]
    most = [
        (one["name"], _most(one["schema"])) for one in queries if one["name"] in ("limit", "count", "listed", "tail")
    ]
    full = "".join(f"&{name}={number}" for name, number in most)
    wishes = [f"{one['name']}={quote(value)}" for one in queries for value in VALUES.get(one["name"], [])]
    return [f"?{full[1:]}"] * bool(full) + [f"?{wish}{full}" for wish in wishes]


def _most(schema: dict[str, Any]) -> int:
    return int(next(one["maximum"] for one in schema.get("anyOf", [schema]) if "maximum" in one))


# --- writes -------------------------------------------------------------------------------------------------------

GREET: dict[str, Any] = {"task": "shop.greet", "params": {"name": "Ada"}}
CRON = {"cron": "0 0 29 2 *", "timezone": "Africa/Casablanca", "steps": [GREET]}
_count = itertools.count()


def _jobs(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{**GREET, "name": f"s{n}", **more} for n in range(count)]


def _chained(count: int) -> list[dict[str, Any]]:
    """Steps of which each takes the result of the one before it."""
    first, *rest = _jobs(count)
    return [first, *({**step, "params": {"name": {"$result": f"s{n}"}}} for n, step in enumerate(rest))]


def _templates(count: int) -> str:
    return "".join(f"[[templates]]\nname = 'applied {n}'\ntask = 'shop.greet'\n" for n in range(count))


def _bulk(http: httpx.Client) -> httpx.Response:
    found = {"status": ["QUEUED"], "task": "shop.greet", "created_by": "nobody"}
    return http.post("/api/jobs/bulk", json={"filter": found, "action": "cancel", "expected_count": 0})


Write = Callable[[httpx.Client, dict[str, int]], httpx.Response]
WRITES: dict[str, Write] = {
    "a job": lambda http, _: http.post("/api/jobs", json=GREET),
    "a job on a target": lambda http, _: http.post("/api/jobs", json={**GREET, "target": longest("target", 1)}),
    "a job of an unknown task": lambda http, _: http.post("/api/jobs", json={"task": longest("shop", 1)}),
    "a job of a long text": lambda http, _: http.post(
        "/api/jobs", json={"task": "shop.greet", "params": {"name": "x" * 200_000}}
    ),
    "a job of wrong params": lambda http, _: http.post(
        "/api/jobs", json={"task": "shop.greet", "params": {f"wrong{n}": n for n in range(1_000)}}
    ),
    "a template": lambda http, _: http.post(
        "/api/job-templates", json={**GREET, "name": longest("made", next(_count))}
    ),
    "a template's edit": lambda http, _: http.patch("/api/job-templates/1000", json={"priority": 7}),
    "a schedule": lambda http, _: http.post("/api/schedules", json={**CRON, "name": longest("made", next(_count))}),
    "a schedule of 200 steps": lambda http, _: http.post(
        "/api/schedules", json={**CRON, "steps": [GREET] * 200, "name": longest("made", next(_count))}
    ),
    "a schedule's edit": lambda http, _: http.patch("/api/schedules/1000", json={"cron": "0 0 29 2 */6"}),
    "a schedule that is replaced": lambda http, _: http.put("/api/schedules/999", json={**CRON, "name": "replaced"}),
    "a schedule's run": lambda http, _: http.post("/api/schedules/1000/run", json={"force": True}),
    "a schedule is enabled": lambda http, _: http.post("/api/schedules/998/enable"),
    "a schedule is disabled": lambda http, _: http.post("/api/schedules/997/disable"),
    "a backfill that is only shown": lambda http, ids: http.post(
        f"/api/schedules/{ids['often']}/backfill",
        json={"since": "2026-01-01T00:00:00Z", "until": "2026-01-01T00:16:00Z", "dry_run": True},
    ),
    "a backfill of too many": lambda http, ids: http.post(
        f"/api/schedules/{ids['often']}/backfill",
        json={"since": "2026-01-01T00:00:00Z", "until": "2026-11-01T00:00:00Z"},
    ),
    "a job's edit": lambda http, _: http.patch("/api/jobs/9000", json={"params": {"name": "Eve"}}),
    "a job's move": lambda http, _: http.post("/api/jobs/9000/move", json={"to": "top"}),
    "a job's retry": lambda http, _: http.post("/api/jobs/1/retry", json={"params": {"name": "x" * 200_000}}),
    "an order of 1,000": lambda http, _: http.post("/api/queue/reorder", json={"job_ids": list(range(9000, 9100))}),
    "a bulk action on none": lambda http, _: _bulk(http),
    "a webhook": lambda http, _: http.post("/api/webhooks", json={"url": f"https://example.com/m{next(_count)}"}),
    "a webhook is deleted": lambda http, _: http.delete(f"/api/webhooks/{700 + next(_count)}"),
    "a token": lambda http, _: http.post("/api/tokens", json={"name": longest("made", 1), "role": "viewer"}),
    "a reservation": lambda http, _: http.post("/api/reservations", json={"target": longest("target", 5)}),
    "limits of unknown lanes": lambda http, _: http.put(
        "/api/limits", json={"limits": {longest("lane", n): 1 for n in range(500)}}
    ),
    "a batch of 1,000": lambda http, _: http.post("/api/jobs/batch", json={"jobs": [GREET] * 1_000}),
    "a batch of 1,000 in stages": lambda http, _: http.post(
        "/api/jobs/batch", json={"jobs": _jobs(1_000), "mode": "sequential"}
    ),
    "a plan of 1,000 results": lambda http, _: http.post("/api/job-groups", json={"jobs": _chained(1_000)}),
    "the largest body": lambda http, _: http.post(
        "/api/jobs", json={"task": "shop.greet", "params": {"name": [[]] * 60_000}}
    ),
    "apply of deep brackets": lambda http, _: http.post("/api/apply", json={"text": "a=" + "[" * 100_000}),
    "apply of a key of many parts": lambda http, _: http.post("/api/apply", json={"text": "a." * 100_000 + "a=1"}),
    "apply of numbers": lambda http, _: http.post("/api/apply", json={"text": f"a=[{'0,' * 120_000}]"}),
    "apply of 1,000 templates": lambda http, _: http.post(
        "/api/apply", json={"text": _templates(1_000), "dry_run": True}
    ),
}


# Requests that are made to be refused.
REFUSED = {
    "a job of an unknown task",
    "a job of wrong params",
    "a backfill of too many",
    "limits of unknown lanes",
    "the largest body",
    "apply of deep brackets",
    "apply of a key of many parts",
    "apply of numbers",
}


@pytest.mark.parametrize("name", WRITES)
def test_no_write_costs_more_than_its_bound(server: tuple[int, httpx.Client, dict[str, int]], name: str) -> None:
    pid, http, ids = server
    most = LONG.get(("POST", name), MOST)
    cost, answer = cheapest(pid, lambda: WRITES[name](http, ids), most, tries=4)
    refused = name in REFUSED
    assert (400 <= answer.status_code < 500) if refused else answer.status_code < 300, (name, answer.text[-2_000:])
    assert cost < most, (name, cost)
