"""Streams over real connections: how many there may be, and that they end with the right to be there."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from headway.api.endpoints import live
from headway.api.http import connections, sse
from headway.api.http.connections import Activity
from headway.engine.events import subscription
from headway.store.events import newest
from headway.store.jobs import reports
from tests.api.test_event_streams import STORY, Reader, following
from tests.support.figures import Figure
from tests.support.service import Site, serving, shop
from tests.support.sockets import connect
from tests.support.waiting import PATIENCE, until

# A stream that does not end says so every 15 s. One may come first where everything is slow.
HEARTBEATS = 2


def ended(answer: httpx.Response, change: Callable[[], object]) -> list[str]:
    """What a stream said from a change on until it was closed."""
    reader = Reader(answer)
    change()
    seen: list[str] = []
    for line in reader.lines:
        seen.append(line)
        assert seen.count(": still here") < HEARTBEATS, seen
    return seen


def test_a_stream_ends_when_its_token_is_revoked_or_its_tenant_deactivated(site: Site) -> None:
    tenants, tokens = site.app.client.tenants, site.app.client.tokens
    tenants.create("acme")
    root = site.as_(site.token(tenant=None, name="root"))
    job = root.post("/api/jobs", json={**STORY, "hold": True}, headers={"Headway-Tenant": "acme"}).json()["job_id"]
    for path in ("/api/events?kind=schedule.*", f"/api/jobs/{job}/live"):
        token, plain = tokens.create("bob", "viewer", tenant="acme")
        with site.as_(plain).stream("GET", path) as answer:
            seen = ended(answer, lambda number=token.id: tokens.revoke(number, everywhere=True))  # type: ignore[misc]
        assert seen[-3:] == ["event: end", 'data: {"reason":"token revoked"}', ""], path
        plain = tokens.create("eve", "viewer", tenant="acme")[1]
        with site.as_(plain).stream("GET", path) as answer:
            seen = ended(answer, lambda: tenants.deactivate("acme"))
        assert seen[-3:-1] == ["event: end", 'data: {"reason":"token revoked"}'], path
        tenants.activate("acme")
    with following(root, kind="job.*") as reader:  # those who may stay do
        root.post("/api/jobs", json=STORY)
        assert reader.next()[1] == "job.created"


def test_a_stream_without_a_token_ends_when_one_is_needed(site: Site) -> None:
    with site.http.stream("GET", "/api/events?kind=schedule.*") as answer:
        seen = ended(answer, site.token)
    assert seen[-3:-1] == ["event: end", 'data: {"reason":"a token is needed now"}']


def test_more_streams_than_allowed_are_refused_until_one_is_closed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """One connection in five may be a stream: a token and a tenant have a share, the system keeps some."""
    monkeypatch.setattr(sse, "MOST_EACH", 2)
    site.server.connections.most = 40
    for tenant in ("acme", "shop"):
        site.app.client.tenants.create(tenant)
    root, other_root = (site.as_(site.token(tenant=None, name=name)) for name in ("root", "other root"))
    ada, eve, bob, bea = (
        site.as_(site.token(tenant=tenant, name=name))
        for tenant, name in (("acme", "ada"), ("acme", "eve"), ("shop", "bob"), ("shop", "bea"))
    )
    job = ada.post("/api/jobs", json={**STORY, "hold": True}).json()["job_id"]
    assert ada.get("/api/jobs/987654321/live").status_code == 404, "that takes no place"
    with ExitStack() as stack:
        first = stack.enter_context(ExitStack())
        kept = [first.enter_context(following(ada))]  # a reader that is let go closes its stream
        stack.enter_context(ada.stream("GET", f"/api/jobs/{job}/live"))
        _refused(ada, 429, "too_many_streams", "you have 2 open streams here")
        kept.append(stack.enter_context(following(eve)))
        _refused(eve, 429, "too_many_streams", "the tenant 'acme' has 3 open streams here")
        kept += [stack.enter_context(following(who)) for who in (bob, bob, bea)]
        _refused(bea, 429, "too_many_streams", "the tenant 'shop' has 3 open streams here")
        default = site.as_(site.token())
        kept.append(stack.enter_context(following(default)))
        _refused(default, 503, "busy", "this server has 7 open streams of tenants")
        kept.append(stack.enter_context(following(root)))
        _refused(other_root, 503, "busy", "this server has 8 open streams")
        first.close()
        until(lambda: _opens(ada))


def _refused(http: httpx.Client, status: int, code: str, detail: str) -> None:
    answer = http.get("/api/events")
    problem = answer.json()
    assert (answer.status_code, answer.headers["retry-after"], problem["code"]) == (status, "10", code)
    assert problem["detail"].startswith(detail)
    assert "try again later" in problem["detail"]


def _opens(http: httpx.Client) -> bool:
    with http.stream("GET", "/api/events") as answer:
        return answer.status_code == 200


def test_streams_that_wait_for_the_database_hold_up_nobody_else(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request has one of forty threads; more streams than that are stuck here."""
    monkeypatch.setattr(sse, "MOST_EACH", 100)
    stuck, release = threading.Semaphore(0), threading.Event()
    look = live._look

    def slow(*given: Any) -> Any:
        stuck.release()
        release.wait(60)
        return look(*given)

    monkeypatch.setattr(live, "_look", slow)
    job = site.http.post("/api/jobs", json={**STORY, "hold": True}).json()["job_id"]

    def follow() -> int:
        with httpx.stream("GET", f"{site.url}/api/jobs/{job}/live", timeout=60, trust_env=False) as answer:
            return answer.status_code

    with ThreadPoolExecutor(45) as threads:
        try:
            following = [threads.submit(follow) for _ in range(45)]
            for _ in range(sse.THREADS):
                assert stuck.acquire(timeout=30)
            assert site.http.get("/api/jobs").status_code == 200
        finally:
            release.set()
        assert {one.result(60) for one in following} == {200}


