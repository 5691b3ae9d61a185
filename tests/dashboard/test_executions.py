"""The pages of executions and groups: lists, stages over time, what they wait for, retry and cancel."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from headway.dashboard.pages.groups import StageView, rail
from headway.model.groups.group import Group
from headway.model.groups.progress import StageStanding
from headway.model.jobs.states import State
from headway.store.groups.timeline import ROWS, first_row
from headway.store.groups.views import GroupView, StepView
from tests.support import browser as browsers
from tests.support.browser import Tabs, ready
from tests.support.forms import csrf, fill, post, read
from tests.support.life import Life
from tests.support.service import Site
from tests.support.wire import neighbour

pytestmark = pytest.mark.shown

STORY: dict[str, Any] = {"task": "story.generate", "params": {"topic": "fog"}}
HOSTILE = "<b onclick='x'>\"&"


def fired(site: Site, name: str, *steps: dict[str, Any]) -> int:
    made = site.app.client.schedules.create(name, {"cron": "@daily", "steps": list(steps)})
    return site.app.client.schedules.run(made.id)


def failing(site: Site, name: str = "nightly") -> int:
    return fired(site, name, STORY, {"task": "fails", "name": "print"}, {**STORY, "name": "mail"})


def test_an_execution_that_failed_says_where_and_is_retried_from_there(site: Site) -> None:
    number = failing(site)
    site.drain()
    shown = read(site.http, f"/executions/{number}")
    assert "step print: broken" in shown
    assert re.findall(r'class="state (\w+)">(done|failed|not run)<', shown) == [
        ("good", "done"),
        ("bad", "failed"),
        ("quiet", "not run"),
    ]
    assert "runs 2 steps again, from stage 2 on" in " ".join(shown.split())
    assert "it has already ended: FAILED" in shown
    answer = fill(site.http, f"/executions/{number}", f"/executions/{number}/retry")
    again = site.app.client.groups.get(int(str(answer.url).rsplit("/", 1)[1]), "execution")
    assert (again.retry_of, again.status) == (number, "IN_PROGRESS")
    assert f"it retries execution {number} from the stage that failed" in answer.text
    assert "done in an earlier execution, not run again" in answer.text
    old = read(site.http, f"/executions/{number}")
    assert f"execution {again.id} retries it already" in old
    refused = post(site.http, f"/executions/{number}/retry", csrf=csrf(old), back=f"/ui/executions/{number}")
    assert f"already being retried by {again.id}" in refused.text
    gone = fill(site.http, f"/executions/{again.id}", f"/executions/{again.id}/cancel")
    assert f"Execution {again.id} was cancelled." in gone.text
    assert site.app.client.groups.get(again.id).status == "CANCELLED"


def test_executions_are_listed_and_filtered(site: Site) -> None:
    bad, good = failing(site, "bad"), fired(site, HOSTILE, STORY)
    site.drain()
    waiting = fired(site, "later", STORY)
    listed = read(site.http, "/executions")
    places = [listed.index(f'id="plan-{one}"') for one in (waiting, good, bad)]
    assert places == sorted(places)
    assert HOSTILE not in listed
    failed = read(site.http, "/executions?status=FAILED")
    assert f'id="plan-{bad}"' in failed
    assert f'id="plan-{good}"' not in failed
    schedule = site.app.client.groups.get(good).schedule_id
    assert re.findall(r'id="plan-(\d+)"', read(site.http, f"/executions?schedule_id={schedule}")) == [str(good)]
    assert "No execution is in this state." in read(site.http, "/executions?status=CANCELLED")
    for wrong in ("status=RUNNING", "schedule_id=x", "cursor=x", "schedule_id=" + "9" * 30):
        assert site.http.get(f"/ui/executions?{wrong}").status_code == 422, wrong
    assert site.http.get("/ui/executions/99").status_code == 404
    assert site.http.get(f"/ui/groups/{good}").status_code == 404


def test_groups_are_listed_shown_cancelled_and_retried(site: Site) -> None:
    assert "No group yet" in read(site.http, "/groups")
    app = site.app
    made = app.group(
        [app.step("fails", {"why": HOSTILE}, name=HOSTILE), app.step("story.generate", {"topic": "a"})]
    ).start()
    shown = read(site.http, f"/groups/{made.id}")
    assert "2 steps in the queue" in shown or "1 step in the queue" in shown
    assert "no worker is alive" in shown
    site.drain()
    ended = read(site.http, f"/groups/{made.id}")
    assert HOSTILE not in ended
    assert "PARTIAL" in ended
    retried = fill(site.http, f"/groups/{made.id}", f"/groups/{made.id}/retry")
    number = int(str(retried.url).rsplit("/", 1)[1])
    assert "Group" in fill(site.http, f"/groups/{number}", f"/groups/{number}/cancel").text
    assert app.client.groups.get(number).status == "CANCELLED"
    refused = post(site.http, f"/groups/{number}/cancel", csrf=csrf(ended), back=f"/ui/groups/{number}")
    assert "it has already ended" in refused.text
    assert [f'id="plan-{one}"' in read(site.http, "/groups?status=CANCELLED") for one in (number, made.id)] == [
        True,
        False,
    ]


def test_what_comes_is_expected_by_past_runs(site: Site) -> None:
    site.app.enqueue("story.generate", {"topic": "past"})
    site.drain()
    number = fired(
        site,
        "plan",
        STORY,
        {**STORY, "name": "mail"},
        {"task": "research.run", "name": "new", "params": {"topic": "a"}},
    )
    assert 'class="expected"' not in read(site.http, f"/executions/{number}").split("</svg>")[0], (
        "nobody is there to run it"
    )
    Life("", database=site.app.database)  # a worker that knows how to write stories
    picture = read(site.http, f"/executions/{number}").split('aria-labelledby="chart-title"')[1].split("</svg>")[0]
    assert picture.count('class="expected"') == 2
    assert picture.count("not foreseeable") == 1
    assert 'class="now"' in picture


def test_retries_of_a_member_are_in_its_row(site: Site) -> None:
    app = site.app
    made = app.group([app.step("fails", {}, name="print", target="desk-1")]).start()
    site.drain()
    job = app.client.groups.get(made.id)
    assert job.status == "RUNNING"
    held = read(site.http, f"/groups/{made.id}")
    assert "It waits for a person in its only stage: print." in held
    (first,) = set(re.findall(r"/ui/jobs/(\d+)/resolve", held))
    back = fill(site.http, f"/groups/{made.id}", f"/jobs/{first}/retry")
    assert "is retried as job" in back.text
    site.drain()
    picture = read(site.http, f"/groups/{made.id}").split('aria-labelledby="chart-title"')[1].split("</svg>")[0]
    assert picture.count('class="name"') == 1
    assert "attempt 1 ran" in picture
    assert "attempt 2 ran" in picture


def test_viewers_see_and_do_nothing_and_others_see_nothing(site: Site) -> None:
    number = failing(site)
    site.drain()
    viewer, other = site.as_(site.token("viewer")), neighbour(site)
    shown = read(viewer, f"/executions/{number}")
    assert "Retry from the failed stage" not in shown
    assert "/cancel" not in shown
    refused = post(viewer, f"/executions/{number}/retry", csrf=csrf(shown))
    assert refused.status_code == 403
    assert other.get(f"/ui/executions/{number}").status_code == 404
    assert "plan-" not in read(other, "/executions")
    assert post(other, f"/executions/{number}/cancel", csrf=csrf(read(other, "/executions"))).status_code == 404


@pytest.mark.parametrize("path", ["/executions", "/groups"])
def test_many_come_in_pages(site: Site, path: str) -> None:
    app = site.app
    made = (
        [app.group([app.step("research.run", {"topic": "a"})]).start().id for _ in range(51)]
        if path == "/groups"
        else []
    )
    if not made:
        schedule = app.client.schedules.create("many", {"cron": "@daily", "overlap": "allow", "steps": [STORY]})
        made = [app.client.schedules.run(schedule.id, force=True) for _ in range(51)]
    first = read(site.http, path)
    (following,) = re.findall(r'rel="next" href="/ui([^"]+)"', first)
    rest = read(site.http, following.replace("&amp;", "&"))
    found = [int(one) for text in (first, rest) for one in re.findall(r'id="plan-(\d+)"', text)]
    assert found == sorted(made, reverse=True)


def test_a_long_plan_is_shown_in_part_and_all_its_steps_are_reached(site: Site) -> None:
    app = site.app
    steps = [app.step("research.run", {"topic": "a"}, name=f"s{n:03}") for n in range(230)]
    made = app.group(steps, mode="sequential").start()
    first = read(site.http, f"/groups/{made.id}")
    rail = first.split('class="rail"')[1].split("</ol>")[0]
    assert re.findall(r"<b>Stage (\d+)</b>", rail) == ["1", "2", "3", "228", "229", "230"]
    assert "… 224 more stages" in rail
    assert "Steps 1 to 60 of 230." in first
    assert "1 to 200 of 230" in first
    (following,) = re.findall(r'rel="next" href="/ui([^"#]+)', first)
    rest = read(site.http, following)
    assert re.findall(r'<tr id="step-(\d+)"', rest) == [str(n) for n in range(201, 231)]
    assert "Steps before" in rest
    assert site.http.get(f"/ui/groups/{made.id}?from=x").status_code == 422


def test_the_rail_and_the_picture_are_about_the_open_stage() -> None:
    stages = [StageView(n, StageStanding.WAITING, "waits", [], 0) for n in range(40)]
    numbers = [one if isinstance(one, int) else one.number for one in rail(stages, 20)]
    assert numbers == [0, 1, 2, 15, 18, 19, 20, 21, 22, 14, 37, 38, 39]
    assert [one if isinstance(one, int) else one.number for one in rail(stages[:7], 0)] == list(range(7))
    for now_open, first in ((-1, 0), (0, 0), (30, 30), (90, 40)):
        assert first_row(_plan(100, now_open)) == first
    assert first_row(_plan(ROWS, 50)) == 0


def _plan(steps: int, now_open: int) -> GroupView:
    group = Group(**{**dict.fromkeys(one.name for one in fields(Group)), "stage": now_open})  # type: ignore[arg-type]
    one = StepView("a", 0, "task", 1, State.WAITING, False, 1, None, None, None, None, False, False)
    return GroupView(group, {}, None, (), tuple(replace(one, stage=n) for n in range(steps)))


def test_many_held_steps_are_offered_in_part(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.dashboard.pages.groups.HELD", 2)
    app = site.app
    made = app.group(
        [app.step("research.run", {"topic": "a"}, name=f"s{n}", hold=True) for n in range(3)], mode="parallel"
    ).start()
    shown = read(site.http, f"/groups/{made.id}")
    assert shown.count('class="heldstep"') == 2
    assert "and 1 more that wait for a person" in shown


def test_a_page_follows_what_happens_and_leads_to_the_retry(tabs: Tabs, desk: Site) -> None:
    number = failing(desk)
    page = tabs.open(f"/executions/{number}")
    expect(page.locator("#head .state")).to_have_text("IN_PROGRESS")
    expect(page.locator(".rail .state").first).to_have_text("waiting")
    desk.drain()
    expect(page.locator("#head .state")).to_have_text("FAILED")
    expect(page.locator("#head")).to_contain_text("step print: broken")
    expect(page.locator(".rail > li.bad")).to_contain_text("print")
    page.get_by_text("Retry from the failed stage…").click()
    page.get_by_role("button", name=f"Retry execution {number}").click()
    page.wait_for_url(re.compile(rf"/executions/(?!{number}$)\d+$"))
    ready(page)
    expect(page.get_by_role("status").filter(has_text="it retries execution")).to_be_visible()
    page.get_by_text("Cancel…").click()
    page.get_by_role("button", name="Cancel execution").click()
    expect(page.locator("#head .state")).to_have_text("CANCELLED")
    expect(page.locator("#said")).to_contain_text("was cancelled")


def test_on_a_phone_names_stay_beside_the_picture_that_is_scrolled(browser: Browser, desk: Site) -> None:
    number = failing(desk)
    desk.drain()
    with browsers.tabs(browser, desk.url, viewport={"width": 390, "height": 844}) as tabs:
        page = tabs.open(f"/executions/{number}")
        name, picture = page.locator(".gantt .name").first, page.get_by_role("region", name="The steps over time")
        before = name.bounding_box()
        assert before is not None
        assert before["x"] >= 0
        picture.focus()
        scrolled = picture.evaluate("(one) => { one.scrollLeft = one.scrollWidth; return one.scrollLeft; }")
        assert scrolled > 0
        assert name.bounding_box() == before
        rows = [page.locator(one).first.bounding_box() for one in (".gantt .name", ".gantt rect.good")]
        middles = [one["y"] + one["height"] / 2 for one in rows if one is not None]
        assert abs(middles[0] - middles[1]) < 3
