"""The pages of targets, resources and lanes: who has what, who waits, letting go, and changing limits."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from headway.store.jobs.views import view
from headway.store.queue import lanes, targets
from tests.support.browser import Tabs
from tests.support.forms import csrf, fill, post, read
from tests.support.life import Life
from tests.support.service import Site
from tests.support.wire import neighbour

pytestmark = pytest.mark.shown

HOSTILE = "<img src=x onerror=1> & \"b\" 'c' /d?e=f#g"


def held(site: Site, name: str = "desk-1", waiting: int = 1, **wishes: Any) -> int:
    """The job that holds a target, with others behind it."""
    first = site.app.enqueue("fails", {"why": "the window did not open\nmore"}, target=name, **wishes).id
    for _ in range(waiting):
        site.app.enqueue("story.generate", {"topic": "fog"}, target=name)
    site.drain()
    return first


def at(name: str) -> str:
    return f"/targets/show?name={quote(name, safe='')}"


def state(site: Site, name: str) -> str:
    return str(site.http.get(f"/api/targets/{quote(name, safe='')}").json()["state"])


def test_held_targets_come_first_with_what_to_do(site: Site) -> None:
    assert "No targets yet" in read(site.http, "/targets")
    holder = held(site, "z", waiting=2)
    site.app.enqueue("research.run", {"topic": "a"}, target="a", delay="1h")
    site.app.enqueue("research.run", {"topic": "a"}, target="p", delay="1h")
    site.app.client.pause_target("p", note="being repaired")
    shown = read(site.http, "/targets")
    urgent = shown.split('id="held-title"')[1].split("</section>")[0]
    assert [one for one in ("a", "p", "z") if f">{one}</a>" in urgent] == ["p", "z"]
    assert "the window did not open" in urgent
    assert "being repaired" in urgent
    assert f"Resume job {holder} to continue it" in urgent
    assert re.search(r'data-label="Behind it">2</td>', urgent)
    for name, others in (("held", "ap"), ("paused", "az"), ("free", "pz"), ("busy", "apz")):
        some = read(site.http, f"/targets?state={name}").split('id="list-title"')[1]
        assert not [one for one in others if f">{one}</a>" in some], name
        assert [one for one in "apz" if f">{one}</a>" in some] == [one for one in "apz" if one not in others]
    assert site.http.get("/ui/targets?state=hold").status_code == 422
    assert site.http.get("/ui/targets/show?name=nobody").status_code == 404
    for wrong in ("", "name=", "name=%00", f"name={'x' * 201}"):
        assert site.http.get(f"/ui/targets/show?{wrong}").status_code == 422, wrong


@pytest.mark.parametrize("name", [HOSTILE, " a ", "Büro 3/ä%2F", "💡"])
def test_a_target_of_any_name_has_a_page_is_paused_and_resumed(site: Site, name: str) -> None:
    held(site, name)
    assert HOSTILE not in read(site.http, "/targets")
    assert HOSTILE not in read(site.http, at(name))
    paused = fill(site.http, at(name), "/targets/pause", name=name, note=HOSTILE)
    assert (paused.status_code, state(site, name)) == (200, "paused")
    assert HOSTILE not in paused.text
    (undo,) = re.findall(r'action="(/ui/targets/resume)"', paused.text.split('id="said"')[1].split("<main")[0])
    assert undo
    fill(site.http, at(name), "/targets/resume", name=name)
    assert state(site, name) == "held"
    refused = fill(site.http, at(name), "/targets/resume", name=name)
    assert "is not paused" in refused.text


@pytest.mark.parametrize(
    ("verb", "fields", "ends"),
    [
        ("resolve", {"result": '{"checked": [1]}'}, "COMPLETED"),
        ("release", {}, "FAILED"),
        ("retry", {}, "FAILED"),
        ("cancel", {}, "CANCELLED"),
        ("resume", {}, "QUEUED"),
    ],
)
def test_the_job_that_holds_a_target_is_let_go(site: Site, verb: str, fields: dict[str, Any], ends: str) -> None:
    holder = held(site)
    shown = read(site.http, at("desk-1"))
    assert f"/ui/jobs/{holder}/{verb}" in shown
    assert "Queue behind it" in shown
    back = fill(site.http, at("desk-1"), f"/jobs/{holder}/{verb}", **fields)
    assert str(back.url).endswith(at("desk-1"))
    with site.app.database.read() as tx:
        one = view(tx, site.app.client.tenant_id, holder)
    assert one.job.status.name == ends
    if verb == "resolve":
        assert one.run is not None
        assert one.run.result == '{"checked":[1]}'
    if verb == "resume":
        assert "resumed: it goes first" in back.text
        assert re.search(r'<section id="holder"[^>]*class=""', back.text)


def test_releasing_names_the_job_and_a_bad_result(site: Site) -> None:
    holder = held(site)
    bad = fill(site.http, at("desk-1"), f"/jobs/{holder}/resolve", result="{nonsense")
    assert "result" in bad.text.split('id="said"')[1].split("<main")[0]
    assert state(site, "desk-1") == "held"
    assert f"Release job {holder} from it" in read(site.http, at("desk-1"))
    released = fill(site.http, at("desk-1"), f"/jobs/{holder}/release")
    assert f"Job {holder} was released" in released.text
    other = held(site)  # a sheet that was read before speaks of another job
    again = post(site.http, f"/jobs/{holder}/release", csrf=csrf(released.text), back=f"/ui{at('desk-1')}")
    assert 'class="banner bad"' in again.text
    assert site.app.client.get(other).status.name == "ERROR"


def test_many_that_wait_for_a_person_are_shown_in_part(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.dashboard.pages.targets.FIRST", 2)
    for name in ("c", "a", "b"):
        site.app.enqueue("research.run", {"topic": "a"}, target=name, delay="1h")
        site.app.client.pause_target(name)
    urgent = read(site.http, "/targets").split('id="held-title"')[1].split("</section>")[0]
    assert [one for one in "abc" if f">{one}</a>" in urgent] == ["a", "b"]
    assert "and 1 more" in urgent
    with site.app.database.read() as tx:
        found, count = targets.paused(tx, site.app.client.tenant_id, 2)
    assert ([one.name for one in found], count) == (["a", "b"], 3)


def test_a_job_over_its_budget_is_not_offered_a_plain_resume(site: Site) -> None:
    job = held(site, budget={"tokens": 5})
    text = f"insert into hw_report (job_id, at, spent) values ({job}, 1, '{{\"tokens\": 6}}')"
    Life("", database=site.app.database).sql_write(text)
    for path in ("/", "/targets", at("desk-1")):
        shown = read(site.http, path)
        assert "Resume with a larger budget" in shown, path
        assert f'action="/ui/jobs/{job}/resume"' not in shown, path


def test_the_queue_of_a_target_is_in_its_order(site: Site) -> None:
    holder = held(site, waiting=2)
    urgent = site.app.enqueue("story.generate", {"topic": "a"}, target="desk-1", priority=9).id
    found = re.findall(r'<tr id="job-(\d+)"', read(site.http, at("desk-1")))
    assert found == [str(one) for one in (urgent, holder + 1, holder + 2)]
    assert str(holder) not in found


# --- resources and lanes ---


def test_who_takes_a_resource(site: Site) -> None:
    client = site.app.client
    job = site.app.enqueue("story.generate", {"topic": "a"}, resources=["ollama"]).id
    shown = _resources(site)
    assert "<b>ollama</b>" in shown
    assert re.search(r'data-label="Wait for it">1</td>', shown)
    hold = client.reserve(resources=["ollama"], ttl="1m")
    taken = _resources(site)
    assert "1 of 1" in taken
    assert "headway hold</code> of" in taken
    gone = fill(site.http, "/resources", f"/reservations/{hold.id}/release")
    assert f"Reservation {hold.id} of" in gone.text
    assert client.reservation(hold.id).status == "RELEASED"
    Life("", database=site.app.database).claim(job)
    assert re.search(rf'#{job} <span class="task">story.generate</span></a>\s+<span class="note">for', _resources(site))


def _resources(site: Site) -> str:
    return read(site.http, "/resources").split('id="lanes"')[0]


def test_a_limit_is_changed_by_who_saw_it_as_it_is(site: Site) -> None:
    site.app.enqueue("story.generate", {"topic": "a"}, resources=["ollama"])
    seen = re.findall(r'name="version" value="(\d+)"', read(site.http, "/resources"))[0]
    done = fill(site.http, "/resources", "/resources/set", name="ollama", limit="3", version=seen)
    assert "The limit of ollama is 3 now." in done.text
    late = fill(site.http, "/resources", "/resources/set", name="ollama", limit="9", version=seen)
    assert "the limits have changed since they were read" in late.text
    asked = fill(site.http, "/resources", "/resources/set", name="global", limit="none")
    assert "press “No limit…” beside it" in asked.text
    assert "Remove the limit of global" in asked.text
    assert "give a whole number" in fill(site.http, "/resources", "/resources/set", name="global", limit="").text
    assert "1 now" in fill(site.http, "/resources", "/resources/set", name="global", limit="1").text
    assert "none now" in fill(site.http, "/resources", "/resources/set", name="global", limit="none", sure="1").text
    for limit, said in (("0", "from 1"), ("-1", "whole number"), ("x" * 99, "whole number")):
        assert said in fill(site.http, "/resources", "/resources/set", name="ollama", limit=limit).text, limit
    bare = fill(site.http, "/resources", "/resources/set", name="ollama", limit="none", sure="1")
    assert "is a resource" in bare.text
    assert "there is no lane" in fill(site.http, "/resources", "/resources/set", name="nothing", limit="1").text
    with site.app.database.read() as tx:
        assert lanes.resources(tx)["ollama"][1] == 3


def test_lanes_are_searched_by_name_and_shown_in_part(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("Gpu_1", "gpu%2", "gpu3", "ollama")
    site.app.client.lanes.defined = dict.fromkeys(names, 2)
    for name in names:
        site.app.enqueue("story.generate", {"topic": "a"}, resources=[name])
    for q, found in (("GPU", names[:3]), ("u_1", names[:1]), ("%25", names[1:2]), ("nothing", ())):
        shown = _resources_like(site, q)
        assert [name for name in names if f"<b>{name}</b>" in shown] == list(found), q
    assert re.search(r'data-label="Wait for it">1</td>', _resources_like(site, "ollama"))
    monkeypatch.setattr("headway.dashboard.pages.resources.MOST", 2)
    assert "The first 2 of 4: search for the rest." in _resources_like(site, "")


def _resources_like(site: Site, q: str) -> str:
    return read(site.http, f"/resources?q={q}").split('id="lanes"')[0]


def test_rules_are_changed(site: Site) -> None:
    done = fill(site.http, "/resources", "/resources/rules", policy="per_task", targets="global", aging="10m")
    assert "The rules apply from now on" in done.text
    with site.app.database.read() as tx:
        found, _ = lanes.read_concurrency(tx)
    assert (found.policy, found.targets, found.aging) == ("per_task", "global", 600.0)
    for wrong in ({"policy": "nonsense"}, {"targets": "x"}, {"aging": "0"}, {"aging": "soon"}):
        fields = {"policy": "global", "targets": "own", "aging": "", **wrong}
        answer = fill(site.http, "/resources", "/resources/rules", **fields)
        assert "The rules hold" not in answer.text, wrong
        assert 'class="banner bad"' in answer.text, wrong
    with site.app.database.read() as tx:
        assert lanes.read_concurrency(tx)[0] == found


def test_roles_and_changes(site: Site) -> None:
    holder = held(site)
    site.app.client.reserve(resources=["ollama"], ttl="1m")
    viewer, operator, other = site.as_(site.token("viewer")), site.as_(site.token("operator")), neighbour(site)
    assert "/jobs/" + str(holder) + "/re" not in read(viewer, at("desk-1"))
    assert post(viewer, "/targets/pause", csrf=csrf(read(viewer, "/targets")), name="desk-1").status_code == 403
    assert "/resources/set" not in read(operator, "/resources")
    assert (
        post(operator, "/resources/set", csrf=csrf(read(operator, "/resources")), name="ollama", limit="2").status_code
        == 403
    )
    assert other.get(f"/ui{at('desk-1')}").status_code == 404
    theirs = read(other, "/resources")
    assert "a hold of another tenant" in theirs
    assert "only a system token may change it" in theirs
    assert "/resources/rules" not in theirs
    for action in ("set", "rules"):
        refused = post(other, f"/resources/{action}", csrf=csrf(theirs), name="ollama", limit="2", policy="global")
        assert refused.status_code == 403, action
    assert site.app.client.get(holder).status.name == "ERROR"


# --- in the browser ---


def test_a_held_target_is_let_go_in_the_browser(tabs: Tabs, desk: Site) -> None:
    page = tabs.open("/targets")
    expect(page.locator("#list")).to_contain_text("No targets yet")
    holder = held(desk)
    expect(page.locator("#held")).to_contain_text("the window did not open")
    page.locator("#held").get_by_role("link", name="desk-1").click()
    expect(page.locator("#queue tbody tr")).to_have_count(1)
    page.get_by_text("Pause the target…").click()
    page.get_by_label("Note for other users").fill("being repaired")
    page.get_by_role("button", name="Pause it").click()
    expect(page.locator("#holder")).to_contain_text("being repaired")
    page.locator("#said").get_by_role("button", name="Undo").click()
    expect(page.locator("#head .state")).to_have_text("held")
    page.locator("#holder").get_by_text("Resolve", exact=True).click()
    page.get_by_label("Result").fill('{"checked": true}')
    page.get_by_role("button", name=f"Resolve job {holder}").click()
    expect(page.locator("#head .state")).to_have_text("free")
    expect(page.locator(f"#recent-{holder}")).to_contain_text("COMPLETED")
    desk.drain()
    expect(page.locator("#queue")).to_contain_text("No job waits for this target.")


def test_a_capacity_is_changed_in_the_browser(tabs: Tabs, desk: Site) -> None:
    page = tabs.open("/resources")
    expect(page.locator("#resources")).to_contain_text("No resources yet")
    desk.app.enqueue("story.generate", {"topic": "a"}, resources=["ollama"], delay="1h")
    page.get_by_label("Capacity of ollama").fill("4")
    page.locator("#resources").get_by_role("button", name="Set").click()
    expect(page.locator("#resources")).to_contain_text("0 of 4")
    page.get_by_label("Aging").fill("5m")
    page.get_by_role("button", name="Change the rules").click()
    expect(page.locator("#said")).to_contain_text("The rules apply from now on")
    page.reload()
    expect(page.get_by_label("Aging")).to_have_value("5m")
