"""A real browser that reaches Headway through nginx with TLS, with the file of the page "Behind a proxy".

The names of the host, of a subdomain and of a stranger lead to this machine. The pages of an attacker are on the plain
side of the same host, on a subdomain with TLS of its own, and on another site.
"""

from __future__ import annotations

import html
import json
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.docs.pages import ROOT, blocks
from tests.support import browser as browsers
from tests.support import proxies
from tests.support.other_port import named
from tests.support.proxies import NAME, Proxy
from tests.support.scratch import scratch_directory
from tests.support.service import Site, running, shop
from tests.support.sockets import still_open
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.shown

SUBDOMAIN, STRANGER = f"other.{NAME}", "evil.example.net"

_PAGE = """<!doctype html><title>harmless</title>
<form method="post" action="{victim}/ui/queue/pause"><input name="csrf" value="{token}"><button>Send</button></form>
<iframe src="{victim}/ui/queue"></iframe>
<script>
for (const domain of ["", "; domain={name}"])
  for (const secure of ["", "; secure"])
    document.cookie = "{session}=fixed; path=/" + secure + domain;
</script>
"""


@pytest.fixture
def folder(scratch: Path) -> Iterator[Path]:
    with scratch_directory(root=scratch) as path:
        yield path


@pytest.fixture(scope="module")
def resolved() -> Iterator[Browser]:
    """A browser for which the three names are this machine."""
    rules = ", ".join(f"MAP {name} 127.0.0.1" for name in (NAME, SUBDOMAIN, STRANGER))
    flags = [*browsers.FLAGS, f"--host-resolver-rules={rules}"]
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=browsers.chromium(), args=flags, headless=True)
        try:
            yield started
        finally:
            started.close()


class Behind:
    """A Headway behind nginx, with its address for a browser, a token of an admin, and its own address."""

    def __init__(self, site: Site, proxy: Proxy, token: str) -> None:
        self.site = site
        self.proxy = proxy
        self.token = token
        self.url = f"https://{proxy.host}"
        self.session = named("session", self.url, tls=True)

    def paused(self) -> bool:
        with self.proxy.client(Authorization=f"Bearer {self.token}") as client:
            return bool(client.get("/api/queue", headers={"Headway-Tenant": "default"}).json()["pause"]["paused"])


@pytest.fixture
def behind(sqlite_url: str, folder: Path) -> Iterator[Behind]:
    (text,) = (block.text for block in blocks(ROOT / "docs" / "proxy.md") if block.language == "nginx")
    with shop(sqlite_url, hosts=NAME) as app:
        token = app.client.tokens.create("ada", "admin", tenant=None)[1]
        with (
            running(app) as site,
            proxies.nginx(folder, text, int(site.url.rpartition(":")[2])) as proxy,
        ):
            yield Behind(site, proxy, token)


@contextmanager
def person(started: Browser) -> Iterator[BrowserContext]:
    context = started.new_context(ignore_https_errors=True)
    context.set_default_timeout(browsers.SECONDS * 1000)
    try:
        yield context
    finally:
        context.close()


