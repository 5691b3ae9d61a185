"""The message about what was done or refused: where it stands, how long, who is told of it, and how it is closed."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support import browser as browsers
from tests.support.browser import Tabs
from tests.support.forms import fill
from tests.support.service import Site

pytestmark = pytest.mark.shown

HALF_A_MINUTE = 31_000


def opened(tabs: Tabs, desk: Site) -> tuple[Page, list[int]]:
    """A queue to move jobs in, and a clock to turn."""
    ids = [desk.app.enqueue("research.run", {"topic": "fog"}).id for _ in range(3)]
    page = tabs.context.new_page()
    page.clock.install()
    tabs.go(page, "/queue")
    return page, ids


def test_a_message_moves_nothing_and_leaves_by_itself(tabs: Tabs, desk: Site) -> None:
    page, ids = opened(tabs, desk)
    list_, banner = page.locator("#queue"), page.locator("#said").get_by_role("status").locator(".banner")
    before = list_.bounding_box()
    page.locator(f"#job-{ids[2]}").focus()
    page.keyboard.press("Alt+ArrowUp")
    expect(banner).to_contain_text(f"Job {ids[2]} is now at rank 2.")
    assert list_.bounding_box() == before
    found, size = banner.bounding_box(), page.viewport_size
    assert found is not None
    assert size is not None
    assert found["y"] + found["height"] <= size["height"]
    page.clock.fast_forward(HALF_A_MINUTE)
    expect(banner).to_have_count(0)
    assert list_.bounding_box() == before


def test_who_is_in_a_message_has_time_and_comes_back_from_it(tabs: Tabs, desk: Site) -> None:
    page, ids = opened(tabs, desk)
    row, undo = page.locator(f"#job-{ids[2]}"), page.locator("#said").get_by_role("button", name="Undo")
    row.focus()
    page.keyboard.press("Alt+ArrowUp")
    expect(undo).to_be_visible()
    expect(row).to_be_focused()
    page.keyboard.press("m")
    expect(undo).to_be_focused()
    page.clock.fast_forward(HALF_A_MINUTE)
    expect(undo).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#said .words")).to_contain_text(f"Job {ids[2]} is now at rank 3.")
    expect(page.locator("#said button").first).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#said .banner")).to_have_count(0)
    expect(row).to_be_focused()


def test_a_refusal_stays_until_it_is_closed(tabs: Tabs, desk: Site) -> None:
    page, ids = opened(tabs, desk)
    banner = page.locator("#said").get_by_role("alert")
    browsers.keep_still(page)
    desk.app.client.cancel(ids[1])
    page.get_by_role("button", name=f"Move job {ids[1]} up").click()
    expect(banner).to_contain_text("has changed since it was read")
    page.clock.fast_forward(10 * HALF_A_MINUTE)
    expect(banner).to_be_visible()
    page.get_by_role("button", name="Close this message").click()
    expect(banner).to_have_count(0)


_HEARS = """
window.heard = [];
document.addEventListener("DOMContentLoaded", () => new MutationObserver((changes) => {
  for (const { target, addedNodes } of changes) {
    for (const node of addedNodes) {
      const spoken = node.matches?.(".banner") && target.closest("[role='status']");
      if (spoken) window.heard.push(node.querySelector(".words").textContent);
    }
  }
}).observe(document.body, { childList: true, subtree: true }));
"""


def test_the_message_of_a_page_is_read_out_once(tabs: Tabs, desk: Site) -> None:
    """Words that stand in a page from the beginning are read out to nobody."""
    tabs.context.add_init_script(_HEARS)
    page = tabs.open("/jobs/new?task=research.run")
    page.get_by_label("Params").fill('{"topic": "fog"}')
    page.get_by_role("button", name="Make the job").click()
    page.wait_for_url("**/jobs/1")
    browsers.ready(page)
    expect(page.locator("#said .words")).to_have_text("Job 1 was created.")
    browsers.await_shown(page, lambda: desk.app.enqueue("research.run", {"topic": "rain"}))
    assert page.evaluate("window.heard") == ["Job 1 was created."]


def test_a_pause_is_told_once(tabs: Tabs, desk: Site) -> None:
    page = tabs.open("/queue")
    page.locator("summary", has_text="Pause").click()
    page.get_by_role("button", name="Pause the queue").click()
    expect(page.get_by_role("status").filter(has_text="The queue is paused")).to_have_count(1)
    expect(page.locator("#strip")).to_contain_text("The queue is paused.")
    page.locator("#strip").get_by_role("button", name="Resume the queue").click()
    expect(page.locator("#said")).to_contain_text("The queue is resumed.")
    answer = fill(desk.http, "/queue", "/queue/pause").text
    assert answer.partition("<main")[0].count("The queue is paused") == 1


def test_without_script_a_message_stands_in_its_place(browser: Browser, desk: Site) -> None:
    job_id = desk.app.enqueue("research.run", {"topic": "fog"}, hold=True).id
    with browsers.tabs(browser, desk.url, java_script_enabled=False) as tabs:
        page = tabs.context.new_page()
        page.goto(f"{desk.url}/ui/jobs/{job_id}/resume")
        page.get_by_role("button", name="Resume it").click()
        expect(page.locator("#said .words")).to_be_visible()
        page.wait_for_load_state("load")  # with its style
        words, main = page.locator("#said .words").bounding_box(), page.locator("main").bounding_box()
        assert words is not None
        assert main is not None
        assert words["y"] + words["height"] <= main["y"]
        expect(page.locator("#said button")).to_have_count(0)
