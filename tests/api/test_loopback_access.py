"""Openness on loopback: it ends where a proxy begins, and in other applications it is asked for."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.support.cli import line_of, running
from tests.support.service import Site, serving, shop
from tests.support.sockets import connect

HEADERS = {
    "Forwarded": "for=203.0.113.7",
    "X-Forwarded-For": "127.0.0.1",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "example.com",
    "X-Real-IP": "127.0.0.1",
    "Via": "1.1 proxy",
}


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_of_a_proxy_ends_openness(sqlite_url: str, header: str) -> None:
    with serving(sqlite_url) as site:
        proxied = {header: HEADERS[header]}
        assert site.http.get("/api/jobs").status_code == 200
        assert site.http.get("/api/jobs", headers=proxied).status_code == 401
        assert site.http.get("/ui/", headers=proxied).headers["location"].startswith("/ui/login")
        made = site.http.post("/api/jobs", json={"task": "story.generate", "params": {"topic": "x"}}, headers=proxied)
        assert made.status_code == 401
        assert site.http.get("/healthz", headers=proxied).status_code == 200
        _reasons_are_codes(site, proxied)
        known = site.as_(site.token())
        assert known.get("/api/jobs", headers=proxied).status_code == 200


def test_http_1_0_ends_openness(sqlite_url: str) -> None:
    """nginx forwards in HTTP/1.0 and sets no header, if it is not told otherwise."""
    with serving(sqlite_url) as site:
        for version, status in ((b"1.0", b"401"), (b"1.1", b"200")):
            head = b"GET /api/jobs HTTP/%s\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n" % version
            with connect(site.url, head) as client:
                assert client.recv(4096).startswith(b"HTTP/1.1 " + status)


def _reasons_are_codes(site: Site, headers: dict[str, str]) -> None:
    """Callers without a token learn the codes of the reasons only."""
    found = site.http.get("/readyz", headers=headers).json()
    assert all(" " not in reason for reason in [*found["reasons"], *found["warnings"]]), found


@pytest.mark.parametrize("asked", [True, False])
def test_in_another_application_openness_is_asked_for(sqlite_url: str, asked: bool) -> None:
    with shop(sqlite_url) as app:
        mounted = app.asgi(open_on_loopback=True) if asked else app.asgi()

        async def status() -> int:
            transport = httpx.ASGITransport(app=mounted, client=("127.0.0.1", 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
                return (await http.get("/api/jobs")).status_code

        assert asyncio.run(status()) == (200 if asked else 401)


def test_up_says_that_everything_is_open(sqlite_url: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("up")
    with running("up", "--roles", "api", cwd=folder, database=sqlite_url) as process:
        assert "may do everything" in line_of(process.stderr, "open:")
        assert "headway tokens create" in line_of(process.stderr, "close it with")
