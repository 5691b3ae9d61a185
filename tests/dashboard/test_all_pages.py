"""What holds for every page: nobody's text becomes script, everybody can use it, it follows what happens, and it comes
back when the server does."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from headway.dashboard.app import PAGES
from tests.support import browser as browsers
from tests.support.hostile import PAYLOADS
from tests.support.lively import lively
from tests.support.scratch import fresh_path
from tests.support.service import Site

# Parts of pages, what leads to another, and what wants a name.
PARTS = ("/schedules/preview", "/jobs/{job_id:int}/{verb:str}", "/targets/show", "/access/tenants/edit")
DECLARED = [one.path for pages in PAGES for one in pages.declared if one.method == "GET" and one.path not in PARTS]
_THING = re.compile(r'href="/ui/([a-z]+)/(\d+)["?#/]')
_NAMED = re.compile(r'href="/ui(/(?:targets/show|access/tenants/edit)\?name=[^"&#]+)')
_LISTS = (
    "/queue",
    "/history",
    "/schedules",
    "/templates",
    "/executions",
    "/groups",
    "/targets",
    "/webhooks",
    "/deliveries",
    "/access/tenants",
)


def addresses(site: Site) -> list[str]:
    """Every page there is: those that show one thing for each thing that the lists link to."""
    listed = "\n".join(site.http.get(f"/ui{path}").text for path in _LISTS)
    numbers: dict[str, set[str]] = {}
    for noun, number in _THING.findall(listed):
        numbers.setdefault(noun, set()).add(number)
    found = []
    for path in DECLARED:
        if "{" not in path:
            found.append(path)
        else:
            noun = path.split("/")[1]
            found += [re.sub(r"\{[^}]+\}", number, path) for number in sorted(numbers.get(noun, ()), key=int)]
    return [*found, *dict.fromkeys(html.unescape(one) for one in _NAMED.findall(listed))]


def kinds(paths: list[str]) -> list[str]:
    """One address of each kind."""
    by_kind = {re.sub(r"\d+|name=.*", "…", path): path for path in reversed(paths)}
    return sorted(by_kind.values())


@pytest.fixture(scope="module")
def calm(scratch: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with lively(fresh_path(scratch), tmp_path_factory.mktemp("calm")) as site:
        yield site


def test_every_declared_page_is_visited(calm: Site) -> None:
    visited = {re.sub(r"\d+", "…", path.partition("?")[0]) for path in addresses(calm)}
    assert {re.sub(r"\{[^}]+\}", "…", path) for path in DECLARED} - visited == set()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_everybody_can_use_every_page(browser: Browser, calm: Site, scheme: str, width: int) -> None:
    axe, found = Axe(), {}
    with browsers.tabs(browser, calm.url, color_scheme=scheme, viewport={"width": width, "height": 900}) as tabs:
        page = tabs.open("/")
        for path in kinds(addresses(calm)):
            tabs.go(page, path)
            results = axe.run(page)
            if results.violations_count:
                found[path] = results.generate_report()
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{path} is {wide} px wider than the window"
    assert found == {}, "\n".join(f"{path}: {text}" for path, text in found.items())


@pytest.fixture(scope="module")
def hostile(scratch: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with lively(fresh_path(scratch), tmp_path_factory.mktemp("hostile"), PAYLOADS) as site:
        yield site


PARTIES = 3


@pytest.mark.slow
@pytest.mark.parametrize("party", range(PARTIES))
def test_nobodys_text_becomes_script(browser: Browser, hostile: Site, party: int) -> None:
    """Each party visits every third page of each kind."""
    assert len(PAYLOADS) >= 60
    with browsers.tabs(browser, hostile.url) as tabs:
        page = tabs.open("/")
        page.on("dialog", lambda dialog: tabs.complaints.append(f"a dialog: {dialog.message}"))
        paths = _telling(hostile, addresses(hostile))
        assert len(paths) > 8 * len(PAYLOADS)
        for path in paths[party::PARTIES]:
            page.goto(f"{hostile.url}/ui{path}", wait_until="load")
            _harmless(page, path)
        assert tabs.complaints == []


def _telling(site: Site, paths: list[str]) -> list[str]:
    """Of the many pages that show the same fields of a payload's things, one."""
    client = site.app.client
    twice = re.compile(r"/(schedules/\d+/(ticks|backfill)|webhooks/\d+/rotate)")

    def tells(path: str) -> bool:
        if (job := re.fullmatch(r"/jobs/(\d+)", path)) is not None:
            found = client.get(int(job.group(1)))
            return found.task == "shop.breaks" or (found.key or "").startswith("key ")
        if (schedule := re.match(r"/schedules/(\d+)", path)) is not None and int(schedule.group(1)) % 2 == 0:
            return False
        return twice.fullmatch(path) is None or path.split("/")[2] in ("1", "3")

    return [path for path in paths if tells(path)]


_STRANGE = """() => {
  const where = /^(xlink:)?(href|src|action|formaction|data)$/;
  const leads = (a) => where.test(a.name) && /^\\s*(javascript|data):/i.test(a.value);
  const tags = ['IFRAME', 'OBJECT', 'EMBED', 'BASE', 'MARQUEE', 'VIDEO', 'AUDIO', 'STYLE'];
  const foreign = (one) => one.nodeName === 'SCRIPT' && !new URL(one.src, location).pathname.startsWith('/ui/static/');
  const strange = (one) => [...one.attributes].some((a) => a.name.startsWith('on') || leads(a))
    || tags.includes(one.nodeName) || foreign(one);
  return [...document.querySelectorAll('*')].filter(strange).map((one) => one.outerHTML.slice(0, 200));
}"""


def _harmless(page: Page, path: str) -> None:
    assert page.evaluate("window.struck") is None, path
    assert page.evaluate(_STRANGE) == [], path
