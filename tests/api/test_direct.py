"""Direct calls and reservations over real sockets: next slot, results, failures, and callers that go away."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from typing import Any

import pytest

from headway import App, Context, Skip
from headway.api.endpoints import direct
from headway.api.http.shares import Shares
from headway.api.schemas.common import PageSchema, ProblemSchema
from headway.api.schemas.queue import ReservationSchema
from headway.errors import BadInput
from headway.model.jobs.job import Reservation
from headway.runtime import supervisor
from headway.store.queue import reservations
from tests.support.service import Site, running, shop
from tests.support.waiting import until
from tests.support.wire import fits, neighbour

PATIENCE = 55.0


class Doors:
    """Work that waits until it is let go, and says that it has begun and how it ended."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.ended: list[str] = []
        self.open = threading.Event()


def make_app(url: str, doors: Doors) -> App:
    app = shop(url)

    def stands(ctx: Context, word: str = "") -> str:
        doors.began.append(word)
        try:
            while not doors.open.wait(0.005):
                ctx.check()
        finally:
            doors.ended.append(word)
        return word

    app.task("stands", isolation="thread", retry=0, direct="/stands")(stands)

    @app.task("skips")
    async def skips() -> None:
        raise Skip("nothing to do")

    return app


@pytest.fixture
def doors() -> Iterator[Doors]:
    made = Doors()
    yield made
    made.open.set()


@pytest.fixture
def site(database_url: str, doors: Doors) -> Iterator[Site]:
    with make_app(database_url, doors) as app, running(app) as found:
        yield found
        doors.open.set()


def rows(site: Site) -> list[Reservation]:
    with site.app.database.read() as tx:
        return reservations.listed(tx, site.app.client.tenant_id).items[::-1]


def kept_calls(site: Site) -> dict[Any, Any]:
    return dict(site.server.service.kept_calls)


def waiting(site: Site) -> int:
    return len([one for one in rows(site) if one.finished_at is None and one.granted_at is None])


@contextmanager
def caller(site: Site, path: str, body: dict[str, Any], **headers: str) -> Iterator[socket.socket]:
    """A request on a socket of its own, whose answer nobody has read yet."""
    text = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(text)}"
    head += "".join(f"\r\n{name.replace('_', '-')}: {value}" for name, value in headers.items())
    with socket.create_connection(("127.0.0.1", site.server.port), PATIENCE) as made:
        made.sendall(f"{head}\r\n\r\n".encode() + text)
        yield made


def test_a_call_answers_the_result_and_is_no_job(site: Site) -> None:
    told = site.http.post("/api/direct/story.generate", json={"params": {"topic": "fog"}})
    assert (told.status_code, told.json()) == (200, {"result": {"title": "Fog", "words": 800}})
    own = site.http.post("/story/generate", json={"topic": "fog", "words": 5})
    assert (own.status_code, own.json()) == (200, {"title": "Fog", "words": 5})
    assert site.http.get("/api/jobs").json()["items"] == []
    newest, _ = fits(PageSchema[ReservationSchema], site.http.get("/api/reservations"))["items"]
    assert (newest["status"], newest["outcome"], newest["task"]) == ("RELEASED", "COMPLETED", "story.generate")
    assert (newest["params"], newest["lanes"]) == ({"topic": "fog", "words": 5}, ["global"])
    assert newest["granted_at"] is not None


def test_a_mistake_in_a_call_is_said(site: Site) -> None:
    failed = site.http.post("/api/direct/fails", json={"params": {"why": "no GPU"}})
    told = fits(ProblemSchema, failed, 424)
    assert (failed.status_code, told["code"], told["state"]) == (424, "call_failed", "FAILED")
    assert told["failure_kind"] == "EXCEPTION"
    assert "no GPU" in told["detail"]
    assert failed.headers["content-type"] == "application/problem+json"
    skipped = site.http.post("/api/direct/skips")
    assert (skipped.status_code, skipped.json()["state"]) == (424, "SKIPPED")
    for path, body, status, where in (
        ("/api/direct/story.generat", {}, 404, None),
        ("/api/direct/story.generate", {"params": {}}, 422, "params.topic"),
        ("/api/direct/story.generate", {"params": {"topic": "x"}, "priority": 3}, 422, "priority"),
        ("/api/direct/story.generate", {"params": {"topic": "x"}, "wait": "soon"}, 422, "wait"),
        ("/api/direct/story.generate", {"params": {"topic": "x"}, "resources": ["gpu"]}, 422, "resources"),
        ("/story/generate", {"subject": "x"}, 422, None),
        ("/story/generate", ["x"], 422, None),
    ):
        answer = site.http.post(path, json=body)
        assert answer.status_code == status, (path, body, answer.text)
        if where is not None:
            assert answer.json()["errors"][0]["field"] == where
    assert site.http.get("/story/generate").status_code == 405