def test_a_tenant_catches_up_with_its_own_events_alone(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "STRETCH", 3)
    site.app.client.tenants.create("acme")
    ours, theirs = site.as_(site.token()), site.as_(site.token(tenant="acme"))
    made = []
    for n in range(12):
        ours.post("/api/jobs", json=STORY)
        if n % 5 == 0:
            made.append(theirs.post("/api/jobs", json=STORY).json()["job_id"])
    with following(theirs, last_event_id=0, kind="job.*") as reader:
        assert [reader.next()[2]["thing_id"] for _ in made] == made
        late = theirs.post("/api/jobs", json=STORY).json()["job_id"]
        assert reader.next()[2]["thing_id"] == late


def test_no_message_has_more_than_64_kib(site: Site) -> None:
    """Lines are spread over messages, and long fields of a job or an event are left out and named."""
    long, lines = "ü" * 40_000, [f"{n} {'☃' * 3_000}" for n in range(40)]
    job = site.http.post("/api/jobs", json={**STORY, "params": {"topic": long}, "hold": True}).json()["job_id"]
    site.http.post("/api/job-templates", json={"name": "long", **STORY, "params": {"topic": long}})
    site.app.database.transact("log", lambda tx: reports.add_log(tx, {job: [(1, "INFO", line) for line in lines]}))
    seen, heads = [], []
    with site.http.stream("GET", f"/api/jobs/{job}/live") as answer:
        for text in _messages(answer):
            assert len(text.encode()) <= 64 * 1024
            if text.startswith("event: job"):
                break
            heads += [int(line[4:]) for line in text.splitlines() if line.startswith("id: ")]
            seen += [line["message"] for line in json.loads(text.partition("data: ")[2] or "[]")]
    assert seen == lines
    brief = json.loads(text.partition("data: ")[2])
    assert (brief["job_id"], brief["params"], brief["omitted"]) == (job, None, ["params"])
    with site.http.stream("GET", f"/api/jobs/{job}/live", headers={"Last-Event-ID": str(heads[0])}) as answer:
        rest = next(text for text in _messages(answer) if "event: lines" in text)
    assert lines.index(json.loads(rest.partition("data: ")[2])[0]["message"]) > 0
    with site.http.stream("GET", "/api/events?kind=template.*&last_event_id=0") as answer:
        event = json.loads(next(text for text in _messages(answer) if "event: " in text).partition("data: ")[2])
    assert (event["kind"], event["data"], event["omitted"]) == ("template.created", None, ["data"])


def _messages(answer: httpx.Response) -> Iterator[str]:
    lines: list[str] = []
    for line in answer.iter_lines():
        if line:
            lines.append(line)
        else:
            yield "\n".join(lines)
            lines = []


