"""Streams that nobody reads, at a whole server: what each of them costs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headway.app import App
from headway.model.jobs.job import NewJob
from headway.store.jobs import reports
from headway.testing import isolated
from tests.support import shop
from tests.support.cli import line_of, running
from tests.support.figures import Figure
from tests.support.scratch import scratch_directory
from tests.support.sockets import connect
from tests.support.waiting import until

READERS = 200
# Of one tenant, of another one, and of the system: all places are taken.
SHARES = {"acme": 90, "shop": 90, None: 20}
OF_ONE_TOKEN = 18
MIB = 1 << 20
# Events and jobs with the one are sent without it, those with the other as they are.
LONG, FITTING = "x" * 200_000, "x" * 50_000
EDITS, LINES = 20, 300


@pytest.fixture
def folder(scratch: Path) -> Iterator[Path]:
    with scratch_directory(root=scratch) as path:
        yield path


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with isolated(shop.app, database_url) as app:
        yield app


@pytest.mark.slow
def test_200_stalled_readers_cost_less_than_a_mebibyte_each(
    app: App, database_url: str, folder: Path, figure: Figure
) -> None:
    """A page of a tenant's largest events, or a burst in a log, once stayed in memory for each reader."""
    heavy = {tenant: _heavy(app, tenant) for tenant in ("acme", "shop")}
    requests = [sent for tenant in SHARES for sent in _requests(app, tenant, heavy[tenant or "acme"])]
    assert len(requests) == READERS
    args = ("up", "--roles", "api", "--json", "--app", "tests.support.shop:app")
    with running(*args, cwd=folder, database=database_url) as process, ExitStack() as stack:
        url = json.loads(line_of(process.stdout, "started"))["url"]
        _warm_up(url, requests[:2])
        before = _resident(process.pid)
        for sent in requests:
            reader = stack.enter_context(connect(url, sent, buffer=4096))
            assert reader.recv(12) == b"HTTP/1.1 200"
        cost = (_most_resident(process.pid) - before) / READERS
    figure(f"{app.database.dialect}: a stalled reader costs {cost / 1024:.0f} KiB, {READERS} of them at once")
    assert cost < MIB


def _requests(app: App, tenant: str | None, paths: list[str]) -> Iterator[bytes]:
    """The share of a tenant, or of the system, with as many tokens as it takes."""
    token = ""
    for n in range(SHARES[tenant]):
        if n % OF_ONE_TOKEN == 0:
            token = app.client.tokens.create(f"{tenant} {n}", "viewer", tenant=tenant)[1]
        head = f"GET {paths[n % 2]} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
        yield f"{head}Headway-Tenant: {tenant or 'acme'}\r\n\r\n".encode()


def _heavy(app: App, tenant: str) -> list[str]:
    """The streams of a tenant with the largest events, and of a job with much of a log at once."""
    app.client.tenants.create(tenant)
    client = app.client.sibling(app.client.actor, tenant)
    template = client.templates.create("long", "shop.greet", params={"name": LONG})
    for n in range(EDITS):
        client.templates.edit(template.id, params={"name": LONG if n % 2 else FITTING, "times": n})
    job_id, _ = client.enqueue(NewJob("shop.greet", json.dumps({"name": LONG}), "{}"))
    lines = [(n, "INFO", "x" * 8_000) for n in range(LINES)]
    app.database.transact("log", lambda tx: reports.add_log(tx, {job_id: lines}))
    return ["/api/events?last_event_id=0", f"/api/jobs/{job_id}/live"]


def _warm_up(url: str, requests: list[bytes]) -> None:
    """The first stream imports modules and opens connections of the database."""
    for sent in requests:
        with connect(url, sent) as reader:
            seen = b""
            while b"event: " not in seen:
                seen += reader.recv(65536)


def _resident(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("VmRSS"))


def _most_resident(pid: int) -> int:
    """The largest figure, looked for until it has not risen for two seconds."""
    most, since = _resident(pid), time.monotonic()

    def settled() -> bool:
        nonlocal most, since
        if (now := _resident(pid)) > most:
            most, since = now, time.monotonic()
        return time.monotonic() - since > 2

    until(settled)
    return most
