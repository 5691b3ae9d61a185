"""The queue: its order, moving by button, key and pointer, filters with counts, acting on all that fits, pausing."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, Route, expect

from headway.clock import micros
from headway.model.jobs.states import State
from headway.store.queue import lanes
from tests.support.browser import Tabs, keep_still, refresh
from tests.support.forms import fill, read
from tests.support.service import Site
from tests.support.waiting import until


def enqueue(site: Site, count: int, **wishes: object) -> list[int]:
    return [site.app.enqueue("research.run", {"topic": str(n)}, **wishes).id for n in range(count)]


def shown(text: str) -> list[int]:
    return [int(found) for found in re.findall(r'data-job="(\d+)"', text)]


def version(text: str, job_id: int) -> str:
    found = re.search(rf'/jobs/{job_id}/move".*?name="version" value="(\d+)"', text, re.S)
    assert found is not None
    return found.group(1)


def statuses(site: Site, ids: list[int]) -> list[str]:
    return [site.app.client.get(job_id).status.name for job_id in ids]


# --- its order ----------------------------------------------------------------------------------------------------


def test_the_queue_comes_in_claim_order_and_in_pages(site: Site) -> None:
    low, high = enqueue(site, 52), enqueue(site, 3, priority=5)
    first = read(site.http, "/queue")
    assert shown(first) == high + low[:47]
    following = re.search(r'rel="next" href="/ui([^"]+)"', first)
    assert following is not None
    assert shown(read(site.http, following.group(1))) == low[47:]
    assert "no worker is alive" in first


def test_a_row_moves_without_script_and_goes_back(site: Site) -> None:
    one, two, three = enqueue(site, 3)
    text = read(site.http, "/queue")
    moved = fill(site.http, "/queue", f"/jobs/{three}/move", before=str(two), version=version(text, three)).text
    assert shown(moved) == [one, three, two]
    assert "is now at rank 2" in moved
    undo = dict(re.findall(r'name="(\w+)" value="([^"]*)"', moved[moved.index('id="said"') : moved.index("<main")]))
    back = {name: undo[name] for name in ("after", "before", "version") if name in undo}
    assert shown(fill(site.http, "/queue", f"/jobs/{three}/move", **back).text) == [one, two, three]


def test_a_job_that_changed_meanwhile_is_not_moved(site: Site) -> None:
    one, two = enqueue(site, 2)
    text = read(site.http, "/queue")
    site.app.client.edit(two, priority=0, params={"topic": "other"})
    answer = fill(site.http, "/queue", f"/jobs/{two}/move", to="top", version=version(text, two)).text
    assert f"job {two} has changed since it was read" in answer
    assert shown(answer) == [one, two]


# --- by key and pointer -------------------------------------------------------------------------------------------


def order(page: Page) -> list[int]:
    return [int(one.get_attribute("data-job") or 0) for one in page.locator("tr[data-job]").all()]


def test_rows_move_by_keys_and_focus_stays(tabs: Tabs, desk: Site) -> None:
    one, two, three, four = enqueue(desk, 4)
    page = tabs.open("/queue")
    row, news = page.locator(f"#job-{three}"), page.locator("#said .words")
    row.focus()
    page.keyboard.press("Alt+ArrowUp")
    expect(news).to_have_text(f"Job {three} is now at rank 2.")
    assert order(page) == [one, three, two, four]
    expect(row).to_be_focused()
    page.keyboard.press("Alt+Shift+ArrowDown")
    expect(news).to_have_text(f"Job {three} is now at rank 4.")
    page.keyboard.press("Alt+ArrowUp")
    page.keyboard.press("Alt+ArrowUp")
    expect(news).to_have_text(f"Job {three} is now at rank 2.")
    page.keyboard.press("Alt+Shift+ArrowUp")
    expect(news).to_have_text(f"Job {three} is now at rank 1.")
    assert order(page) == [three, one, two, four]
    expect(row).to_be_focused()
    page.locator("#said").get_by_role("button", name="Undo").click()
    expect(page.locator("tr[data-job]").first).to_have_attribute("data-job", str(one))
    assert order(page) == [one, three, two, four]
    page.keyboard.press("Escape")
    page.get_by_role("button", name=f"Move job {four} up").click()
    expect(page.locator("#said")).to_contain_text(f"Job {four} is now at rank 3.")
    expect(page.get_by_role("button", name=f"Move job {four} up")).to_be_focused()


def test_a_row_is_dragged_and_nothing_moves_under_the_pointer(tabs: Tabs, desk: Site) -> None:
    one, two, three = enqueue(desk, 3)
    other, page = tabs.open("/queue"), tabs.open("/queue")
    grip = page.locator(f"#job-{three} .grip")
    grip.hover()
    page.mouse.down()
    box = page.locator(f"#job-{one}").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 40, box["y"] + 8)
    page.mouse.move(box["x"] + 40, box["y"] + 4)
    expect(page.locator("body")).to_have_attribute("data-dragging", str(three))
    late = enqueue(desk, 1)[0]
    expect(other.locator(f"#job-{late}")).to_be_visible()
    expect(other.locator(f"#job-{enqueue(desk, 1)[0]}")).to_be_visible()
    assert page.locator(f"#job-{late}").count() == 0
    expect(page.locator(f"#job-{one}")).to_have_class("drop-before")
    with page.expect_response(re.compile(rf"/jobs/{three}/move")):
        page.mouse.up()
    expect(page.locator(f"#job-{late}")).to_be_visible()
    expect(page.locator("tr[data-job]").first).to_have_attribute("data-job", str(three))
    assert order(page)[:4] == [three, one, two, late]
    assert page.locator("body").get_attribute("data-dragging") is None


def test_what_was_asked_for_before_a_row_was_taken_hold_of_is_not_shown(tabs: Tabs, desk: Site) -> None:
    (one,) = enqueue(desk, 1)
    page = tabs.open("/queue")
    asked: list[Route] = []
    page.route("**/ui/queue", lambda route: route.continue_() if asked else asked.append(route))
    until(lambda: (page.wait_for_timeout(20), asked)[1], "that it is asked for again")  # type: ignore[func-returns-value]
    keep_still(page)
    desk.app.client.cancel(one)
    asked[0].fulfill(response=asked[0].fetch())
    refresh(page)
    expect(page.locator(f"#job-{one}")).to_be_visible()


def test_a_move_that_came_too_late_says_so(tabs: Tabs, desk: Site) -> None:
    one, two = enqueue(desk, 2)
    page = tabs.open("/queue")
    keep_still(page)  # as if the change came in the moment between
    desk.app.client.cancel(two)
    page.locator(f"#job-{two}").focus()
    page.keyboard.press("Alt+ArrowUp")
    expect(page.locator("#said .banner.bad")).to_contain_text(f"job {two} has changed since it was read")
    expect(page.locator("#said .words")).to_contain_text("has changed since it was read")
    assert order(page) == [one]


# --- filters and many at once -------------------------------------------------------------------------------------


def test_filters_narrow_and_count(site: Site) -> None:
    plain, desk = enqueue(site, 2), enqueue(site, 2, target="desk-1")
    later = enqueue(site, 1, delay="1h", target="desk-1")
    site.app.enqueue("story.generate", {"topic": "fog"}, hold=True)
    text = read(site.http, "/queue?target=desk-1")
    assert shown(text) == desk + later
    assert re.search(r"In line <b>3</b>", text)
    assert re.search(r"SCHEDULED <b>1</b>", text)
    assert shown(read(site.http, "/queue?status=SCHEDULED")) == later
    assert shown(read(site.http, "/queue?q=RESEARCH")) == plain + desk + later
    assert "No job matches." in read(site.http, "/queue?task=nothing")
    empty = read(site.http, "/queue?status=PAUSED,ERROR")
    assert "No job matches." in empty


def test_a_filter_that_is_wrong_is_said_and_kept(site: Site) -> None:
    for query, words in (("target=nowhere", "nowhere"), ("group=x", "group must be"), ("status=BUSY", "no status")):
        answer = site.http.get(f"/ui/queue?{query}&q=fog")
        assert answer.status_code in (404, 422)
        assert words in answer.text
        assert 'value="fog"' in answer.text


def test_all_that_fits_is_cancelled_with_its_number_spelled_out(site: Site) -> None:
    mine, other = enqueue(site, 3, target="desk-1"), enqueue(site, 1)
    path = "/queue?target=desk-1"
    assert "Cancel 3 jobs" in read(site.http, path)
    act = {"action": "cancel", "target": "desk-1", "status": "QUEUED"}
    late = enqueue(site, 1, target="desk-1")
    refused = fill(site.http, path, "/queue/act", expected="3", **act).text
    assert "4 jobs fit, not 3" in refused
    assert statuses(site, mine + late) == ["QUEUED"] * 4
    done = fill(site.http, path, "/queue/act", expected="4", **act).text
    assert "4 jobs were cancelled" in done
    assert statuses(site, mine + late) == ["CANCELLED"] * 4
    assert statuses(site, other) == ["QUEUED"]


def test_many_are_acted_on_in_slices_and_the_rest_when_asked_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.dashboard.pages.queue.SLICE", 2)
    mine = enqueue(site, 5, target="desk-1")
    path, act = "/queue?target=desk-1", {"action": "interrupt", "target": "desk-1", "status": "QUEUED,WAITING"}
    first = fill(site.http, path, "/queue/act", expected="5", **act).text
    assert "2 jobs were interrupted, or put on hold. 3 of 5 are left: continue?" in first
    banner = first[first.index('id="said"') : first.index("<main")]
    assert ">Go on</button>" in banner
    rest = dict(re.findall(r'name="(\w+)" value="([^"]*)"', banner))
    rest = {name: rest[name] for name in ("action", "expected", "before", "status", "target")}
    assert (rest["expected"], rest["before"]) == ("3", str(mine[3]))
    assert statuses(site, mine) == ["QUEUED"] * 3 + ["WAITING"] * 2
    late = enqueue(site, 1, target="desk-1")  # nobody spoke of it
    site.app.client.cancel(mine[0])  # one less than were spoken of
    last = fill(site.http, path, "/queue/act", **rest).text
    assert "2 jobs were interrupted" in last
    assert "go on?" not in last
    assert statuses(site, mine + late) == ["CANCELLED"] + ["WAITING"] * 4 + ["QUEUED"]


def test_the_filter_offers_what_there_is(site: Site) -> None:
    enqueue(site, 1, target="desk & 1")
    made = site.app.client.schedules.create("nightly", {"cron": "@daily", "steps": [{"task": "fails"}]})
    text = read(site.http, "/queue")
    assert '<option value="desk &amp; 1"></option>' in text
    assert '<option value="story.generate"></option>' in text
    assert f'<option value="{made.id}">nightly</option>' in text


def test_a_filtered_queue_comes_in_claim_order_and_in_pages(site: Site) -> None:
    wanted = []
    for n in range(60):
        wanted += enqueue(site, 1, target="desk-1", priority=n % 3)
        enqueue(site, 1, priority=n % 3)
    order_of = {job_id: (-(n % 3), job_id) for n, job_id in enumerate(wanted)}
    first = read(site.http, "/queue?target=desk-1")
    following = re.search(r'rel="next" href="/ui([^"]+)"', first)
    assert following is not None
    rest = read(site.http, following.group(1).replace("&amp;", "&"))
    assert shown(first) + shown(rest) == sorted(wanted, key=lambda job_id: order_of[job_id])
    assert 'rel="next"' not in rest


def test_failed_jobs_are_tried_again_together(tabs: Tabs, desk: Site) -> None:
    failed = [desk.app.enqueue("fails", {}).id for _ in range(2)]
    desk.drain()
    page = tabs.open("/queue?status=FAILED")
    page.get_by_text("Retry 2 jobs").first.click()
    third = desk.app.enqueue("fails", {}).id
    desk.drain()
    expect(page.locator(f"#job-{third}")).to_be_visible()
    # The sheet still says what was read, so that is what is sent: and refused, because it is not so any more.
    page.get_by_role("button", name="Retry 2 jobs").click()
    expect(page.locator("#said")).to_contain_text("3 jobs fit, not 2")
    page.get_by_text("Retry 3 jobs").first.click()
    page.get_by_role("button", name="Retry 3 jobs").click()
    expect(page.locator("#said")).to_contain_text("3 jobs were tried again.")
    assert statuses(desk, failed) == ["FAILED"] * 2
    assert len(shown(read(desk.http, "/queue"))) == 3


# --- pausing ------------------------------------------------------------------------------------------------------


def test_the_queue_is_paused_with_a_note_for_a_while(tabs: Tabs, desk: Site) -> None:
    enqueue(desk, 1)
    page = tabs.open("/queue")
    page.get_by_text("Pause", exact=True).click()
    page.get_by_label("Note").fill("<b>the disk</b> is full")
    page.get_by_label("Duration").fill("2h")
    page.get_by_role("button", name="Pause the queue").click()
    expect(page.locator("#strip")).to_contain_text("<b>the disk</b> is full")
    expect(page.locator("tr[data-job]")).to_contain_text("the queue is paused")
    with desk.app.database.read() as tx:
        pause, everybody = lanes.pauses(tx, desk.app.client.tenant_id)
    assert everybody is None
    assert pause is not None
    assert pause.until is not None
    assert abs(pause.until - pause.since - micros(7_200)) < micros(60)
    page.get_by_role("button", name="Resume the queue").click()
    expect(page.locator("#strip .banner")).to_have_count(0)
    expect(page.locator("#pausing")).to_contain_text("Pause")


def test_a_pause_of_nothing_is_refused(site: Site) -> None:
    for wrong in ("0s", "soon"):
        assert "for" in fill(site.http, "/queue", "/queue/pause", **{"for": wrong}).text
        with site.app.database.read() as tx:
            assert lanes.pauses(tx, site.app.client.tenant_id) == (None, None)


def test_every_queue_is_the_systems_to_pause(site: Site) -> None:
    site.app.client.tenants.create("other")
    assert "the queues of all tenants" in read(site.http, "/queue")
    answer = fill(site.http, "/queue", "/queue/pause", everybody="1").text
    assert "Every queue is paused" in answer
    fill(site.http, "/queue", "/queue/resume", everybody="1")
    someone = site.as_(site.token("admin", tenant="other"))
    assert "the queues of all tenants" not in read(someone, "/queue")
    answer = fill(someone, "/queue", "/queue/pause", everybody="1").text
    assert "only tokens of the system" in answer
    with site.app.database.read() as tx:
        assert lanes.pauses(tx, site.app.client.tenant_id) == (None, None)


def test_nothing_here_is_anybody_elses(site: Site) -> None:
    mine = enqueue(site, 2)
    site.app.client.tenants.create("other")
    someone = site.as_(site.token("admin", tenant="other"))
    assert shown(read(someone, "/queue")) == []
    answer = fill(someone, "/queue", "/queue/act", action="cancel", expected="2", status="QUEUED").text
    assert "0 jobs fit, not 2" in answer
    assert statuses(site, mine) == [State.QUEUED.name] * 2
