"""Headway behind a reverse proxy: the files of the page are started for real, and attacked."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from headway.app import App
from headway.testing import isolated
from tests.api.test_event_streams import Reader
from tests.docs.pages import ROOT, blocks
from tests.support import proxies, shop
from tests.support.cli import line_of, running
from tests.support.proxies import NAME, Proxy
from tests.support.scratch import scratch_directory
from tests.support.sockets import still_open
from tests.support.waiting import until

FORGED = {
    "X-Forwarded-For": "127.0.0.1",
    "X-Forwarded-Proto": "http",
    "X-Forwarded-Host": "127.0.0.1",
    "X-Real-IP": "127.0.0.1",
    "Forwarded": "for=127.0.0.1;host=127.0.0.1",
}
GREET = {"task": "shop.greet", "params": {"name": "Ada"}}
HALF_HEAD = f"GET /api/jobs HTTP/1.1\r\nHost: {NAME}\r\nX-Slow: ".encode()
HALF_BODY = (
    f"POST /api/jobs HTTP/1.1\r\nHost: {NAME}\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{{"
).encode()
Started = Callable[[Path, str, int], AbstractContextManager[Proxy]]
KINDS: dict[str, tuple[str, Started]] = {"nginx": ("nginx", proxies.nginx), "caddy": ("caddy", proxies.caddy)}


@pytest.fixture
def folder(scratch: Path) -> Iterator[Path]:
    with scratch_directory(root=scratch) as path:
        yield path


@pytest.fixture
def app(sqlite_url: str) -> Iterator[App]:
    with isolated(shop.app, sqlite_url) as app:
        yield app


@contextmanager
def served(url: str, folder: Path, **settings: str) -> Iterator[int]:
    """A Headway of its own; gives its port."""
    args = ("up", "--roles", "api", "--json", "--app", "tests.support.shop:app")
    with running(*args, cwd=folder, database=url, **settings) as process:
        port = urlsplit(json.loads(line_of(process.stdout, "started"))["url"]).port
        assert port
        yield port


def file_of(language: str) -> str:
    (found,) = (block.text for block in blocks(ROOT / "docs" / "proxy.md") if block.language == language)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_proxy_with_the_file_of_the_page_is_attacked(app: App, sqlite_url: str, folder: Path, kind: str) -> None:
    token = app.client.tokens.create("ada", "admin", tenant=None)[1]
    language, start = KINDS[kind]
    with (
        served(sqlite_url, folder, HEADWAY_HOSTS=NAME) as port,
        start(folder, file_of(language), port) as proxy,
        proxy.client() as stranger,
        proxy.client(Authorization=f"Bearer {token}") as ada,
    ):
        _needs_a_token(stranger, ada)
        _knows_its_own_pages(proxy, ada)
        _answers_for_its_name_only(proxy, token)
        _streams_at_once(ada)
        _leads_to_the_encrypted_side(proxy)
        _bears_half_sent_requests(proxy, ada)


def _needs_a_token(stranger: httpx.Client, ada: httpx.Client) -> None:
    """Also with headers that claim that the request came from this machine."""
    for headers in ({}, FORGED, *({name: value} for name, value in FORGED.items())):
        assert stranger.get("/api/jobs", headers=headers).status_code == 401
        assert stranger.post("/api/jobs", json=GREET, headers=headers).status_code == 401
        assert stranger.get("/ui/", headers=headers).headers["location"].startswith("/ui/login")
        assert ada.get("/api/jobs", headers=headers).status_code == 200
    assert stranger.get("/healthz").status_code == 200


def _knows_its_own_pages(proxy: Proxy, ada: httpx.Client) -> None:
    """A browser's write comes from a page of the name, over TLS, whatever headers say."""
    for headers in ({}, FORGED):
        own = ada.post("/api/jobs", json=GREET, headers={**headers, "Origin": f"https://{proxy.host}"})
        assert own.status_code == 201, own.text
        for origin in (f"http://{proxy.host}", "https://evil.example", "http://127.0.0.1", "null"):
            refused = ada.post("/api/jobs", json=GREET, headers={**headers, "Origin": origin})
            assert (refused.status_code, refused.json()["code"]) == (403, "bad_origin")


def _answers_for_its_name_only(proxy: Proxy, token: str) -> None:
    for host in ("127.0.0.1", "localhost", "evil.example", f"{NAME}.evil.example"):
        head = f"GET /api/jobs HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n"
        with proxy.connect(head.encode()) as secure:
            assert b'"items"' not in _answer_on(secure), host
        with socket.create_connection(("127.0.0.1", proxy.plain), timeout=30) as plain:
            plain.sendall(head.encode())
            assert b'"items"' not in _answer_on(plain), host


def _answer_on(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def _streams_at_once(ada: httpx.Client) -> None:
    """An event arrives while the stream goes on: nothing on the way waits for more of it."""
    with ada.stream("GET", "/api/events?kind=job.*") as answer:
        assert answer.status_code == 200
        reader = Reader(answer)
        for _ in range(3):
            job = ada.post("/api/jobs", json=GREET).json()["job_id"]
            assert reader.next()[2]["thing_id"] == job


def _leads_to_the_encrypted_side(proxy: Proxy) -> None:
    url = f"http://127.0.0.1:{proxy.plain}/ui/"
    answer = httpx.get(url, headers={"Host": NAME}, trust_env=False, timeout=30)
    assert answer.status_code == 308
    assert answer.headers["location"].startswith(f"https://{NAME}")


def _bears_half_sent_requests(proxy: Proxy, ada: httpx.Client) -> None:
    with ExitStack() as stack:
        late = [stack.enter_context(proxy.connect(sent)) for sent in (HALF_HEAD, HALF_BODY) * 20]
        assert ada.get("/api/jobs").status_code == 200
        sockets: list[socket.socket] = [*late[::2]]
        until(lambda: not still_open(sockets), "that half-sent heads are closed")
        assert ada.get("/api/jobs").status_code == 200


def test_a_forgotten_proxy_gets_nothing_of_an_open_server(sqlite_url: str, folder: Path) -> None:
    """nginx as it comes: it names 127.0.0.1 as the host, and sets no header that says where a request came from."""
    with served(sqlite_url, folder) as port:
        here = httpx.get(f"http://127.0.0.1:{port}/api/jobs", trust_env=False)
        assert here.status_code == 200
        outside = proxies.free_port()
        server = f"server {{ listen 127.0.0.1:{outside}; location / {{ proxy_pass http://127.0.0.1:{port}; }} }}\n"
        with (
            proxies.bare_nginx(folder, server, [outside]),
            httpx.Client(base_url=f"http://127.0.0.1:{outside}", trust_env=False, timeout=30) as stranger,
        ):
            for headers in ({}, FORGED):
                assert stranger.get("/api/jobs", headers=headers).status_code == 401
                assert stranger.post("/api/jobs", json=GREET, headers=headers).status_code == 401
                assert stranger.get("/ui/", headers=headers).headers["location"].startswith("/ui/login")
            assert stranger.get("/healthz").status_code == 200
