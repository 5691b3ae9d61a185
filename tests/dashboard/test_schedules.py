"""The pages of schedules: looking, switching, running, filling in, deleting, and who may. The editor has its own."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from headway.dashboard.charts.sparkline import MOST, spark
from headway.engine.scheduler.scheduler import Scheduler
from headway.store.groups import views as group_views
from headway.testing import FrozenClock
from tests.support.browser import Tabs
from tests.support.editor import STORY, filled_in, jobs_of, make, stored, work
from tests.support.forms import csrf, fill, post, read
from tests.support.service import Site, serving
from tests.support.wire import neighbour

pytestmark = pytest.mark.shown

# --- switching, running, filling in -------------------------------------------------------------------------------


def test_switching_running_and_forcing(site: Site) -> None:
    make(site, "one <b>")
    answer = fill(site.http, "/schedules/1", "/schedules/1/disable", reason="until <Friday>")
    assert "is disabled" in answer.text
    assert "Reason: until &lt;Friday&gt;" in answer.text
    assert "<b>" not in answer.text.split('id="head"')[1].split("</h1>")[0]
    ran = fill(site.http, "/schedules/1", "/schedules/1/run", params='{"words": 7}')
    assert '<a href="/ui/executions/1">Execution 1</a> of one &lt;b&gt; was started.' in ran.text
    again = fill(site.http, "/schedules", "/schedules/1/run")
    assert "has an unfinished execution, 1: wait for it, or force" in again.text
    assert "Run another beside it" in again.text
    assert "Execution 2" in fill(site.http, "/schedules", "/schedules/1/run", force="1").text
    bad = fill(site.http, "/schedules/1", "/schedules/1/run", params="[1]", force="1")
    assert "params must be an object" in html.unescape(bad.text)
    fill(site.http, "/schedules", "/schedules/1/enable")
    assert stored(site).enabled
    jobs = [json.loads(view.job.params) for view in jobs_of(site)]
    assert jobs == [{"topic": "fog"}, {"topic": "fog", "words": 7}]


def test_a_backfill_is_shown_before_it_is_made(site: Site) -> None:
    times = ["2026-01-05T12:00:00Z", "2026-01-06T12:00:00Z", "2026-02-01T12:00:00Z"]
    site.app.client.schedules.create("past", {"times": times, "timezone": "Asia/Tokyo", "steps": [STORY]})
    path = "/schedules/1/backfill"
    seen = site.http.get(f"/ui{path}", params={"since": "2026-01-05 21:00", "until": "2026-01-31 00:00"})
    assert "2 executions would be made" in seen.text
    assert "Tue 06 Jan 2026 21:00 JST" in seen.text
    assert "Make 2 executions" in seen.text
    assert site.app.client.schedules.get(1).last_run_at is None
    assert jobs_of(site) == []
    made = fill(site.http, path, path, since="2026-01-05 21:00", until="2026-01-31 00:00")
    assert "2 executions were made for past times of past." in made.text
    assert made.text.count("backfill</span>") == 2
    future = site.http.get(f"/ui{path}", params={"since": "2026-01-05 21:00", "until": "2999-01-01 00:00"})
    assert future.status_code == 422
    assert "until is in the future" in future.text


def test_deleting_goes_by_what_was_seen(site: Site) -> None:
    make(site)
    refused = fill(site.http, "/schedules/1", "/schedules/1/delete", version="7")
    assert "has changed since this page was loaded" in refused.text
    gone = fill(site.http, "/schedules/1", "/schedules/1/delete", version="1")
    assert (gone.url.path, "was deleted" in gone.text) == ("/ui/schedules", True)
    assert "It was deleted" in site.http.get("/ui/schedules/1").text


# --- looking ------------------------------------------------------------------------------------------------------


@pytest.fixture
def ledger(database_url: str) -> Iterator[Site]:
    """Every hour, with an execution that does not end, a restart, and a task that went away."""
    clock = FrozenClock("2026-01-01T00:00:00Z")
    with serving(database_url, clock=clock) as site:
        site.app.client.schedules.create("hourly", {"cron": "@hourly", "timezone": "Asia/Tokyo", "steps": [STORY]})
        scheduler = Scheduler(site.app.client)
        for hours in ("1h", "1h", "1h", "5h"):
            clock.advance(hours)
            while scheduler.tick() == 0.0:
                pass
        yield site


def test_the_page_shows_the_ledger_with_reasons(ledger: Site) -> None:
    text = read(ledger.http, "/schedules/1")
    part = text[text.index('id="ledger"') : text.index('id="events"')]
    outcomes = re.findall(r'<span class="state [a-z]+">([A-Z]+)</span>', part)
    assert outcomes[-1] == "FIRED"
    assert set(outcomes) >= {"FIRED", "SKIPPED", "COALESCED"}
    assert "An earlier execution had not ended (overlap)." in part
    assert "a later time ran for it" in part
    assert 'href="/ui/executions/1"' in part
    assert "unless an execution is still under way then" in text
    assert "An earlier execution" in read(ledger.http, "/schedules/1/ticks")


def test_a_step_that_waits_for_a_person_is_told_at_the_top(site: Site) -> None:
    step = {"task": "fails", "name": "export", "target": "directory"}
    site.app.client.schedules.create("sync", {"cron": "@daily", "steps": [step]})
    before = html.unescape(read(site.http, "/schedules/1"))
    assert "The step export is PAUSED if its worker is shut down" in before
    assert "waits for job" not in before
    site.app.client.schedules.run("sync")
    site.drain()
    held = html.unescape(read(site.http, "/schedules/1"))
    assert "sync skips every tick: execution 1 waits for job 1 (step export, ERROR)" in held
    assert 'href="/ui/jobs/1">Decide about it</a>' in held
    site.app.client.schedules.disable("sync")
    assert "skips every tick" not in read(site.http, "/schedules/1")


def test_missed_ticks_are_told_until_the_button_is_pressed(database_url: str) -> None:
    clock = FrozenClock("2026-01-01T00:00:00Z")
    with serving(database_url, clock=clock) as site:
        make(site, "hourly", cron="@hourly", catch_up="none")
        clock.advance("2h 30m")
        Scheduler(site.app.client).tick()
        words = "2 ticks of hourly were missed while no scheduler ran"
        assert words in site.http.get("/ui/schedules/1").text
        assert words in site.http.get("/ui/health").text
        done = fill(site.http, "/schedules/1", "/schedules/1/seen")
        assert "The missed ticks of hourly are marked as seen." in done.text
        assert words not in site.http.get("/ui/schedules/1").text
        assert words not in site.http.get("/ui/health").text


def test_the_list_says_when_what_and_how_it_went(site: Site) -> None:
    make(site)
    make(site, "broken", cron="*/15 * * * *", steps=[{"task": "fails"}])
    for _ in range(3):
        site.app.client.schedules.run("broken")
        site.drain()
    site.app.client.schedules.run("nightly")
    text = read(site.http, "/schedules")
    assert "at 02:30, Monday to Friday, Berlin time" in text
    assert "every 15 minutes" in text
    assert "last 3 executions: 3 failed" in text
    assert "last 1 execution: 1 in progress" in text
    assert text.index(">broken</a>") < text.index(">nightly</a>")
    assert read(site.http, "/schedules/2").count('class="state bad">FAILED') == 3


def test_the_list_is_in_pages_and_an_empty_one_says_how_to_begin(site: Site) -> None:
    assert "headway schedules create" in read(site.http, "/schedules")
    for n in range(52):
        make(site, f"s{n:02}")
    first = read(site.http, "/schedules")
    assert first.count('<tr id="schedule-') == 50
    onward = re.search(r'rel="next" href="/ui([^"]+)"', first)
    assert onward is not None
    rest = read(site.http, html.unescape(onward[1]))
    assert re.findall(r'<tr id="schedule-(\d+)"', rest) == ["51", "52"]


def test_a_schedule_that_only_another_version_can_read_is_shown(site: Site) -> None:
    make(site)
    script = """update hw_schedule set definition = '{"moon": "full <b>"}', version = version + 1;"""
    database = site.app.database
    database.transact("spoil", lambda tx: database.execute_script(tx, script))
    assert "at times that this version of Headway cannot read" in read(site.http, "/schedules")
    page = read(site.http, "/schedules/1")
    assert "full &lt;b&gt;" in page
    assert 'href="/ui/schedules/1/edit"' not in page
    assert "is disabled" in fill(site.http, "/schedules", "/schedules/1/disable").text


def test_bars_are_the_last_executions_oldest_first(site: Site) -> None:
    make(site)
    other = make(site, "other")
    for n in range(MOST + 2):
        site.app.client.schedules.run(1, force=True)
        if n < 2:
            site.app.client.schedules.run(other, force=True)
    with site.app.database.read() as tx:
        found = group_views.last_executions(tx, site.app.client.tenant_id, [1, other, 99], MOST)
        page = group_views.groups_page(tx, site.app.client.tenant_id, kind="execution", schedule_id=other)
        foreign = group_views.last_executions(tx, 77, [1], MOST)
    assert [one.id for one in found[1]] == sorted(one.id for one in found[1])
    assert (len(found[1]), len(found[other]), found[99], foreign) == (MOST, 2, [], {1: []})
    assert [view.group.id for view in page.items] == [one.id for one in reversed(found[other])]
    picture = spark(found[1], page.items[0].group.created_at)
    assert picture.count('<rect class="runs"') == MOST
    assert spark(found[other], 0).count('<rect class="ghost"') == MOST - 2


# --- who may ------------------------------------------------------------------------------------------------------


def test_a_viewer_looks_and_an_operator_leaves_admin_tasks_alone(site: Site) -> None:
    make(site)
    command = {"cron": "0 3 * * *", "steps": [{"task": "command", "params": {"argv": ["true"]}}]}
    site.app.client.schedules.create("shell", command)
    viewer, operator = site.as_(site.token("viewer")), site.as_(site.token("operator", name="bob"))
    for path in ("/schedules", "/schedules/1", "/schedules/1/ticks"):
        text = read(viewer, path)
        assert 'action="/ui/schedules' not in text
        assert "/edit" not in text
    assert viewer.get("/ui/schedules/new").status_code == 403
    assert post(viewer, "/schedules/1/run", csrf=csrf(read(viewer, "/schedules"))).status_code == 403
    shell = read(operator, "/schedules/2")
    assert 'href="/ui/schedules/2/edit"' not in shell
    assert "only an admin may create or edit" in shell
    shown = filled_in(read(operator, "/schedules/2/edit"))
    assert post(operator, "/schedules/2/edit", **{**shown, "cron": "0 4 * * *"}).status_code == 403
    taken = {**shown, "step-0-task": "story.generate", "step-0-params": '{"topic": "a"}'}
    assert post(operator, "/schedules/2/edit", **taken).status_code == 403
    sneaky = {**filled_in(read(operator, "/schedules/1/edit")), "step-0-task": "command", "step-0-params": "{}"}
    assert post(operator, "/schedules/1/edit", **sneaky).status_code == 403
    assert "only an admin" in fill(operator, "/schedules/2", "/schedules/2/delete", version="1").text
    assert "only an admin" in fill(operator, "/schedules/2", "/schedules/2/run", params='{"cwd": "/"}').text
    assert "Execution 1</a> of shell" in fill(operator, "/schedules/2", "/schedules/2/run").text
    assert {one.version for one in site.app.client.schedules.list()} == {1}


def test_another_tenants_schedules_and_templates_are_not_there(site: Site) -> None:
    make(site)
    site.app.client.templates.create("fog", "story.generate")
    other = neighbour(site)
    for path in ("/schedules/1", "/schedules/1/edit", "/schedules/1/backfill", "/schedules/1/ticks", "/templates/1"):
        assert other.get(f"/ui{path}").status_code == 404
    token = csrf(read(other, "/schedules/new"))
    assert post(other, "/schedules/1/run", csrf=token).status_code == 404
    assert "No schedule yet" in read(other, "/schedules")
    made = other.get("/ui/schedules/preview", params={"when": "interval", "interval": "1h", "of": "1"})
    assert made.status_code == 200


# --- in a browser -------------------------------------------------------------------------------------------------


def test_writing_and_running_a_schedule_in_a_browser(tabs: Tabs, desk: Site) -> None:
    page = tabs.open("/schedules/new")
    page.get_by_label("Name", exact=True).first.fill("nightly")
    page.get_by_label("Time zone").fill("Europe/Berlin")
    page.get_by_text("Only from a day on").click()
    page.get_by_label("Not before").fill("2027-03-27 00:00")
    page.locator("#cron").fill("30 2 * * *")
    expect(page.locator("#preview")).to_contain_text("moved by the clock change from 02:30 to 03:00")
    page.locator("#cron").fill("30 2 * *")
    expect(page.locator("#preview .problem")).to_be_visible()
    page.get_by_label("at an interval").check()
    expect(page.locator("#cron")).to_be_hidden()
    page.locator("#interval").fill("45m")
    expect(page.locator("#preview")).to_contain_text("every 45m")

    page.locator("#step-0-task").fill("research.run")
    page.locator("#step-0-params").fill('{"topic": "fog"}')
    page.get_by_role("button", name="Add a step after the last one").click()
    expect(page.locator("#step-1-task")).to_be_focused()
    page.locator("#step-1-task").fill("never")
    page.get_by_role("button", name="Add a step after the last one").click()
    page.locator("#step-2-task").fill("story.generate")
    page.locator("#step-2-params").fill('{"topic": "fog"}')
    page.get_by_role("button", name="Remove this step").nth(1).click()
    expect(page.locator("#step-1-task")).to_have_value("story.generate")
    page.get_by_role("button", name="Add a step beside this one").nth(1).click()
    expect(page.locator("#step-2-task")).to_be_focused()
    expect(page.locator("#step-2-stage")).to_have_value("2")  # left empty, it does not count
    page.locator("#step-1-params").press("Tab")
    page.locator("#start").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("nightly")
    assert [step.task for step in stored(desk).parsed.steps] == ["research.run", "story.generate"]

    page.get_by_role("button", name="Run now").click()
    expect(page.locator("#said")).to_contain_text("Execution 1 of nightly was started.")
    expect(page.locator("#said a")).to_have_attribute("href", "/ui/executions/1")
    expect(page.locator("#execution-1")).to_contain_text("IN_PROGRESS")
    work(desk)
    expect(page.locator("#execution-1")).to_contain_text("COMPLETED")
    page.locator("summary", has_text="Disable").click()
    page.get_by_label("Reason").fill("for now")
    page.get_by_role("button", name="Disable it").click()
    expect(page.locator("#head")).to_contain_text("Reason: for now")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#head .state").first).to_have_text("enabled")

    listed = tabs.open("/schedules")
    expect(listed.locator("#schedule-1 svg")).to_have_attribute("aria-label", "last 1 execution: 1 completed")
    page.locator("summary", has_text="Delete").click()  # a sheet that is open stays so while others come and go
    desk.app.client.schedules.run(1)
    expect(page.locator("#execution-2")).to_be_visible()
    expect(listed.locator("#schedule-1 svg")).to_have_attribute(
        "aria-label", re.compile(r"last 2 executions: 1 .*, 1 ")
    )
    expect(page.get_by_role("button", name="Delete nightly")).to_be_visible()


def test_a_visitor_logged_out_meanwhile_is_told_and_keeps_the_input(tabs: Tabs) -> None:
    page = tabs.open("/schedules/new")
    page.route("**/schedules/preview?*", lambda one: one.fulfill(status=303, headers={"Location": "/ui/login"}))
    page.locator("#cron").fill("15 2 * * *")
    expect(page.locator("#preview")).to_contain_text("You are logged out.")
    expect(page.locator("#preview form")).to_have_count(0)
    expect(page.locator("#cron")).to_have_value("15 2 * * *")
