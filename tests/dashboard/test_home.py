"""The first page: how things stand, at a glance, and what can be done about what is held."""

from __future__ import annotations

import asyncio
import html
import threading
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from headway.dashboard.charts.bars import Bar, bars, ceiling
from headway.model.jobs.states import State
from tests.support import browser as browsers
from tests.support.browser import Tabs
from tests.support.deadlines import join
from tests.support.forms import fill, read
from tests.support.lively import lively
from tests.support.scratch import fresh_path
from tests.support.service import Site
from tests.support.waiting import until

pytestmark = pytest.mark.shown


def test_an_empty_house_says_so_and_how_to_begin(site: Site) -> None:
    text = read(site.http, "/")
    assert "Idle: nothing runs, nothing is in line." in text
    assert "headway run TASK name=value" in text
    assert "Waits for you" not in text


def test_a_hold_is_said_first_and_can_be_released(site: Site) -> None:
    held = site.app.enqueue("fails", {"why": "log in by hand"}, target="desk-1").id
    site.drain()
    site.app.enqueue("research.run", {"topic": "fog"}, target="desk-1")
    site.app.client.pause_target("desk-1", note="being repaired")
    text = read(site.http, "/")
    assert "1 job is in line and no worker is alive." in text
    for words in ("Waits for you", "log in by hand", "1 job behind it", "being repaired", f"/ui/jobs/{held}/resolve"):
        assert words in text, words
    text = fill(site.http, "/", "/targets/resume", name="desk-1").text
    assert "being repaired" not in text
    text = fill(site.http, "/", f"/jobs/{held}/release").text
    assert "Waits for you" not in text
    assert site.app.client.get(held).status is State.FAILED


def test_a_reservation_is_shown_and_given_back(site: Site) -> None:
    first = site.app.client.reserve(resources=["ollama"], ttl="5m")
    site.app.client.reserve(resources=["ollama"], ttl="5m")
    text = read(site.http, "/")
    assert text.index("has it") < text.index(">waits</span>")
    answer = fill(site.http, "/", f"/reservations/{first.id}/release")
    assert f"Reservation {first.id} of" in answer.text
    assert site.app.client.reservation(first.id).finished_at is not None


def test_direct_calls_are_counted_like_what_runs(site: Site) -> None:
    gate = threading.Event()

    @site.app.task("asked", direct="/asked")
    async def asked() -> None:
        while not gate.is_set():
            await asyncio.sleep(0.02)

    caller = threading.Thread(target=lambda: site.http.post("/api/direct/asked", json={}))
    caller.start()
    try:
        until(lambda: "1 direct call runs, nothing is in line." in read(site.http, "/"))
        assert "<b>1</b> <span>running, 1 of them called directly</span>" in read(site.http, "/")
    finally:
        gate.set()
        join(caller)
    site.app.client.reserve(resources=["ollama"], ttl="5m")
    site.app.enqueue("story.generate", {"topic": "fog"}, hold=True)
    text = read(site.http, "/")
    assert "1 reservation is active, 1 job is in line." in text
    assert "<b>0</b> <span>running</span>" in text


def test_jobs_of_one_task_are_told_apart_by_their_params(site: Site) -> None:
    hostile = "<script>alert('x')</script>"
    for topic in ("fog", hostile, {"$secret": "TOPIC"}, "x" * 500):
        site.app.enqueue("research.run", {"topic": topic})
    site.app.enqueue("fails", {"why": "desk is off"}, target="desk-1")
    for path in ("/", "/queue"):
        text = read(site.http, path)
        assert "topic: fog</span>" in text, path
        assert "topic: &lt;script&gt;" in text, path
        assert hostile not in text
        assert "topic: secret TOPIC" in text, path
        assert "x" * 80 in text
        assert "x" * 101 not in text, "one short line each"
    site.drain()
    assert "why: desk is off" in read(site.http, "/")


