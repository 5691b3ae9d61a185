"""Server-sent events over a real connection: from now on, from where one left off, and until the server ends."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from headway.api.endpoints import live
from headway.store.events import newest as newest_event
from tests.support.service import Site

STORY = {"task": "story.generate", "params": {"topic": "fog"}}


class Reader:
    """The messages of a stream, as they come."""

    def __init__(self, answer: httpx.Response) -> None:
        self.lines = answer.iter_lines()
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert next(self.lines) == ": here"
        self.first = next(self.lines)

    def next(self) -> tuple[int | None, str, Any]:
        number: int | None = None
        kind = ""
        for line in self.lines:
            name, _, rest = line.partition(": ")
            if name == "id":
                number = int(rest)
            elif name == "event":
                kind = rest
            elif name == "data":
                return number, kind, json.loads(rest)
        raise EOFError


@contextmanager
def following(http: httpx.Client, last: int | None = None, **params: Any) -> Iterator[Reader]:
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    with http.stream("GET", "/api/events", params=params, headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        yield Reader(answer)


def test_events_come_as_they_happen_and_again_from_where_one_left_off(site: Site) -> None:
    with following(site.http, kind="job.*") as reader:
        job = site.http.post("/api/jobs", json=STORY).json()
        first = reader.next()
        assert (first[1], first[2]["thing_id"]) == ("job.created", job["job_id"])
        site.http.post(f"/api/jobs/{job['job_id']}/cancel")
        assert reader.next()[1] == "job.cancelled"
    for _ in range(3):
        site.http.post("/api/jobs", json=STORY)
    with following(site.http, last=first[0], kind="job.*") as reader:
        kinds = [reader.next()[1] for _ in range(4)]
    assert kinds == ["job.cancelled", "job.created", "job.created", "job.created"]
    with following(site.http, thing="job", thing_id=job["job_id"], last_event_id=0) as reader:
        assert [reader.next()[1] for _ in range(2)] == ["job.created", "job.cancelled"]


def test_a_client_cut_off_before_the_first_event_misses_nothing(site: Site) -> None:
    site.http.post("/api/jobs", json=STORY)
    with following(site.http, kind="job.*") as reader:
        name, _, number = reader.first.partition(": ")
    assert name == "id"
    job = site.http.post("/api/jobs", json=STORY).json()
    with following(site.http, last=int(number), kind="job.*") as reader:
        assert reader.next()[2]["thing_id"] == job["job_id"]


def test_an_id_of_another_database_is_answered_with_a_reset(site: Site) -> None:
    with following(site.http, last=10**9) as reader:
        number, kind, data = reader.next()
    assert (kind, number) == ("reset", 0)
    assert "another database" in data["reason"]
    with following(site.http, last=2**63 - 1) as reader:
        assert reader.next()[:2] == (0, "reset")
    for wrong in ("yesterday", "9" * 5_000, str(2**63), "-1", "1_0", "\u00b2"):
        refused = site.http.get("/api/events", headers=[(b"Last-Event-ID", wrong.encode("latin-1"))])
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "Last-Event-ID")


def test_one_tenant_sees_nothing_of_another(site: Site) -> None:
    site.app.client.tenants.create("acme")
    ours, theirs = site.as_(site.token()), site.as_(site.token(tenant="acme"))
    with following(theirs) as reader:
        ours.post("/api/jobs", json=STORY)
        theirs.post("/api/jobs", json={**STORY, "priority": 3})
        seen = [reader.next() for _ in range(1)]
    with site.app.database.read() as tx:
        mine = {row[0] for row in tx.run("events_of", thing="job", thing_id=seen[0][2]["thing_id"], after=0, limit=9)}
    assert seen[0][0] in mine
    job = theirs.get(f"/api/jobs/{seen[0][2]['thing_id']}").json()
    assert job["priority"] == 3


def test_a_server_with_open_streams_stops_within_its_grace(site: Site) -> None:
    ended = threading.Event()

    def follow() -> None:
        with following(site.http) as reader:
            begun.set()
            try:
                while True:
                    reader.next()
            except (EOFError, httpx.HTTPError):
                ended.set()

    begun = threading.Event()
    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    assert begun.wait(30)
    before = time.monotonic()
    site.server.stop()
    site.server.join(60)
    assert not site.server.thread.is_alive()
    assert ended.wait(30)
    assert time.monotonic() - before < 30
    with socket.socket() as one:
        assert one.connect_ex(("127.0.0.1", site.server.port)) != 0


def test_a_job_is_followed_to_its_end(site: Site) -> None:
    job = site.http.post("/api/jobs", json=STORY).json()
    with site.http.stream("GET", f"/api/jobs/{job['job_id']}/live") as answer:
        reader = Reader(answer)
        assert reader.next()[2]["status"] == "QUEUED"
        site.drain()
        seen = [reader.next()]
        while seen[-1][1] != "end":
            seen.append(reader.next())
    assert seen[-1][2] == {"status": "COMPLETED"}
    assert [one[2]["status"] for one in seen if one[1] == "job"][-1] == "COMPLETED"
    assert site.http.get("/api/jobs/987654321/live").status_code == 404


def test_a_heartbeat_says_how_far_the_stream_has_come(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asked for little comes back without going through all that was not for it."""
    monkeypatch.setattr(live, "HEARTBEAT", 0.05)
    with following(site.http, kind="schedule.*") as reader:
        for _ in range(3):
            site.http.post("/api/jobs", json=STORY)
        with site.app.database.read() as tx:
            newest = newest_event(tx)
        heard = [": still here", f"id: {newest}", ""]
        seen: list[str] = []
        while seen[-3:] != heard:  # until then it says where it was before
            assert len(seen) < 10_000
            seen.append(next(reader.lines))
    with following(site.http, last=newest, kind="job.*") as reader:
        job = site.http.post("/api/jobs", json=STORY).json()
        assert reader.next()[2]["thing_id"] == job["job_id"]
