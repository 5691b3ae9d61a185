"""The history: searched, filtered, drawn, its errors grouped, and followed by a browser."""

from __future__ import annotations

import base64
import re
import threading
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from headway import Fail
from headway.dashboard.charts.scatter import Dot, durations, in_words, scatter
from headway.dashboard.pages.history_search import within
from headway.model.values.times import instant
from headway.store.jobs import history
from headway.store.jobs.starts import EVENTS
from headway.testing import FrozenClock
from tests.support.browser import Tabs
from tests.support.deadlines import join
from tests.support.forms import read
from tests.support.service import Site, serving

pytestmark = pytest.mark.shown

HOSTILE = "<script>alert('x')</script>"
SECOND = 1_000_000


def enqueue(site: Site, task: str, count: int = 1, **fields: object) -> list[int]:
    wished = {"task": task, "params": {}, "retry_policy": {"max_attempts": 0}, **fields}
    made = [site.http.post("/api/jobs", json=wished) for _ in range(count)]
    assert {one.status_code for one in made} == {201}
    return [one.json()["job_id"] for one in made]


def drain(site: Site) -> None:
    """Beside the browser, which has an event loop in this thread."""
    worker = threading.Thread(target=site.drain)
    worker.start()
    join(worker)


def listed(text: str) -> list[int]:
    return [int(number) for number in re.findall(r'<tr id="run-(\d+)"', text)]


def drawn(text: str) -> list[int]:
    return [int(number) for number in re.findall(r'data-key="run-(\d+)"', text)]


def cursor_of(*parts: str) -> str:
    """As somebody might make one up."""
    return base64.urlsafe_b64encode("".join(parts).encode()).decode().rstrip("=")


# --- runs ---------------------------------------------------------------------------------------------------------


def test_nothing_has_run_yet(site: Site) -> None:
    enqueue(site, "research.run", params={"topic": "queued and not run"})
    text = read(site.http, "/history")
    assert "Nothing has run yet." in text
    assert "headway run TASK" in text
    assert '<svg class="picture' not in text
    assert "Nothing has failed." in read(site.http, "/history/errors")
    assert "No run matches." in read(site.http, "/history?task=fails")


def test_runs_are_searched_and_filtered(site: Site) -> None:
    (good,) = enqueue(site, "research.run", params={"topic": "fog"}, target="desk/1")
    (bad,) = enqueue(site, "fails", params={"why": HOSTILE})
    (late,) = enqueue(site, "fails", params={"why": "code 50% of it"})
    steps = [{"index": 0, "name": "one", "task": "research.run", "params": {"topic": "planned"}}]
    made = site.http.post("/api/schedules", json={"name": f"nightly {HOSTILE}", "cron": "0 3 * * *", "steps": steps})
    schedule = made.json()["schedule_id"]
    site.http.post(f"/api/schedules/{schedule}/run")
    site.drain()
    everything = listed(read(site.http, "/history"))
    planned = max(everything)
    assert everything == [planned, late, bad, good]
    for query, expected in {
        "task=fails": [late, bad],
        "status=FAILED": [late, bad],
        "status=completed&status=FAILED": everything,
        "status=RUNNING": [],
        "failure_kind=EXCEPTION": [late, bad],
        "failure_kind=LOST": [],
        "target=desk%2F1": [good],
        f"schedule={schedule}": [planned],
        f"schedule={quote(f'nightly {HOSTILE}')}": [planned],
        "q=alert": [bad],
        "q=50%25": [late],
        "within=1h": everything,
        "within=7d": everything,
        "q=PLANNED": [planned],
        "since=2000-01-01T00:00&until=2001-01-01T00:00": [],
        "since=2000-01-01T00:00:00Z": everything,
        "until=2000-01-01T00:00%2B01:00": [],
    }.items():
        assert listed(read(site.http, f"/history?{query}")) == expected, query
    text = read(site.http, "/history")
    assert HOSTILE not in text
    assert "&lt;script&gt;" in text
    assert sorted(drawn(text)) == sorted(everything)


