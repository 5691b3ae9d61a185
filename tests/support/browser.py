"""A real browser: the Chromium of the system, installed where it is missing, and pages that tell what went wrong."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from tests.support.packages import install
from tests.support.waiting import until

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
# A page waits four times as long as its last refresh took: on a slow machine half a minute is soon over.
SECONDS = 60.0
expect.set_options(timeout=SECONDS * 1000)  # by itself 5 s, whatever a page's own patience is


def chromium() -> str:
    """Where it is: named in HEADWAY_TEST_CHROMIUM, on the PATH, or installed now."""
    if named := os.environ.get("HEADWAY_TEST_CHROMIUM"):
        return named
    return _found() or _installed()


def _found() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name)) is not None), None)


def _installed() -> str:
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise RuntimeError("no Chromium: install it (apt install chromium), or name it in HEADWAY_TEST_CHROMIUM")
    install("chromium", "fonts-dejavu-core")
    found = _found()
    if found is None:
        raise RuntimeError("Chromium was installed and is not on the PATH: name it in HEADWAY_TEST_CHROMIUM")
    return found


@contextmanager
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=FLAGS, headless=True)
        try:
            yield started
        finally:
            started.close()


def ready(page: Page) -> None:
    """Its script is at work. A page that was left for another is waited for too."""
    page.wait_for_selector("html[data-ready]", state="attached")


def await_shown(page: Page, happen: Callable[[], object]) -> None:
    """Something happens, and the page shows what there is since."""
    page.evaluate(_LISTEN)
    happen()
    until(lambda: page.evaluate("window.shown"), "that the page shows it")


def keep_still(page: Page) -> None:
    """From now on the page does not learn of what happens, as while a row is dragged."""
    page.evaluate("document.body.dataset.dragging = 'still'")


def refresh(page: Page) -> None:
    """Asks for the page again now, or awaits what was asked for: its next look may be far off."""
    page.evaluate(_REFRESH)


_REFRESH = """async () => {
  const { refresh } = await import(`${document.documentElement.dataset.root}/ui/static/live.js`);
  await refresh();
}"""
_LISTEN = """() => {
  window.shown = false;
  document.addEventListener("headway:shown", () => { window.shown = true; }, { once: true });
}"""


class Tabs:
    """One person with one browser profile. What a page complains about is kept, and a test fails by it."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context = context
        self.url = url
        self.complaints: list[str] = []
        context.set_default_timeout(SECONDS * 1000)

    def open(self, path: str = "/") -> Page:
        page = self.context.new_page()
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(f"page error: {error}"))
        self.go(page, path)
        return page

    def go(self, page: Page, path: str) -> None:
        page.goto(f"{self.url}/ui{path}", wait_until="load")
        ready(page)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(message.text)


@contextmanager
def tabs(started: Browser, url: str, **options: Any) -> Iterator[Tabs]:
    context = started.new_context(**options)
    made = Tabs(context, url)
    try:
        yield made
        assert not made.complaints, made.complaints
    finally:
        context.close()