def test_an_admins_task_is_called_by_admins_alone_and_in_their_name(site: Site) -> None:
    call = {"params": {"argv": ["true"]}}
    operator = site.as_(site.token("operator", name="olga"))
    refused = operator.post("/api/direct/command", json=call)
    assert (refused.status_code, refused.json()["code"]) == (403, "admin_only")
    assert operator.post("/story/generate", json={"topic": "fog"}).status_code == 200
    assert site.as_(site.token("viewer")).post("/story/generate", json={"topic": "fog"}).status_code == 403
    assert site.as_(site.token("admin")).post("/api/direct/command", json=call).status_code == 200
    made = operator.get("/api/reservations").json()["items"][-1]
    assert (made["created_by"]["type"], made["created_by"]["name"]) == ("token", "olga")


def test_running_work_ends_then_the_call_runs_then_the_queue(site: Site, doors: Doors) -> None:
    first = site.http.post("/api/jobs", json={"task": "stands", "params": {"word": "running"}}).json()
    made = supervisor(site.app, ["worker"])
    made.start()
    try:
        until(lambda: doors.began == ["running"])
        site.http.post("/api/jobs", json={"task": "stands", "params": {"word": "queue"}, "priority": 100})
        with ThreadPoolExecutor(1) as pool:
            call = pool.submit(site.http.post, "/stands", json={"word": "direct"}, timeout=PATIENCE)
            until(lambda: waiting(site) == 1)
            blockers = site.http.get("/api/queue").json()["items"][0]["blockers"]
            assert "reservation" in [one["kind"] for one in blockers]
            doors.open.set()
            assert call.result(PATIENCE).json() == "direct"
        until(lambda: len(doors.ended) == 3)
    finally:
        made.stop()
    assert doors.began == ["running", "direct", "queue"]
    assert site.http.get(f"/api/jobs/{first['job_id']}").json()["status"] == "COMPLETED"


def test_a_caller_that_waits_too_long_is_told_to_come_again(site: Site, doors: Doors) -> None:
    with caller(site, "/stands", {"word": "first"}):
        until(lambda: doors.began == ["first"])
        late = site.http.post("/api/direct/stands", json={"params": {"word": "late"}, "wait": 0.1})
        assert (late.status_code, late.json()["code"], late.headers["retry-after"]) == (503, "busy", "1")
        assert waiting(site) == 0
    until(lambda: doors.ended == ["first"])
    assert doors.began == ["first"]


def test_a_caller_that_goes_away_while_it_waits_gives_its_place_back(site: Site, doors: Doors) -> None:
    with caller(site, "/stands", {"word": "first"}) as first:
        until(lambda: doors.began == ["first"])
        with caller(site, "/stands", {"word": "second"}):
            until(lambda: waiting(site) == 1)
        until(lambda: waiting(site) == 0)
        second = rows(site)[1]
        assert (second.status, second.outcome, second.error) == ("RELEASED", "ABANDONED", "the caller went away")
        assert second.granted_at is None
        doors.open.set()
        assert first.recv(12) == b"HTTP/1.1 200"
    assert doors.began == ["first"]


def test_a_tasks_own_path_takes_a_wait_limit_in_a_header(site: Site) -> None:
    busy, body = site.app.client.reserve(), {"topic": "fog"}
    for headers in ({"Headway-Wait": "50ms"}, {"Prefer": "respond-async, wait=0"}):
        late = site.http.post("/story/generate", json=body, headers=headers)
        assert (late.status_code, late.json()["code"], late.headers["retry-after"]) == (503, "busy", "1")
    options = {"params": body, "wait": 0}
    late = site.http.post("/api/direct/story.generate", json=options, headers={"Headway-Wait": "1h"})
    assert late.status_code == 503, "the body comes before the headers"
    wrong = site.http.post("/story/generate", json=body, headers={"Headway-Wait": "soon"})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "Headway-Wait")
    assert waiting(site) == 0
    with caller(site, "/story/generate", body, Headway_Wait="none") as patient:
        until(lambda: waiting(site) == 1)
        site.app.client.release_reservation(busy.id)
        assert patient.recv(12) == b"HTTP/1.1 200"
    told = site.http.post("/story/generate", json=body, headers={"Prefer": 'wait="60"; foo'})
    assert (told.status_code, told.headers["preference-applied"]) == (200, "wait=60")
    told = site.http.post("/story/generate", json=body, headers={"Prefer": "wait=soon"})
    assert (told.status_code, "preference-applied" in told.headers) == (200, False)


