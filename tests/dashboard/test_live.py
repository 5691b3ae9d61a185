"""The live layer: tabs follow each other, focus stays, a server that dies and comes back, and how fast it all is."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from headway.engine.task import make_job
from headway.model.states import State
from tests.support import browser as browsers
from tests.support.browser import Tabs
from tests.support.lively import at_work
from tests.support.service import Site
from tests.support.waiting import until

MANY, RUNNING = 10_000, 100


def test_two_tabs_follow_each_other(tabs: Tabs, desk: Site) -> None:
    one, other = tabs.open("/"), tabs.open("/")
    desk.app.enqueue("research.run", {"topic": "fog"})
    for page in (one, other):
        expect(page.get_by_role("link", name="research.run").first).to_be_visible()
    one.bring_to_front()
    tabs.go(one, "/queue")
    one.locator("summary", has_text="Pause").click()
    one.get_by_label("Note").fill("for the night")
    one.get_by_role("button", name="Pause the queue").click()
    expect(one.get_by_text("for the night").first).to_be_visible()
    expect(other.get_by_text("for the night").first).to_be_visible()
    other.get_by_role("button", name="Resume the queue").first.click()
    expect(other.get_by_text("for the night")).to_have_count(0)
    expect(one.get_by_text("for the night")).to_have_count(0)


def test_focus_and_what_is_half_written_stay(tabs: Tabs, desk: Site) -> None:
    first = desk.app.enqueue("research.run", {"topic": "fog"}).id
    page = tabs.open("/queue")
    page.locator("summary", has_text="Pause").click()
    note = page.get_by_label("Note")
    note.press_sequentially("half a s")
    later = [desk.app.enqueue("research.run", {"topic": "rain"}).id for _ in range(3)]
    expect(page.locator(f"#job-{later[-1]}")).to_be_visible()
    assert note.input_value() == "half a s"
    expect(note).to_be_focused()
    row = page.locator(f"#job-{first}")
    row.focus()
    desk.app.client.move(later[-1], to="top")
    expect(page.locator("main tbody tr").first).to_have_id(f"job-{later[-1]}")
    expect(row).to_be_focused()


# --- a server that dies ---------------------------------------------------------------------------------------------


@contextmanager
def serving(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "HEADWAY_DATABASE": str(folder / "headway.db"), "HEADWAY_PORT": str(port)}
    command = [sys.executable, "-m", "headway", "up", "--roles", "api,scheduler"]
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: _answers(port), "the server")
            yield process
        finally:
            process.kill()


def _answers(port: int) -> bool:
    with socket.socket() as made:
        return made.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def test_the_page_comes_back_with_the_server(browser: Browser, tmp_path: Path) -> None:
    port = _free_port()
    with browsers.tabs(browser, f"http://127.0.0.1:{port}") as tabs:
        with serving(tmp_path, port) as process:
            page = tabs.open("/")
            lost = page.locator("#lost")
            expect(lost).to_be_hidden()
            process.send_signal(signal.SIGKILL)
            process.wait()
            expect(lost).to_be_visible()
        with serving(tmp_path, port):
            expect(lost).to_be_hidden()
            subprocess.run(
                [sys.executable, "-m", "headway", "queue", "pause", "--note", "back again"],
                env={**os.environ, "HEADWAY_DATABASE": str(tmp_path / "headway.db")},
                check=True,
                capture_output=True,
            )
            expect(page.get_by_text("back again").first).to_be_visible()
        tabs.complaints.clear()  # the browser complains of a server that is away


# --- much work ------------------------------------------------------------------------------------------------------


@contextmanager
def crowd(url: str, folder: Path) -> Iterator[Site]:
    """10,000 jobs wait, and 100 run."""
    with at_work(url, folder) as site:
        client = site.app.client
        ids = [job_id for job_id, _ in client.enqueue_many([make_job(client, "shop.waits", {}, {})] * RUNNING)]
        until(lambda: all(client.get(job_id).status is State.RUNNING for job_id in ids), "all at work")
        waiting = make_job(client, "shop.long", {"text": "fog"}, {"resources": ["gpu"]})
        for _ in range(10):
            client.enqueue_many([waiting] * (MANY // 10))
        yield site


def _opening(page: Page, tabs: Tabs, path: str, times: int = 5) -> float:
    """Milliseconds from the request to the end of loading, the median."""
    found = []
    for _ in range(times):
        tabs.go(page, path)
        found.append(page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
    return float(sorted(found)[times // 2])


def test_a_page_with_much_on_it_opens_almost_as_fast_as_an_empty_one(
    browser: Browser, scratch: Path, tmp_path: Path
) -> None:
    figures = {}
    with at_work(str(scratch / "empty.db"), tmp_path) as empty, crowd(str(scratch / "crowd.db"), tmp_path) as full:
        for path in ("/", "/queue"):
            for name, site in (("empty", empty), ("full", full)):
                with browsers.tabs(browser, site.url) as tabs:
                    figures[path, name] = _opening(tabs.open(path), tabs, path)
    for path in ("/", "/queue"):
        ratio = figures[path, "full"] / figures[path, "empty"]
        print(f"{path}: {figures[path, 'empty']:.0f} ms empty, {figures[path, 'full']:.0f} ms full, ratio {ratio:.1f}")
        assert ratio < 6


_TICKS = """(seconds) => new Promise((done) => {
  let ticks = 0;
  const timer = setInterval(() => { ticks += 1; }, 20);
  setTimeout(() => { clearInterval(timer); done(ticks); }, seconds * 1000);
})"""


def test_a_page_stays_responsive_while_much_happens(browser: Browser, scratch: Path, tmp_path: Path) -> None:
    """Its own clock goes on ticking at 200 events a second, nearly as often as when nothing happens."""
    ended = threading.Event()
    with crowd(str(scratch / "busy.db"), tmp_path) as site, browsers.tabs(browser, site.url) as tabs:
        page = tabs.open("/queue")
        quiet = page.evaluate(_TICKS, 3)
        writer = threading.Thread(target=_happen, args=(site, ended))
        writer.start()
        try:
            busy = page.evaluate(_TICKS, 5) * 3 / 5
        finally:
            ended.set()
            writer.join()
        print(f"ticks in 3 s: {quiet} quiet, {busy:.0f} at 200 events a second")
        assert busy > 0.5 * quiet
        last = site.app.enqueue("shop.fine", {"text": "last"}, priority=9, hold=True).id
        site.app.client.move(last, to="top")
        expect(page.locator(f"#job-{last}")).to_be_visible()


def _happen(site: Site, ended: threading.Event) -> None:
    """200 events a second, in four parts."""
    client = site.app.client
    job = make_job(client, "shop.fine", {"text": "fog"}, {"hold": True})
    while not ended.is_set():
        began = time.monotonic()
        client.enqueue_many([job] * 50)
        ended.wait(max(0.0, 0.25 - (time.monotonic() - began)))
