"""Connections that keep the server from its clients: too many, too slow, never read."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from headway import App
from headway.api.http import connections, descriptors
from headway.api.http.connections import Activity
from tests.support.service import Site, running, shop
from tests.support.sockets import HALF_BODY, HALF_HEAD, ask, connect, connected, still_open
from tests.support.waiting import until

MANY = b"GET /api/openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 200
OK, FULL, LATE = b"HTTP/1.1 200", b"HTTP/1.1 503", b"HTTP/1.1 408"


@pytest.fixture
def app(sqlite_url: str) -> Iterator[App]:
    with shop(sqlite_url) as made:
        yield made


@pytest.fixture
def site(app: App, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A server with few places and short deadlines."""
    monkeypatch.setattr(descriptors, "most_connections", lambda: 20)
    short = {Activity.HEAD: 1.0, Activity.BODY: 1.0, Activity.STALLED: 1.0, Activity.CLOSING: 1.0}
    monkeypatch.setattr(connections, "DEADLINES", short)
    with running(app) as made:
        yield made


def test_half_sent_requests_make_room_for_whole_ones(site: Site) -> None:
    with connected(site.url, 60, HALF_HEAD) as heads, connected(site.url, 60, HALF_BODY) as bodies:
        for path in ("/healthz", "/api/jobs"):
            assert ask(site.url, path).startswith(OK)
        assert still_open([*heads, *bodies]) <= 20
        until(lambda: not still_open([*heads, *bodies]), "that late requests are closed")
    assert not site.server.connections.waiting.of


@pytest.mark.parametrize("sent", [HALF_HEAD, HALF_BODY], ids=["head", "body"])
def test_a_late_request_is_answered_408(site: Site, sent: bytes) -> None:
    with connect(site.url, sent) as late:
        assert late.recv(4096).startswith(LATE)
        assert late.recv(4096) == b""


def test_bytes_one_by_one_do_not_move_the_deadline(site: Site) -> None:
    with connect(site.url, HALF_HEAD) as slow, pytest.raises(OSError, match=r"reset|pipe"):
        until(lambda: slow.send(b"x") == 0)


def test_a_client_that_says_nothing_is_closed(site: Site) -> None:
    with connect(site.url) as silent:
        assert silent.recv(4096).startswith(LATE)


def test_one_peer_has_a_share(site: Site) -> None:
    with connected(site.url, 40, HALF_HEAD, peer="127.0.0.7") as greedy, connect(site.url, HALF_HEAD) as other:
        until(lambda: still_open(greedy) <= 10, "that the peer has its share")
        assert still_open([other]) == 1


def test_requests_that_are_being_answered_keep_their_places(app: App, site: Site) -> None:
    """A full server answers probes, and tells other clients that it is full."""
    began, release = threading.Semaphore(0), threading.Event()
    health = site.server.service.health

    def slow() -> object:
        began.release()
        release.wait(30)
        return health()

    site.server.service.health = slow  # type: ignore[assignment]
    busy = b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with ExitStack() as stack:
        stack.callback(release.set)
        served = [stack.enter_context(connect(site.url, busy, peer=f"127.0.0.{n % 2 + 1}")) for n in range(20)]
        for _ in served:
            assert began.acquire(timeout=30)
        assert ask(site.url, "/healthz").startswith(OK)
        refused = ask(site.url, "/api/jobs")
        assert refused.startswith(FULL)
        assert b"retry-after: 5" in refused
        for half in (HALF_HEAD, HALF_BODY, b""):
            stack.enter_context(connected(site.url, 100, half))
            assert ask(site.url, "/healthz").startswith(OK), "spare places give way too"
        release.set()
        assert all(one.recv(4096).startswith(OK) for one in served)


def test_an_answer_that_is_not_read_is_given_up(site: Site) -> None:
    with connect(site.url, buffer=4096) as deaf:
        deaf.setblocking(False)
        deaf.send(MANY)
        until(lambda: site.server.connections.open, "that it is connected")
        until(lambda: not site.server.connections.open, "that it is closed")


def test_readers_that_stall_give_way(site: Site) -> None:
    with ExitStack() as stack:
        deaf: list[socket.socket] = []
        for peer in ("127.0.0.7", "127.0.0.8"):
            deaf += stack.enter_context(connected(site.url, 10, MANY, peer=peer, buffer=4096))
            until(lambda: len(site.server.connections.stalled.of.get(peer, ())) == 10, "that they stall")  # noqa: B023
        stack.enter_context(connected(site.url, 30, HALF_HEAD, peer="127.0.0.9"))
        for path in ("/healthz", "/api/jobs"):
            assert ask(site.url, path).startswith(OK)
        assert still_open(deaf) < 20


def test_a_reader_that_takes_little_now_and_then_is_closed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """48 KB every 30 s once kept a place for ever, because each of them counted as progress."""
    monkeypatch.setattr(connections, "LEAST", 64 * 1024 * 1024)

    def is_closed() -> bool:
        try:
            return slow.recv(16 * 1024) == b""
        except ConnectionError:
            return True

    with connect(site.url, MANY, buffer=4096) as slow:
        until(is_closed, "that it is closed")


def test_connections_leave_descriptors_for_the_worker() -> None:
    assert descriptors.most_connections() <= descriptors.MOST
    assert descriptors.MOST * descriptors.DESCRIPTORS_PER_CONNECTION <= descriptors.DESCRIPTORS