@pytest.mark.parametrize(
    ("query", "field", "word"),
    [
        ("status=ODD", "status", "there is no status"),
        ("failure_kind=ODD", "failure_kind", "there is no kind"),
        ("target=nowhere", "target", "nowhere"),
        ("schedule=x", "schedule", "there is no schedule"),
        (f"schedule={9**30}", "schedule", "schedule must be a whole number"),
        (f"schedule={'9' * 5_000}", "schedule", "schedule must be a whole number"),
        ("since=soon", "since", "since is not"),
        ("until=0001-01-01T00:00%2B14:00", "until", "until is outside"),
        ("within=ever", "", "within must be"),
        ("cursor=x", "", "cursor is not"),
        (f"cursor={cursor_of('event:', '0' * 20, '9' * 30)}", "", "cursor is not"),
        (f"status=FAILED&cursor={cursor_of('jobs:1:1:1:', '0' * 20, '9' * 30)}", "", "cursor is not"),
    ],
)
def test_an_impossible_search_is_said_at_its_field(site: Site, query: str, field: str, word: str) -> None:
    answer = site.http.get(f"/ui/history?{query}")
    assert answer.status_code == 422
    assert word in answer.text
    assert not field or re.search(rf'name="{field}"[^>]* aria-invalid="true"', answer.text)


def test_times_are_the_readers_own(site: Site) -> None:
    site.http.cookies.set("headway_zone", "Pacific%2FKiritimati")
    text = read(site.http, "/history?since=2026-03-01T10:00:00Z&until=2026-03-02T00:30")
    assert "(Pacific/Kiritimati)" in text
    assert 'name="since" value="2026-03-02T00:00"' in text
    assert 'name="until" value="2026-03-02T00:30"' in text
    site.http.cookies.set("headway_time", "utc")
    assert 'name="since" value="2026-03-01T10:00"' in read(site.http, "/history?since=2026-03-01T10:00:00Z")
    site.http.cookies.set("headway_time", "local")
    assert 'value="9999-12-31T23:59:59Z"' in read(site.http, "/history?until=9999-12-31T23:59:59Z")


def test_the_latest_start_comes_first(site: Site) -> None:
    """Not what was made last."""
    old, *_ = enqueue(site, "research.run", params={"topic": "old"}, hold=True)
    made = enqueue(site, "research.run", 3, params={"topic": "new"})
    site.drain()
    site.http.post(f"/api/jobs/{old}/resume")
    site.drain()
    text = read(site.http, "/history")
    assert listed(text) == [old, *reversed(made)]
    assert "topic: old</span>" in text
    assert "The latest start first." in text


@pytest.mark.parametrize(
    ("word", "zone", "since", "until"),
    [
        ("today", "UTC", "2026-03-10T00:00:00Z", None),
        ("yesterday", "UTC", "2026-03-09T00:00:00Z", "2026-03-10T00:00:00Z"),
        ("today", "Asia/Tokyo", "2026-03-09T15:00:00Z", None),
        ("yesterday", "America/Los_Angeles", "2026-03-08T08:00:00Z", "2026-03-09T07:00:00Z"),
        ("7d", "UTC", "2026-03-03T03:00:00Z", None),
        ("", "UTC", None, None),
    ],
)
def test_days_are_those_of_the_reader(word: str, zone: str, since: str | None, until: str | None) -> None:
    now = instant("2026-03-10T03:00:00Z", field="now")
    expected = tuple(None if one is None else instant(one, field="t") for one in (since, until))
    assert within(word, now, zone) == expected


def test_a_day_that_a_clock_change_shortens_begins_when_it_begins() -> None:
    """In Havana the clocks go from 23:59:59 on the seventh to 01:00 on the eighth of March."""
    now = instant("2026-03-09T12:00:00Z", field="now")
    began, ended = (instant(text, field="t") for text in ("2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z"))
    assert within("yesterday", now, "America/Havana") == (began, ended)