def test_a_caller_that_gave_up_gets_its_place_back_with_its_key(site: Site, doors: Doors) -> None:
    key, body = {"Idempotency-Key": "k"}, {"word": "mine"}
    busy = site.app.client.reserve()
    with caller(site, "/stands", body, Idempotency_Key="k"):
        until(lambda: waiting(site) == 1)
    with ThreadPoolExecutor() as pool:
        other = pool.submit(site.http.post, "/stands", json={"word": "other"})
        until(lambda: waiting(site) == 2)
        late = site.http.post("/stands", json=body, headers={**key, "Headway-Wait": "50ms"})
        assert (late.status_code, late.json()["code"]) == (503, "busy")
        assert "same Idempotency-Key" in late.json()["detail"]
        reused = site.http.post("/stands", json={"word": "yours"}, headers=key)
        assert (reused.status_code, reused.json()["code"]) == (422, "key_reused")
        again = pool.submit(site.http.post, "/stands", json=body, headers=key)
        doors.open.set()
        site.app.client.release_reservation(busy.id)
        assert (again.result(PATIENCE).json(), other.result(PATIENCE).json()) == ("mine", "other")
    assert doors.began == ["mine", "other"]
    told = site.http.post("/stands", json=body, headers=key)
    assert (told.status_code, told.json(), doors.began) == (200, "mine", ["mine", "other"]), "its result was kept"
    assert [one.outcome for one in rows(site)] == [None, "COMPLETED", "COMPLETED"]