def logged_in(context: BrowserContext, behind: Behind) -> Page:
    page = context.new_page()
    page.goto(f"{behind.url}/ui/")
    assert "/ui/login" in page.url
    page.get_by_label("Token").fill(behind.token)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{behind.url}/ui/**")
    page.goto(f"{behind.url}/ui/queue")
    browsers.ready(page)
    return page


def cookies(context: BrowserContext, url: str) -> dict[str, Any]:
    """The cookies that the browser sends to an address; other hosts have theirs."""
    return {cookie["name"]: cookie for cookie in context.cookies(url)}


@contextmanager
def attacker(behind: Behind, *, tls: bool) -> Iterator[int]:
    """A server of pages that set cookies for the host, send a form to it, and show it in a frame; gives its port."""
    body = _PAGE.format(victim=html.escape(behind.url), token="guessed.default", session=behind.session, name=NAME)
    plain = behind.session.removeprefix("__Host-")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            for name in (behind.session, plain):
                for more in ("", f"; Domain={NAME}", "; Secure", f"; Secure; Domain={NAME}"):
                    self.send_header("Set-Cookie", f"{name}=fixed; Path=/{more}")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """A browser opens connections ahead, and drops them in the handshake."""
            if not isinstance(sys.exception(), OSError):
                super().handle_error(request, client_address)  # type: ignore[arg-type]

    server = Server(("127.0.0.1", 0), Handler)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(behind.proxy.certificate.path, behind.proxy.certificate.key)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join(PATIENCE)
        server.server_close()


def test_a_person_logs_in_and_writes_through_tls(resolved: Browser, behind: Behind) -> None:
    with person(resolved) as context:
        page = logged_in(context, behind)
        session = cookies(context, behind.url)[behind.session]
        assert session["name"].startswith("__Host-")
        assert (session["secure"], session["httpOnly"], session["path"]) == (True, True, "/")
        assert session["domain"] == NAME, "not for subdomains"
        assert all(name.startswith("__Host-") or name == "headway_zone" for name in cookies(context, behind.url))
        page.locator("summary", has_text="Pause").click()
        page.get_by_role("button", name="Pause the queue").click()
        expect(page.locator("#strip")).to_contain_text("The queue is paused.")
        assert behind.paused()


@pytest.mark.parametrize(("host", "tls"), [(NAME, False), (SUBDOMAIN, False), (SUBDOMAIN, True), (STRANGER, True)])
def test_a_page_beside_it_does_nothing(resolved: Browser, behind: Behind, host: str, tls: bool) -> None:
    """It fixes no session, its form is refused, and its frame stays empty."""
    with person(resolved) as context, attacker(behind, tls=tls) as port:
        page = logged_in(context, behind)
        before = cookies(context, behind.url)[behind.session]["value"]
        page.goto(f"{'https' if tls else 'http'}://{host}:{port}/")
        frames = [frame for frame in page.frames if frame.parent_frame is not None]
        assert len(frames) == 1
        assert frames[0].locator("#strip").count() == 0, "it is not shown in a frame"
        page.get_by_role("button", name="Send").click()
        page.wait_for_url(f"{behind.url}/**")
        assert not behind.paused()
        assert cookies(context, behind.url)[behind.session]["value"] == before
        page.goto(f"{behind.url}/ui/queue")
        browsers.ready(page)
        expect(page.locator("#strip")).not_to_contain_text("The queue is paused.")
        page.locator("summary", has_text="Pause").click()
        page.get_by_role("button", name="Pause the queue").click()  # its person goes on undisturbed
        expect(page.locator("#strip")).to_contain_text("The queue is paused.")


def test_the_plain_side_of_the_host_gets_no_session(resolved: Browser, behind: Behind) -> None:
    """A page without TLS leads to the encrypted side, and no cookie of the session is sent to it."""
    sent: list[str] = []
    with person(resolved) as context, attacker(behind, tls=False) as port:
        page = logged_in(context, behind)
        page.on("request", lambda request: sent.append(request.headers.get("cookie", "")))
        page.goto(f"http://{NAME}:{port}/")
        assert all(cookies(context, behind.url)[behind.session]["value"] not in cookie for cookie in sent)
    answer = httpx.get(f"http://127.0.0.1:{behind.proxy.plain}/ui/", headers={"Host": NAME}, trust_env=False)
    assert (answer.status_code, answer.headers["location"]) == (308, f"https://{NAME}/ui/")


def test_streams_through_nginx_end_with_their_token(behind: Behind) -> None:
    """Also the streams of clients that read nothing, for which the proxy reads."""
    tokens = behind.site.app.client.tokens
    made, secret = tokens.create("bob", "viewer", tenant="default")
    request = f"GET /api/events HTTP/1.1\r\nHost: {behind.proxy.host}\r\nAuthorization: Bearer {secret}\r\n"
    request += "Connection: close\r\n\r\n"
    with ExitStack() as stack:
        stalled = [stack.enter_context(behind.proxy.connect(request.encode())) for _ in range(3)]
        reading = stack.enter_context(behind.proxy.connect(request.encode()))
        assert b"200" in reading.recv(64)
        tokens.revoke(made.id)
        reading.settimeout(PATIENCE)
        while reading.recv(65536):
            pass  # what was under way; then the end
        until(lambda: not still_open(list(stalled)), "that the stalled streams are closed too")
        with behind.proxy.client(Authorization=f"Bearer {secret}") as bob:
            assert bob.get("/api/events").status_code == 401
        with behind.proxy.client(Authorization=f"Bearer {behind.token}") as ada:
            assert json.loads(ada.get("/api/jobs").text)["items"] == []