def test_the_chips_of_days_narrow_both_lists(database_url: str) -> None:
    clock = FrozenClock("2026-03-09T23:00:00Z")
    with serving(database_url, clock=clock) as site:
        (before,) = enqueue(site, "fails", params={"why": "of yesterday"})
        site.drain()
        clock.advance("2h")
        (after,) = enqueue(site, "fails", params={"why": "of today"})
        site.drain()
        for word, wanted in (("today", [after]), ("yesterday", [before]), ("7d", [after, before])):
            page = read(site.http, f"/history?within={word}")
            assert listed(page) == wanted, word
            assert re.search(rf'within={word}" aria-current="true"', page)
            page = read(site.http, f"/history/errors?within={word}")
            assert ("of yesterday" in page, "of today" in page) == (before in wanted, after in wanted), word
            assert re.search(rf'within={word}" aria-current="true"', page)


def test_pages_follow_each_other_and_keep_what_was_asked(site: Site) -> None:
    made = enqueue(site, "fails", 55)
    site.drain()
    first = read(site.http, "/history?task=fails")
    assert listed(first) == made[:4:-1]
    assert len(drawn(first)) == 55, "the picture reaches further than the table"
    further = re.search(r'rel="next" href="/ui([^"]+)"', first)
    assert further is not None
    second = read(site.http, further[1].replace("&amp;", "&"))
    assert listed(second) == made[4::-1]
    assert "task=fails" in further[1]
    assert 'rel="next"' not in second


def test_a_search_that_looked_far_in_vain_says_so(desk: Site) -> None:
    """A page is bounded: what it did not look at is offered."""
    numbers = (
        f"with recursive g(n) as (select 1 union all select n + 1 from g where n < {EVENTS + 100}) select n from g"
    )

    def fill(text: str) -> None:
        database = desk.app.client.database
        database.transact("fill", lambda tx: database.execute_script(tx, text))

    fill(
        "insert into hw_job (id, tenant_id, bucket_id, status, priority, position, created_at, fence, started_at,"
        " finished_at, task, params, options, created_by) select n, 1, 1, 6, 0, n, n, 1, n, n, 'x', '{}', '{}', '{}'"
        f" from ({numbers})"
    )
    fill(
        "insert into hw_run (job_id, tenant_id, task, params, worker_id, started_at, status, finished_at)"
        " select id, 1, task, params, 1, created_at, status, created_at from hw_job"
    )
    fill(
        "insert into hw_event (tenant_id, thing, thing_id, version, kind, at, actor, fence)"
        " select 1, 'job', id, 1, 'job.claimed', created_at, '{}', 1 from hw_job order by id"
    )
    text = read(desk.http, "/history?task=y")
    assert "No match among the runs that were read" in text
    assert 'rel="next"' in text


# --- errors -------------------------------------------------------------------------------------------------------