# --- streams that are not read ---


def _stalled(site: Site, token: str, path: str) -> socket.socket:
    """A stream that the server cannot send, because its client does not read."""
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
    deaf = connect(site.url, head.encode(), buffer=4096)
    assert deaf.recv(12) == b"HTTP/1.1 200"
    return deaf


def _long_streams(site: Site) -> list[str]:
    job = site.app.enqueue("story.generate", {"topic": "fog"}, hold=True)
    lines = [(n, "INFO", "x" * 8_000) for n in range(100)]
    site.app.database.transact("log", lambda tx: reports.add_log(tx, {job.id: lines}))
    templates = site.app.client.templates
    for n in range(20):
        templates.create(f"long {n}", "story.generate", params={"topic": "x" * 40_000})
    return ["/api/events?last_event_id=0", f"/api/jobs/{job.id}/live"]


def _are_stalled(site: Site, count: int) -> bool:
    return sum(one.activity is Activity.STALLED for one in [*site.server.connections.open]) == count


def test_a_revoked_token_ends_streams_that_are_not_read(
    database_url: str, monkeypatch: pytest.MonkeyPatch, figure: Figure
) -> None:
    assert 2 * sse.CHECK + sse.FAREWELL < 1.5, "within two seconds, with time to spare"
    monkeypatch.setattr(connections, "DEADLINES", {**connections.DEADLINES, Activity.STALLED: 600.0})
    with serving(database_url) as site, ExitStack() as stack:
        token, plain = site.app.client.tokens.create("bob", "viewer", tenant="default")
        for path in _long_streams(site):
            stack.enter_context(_stalled(site, plain, path))
        until(lambda: _are_stalled(site, 2), "that both streams are stalled")
        began = time.monotonic()
        site.app.client.tokens.revoke(token.id)
        until(lambda: not site.server.connections.open, "that both streams are closed")
        took = time.monotonic() - began
    figure(f"{site.app.database.dialect}: stalled streams end {took:.2f} s after their token was revoked")


def test_a_stream_that_is_not_read_is_given_up(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one with so little to send that no buffer of the server is full."""
    monkeypatch.setattr(connections, "DEADLINES", {**connections.DEADLINES, Activity.STALLED: 1.0})
    with serving(database_url) as site, ExitStack() as stack:
        plain = site.token("viewer")
        for path in _long_streams(site):
            stack.enter_context(_stalled(site, plain, path))
        for n in range(3):
            site.app.client.templates.create(f"little {n}", "research.run", params={"topic": "x" * 9_000})
        with site.app.database.read() as tx:
            after = newest(tx) - 3
        stack.enter_context(_stalled(site, plain, f"/api/events?last_event_id={after}"))
        until(lambda: not site.server.connections.open, "that all are closed")
        assert site.as_(plain).get("/api/jobs").status_code == 200


def test_in_another_application_a_stream_that_is_not_read_gives_its_place_back(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection belongs to that application's server, and its `send` waits for as long as the client likes."""
    monkeypatch.setattr(connections, "DEADLINES", {**connections.DEADLINES, Activity.STALLED: 0.1})
    monkeypatch.setattr(sse, "MOST_EACH", 1)
    with shop(sqlite_url) as app:
        mounted = app.asgi(open_on_loopback=True)

        async def statuses() -> list[int]:
            seen: list[int] = []
            scope = {
                "type": "http",
                "asgi": {"version": "3.0"},
                "http_version": "1.1",
                "method": "GET",
                "path": "/api/events",
                "query_string": b"",
                "headers": [(b"host", b"127.0.0.1")],
                "client": ("127.0.0.1", 1),
            }

            async def receive() -> MutableMapping[str, Any]:
                await asyncio.Event().wait()
                raise AssertionError

            async def send(message: MutableMapping[str, Any]) -> None:
                if message["type"] == "http.response.start":
                    seen.append(message["status"])
                else:
                    await asyncio.Event().wait()

            for _ in range(2):
                await asyncio.wait_for(mounted(dict(scope), receive, send), PATIENCE)
            return seen

        assert asyncio.run(statuses()) == [200, 200]
        tail = mounted.service.tail
    assert not tail.thread.is_alive(), "it would wait on descriptors of the database, which are closed"
