"""Streams over real connections: how many there may be, and that they end with the right to be there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from headway.api import live, streams
from headway.engine import subscription
from tests.api.test_live import STORY, Reader, following
from tests.support.service import Site
from tests.support.waiting import until

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
    monkeypatch.setattr(streams, "MOST_EACH", 2)
    monkeypatch.setattr(streams, "MOST", 3)
    ada, bob = site.as_(site.token(name="ada")), site.as_(site.token(name="bob"))
    job = ada.post("/api/jobs", json={**STORY, "hold": True}).json()["job_id"]
    assert ada.get("/api/jobs/987654321/live").status_code == 404, "that takes no place"
    with ExitStack() as stack:
        first = stack.enter_context(ExitStack())
        kept = [first.enter_context(following(ada))]  # a reader that is let go closes its stream
        stack.enter_context(ada.stream("GET", f"/api/jobs/{job}/live"))
        refused = ada.get("/api/events")
        assert (refused.status_code, refused.headers["retry-after"], refused.json()["code"]) == (503, "10", "busy")
        assert "you have 2 streams" in refused.json()["detail"]
        kept.append(stack.enter_context(following(bob)))
        refused = bob.get("/api/events")
        assert (refused.status_code, refused.json()["detail"][:9]) == (503, "3 streams")
        first.close()
        until(lambda: _opens(ada))


def _opens(http: httpx.Client) -> bool:
    with http.stream("GET", "/api/events") as answer:
        return answer.status_code == 200


def test_streams_that_wait_for_the_database_hold_up_nobody_else(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request has one of forty threads; more streams than that are stuck here."""
    monkeypatch.setattr(streams, "MOST_EACH", 100)
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
            for _ in range(streams.THREADS):
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
