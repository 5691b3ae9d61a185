"""The live layer: tabs follow each other, focus stays, a server that dies and comes back, and how fast it all is."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Request, Route, expect

from headway.engine.client import limits
from headway.engine.tasks.task import make_job
from headway.model.jobs.states import State
from tests.support import browser as browsers
from tests.support.browser import Tabs
from tests.support.deadlines import join
from tests.support.lively import at_work
from tests.support.scratch import fresh_path
from tests.support.service import Site
from tests.support.waiting import until

MANY, RUNNING = 10_000, 100
LOOKS = 5


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


# --- forms that somebody fills in -----------------------------------------------------------------------------------


def test_nobodys_edit_is_overwritten_unseen(tabs: Tabs, desk: Site) -> None:
    """A form keeps the version that its writer saw. Once they are told of another edit, they may send it again."""
    desk.app.enqueue("story.generate", {"topic": "a"}, resources=["ollama"], delay="1h")
    client, page = desk.app.client, tabs.open("/resources")
    mine, lane = page.get_by_label("Capacity of ollama"), page.locator("#resources")
    mine.fill("7")
    limits.change(desk.app.database, "ollama", 3, tenant_id=client.tenant_id, actor=client.actor)
    desk.app.enqueue("story.generate", {"topic": "b"}, resources=["ollama"], delay="1h")
    expect(lane).to_contain_text("of 3")
    lane.get_by_role("button", name="Set").click()
    expect(page.locator("#said .banner.bad")).to_contain_text("changed")
    expect(lane).to_contain_text("of 3")
    expect(mine).to_have_value("7")
    lane.get_by_role("button", name="Set").click()
    expect(lane).to_contain_text("of 7")
    limits.change(desk.app.database, "ollama", 4, tenant_id=client.tenant_id, actor=client.actor)
    desk.app.enqueue("story.generate", {"topic": "c"}, resources=["ollama"], delay="1h")
    expect(mine).to_have_value("4")  # what was saved is nobody's draft any more


def test_a_form_that_fails_says_why_and_stays(tabs: Tabs) -> None:
    page = tabs.open("/queue")
    page.locator("summary", has_text="Pause").click()
    note = page.get_by_label("Note")
    note.fill("half a s")
    json = "application/problem+json"
    said = page.locator("#said .banner.bad")
    for status, kind, body, words in (
        (500, "text/plain", "Internal Server Error", "Internal error of Headway"),
        (503, json, '{"detail": "the database cannot be reached"}', "the database cannot be reached"),
        (403, "text/html", "<main><p class='banner bad'>not <b>you</b></p></main>", "not you"),
    ):
        page.route("**/queue/pause", answering(status, kind, body))
        page.get_by_role("button", name="Pause the queue").click()
        expect(said).to_contain_text(words)
        expect(note).to_have_value("half a s")
        expect(note).to_be_visible()
        page.unroute("**/queue/pause")
    note.press("Escape")
    expect(note).to_be_hidden()
    tabs.complaints.clear()  # the browser complains of such answers


def answering(status: int, kind: str, body: str) -> Callable[[Route], None]:
    return lambda route: route.fulfill(status=status, content_type=kind, body=body)


def test_a_double_click_counts_once(tabs: Tabs) -> None:
    page = tabs.open("/queue")
    sent: list[str] = []
    page.on("request", lambda request: _note_post(request, sent))
    page.locator("summary", has_text="Pause").click()
    page.evaluate("""() => {
      const form = document.querySelector("form[action$='/queue/pause']");
      form.requestSubmit();
      form.requestSubmit();
    }""")
    expect(page.locator("#strip")).to_contain_text("The queue is paused")
    assert sent == [f"{tabs.url}/ui/queue/pause"]


# The page's own clock, slow enough that nothing here is over because of the time alone; then a form whose answer does
# not come. From inside, because a page that is about to be left answers nobody else.
_SLOWLY = """(() => {
  const now = performance.now.bind(performance);
  performance.now = () => now() / 4;
})()"""
_SEND = """(stop) => {
  document.querySelector("form[action$='/retry']").requestSubmit();
  if (stop) setTimeout(() => window.stop(), 500);
}"""
_SEND_TWICE = """async () => {
  const { onItsWay } = await import(`${document.documentElement.dataset.root}/ui/static/live.js`);
  const form = document.querySelector("form[action$='/retry']");
  form.requestSubmit();
  setTimeout(() => HTMLFormElement.prototype.submit.call(form), 500);
  setTimeout(() => console.log(`on its way: ${onItsWay()}`), 1000);
}"""


def _unanswered(tabs: Tabs, desk: Site) -> tuple[Page, list[Route]]:
    """A page with a form that leads elsewhere, and is not answered."""
    desk.app.enqueue("fails", retry_policy={"max_attempts": 0})
    desk.drain()
    page, sent = tabs.context.new_page(), list[Route]()
    page.add_init_script(_SLOWLY)
    page.route("**/retry", lambda route: sent.append(route))
    tabs.go(page, "/jobs/1")
    return page, sent


@pytest.mark.parametrize("how", ["window.stop", "as with Esc"])
def test_a_form_that_was_stopped_leaves_a_page_that_follows(tabs: Tabs, desk: Site, how: str) -> None:
    page, sent = _unanswered(tabs, desk)
    browser = tabs.context.new_cdp_session(page)
    page.evaluate(_SEND, how == "window.stop")
    until(lambda: _heard(page, sent), "the form")
    if how != "window.stop":
        browser.send("Page.stopLoading")
    desk.app.client.pause_queue()
    expect(page.locator("#strip")).to_contain_text("The queue is paused")
    expect(page.locator("#lost")).to_be_hidden()
    assert page.url.endswith("/ui/jobs/1")


def test_a_form_under_way_is_not_cut_off_by_one_before_it(tabs: Tabs, desk: Site) -> None:
    """Sent again before the first answer came: the browser gives the first one up, and the second is waited for."""
    page, sent = _unanswered(tabs, desk)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.evaluate(_SEND_TWICE)
    until(lambda: _heard(page, said), "what the page thinks")
    assert (said, len(sent)) == (["on its way: true"], 2), "the page would load itself again"
    sent[1].fulfill(status=200, content_type="text/html", body="<h1>made</h1>")
    expect(page.locator("h1")).to_have_text("made")


def _heard(page: Page, sent: Sequence[object]) -> bool:
    page.wait_for_timeout(10)  # what came is told while something is waited for
    return bool(sent)


def _note_post(request: Request, sent: list[str]) -> None:
    if request.method == "POST":
        sent.append(request.url)


# --- pages that cannot follow ---------------------------------------------------------------------------------------


def test_a_page_without_a_stream_is_brought_up_to_date_all_the_same(tabs: Tabs, desk: Site) -> None:
    page = tabs.context.new_page()
    page.route("**/api/events", answering(503, "application/problem+json", "{}"))
    tabs.go(page, "/queue")
    job_id = desk.app.enqueue("research.run", {"topic": "fog"}).id
    expect(page.locator(f"#job-{job_id}")).to_be_visible()
    expect(page.locator("#lost")).to_be_hidden()


def test_a_page_that_may_not_be_seen_any_more_says_so_and_stays(tabs: Tabs, desk: Site) -> None:
    first = desk.app.enqueue("research.run", {"topic": "fog"}).id
    page = tabs.open("/queue")
    title = page.title()
    page.route("**/ui/queue", answering(403, "text/html", "<main><p class='banner bad'>no more</p>"))
    desk.app.enqueue("research.run", {"topic": "rain"})
    expect(page.locator("#lost")).to_have_text("no more")
    expect(page.locator(f"#job-{first}")).to_be_visible()
    assert page.title() == title
    tabs.complaints.clear()


def test_a_tab_about_one_tenant_does_not_become_one_about_another(tabs: Tabs, desk: Site) -> None:
    desk.app.client.tenants.create("acme")
    first = desk.app.enqueue("research.run", {"topic": "fog"}).id
    page, other = tabs.open("/queue"), tabs.open("/access")
    other.locator("#tenants").get_by_role("button", name="Act for acme").click()
    expect(other.get_by_role("button", name="Stop acting for acme")).to_be_visible()
    page.bring_to_front()
    page.locator("summary", has_text="Pause").click()
    page.get_by_role("button", name="Pause the queue").click()
    expect(page.locator("#said .banner.bad")).to_contain_text("you act for acme now: nothing was changed")
    expect(page.locator("#lost")).to_have_text("You act for acme now: load this page again.")
    expect(page.locator(f"#job-{first}")).to_be_visible()


_COUNTS = """async (counts) => {
  const { answer } = await import(`${document.documentElement.dataset.root}/ui/static/live.js`);
  const some = counts.map((n) => `<details><summary>${n} things</summary>${n}</details>`).join("");
  const { tenant } = document.documentElement.dataset;
  answer(`<html data-tenant="${tenant}"><body><div id="strip" data-live class="strip">${some}</div></body></html>`);
}"""


def test_what_is_open_stays_open_whatever_it_counts(tabs: Tabs) -> None:
    page = tabs.open("/help")
    browsers.keep_still(page)  # the page as the server has it would take the things away again
    page.evaluate(_COUNTS, [3, 5])
    page.locator("#strip summary", has_text="5 things").click()
    page.evaluate(_COUNTS, [4, 6])
    opened = page.locator("#strip details")
    assert opened.evaluate_all("(all) => all.map((one) => [one.textContent, one.open])") == [
        ["4 things4", False],
        ["6 things6", True],
    ]


_PIECES = """async (pieces) => {
  const { messages } = await import(`${document.documentElement.dataset.root}/ui/static/stream.js`);
  const encoder = new TextEncoder();
  const bytes = encoder.encode(pieces.join(""));
  const cuts = [0, ...pieces.map((_, n) => encoder.encode(pieces.slice(0, n + 1).join("")).length - 1), bytes.length];
  let let_go = false;
  const body = new ReadableStream({
    start(made) { cuts.slice(1).forEach((end, n) => made.enqueue(bytes.slice(cuts[n], end))); },
    cancel() { let_go = true; },
  });
  const found = [];
  for await (const one of messages(new Response(body))) {
    found.push([one.id, one.event, one.data]);
    if (one.event === "last") break;
  }
  await new Promise((done) => setTimeout(done));
  return [found, let_go];
}"""


def test_a_stream_comes_in_pieces_of_any_size(tabs: Tabs) -> None:
    """Cut within a message, and within a letter. Whoever stops listening lets the connection go."""
    pieces = [": hello\n\n", "id: 4\neve", 'nt: lines\ndata: {"a":"\u96e8', '"}\n\n', "event: last\n\nevent: more\n\n"]
    found, let_go = tabs.open("/help").evaluate(_PIECES, pieces)
    assert found == [[None, None, None], ["4", "lines", '{"a":"\u96e8"}'], [None, "last", None]]
    assert let_go


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


@contextmanager
def _kept_port() -> Iterator[int]:
    """A port that nobody else gets meanwhile: it is taken, and shared with whoever wants to listen there."""
    with socket.socket() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(("127.0.0.1", 0))
        yield int(made.getsockname()[1])


def test_the_page_comes_back_with_the_server(browser: Browser, tmp_path: Path) -> None:
    with _kept_port() as port, browsers.tabs(browser, f"http://127.0.0.1:{port}") as tabs:
        with serving(tmp_path, port) as process:
            page = tabs.open("/")
            lost = page.locator("#lost")
            expect(lost).to_be_hidden()
            process.send_signal(signal.SIGKILL)
            process.wait(60)
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


def _opening(page: Page, tabs: Tabs, path: str) -> float:
    """Milliseconds from the request to the end of loading."""
    tabs.go(page, path)
    return float(page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))


def test_a_page_with_much_on_it_opens_almost_as_fast_as_an_empty_one(
    browser: Browser, scratch: Path, tmp_path: Path
) -> None:
    """In turns, and the best of each: what else the machine does meanwhile slows down some of them only."""
    with at_work(fresh_path(scratch), tmp_path) as empty, crowd(fresh_path(scratch), tmp_path) as full:
        for path in ("/", "/queue"):
            with browsers.tabs(browser, empty.url) as one, browsers.tabs(browser, full.url) as other:
                pages = [(one.open(path), one), (other.open(path), other)]
                rounds = [[_opening(page, tabs, path) for page, tabs in pages] for _ in range(7)]
            quick, slow = map(min, zip(*rounds, strict=True))
            print(f"{path}: {quick:.0f} ms empty, {slow:.0f} ms full, ratio {slow / quick:.1f}")
            assert slow / quick < 6


_TICKS = """(seconds) => new Promise((done) => {
  let ticks = 0;
  const timer = setInterval(() => { ticks += 1; }, 20);
  setTimeout(() => { clearInterval(timer); done(ticks); }, seconds * 1000);
})"""


def test_a_page_stays_responsive_while_much_happens(browser: Browser, scratch: Path, tmp_path: Path) -> None:
    """Its own clock goes on ticking at 200 events a second, nearly as often as when nothing happens. A machine that
    has other things to do may spoil one look, not all of them."""
    with crowd(fresh_path(scratch), tmp_path) as site, browsers.tabs(browser, site.url) as tabs:
        page = tabs.open("/queue")
        quiet, busy = 0, 0
        for _ in range(LOOKS):
            quiet, busy = page.evaluate(_TICKS, 3), _ticks_when_busy(page, site)
            print(f"ticks in 3 s: {quiet} quiet, {busy} at 200 events a second")
            if busy > 0.5 * quiet:
                break
        assert busy > 0.5 * quiet
        last = site.app.enqueue("shop.fine", {"text": "last"}, priority=9, hold=True).id
        site.app.client.move(last, to="top")
        expect(page.locator(f"#job-{last}")).to_be_visible()


def _ticks_when_busy(page: Page, site: Site) -> int:
    ended = threading.Event()
    writer = threading.Thread(target=_happen, args=(site, ended))
    writer.start()
    try:
        return int(page.evaluate(_TICKS, 3))
    finally:
        ended.set()
        join(writer)


def _happen(site: Site, ended: threading.Event) -> None:
    """200 events a second, in four parts."""
    client = site.app.client
    job = make_job(client, "shop.fine", {"text": "fog"}, {"hold": True})
    while not ended.is_set():
        began = time.monotonic()
        client.enqueue_many([job] * 50)
        ended.wait(max(0.0, 0.25 - (time.monotonic() - began)))