def test_a_call_goes_on_for_a_while_without_its_caller(
    site: Site, doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy, body = site.app.client.reserve(), {"word": "mine"}
    with caller(site, "/stands", body, Idempotency_Key="k"):
        until(lambda: waiting(site) == 1)
    doors.open.set()
    site.app.client.release_reservation(busy.id)
    until(lambda: [one.outcome for one in rows(site)] == [None, "COMPLETED"])
    told = site.http.post("/stands", json=body, headers={"Idempotency-Key": "k"})
    assert (told.status_code, told.json(), doors.began) == (200, "mine", ["mine"])
    monkeypatch.setattr(direct, "KEPT_SECONDS", 0.05)
    busy = site.app.client.reserve()
    with caller(site, "/stands", body, Idempotency_Key="other"):
        until(lambda: waiting(site) == 1)
    until(lambda: waiting(site) == 0)
    assert (rows(site)[-1].outcome, rows(site)[-1].error) == ("ABANDONED", "the caller went away")
    site.app.client.release_reservation(busy.id)
    until(lambda: not any(call.attached == 0 and key[3] == "other" for key, call in kept_calls(site).items()))


def test_a_caller_with_a_key_that_goes_away_stops_its_work(site: Site, doors: Doors) -> None:
    with caller(site, "/stands", {"word": "first"}, Idempotency_Key="k"):
        until(lambda: doors.began == ["first"])
    until(lambda: doors.ended == ["first"])
    until(lambda: rows(site)[0].outcome == "ABANDONED")


def test_a_caller_that_goes_away_stops_its_work(site: Site, doors: Doors) -> None:
    with caller(site, "/stands", {"word": "first"}):
        until(lambda: doors.began == ["first"])
    until(lambda: rows(site)[0].finished_at is not None)
    (one,) = rows(site)
    assert doors.ended == ["first"]
    assert (one.outcome, one.error) == ("ABANDONED", "the caller went away")
    doors.open.set()
    assert site.http.post("/stands", json={"word": "next"}).json() == "next"
    with caller(site, "/api/direct/command", {"params": {"argv": ["sleep", "600"]}}):
        until(lambda: len(rows(site)) == 3 and rows(site)[2].granted_at is not None)
    until(lambda: rows(site)[2].finished_at is not None)
    assert rows(site)[2].outcome == "ABANDONED"


MOMENTS = ("in the head", "in the body", "at once", "while it waits", "while it runs", "with the answer")


@pytest.mark.parametrize("rudely", [False, True], ids=["closed", "reset"])
def test_whenever_callers_go_away_nothing_is_left_of_them(site: Site, doors: Doors, rudely: bool) -> None:
    for moment in MOMENTS:
        go_away(site, doors, moment, rudely=rudely)
    service = site.server.service
    until(lambda: all(one.finished_at is not None for one in rows(site)), "that all places are given back")
    until(lambda: not service.under_way, "that all calls have ended")
    until(lambda: service.direct_calls.taken == 0, "that all calls have left")
    assert {one.outcome for one in rows(site)} <= {"ABANDONED", "COMPLETED"}
    assert sorted(doors.began) == sorted(doors.ended)
    doors.open.set()
    assert site.http.post("/stands", json={"word": "next"}).json() == "next"


def go_away(site: Site, doors: Doors, moment: str, *, rudely: bool) -> None:
    text = json.dumps({"word": moment}).encode()
    head = "POST /stands HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text
    sent = {"in the head": request[:40], "in the body": request[:-5]}.get(moment, request)
    with ExitStack() as stack:
        if moment == "while it waits":
            stack.enter_context(caller(site, "/stands", {"word": "before"}))
            until(lambda: "before" in doors.began)
        gone = stack.enter_context(socket.create_connection(("127.0.0.1", site.server.port), PATIENCE))
        if rudely:
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.sendall(sent)
        match moment:
            case "while it waits":
                until(lambda: waiting(site) == 1)
            case "while it runs":
                until(lambda: moment in doors.began)
            case "with the answer":
                until(lambda: moment in doors.began)
                doors.open.set()
                gone.recv(1)
    doors.open.clear()


def test_a_server_that_ends_sends_its_callers_away(site: Site, doors: Doors) -> None:
    with caller(site, "/stands", {"word": "first"}) as first:
        until(lambda: doors.began == ["first"])
        with caller(site, "/stands", {"word": "second"}) as second:
            until(lambda: waiting(site) == 1)
            site.server.stop()
            for one in (first, second):
                told = _all(one)
                assert told.startswith(b"HTTP/1.1 503")
                assert b'"code": "given_up"' in told
    assert [one.outcome for one in rows(site)] == ["ABANDONED", "ABANDONED"]
    assert all("shutting down" in (one.error or "") for one in rows(site))
    assert doors.ended == ["first"]


def _all(one: socket.socket) -> bytes:
    told = b""
    with suppress(TimeoutError):
        while part := one.recv(65_536):
            told += part
    return told


def test_no_more_wait_than_there_are_places_for(site: Site, doors: Doors) -> None:
    site.server.service.direct_calls = Shares(1, "direct calls", "too_many_calls")
    with caller(site, "/stands", {"word": "first"}) as first:
        until(lambda: doors.began == ["first"])
        full = site.http.post("/stands", json={"word": "second"})
        assert (full.status_code, full.headers["retry-after"]) == (503, "5")
        doors.open.set()
        assert first.recv(12) == b"HTTP/1.1 200"
    until(lambda: site.http.post("/stands", json={"word": "third"}).status_code == 200)


def test_a_held_or_paused_target_stops_a_call_and_its_target_comes_into_being(site: Site) -> None:
    call = {"params": {"topic": "fog"}, "target": "desk/1", "wait": 0.1}
    assert site.http.post("/api/direct/story.generate", json=call).status_code == 200
    site.http.post("/api/targets/desk%2F1/pause")
    assert site.http.post("/api/direct/story.generate", json=call).status_code == 503
    newest = site.http.get("/api/reservations").json()["items"][0]
    assert (newest["target"], newest["outcome"], newest["lanes"]) == ("desk/1", "ABANDONED", [])


# --- reservations -------------------------------------------------------------------------------------------------


def test_a_program_outside_reserves_renews_and_gives_back(site: Site) -> None:
    key = {"Idempotency-Key": "mine"}
    made = site.http.post("/api/reservations", json={"resources": ["ollama"], "ttl": "2m"}, headers=key)
    again = site.http.post("/api/reservations", json={"resources": ["ollama"], "ttl": "2m"}, headers=key)
    assert (made.status_code, again.json(), again.headers["idempotent-replayed"]) == (201, made.json(), "true")
    one = fits(ReservationSchema, made, 201)
    assert (one["status"], one["lanes"], one["task"], one["outcome"]) == ("ACTIVE", ["ollama"], None, None)
    assert one["granted_at"] is not None
    behind = site.http.post("/api/reservations", json={"resources": ["ollama"]}).json()
    assert behind["granted_at"] is None
    path = made.headers["location"]
    renewed = site.http.post(f"{path}/renew").json()
    assert datetime.fromisoformat(renewed["expires_at"]) > datetime.fromisoformat(one["expires_at"])
    released = site.http.delete(path)
    assert (released.status_code, released.json()["status"]) == (200, "RELEASED")
    assert (site.http.delete(path).status_code, site.http.post(f"{path}/renew").status_code) == (409, 409)
    assert site.http.get(f"/api/reservations/{behind['reservation_id']}").json()["granted_at"] is not None
    active = site.http.get("/api/reservations", params={"status": "ACTIVE"}).json()
    assert [each["reservation_id"] for each in active["items"]] == [behind["reservation_id"]]
    page = site.http.get("/api/reservations", params={"limit": 1}).json()
    rest = site.http.get("/api/reservations", params={"limit": 1, "cursor": page["next"]}).json()
    assert [each["reservation_id"] for each in page["items"] + rest["items"]] == [
        behind["reservation_id"],
        one["reservation_id"],
    ]
    for bad, status in (
        ({"resources": ["gpu"]}, 422),
        ({"resources": ["ollama"], "ttl": "1h"}, 422),
        ({"target": "nobody"}, 404),
    ):
        assert site.http.post("/api/reservations", json=bad).status_code == status, bad
    assert site.http.post("/api/reservations/999/renew").status_code == 404
    bodies: list[dict[str, Any]] = [{}, {"resources": []}]
    for body in bodies:
        next_slot = fits(ReservationSchema, site.http.post("/api/reservations", json=body), 201)
        assert (next_slot["lanes"], next_slot["target"]) == (["global"], None)
        assert next_slot["granted_at"] is not None
        assert site.http.delete(f"/api/reservations/{next_slot['reservation_id']}").status_code == 200
    assert site.http.put("/api/limits", json={"policy": "per_task"}).status_code == 200
    refused = site.http.post("/api/reservations", json={})
    assert (refused.status_code, refused.json()["code"]) == (422, "no_shared_lane")


def test_places_of_a_direct_call_are_not_released_by_others(site: Site, doors: Doors) -> None:
    with caller(site, "/stands", {"word": "first"}):
        until(lambda: doors.began == ["first"])
        number = rows(site)[0].id
        assert site.http.delete(f"/api/reservations/{number}").status_code == 409
        assert site.http.post(f"/api/reservations/{number}/renew").status_code == 409


@pytest.mark.parametrize("path", ["story", "/", "/api/story", "/jobs/mine", "/a b", "/{x}", "/a//b", "/a?b", "/a\n"])
def test_a_path_that_cannot_be_a_tasks_own_is_refused_where_it_is_declared(path: str) -> None:
    with pytest.raises(BadInput, match="direct"):
        App().task("x", direct=path, isolation="thread")(lambda: None)


def test_two_tasks_have_two_paths() -> None:
    app = App()
    app.task("x", direct="/x", isolation="thread")(lambda: None)
    with pytest.raises(BadInput, match="same path"):
        app.task("y", direct="/x", isolation="thread")(lambda: None)


def test_a_call_is_made_for_the_callers_own_tenant(site: Site) -> None:
    eve = neighbour(site)
    assert eve.post("/story/generate", json={"topic": "fog"}).status_code == 200
    (theirs,) = eve.get("/api/reservations").json()["items"]
    ours = site.as_(site.token("admin"))
    assert ours.get("/api/reservations").json()["items"] == []
    assert ours.get(f"/api/reservations/{theirs['reservation_id']}").status_code == 404
    made = eve.post("/api/direct/story.generate", json={"params": {"topic": "fog"}, "target": "desk-1"})
    assert made.status_code == 200
    assert ours.get("/api/targets/desk-1").status_code == 404
    assert eve.get("/api/targets/desk-1").json()["state"] == "free"
