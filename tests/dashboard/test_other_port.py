"""A real browser that visits a hostile server on another port of the same host."""

from __future__ import annotations

import html
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Browser, expect

from tests.support import browser as browsers
from tests.support.other_port import forged_flash, guessed_csrf, named
from tests.support.service import Site
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.shown

_PAGE = """<!doctype html><title>harmless</title>
<form method="post" action="{action}"><input name="csrf" value="{token}.default"><button>Send</button></form>
<script>
document.cookie = "{session}=open_script; path=/ui";
document.cookie = "{said}={flash}; path=/ui";
</script>
"""


class Hostile:
    """A server that is sent the browser's cookies, sets others, and serves a page with a forged form."""

    def __init__(self, victim: str) -> None:
        self.victim = victim
        self.read: list[str] = []
        self.session, self.said = named("session", victim), named("said", victim)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        cookies = dict(
            pair.strip().split("=", 1) for pair in handler.headers.get("Cookie", "").split(";") if "=" in pair
        )
        if self.session in cookies:
            self.read.append(cookies[self.session])
        fixed = self.read[0] if self.read and handler.path == "/read" else "open_evil"
        body = _PAGE.format(
            action=html.escape(f"{self.victim}/ui/queue/pause"),
            token=guessed_csrf(fixed),
            session=self.session,
            said=self.said,
            flash=forged_flash("open_script", "Forged by a script", "/queue/pause"),
        ).encode()
        handler.send_response(200)
        handler.send_header("Content-Type", "text/html")
        handler.send_header("Content-Length", str(len(body)))
        handler.send_header("Set-Cookie", f"{self.session}={fixed}; Path=/; HttpOnly")
        flash = forged_flash(fixed, "Forged by a server", "/queue/pause")
        handler.send_header("Set-Cookie", f"{self.said}={flash}; Path=/; HttpOnly")
        handler.end_headers()
        handler.wfile.write(body)


@contextmanager
def hostile(victim: str) -> Iterator[Hostile]:
    made = Hostile(victim)
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        thread.join(PATIENCE)
        made.server.server_close()


def test_a_page_on_another_port_forges_no_flash_form_and_sends_none(browser: Browser, desk: Site) -> None:
    context = browser.new_context()
    context.set_default_timeout(browsers.SECONDS * 1000)
    try:
        with hostile(desk.url) as other:
            page = context.new_page()
            page.goto(f"{desk.url}/ui/queue")
            for path in ("/", "/read"):
                page.goto(f"{other.url}{path}")
                shown = page.goto(f"{desk.url}/ui/queue")
                assert shown is not None
                assert shown.status == 200
                assert "Forged by" not in shown.text()
                browsers.ready(page)
                expect(page.get_by_text("Forged by")).to_have_count(0)
                page.goto(f"{other.url}{path}")
                page.get_by_role("button", name="Send").click()
                page.wait_for_url(f"{desk.url}/**")
                expect(page.locator(".banner.bad")).to_contain_text("may not write here")
            assert other.read, "the browser sends its cookies to every port"
            page.goto(f"{desk.url}/ui/queue")  # its person goes on undisturbed
            expect(page.locator("#strip")).not_to_contain_text("The queue is paused.")
            browsers.ready(page)
            page.locator("summary", has_text="Pause").click()
            page.get_by_role("button", name="Pause the queue").click()
            expect(page.locator("#strip")).to_contain_text("The queue is paused.")
    finally:
        context.close()
