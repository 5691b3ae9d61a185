"""A browser for all tests of the pages, and a server for each. `site` runs on both databases, `desk` on SQLite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.support import browser as browsers
from tests.support.browser import Tabs
from tests.support.service import Site, serving


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Ended with the tests of a file: while it is open, an event loop runs in this thread, and no other can."""
    with browsers.browser() as started:
        yield started


@pytest.fixture
def site(database_url: str) -> Iterator[Site]:
    with serving(database_url) as found:
        yield found


@pytest.fixture
def desk(sqlite_url: str) -> Iterator[Site]:
    with serving(sqlite_url) as found:
        yield found


@pytest.fixture
def tabs(browser: Browser, desk: Site) -> Iterator[Tabs]:
    """Somebody at a desk with a browser."""
    with browsers.tabs(browser, desk.url) as made:
        yield made