def test_errors_are_grouped_by_what_they_have_in_common(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(3):
        enqueue(site, "fails", params={"why": f"no file /tmp/{n}/x after {n} s"})
    (odd,) = enqueue(site, "fails", params={"why": HOSTILE})
    site.drain()
    text = read(site.http, "/history/errors")
    assert "All 4 failed runs" in text
    monkeypatch.setattr(history, "EVENTS", 1)
    assert "The latest 4 failed runs" in read(site.http, "/history/errors"), "who knows what came right long ago"
    monkeypatch.undo()
    assert "no file &lt;path&gt; after &lt;n&gt; s" in text
    assert HOSTILE not in text
    counts = [int(count) for count in re.findall(r'class="number"><b>([\d,]+)</b>', text)]
    assert counts == [3, 1]
    (address, *_) = re.findall(r'href="/ui(/history/errors\?key=\w+)"', text)
    one = read(site.http, address)
    assert len(listed(one)) == 3
    assert odd not in listed(one)
    assert "3 runs of all 4 failed runs" in one
    assert "no longer among" in read(site.http, "/history/errors?key=none")
    assert "No failure matches." in read(site.http, "/history/errors?task=story.generate")
    assert "no file" in read(site.http, "/history/errors?task=fails&within=1h&cursor=x")
    assert site.http.get("/ui/history/errors?within=ever").status_code == 422


def test_errors_that_came_right_stay_and_say_so(site: Site) -> None:
    clumsy = threading.Event()

    @site.app.task("clumsy")
    async def clumsy_task() -> None:
        if not clumsy.is_set():
            raise Fail("stumbled")

    made = enqueue(site, "clumsy", 3)
    held = enqueue(site, "clumsy", 2, target="desk-1")
    site.drain()
    assert "none yet" in read(site.http, "/history/errors")
    clumsy.set()
    site.app.client.retry(made[0])
    site.app.client.resolve(held[0], None)
    site.drain()
    text = read(site.http, "/history/errors")
    assert "2 of 4" in text, "three failed, one held its target, and the last of all went well"
    (address,) = re.findall(r'href="/ui(/history/errors\?key=\w+)"', text)
    one = read(site.http, address)
    assert "2 of 4 were retried successfully, or resolved by a person" in one
    assert set(listed(one)) == {*made, held[0]}
    assert one.count("came right</span>") == 2


# --- the picture --------------------------------------------------------------------------------------------------


def dot(n: int, seconds: float, tone: str = "good") -> Dot:
    return Dot(f"run-{n}", f"/ui/jobs/{n}", f"#{n} {HOSTILE}", n * 60 * SECOND, seconds, "completed", tone)


def test_the_picture_places_dots_by_time_and_duration() -> None:
    text = scatter([dot(1, 1.0), dot(2, 2.0), dot(3, 1.5, "bad")])
    assert HOSTILE not in text
    assert text.count("<a ") == text.count("<title>") == text.count('tabindex="-1"') == 3
    first, second = re.findall(r'circle class="dot good" cx="([\d.]+)" cy="([\d.]+)" r="4.5"/><title>', text)
    assert float(first[0]) < float(second[0])
    assert float(first[1]) > float(second[1]), "longer is higher"
    assert text.index("run-3") > text.index("run-2"), "nothing hides what failed"
    assert "style=" not in text


def test_durations_far_apart_are_told_by_their_magnitude() -> None:
    near, far = durations([1.0, 20.0]), durations([0.004, 7_200.0])
    assert (near.wide, far.wide) == (False, True)
    marks = "1 ms, 10 ms, 100 ms, 1 s, 10 s, 1 min, 10 min, 1 h, 6 h"
    assert ", ".join(in_words(mark) for mark in far.marks) == marks
    assert 3 <= len(near.marks) <= 7
    for scale, values in ((near, (1.0, 5.0, 20.0)), (far, (0.004, 1.0, 7_200.0))):
        places = [scale.at(value) for value in values]
        assert places == sorted(places, reverse=True)
        assert all(30 <= place <= 222 for place in places)


@pytest.mark.parametrize("seconds", [[0.0, 0.0], [0.001] * 2, [0.3, 0.30001], [5e6, 1e8], [0.0, 1e9], [90.0, 100.0]])
def test_any_durations_can_be_drawn(seconds: list[float]) -> None:
    found = durations(seconds)
    assert 1 <= len(found.marks) <= 15
    assert all(29 <= found.at(one) <= 223 for one in seconds), found


# --- in a browser -------------------------------------------------------------------------------------------------


def test_a_browser_searches_follows_and_opens_a_dot(tabs: Tabs, desk: Site) -> None:
    enqueue(desk, "fails", 2, params={"why": "no file 1"})
    drain(desk)
    page = tabs.open("/history")
    expect(page.locator("tr[id^=run-]")).to_have_count(2)
    (third,) = enqueue(desk, "research.run", params={"topic": "new"})
    drain(desk)
    expect(page.locator(f"#run-{third}")).to_contain_text("COMPLETED")
    expect(page.locator(f'svg a[data-key="run-{third}"]')).to_have_count(1)
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("no file")
    page.keyboard.press("Enter")
    expect(page.locator("tr[id^=run-]")).to_have_count(2)
    page.get_by_role("link", name="last hour").click()
    expect(page).to_have_url(re.compile(r"q=no\+file.*within=1h"))
    expect(page.locator("tr[id^=run-]")).to_have_count(2)
    page.locator("svg a").first.click()
    expect(page).to_have_url(re.compile(r"/ui/jobs/\d+$"))
    tabs.go(page, "/history/errors")
    page.get_by_role("link", name="no file <n>").click()
    expect(page.locator("tr[id^=run-]")).to_have_count(2)
