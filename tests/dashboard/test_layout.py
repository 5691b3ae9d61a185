"""How pages look and feel: on a phone, in the dark, without script; the help sheet, errors, and what is copied."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.support import browser as browsers
from tests.support.browser import Tabs
from tests.support.forms import read
from tests.support.service import Site

pytestmark = pytest.mark.shown

PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}


def box(one: Locator) -> dict[str, float]:
    found = one.bounding_box()
    assert found is not None, "it is not to be seen"
    return {
        "left": found["x"],
        "top": found["y"],
        "right": found["x"] + found["width"],
        "bottom": found["y"] + found["height"],
    }


# --- the menu -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", [True, False])
def test_on_a_phone_the_menu_is_one_line_until_it_is_wanted(browser: Browser, desk: Site, script: bool) -> None:
    with browsers.tabs(browser, desk.url, viewport=PHONE, java_script_enabled=script) as tabs:
        page = tabs.context.new_page()
        page.goto(f"{desk.url}/ui/settings")
        menu, here = page.locator("#menu > summary"), page.locator("nav [aria-current='page']")
        expect(menu).to_have_text("Menu Settings")
        expect(here).to_be_hidden()
        assert box(page.locator("header.side"))["bottom"] < 80
        menu.click()
        expect(here).to_have_text("Settings")
        found = box(here)
        assert found["left"] >= 0
        assert found["right"] <= PHONE["width"]
        page.get_by_role("link", name="Queue").click()
        expect(page.locator("h1")).to_have_text("Queue")


@pytest.mark.parametrize("script", [True, False])
def test_beside_a_wide_page_the_menu_stands_open(browser: Browser, desk: Site, script: bool) -> None:
    with browsers.tabs(browser, desk.url, viewport=DESK, java_script_enabled=script) as tabs:
        page = tabs.context.new_page()
        page.goto(f"{desk.url}/ui/queue")
        expect(page.get_by_role("link", name="Health")).to_be_visible()
        expect(page.get_by_role("button", name="dark")).to_be_visible()
        expect(page.locator("#menu > summary")).to_be_hidden()


def test_on_a_phone_a_row_is_a_small_card(browser: Browser, desk: Site) -> None:
    """Cells share lines: what a job is called and how it stands are side by side."""
    job_id = desk.app.enqueue("research.run", {"topic": "fog"}).id
    with browsers.tabs(browser, desk.url, viewport=PHONE) as tabs:
        page = tabs.open("/queue?status=QUEUED")
        name, state = (box(page.locator(f"#job-{job_id} {one}")) for one in (".job", ".state"))
        assert state["left"] > name["right"]
        assert state["top"] < name["bottom"]


# --- light and dark -------------------------------------------------------------------------------------------------

_COLOURS = "() => ['body', 'h1', '.side', 'a'].map((one) => getComputedStyle(document.querySelector(one)).color)"
_GROUND = "() => getComputedStyle(document.documentElement).backgroundColor"


def test_dark_is_the_same_by_choice_and_by_the_system(browser: Browser, desk: Site) -> None:
    found = {}
    for system in ("light", "dark"):
        with browsers.tabs(browser, desk.url, color_scheme=system) as tabs:
            page = tabs.open("/")
            for choice in ("auto", "light", "dark"):
                page.get_by_role("button", name=choice, exact=True).click()
                expect(page.locator("html")).to_have_attribute("data-theme", choice)
                browsers.ready(page)
                found[system, choice] = [page.evaluate(_GROUND), *page.evaluate(_COLOURS)]
    light, dark = found["light", "auto"], found["dark", "auto"]
    assert light[0] == "rgb(245, 246, 248)"
    assert dark[0] == "rgb(17, 22, 29)"
    assert found["light", "light"] == found["dark", "light"] == light
    assert found["light", "dark"] == found["dark", "dark"] == dark


# --- keys and help --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", [True, False])
def test_keys_and_dragging_are_told_of_where_a_script_hears_them(browser: Browser, desk: Site, script: bool) -> None:
    desk.app.enqueue("research.run", {"topic": "fog"})
    with browsers.tabs(browser, desk.url, java_script_enabled=script) as tabs:
        page = tabs.context.new_page()
        for path, hint in (("/queue", "Drag a row"), ("/help", "Next and previous row")):
            page.goto(f"{desk.url}/ui{path}")
            expect(page.locator("main").get_by_text(hint)).to_be_visible(visible=script)
        expect(page.locator("main")).to_contain_text("Something that one job at a time may use.")


def test_help_begins_at_its_beginning_and_gives_focus_back(browser: Browser, desk: Site) -> None:
    job_id = desk.app.enqueue("research.run", {"topic": "fog"}).id
    with browsers.tabs(browser, desk.url, viewport={"width": 1000, "height": 420}) as tabs:
        page = tabs.open("/queue")
        row, sheet, title = page.locator(f"#job-{job_id}"), page.get_by_role("dialog"), page.locator("#help-title")
        row.focus()
        page.keyboard.press("?")
        expect(title).to_be_focused()
        assert sheet.evaluate("(one) => [one.scrollTop, one.scrollHeight > one.clientHeight]") == [0, True]
        assert box(title)["top"] >= 0
        page.keyboard.press("Escape")
        expect(sheet).to_be_hidden()
        expect(row).to_be_focused()


# --- errors ---------------------------------------------------------------------------------------------------------

_TRACE = "ValueError: no paper\n\nTraceback (most recent call last):\n  File 'print.py', line 3\nValueError: no paper"


def test_an_error_is_read_at_once_and_its_traceback_on_request(tabs: Tabs, desk: Site) -> None:
    job_id = desk.app.enqueue("fails", {"why": _TRACE}, target="desk-1").id
    desk.drain()
    page = tabs.open(f"/jobs/{job_id}")
    error, trace = page.locator("code.error"), page.locator("pre.error")
    expect(error).to_have_text("ValueError: no paper")
    expect(trace).to_be_hidden()
    page.get_by_text("Traceback", exact=True).click()
    expect(trace).to_contain_text("File 'print.py', line 3")
    for one in (error, trace):
        assert "monospace" in one.evaluate("(one) => getComputedStyle(one).fontFamily")
    happen(desk, page)
    expect(trace).to_be_visible()
    trace.focus()
    expect(trace).to_be_focused()


def happen(site: Site, page: Page) -> None:
    browsers.await_shown(page, lambda: site.app.enqueue("research.run", {"topic": "meanwhile"}))


# --- copying ------------------------------------------------------------------------------------------------------


def stop_the_clock(page: Page) -> None:
    """What a page says for a few seconds stays until it was read."""
    page.clock.install(time=0)
    page.clock.pause_at(1)


def test_what_is_meant_for_elsewhere_is_copied(browser: Browser, desk: Site) -> None:
    job_id = desk.app.enqueue("research.run", {"topic": "fog"}).id
    assert "Copy</button>" not in read(desk.http, f"/jobs/{job_id}"), "without script there is nothing to press"
    with browsers.tabs(browser, desk.url, permissions=["clipboard-read", "clipboard-write"]) as tabs:
        page = tabs.context.new_page()
        stop_the_clock(page)
        tabs.go(page, f"/jobs/{job_id}")
        for name in ("curl", "Python", "Command line"):
            box = page.locator(".copy", has=page.get_by_role("heading", name=name))
            box.get_by_role("button", name=f"Copy {name}").click()
            expect(box.get_by_role("status")).to_have_text("Copied")
            assert page.evaluate("navigator.clipboard.readText()") == box.locator("code").text_content()


def test_a_secret_is_copied_also_where_scripts_have_no_clipboard(browser: Browser, desk: Site) -> None:
    """As away from this machine without TLS."""
    with browsers.tabs(browser, desk.url, permissions=["clipboard-read", "clipboard-write"]) as tabs:
        reader = tabs.open("/help")
        tabs.context.add_init_script("if (location.pathname !== '/ui/help') delete Navigator.prototype.clipboard")
        page = tabs.open("/webhooks/secret")
        stop_the_clock(page)
        page.get_by_role("button", name="Show the secret").click()
        browsers.ready(page)
        page.get_by_role("button", name="Copy it").click()
        expect(page.get_by_role("status").filter(has_text="Copied")).to_be_visible()
        secret = page.locator("pre.secret").text_content()
        reader.bring_to_front()
        assert reader.evaluate("navigator.clipboard.readText()") == secret