def test_reasons_speak_of_what_a_page_offers(site: Site) -> None:
    site.app.enqueue("research.run", {"topic": "fog"}, target="desk 1")
    site.app.client.pause_target("desk 1", note="repairs")
    worker = site.worker()
    worker.register()
    try:
        for path in ("/", "/queue"):
            text = html.unescape(read(site.http, path))
            assert "the target desk 1 is paused: repairs; “Resume” on its page ends the pause" in text, path
            assert "headway targets resume" not in text, path
        text = html.unescape(read(site.http, "/jobs/1"))
        assert "repairs; “Resume” on its page ends the pause" in text
        assert "<code class=\"note\">headway targets resume 'desk 1'</code>" in text
    finally:
        worker.close()


def test_ticks_and_figures(site: Site) -> None:
    cron = {"cron": "30 2 * * mon-fri", "timezone": "Europe/Berlin", "steps": [{"task": "fails"}]}
    site.app.client.schedules.create("nightly <sync>", cron)
    site.app.enqueue("story.generate", {"topic": "fog"})
    site.app.enqueue("fails", {})
    site.drain()
    text = read(site.http, "/")
    assert "nightly &lt;sync&gt;" in text
    assert "at 02:30, Monday to Friday, Berlin time" in text
    assert "2 jobs ended within the last hour, 1 of them failed" in text
    assert "data-until=" in text


def test_a_long_queue_is_shown_in_part(site: Site) -> None:
    site.app.tasks["research.run"].enqueue_many([{"topic": str(n)} for n in range(30)])
    text = read(site.http, "/")
    assert text.count('id="wait-') == 20
    assert "and 10 more in line" in text


def test_a_viewer_is_offered_no_action(site: Site) -> None:
    site.app.enqueue("fails", {}, target="desk-1")
    site.drain()
    site.app.client.reserve(resources=["ollama"], ttl="5m")
    viewer = site.as_(site.token("viewer"))
    text = read(viewer, "/")
    assert "an operator has to decide" in text
    assert "/resume" not in text
    assert "Give back" not in text
    assert "/queue/pause" not in read(viewer, "/queue")


def test_the_page_in_the_middle_of_the_day(browser: Browser, scratch: Path, tmp_path: Path) -> None:
    with lively(fresh_path(scratch), tmp_path) as site, browsers.tabs(browser, site.url) as tabs:
        page = tabs.open("/")
        running = page.locator("#running")
        expect(running.get_by_text("3 of 8 fog").first).to_be_visible()
        expect(running.get_by_text("left by its progress").first).to_be_visible()
        expect(page.locator("#ticks")).to_contain_text("Berlin time")
        held = page.locator("#held")
        expect(held).to_contain_text("fog")
        _resolve(page_of=tabs, held_by=held.locator("tbody tr").first.get_attribute("id") or "")


def _resolve(page_of: Tabs, held_by: str) -> None:
    """From the first page, with a result of one's own; the row goes away by itself on another tab."""
    acting, watching = page_of.context.pages[0], page_of.open("/")
    row = acting.locator(f"#{held_by}")
    row.get_by_text("Resolve", exact=True).click()
    row.get_by_label("Result").fill('{"by": "hand"}')
    row.get_by_role("button", name="Resolve job").click()
    expect(acting.locator("#said")).to_contain_text("COMPLETED")
    expect(watching.locator(f"#{held_by}")).to_have_count(0)


# --- bars ---------------------------------------------------------------------------------------------------------


def test_scales_end_at_round_numbers() -> None:
    values = (0, 0.3, 2, 3, 17, 21, 41, 99, 101, 5_001)
    assert [ceiling(value) for value in values] == [2, 2, 2, 4, 20, 40, 60, 100, 200, 6_000]


def test_bars_stand_on_each_other_and_their_words_are_harmless() -> None:
    parts = (("good", 3.0), ("bad", 1.0), ("quiet", 0.0))
    made = str(bars([Bar(0, "<b>", parts)], 60_000_000, label='a "label"', shown=lambda value: f"{value:g} <i>"))
    assert "<b>" not in made
    assert "<i>" not in made
    assert 'aria-label="a &#34;label&#34;"' in made
    # From 126 up to 10 there is room for 4: three quarters are good, the rest is bad, and nothing is nothing.
    assert 'class="good" x="45.5" width="385.0" y="39.0" height="87.0"' in made
    assert 'class="bad" x="45.5" width="385.0" y="10.0" height="29.0"' in made
    assert 'class="quiet"' not in made
    assert "style=" not in str(bars([], 1, label="none", shown=str))
