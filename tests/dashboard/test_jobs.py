"""The page of a job: what it says, each verb through its form, what a refused form keeps; and making a new job."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from headway.dashboard.time_format import written
from headway.model.jobs.states import State
from headway.store.jobs import views as job_views
from headway.store.queue import queue_views
from tests.support import browser as browsers
from tests.support.forms import csrf, fill, post, read
from tests.support.lively import at_work
from tests.support.scratch import fresh_path
from tests.support.service import Site

_SAID = re.compile(r'<div id="said".*?</div>\s*</div>', re.S)
_FIELD = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)">')
_ACTION = re.compile(r'action="/ui([^"]+)"')


def make(site: Site, task: str = "story.generate", **wishes: object) -> int:
    params = {"topic": "fog"} if task == "story.generate" else {}
    return site.app.enqueue(task, params, **wishes).id


def status(site: Site, job_id: int) -> State:
    return site.app.client.get(job_id).status


def said(answer: httpx.Response) -> str:
    """The message of the page that a form led to."""
    assert answer.status_code == 200, answer.text[:500]
    found = _SAID.search(answer.text)
    assert found is not None, "nothing was said"
    return html.unescape(re.sub(r"<[^>]*>", "", found.group(0).partition("<form")[0])).strip()


def undo(site: Site, answer: httpx.Response) -> httpx.Response:
    found = _SAID.search(answer.text)
    assert found is not None
    (action,) = _ACTION.findall(found.group(0))
    fields = {name: html.unescape(value) for name, value in _FIELD.findall(found.group(0))}
    return post(site.http, action, **fields)


def order(site: Site) -> list[int]:
    with site.app.database.read() as tx:
        return [one.view.job.id for one in queue_views.queue(tx, site.app.client.tenant_id)]


def act(site: Site, job_id: int, verb: str, **fields: str) -> httpx.Response:
    """Through the form on the page of the job."""
    text = read(site.http, f"/jobs/{job_id}")
    assert f'action="/ui/jobs/{job_id}/{verb}"' in text, f"{verb} is not offered"
    version = str(site.app.client.get(job_id).version)
    given = {"csrf": csrf(text), "back": f"/ui/jobs/{job_id}", "sheet": "1", **fields}
    if verb in ("edit", "move"):
        given.setdefault("version", version)
    return post(site.http, f"/jobs/{job_id}/{verb}", **given)


def held(site: Site, **wishes: object) -> int:
    """A job that failed on its target."""
    job_id = make(site, "fails", target="desk-1", **wishes)
    site.drain()
    assert status(site, job_id) is State.ERROR
    return job_id


# --- its place ----------------------------------------------------------------------------------------------------


def test_a_move_is_undone_by_its_old_neighbours(site: Site) -> None:
    ids = [make(site) for _ in range(4)]
    for wish, moved in (
        ({"before": str(ids[0])}, [ids[2], ids[0], ids[1], ids[3]]),
        ({"after": str(ids[3])}, [ids[0], ids[1], ids[3], ids[2]]),
        ({"to": "top"}, [ids[2], ids[0], ids[1], ids[3]]),
        ({"rank": "2"}, [ids[0], ids[2], ids[1], ids[3]]),
    ):
        answer = fill(site.http, "/", f"/jobs/{ids[2]}/move", **wish)
        assert order(site) == moved
        assert said(answer) == f"Job {ids[2]} is now at rank {moved.index(ids[2]) + 1}."
        undo(site, answer)
        assert order(site) == ids


@pytest.mark.parametrize("alone", [True, False])
def test_a_move_to_another_priority_is_undone_too(site: Site, alone: bool) -> None:
    low, high = make(site), make(site, priority=5)
    before = [] if alone else [make(site, priority=5)]
    answer = fill(site.http, "/", f"/jobs/{high}/move", after=str(low))
    assert site.app.client.get(high).priority == 0
    undo(site, answer)
    assert site.app.client.get(high).priority == 5
    assert order(site) == [high, *before, low]


def test_the_last_of_its_priority_comes_back_behind_the_one_before_it(site: Site) -> None:
    first, last = make(site), make(site)
    answer = fill(site.http, "/", f"/jobs/{last}/move", to="top")
    make(site)  # since then
    undo(site, answer)
    assert order(site)[:2] == [first, last]


def test_a_job_that_changed_meanwhile_is_not_moved(site: Site) -> None:
    first, second = make(site), make(site)
    site.app.client.edit(second, priority=0, params={"topic": "rain"})
    answer = fill(site.http, "/", f"/jobs/{second}/move", to="top", version="1")
    assert said(answer) == f"job {second} has changed since it was read (version 2, not 1)"
    assert order(site) == [first, second]


# --- each verb ----------------------------------------------------------------------------------------------------


def test_a_waiting_job_is_held_let_go_changed_and_cancelled(site: Site) -> None:
    job_id = make(site)
    answer = act(site, job_id, "interrupt")
    assert said(answer) == f"Job {job_id} is on hold until a person resumes it."
    undo(site, answer)
    assert status(site, job_id) is State.QUEUED
    answer = act(site, job_id, "edit", priority="7", params='{"topic": "rain"}', expires_at="2h")
    assert said(answer) == f"Job {job_id} was changed."
    job = site.app.client.get(job_id)
    assert (job.priority, json.loads(job.params)) == (7, {"topic": "rain"})
    assert job.expires_at is not None
    answer = act(site, job_id, "edit", priority="7", params='{"topic": "rain"}', expires_at="")
    assert site.app.client.get(job_id).expires_at is None
    version = site.app.client.get(job_id).version
    assert "was not changed" in said(act(site, job_id, "edit", priority="7", expires_at=""))
    assert site.app.client.get(job_id).version == version
    assert said(act(site, job_id, "move", to="bottom")).startswith(f"Job {job_id} is now at rank 1")
    assert said(act(site, job_id, "cancel")) == f"Job {job_id} was cancelled."
    assert status(site, job_id) is State.CANCELLED


def test_a_time_is_taken_away_by_emptying_it(site: Site) -> None:
    job_id = make(site, delay="1h")
    act(site, job_id, "edit", not_before="3h")
    later = site.app.client.get(job_id)
    assert later.status is State.SCHEDULED
    act(site, job_id, "edit", not_before="")
    assert status(site, job_id) is State.QUEUED


def test_a_held_job_is_resolved_with_a_result(site: Site) -> None:
    job_id = held(site)
    assert "It holds desk-1" in read(site.http, f"/jobs/{job_id}")
    assert said(act(site, job_id, "resolve", result='{"ok": [1, null]}')) == (
        f"Job {job_id} was resolved: it is COMPLETED."
    )
    with site.app.database.read() as tx:
        run = job_views.view(tx, site.app.client.tenant_id, job_id).run
    assert run is not None
    assert run.result == '{"ok":[1,null]}'


def test_a_held_job_is_released(site: Site) -> None:
    job_id = held(site)
    act(site, job_id, "release")
    assert status(site, job_id) is State.FAILED


def test_a_held_job_is_resumed_with_another_budget(site: Site) -> None:
    job_id = held(site, budget={"tokens": 5})
    act(site, job_id, "resume", budget='{"tokens": 50}')
    job = site.app.client.get(job_id)
    assert job.status is State.QUEUED
    assert '"tokens":50' in job.options


def test_a_retry_leads_to_the_new_job_and_the_chain_to_both(site: Site) -> None:
    job_id = held(site)
    answer = act(site, job_id, "retry", params='{"why": "again"}', priority="3", budget="")
    new = order(site)[0]
    assert str(answer.url).endswith(f"/ui/jobs/{new}")
    assert said(answer) == f"Job {job_id} is retried as job {new}."
    made = site.app.client.get(new)
    assert (made.params, made.priority, made.retry_of) == ('{"why":"again"}', 3, job_id)
    for one, other in ((job_id, new), (new, job_id)):
        text = read(site.http, f"/jobs/{one}")
        chain = text[text.index('id="chain-title"') :]
        assert f'href="/ui/jobs/{other}"' in chain
    assert f"Job {new}</a> tries again: it is QUEUED" in read(site.http, f"/jobs/{job_id}")


def test_parts_that_appear_later_have_a_place_on_the_page(site: Site) -> None:
    job_id = held(site)
    assert re.search(r'<section id="chain" data-live [^>]*hidden>\s*</section>', read(site.http, f"/jobs/{job_id}"))
    act(site, job_id, "retry", budget="")
    assert re.search(
        r'<section id="chain" data-live aria-labelledby="chain-title">', read(site.http, f"/jobs/{job_id}")
    )


def test_a_number_of_another_kind_is_another_value(site: Site) -> None:
    """To Python 1 and 1.0 are equal, and so are 0 and false."""
    job_id = make(site, "story.generate")
    for text in ('{"topic":"fog","words":0}', '{"topic":"fog","words":1}'):
        act(site, job_id, "edit", params=text)
        assert site.app.client.get(job_id).params == text
    answer = act(site, job_id, "edit", params='{"topic":"fog","words":1.0}')
    assert "was not changed" not in answer.text
    assert "params.words must be" in html.unescape(answer.text)
    assert "was not changed" in act(site, job_id, "edit", params='{"words": 1, "topic": "fog"}').text


def test_enter_in_the_rank_moves_to_that_rank(site: Site) -> None:
    """A browser presses the first button of a form."""
    text = read(site.http, f"/jobs/{make(site)}")
    (form,) = [one for one in text.split("<form") if 'name="rank"' in one]
    assert 'name="to"' not in form.partition("</form>")[0]


def test_what_is_not_brought_up_to_date_is_not_read_again(site: Site) -> None:
    job_id = make(site, "story.generate")
    site.drain()
    fresh, again = (
        site.http.get(f"/ui/jobs/{job_id}", headers=headers).text for headers in ({}, {"X-Headway-Live": "1"})
    )
    assert 'id="copies"' in fresh
    assert 'id="copies"' not in again
    assert 'class="line"' not in again
    assert 'id="timeline"' in again


@pytest.mark.parametrize("odd", ["²", "9" * 5_000, "-1", "1e3"])
def test_odd_numbers_are_refused_in_words(site: Site, odd: str) -> None:
    job_id = make(site)
    for path in (f"/jobs/{job_id}?lines={odd}", f"/jobs/new?like={odd}", f"/schedules/new?copy={odd}"):
        answer = site.http.get(f"/ui{path}")
        assert (answer.status_code, "must be a whole number" in answer.text) == (422, True), path
    for path in (f"/deliveries?job={odd}", f"/schedules/preview?of={odd}"):
        assert site.http.get(f"/ui{path}").status_code == 422, path


def test_verbs_that_do_not_apply_say_why(site: Site) -> None:
    job_id = make(site)
    site.drain()
    text = html.unescape(read(site.http, f"/jobs/{job_id}"))
    assert "No action applies to this job any more." in text
    assert "only a PAUSED or ERROR job can be resolved" in text
    assert "it has already ended" in text
    assert f'action="/ui/jobs/{job_id}/' not in text
    answer = fill(site.http, "/", f"/jobs/{job_id}/cancel")
    assert said(answer) == f"job {job_id} is COMPLETED: cannot cancel it; it has already ended"


# --- what a refused form keeps ------------------------------------------------------------------------------------


def test_a_refused_form_keeps_what_was_filled_in(site: Site) -> None:
    job_id = make(site)
    answer = act(site, job_id, "edit", params='{"topic": ', priority="9", expires_at="soon <b>")
    assert answer.status_code == 422
    sheet = answer.text[answer.text.index('id="sheet-edit"') :].partition("</details>")[0]
    assert sheet.partition(">")[0].endswith(" open data-keep")
    assert "params is not JSON" in sheet
    assert re.search(r'name="params"[^>]*aria-invalid="true" aria-describedby="problem-edit"', sheet)
    assert html.unescape(re.findall(r"<textarea[^>]*>\n(.*?)</textarea>", sheet, re.S)[0]) == '{"topic":'
    assert re.search(r'name="priority"[^>]*value="9"', sheet)
    assert 'value="soon &lt;b&gt;"' in sheet
    assert "aria-invalid" not in answer.text.replace(sheet, "")
    assert status(site, job_id) is State.QUEUED


def test_a_form_about_what_changed_meanwhile_is_refused_with_what_it_said(site: Site) -> None:
    job_id = make(site)
    answer = act(site, job_id, "edit", priority="9", version="7")
    assert answer.status_code == 412
    assert "has changed since it was read" in answer.text
    assert re.search(r'name="priority"[^>]*value="9"', answer.text)


@pytest.mark.parametrize(
    ("verb", "fields", "problem"),
    [
        ("resolve", {"result": "{nope"}, "result is not JSON"),
        ("resume", {"budget": "[1]"}, "budget must be a dict"),
        ("retry", {"params": "[1]"}, "params must be a JSON object"),
        ("retry", {"priority": "high"}, "priority must be a whole number"),
        ("retry", {"priority": "101"}, "priority must be a whole number from 0 to 100"),
    ],
)
def test_every_form_says_what_is_wrong_with_it(site: Site, verb: str, fields: dict[str, str], problem: str) -> None:
    job_id = held(site)
    answer = act(site, job_id, verb, **fields)
    assert answer.status_code == 422
    assert problem in html.unescape(answer.text)
    assert status(site, job_id) is State.ERROR


def test_a_form_has_an_address_of_its_own(site: Site) -> None:
    job_id = make(site)
    assert '<details class="ask" id="sheet-edit" open>' in read(site.http, f"/jobs/{job_id}/edit")
    assert site.http.get(f"/ui/jobs/{job_id}/explode").status_code == 404
    assert site.http.get("/ui/jobs/4711").status_code == 404


# --- what it shows ------------------------------------------------------------------------------------------------


def test_it_says_why_it_waits(site: Site) -> None:
    first, job_id = make(site), make(site)
    text = html.unescape(read(site.http, f"/jobs/{job_id}"))
    assert "It is at rank 2 of the queue." in text
    assert "no worker is alive" in text
    assert f'<a href="/ui/jobs/{first}">job {first}</a>' in text


def test_a_sentence_with_a_job_in_it_stays_text_otherwise(site: Site) -> None:
    job_id = held(site)
    site.app.enqueue("fails", {}, target="desk-1")
    nasty = site.app.enqueue("fails", {}, target="<b>job 7</b>").id
    site.drain()
    text = read(site.http, f"/jobs/{nasty}")
    assert '&lt;b&gt;<a href="/ui/jobs/7">job 7</a>&lt;/b&gt;: nothing else starts there' in text
    assert "<b>job 7" not in text
    assert status(site, job_id) is State.ERROR


def test_a_viewer_looks_and_does_not_act(site: Site) -> None:
    job_id = make(site)
    viewer = site.as_(site.token("viewer"))
    text = viewer.get(f"/ui/jobs/{job_id}").text
    assert f'action="/ui/jobs/{job_id}/' not in text
    assert "an operator can act" in text
    assert viewer.get("/ui/jobs/new").status_code == 403


def test_params_of_an_admins_task_are_not_an_operators_to_change(site: Site) -> None:
    job_id = site.app.enqueue("command", {"argv": ["true"]}).id
    operator = site.as_(site.token("operator"))
    text = operator.get(f"/ui/jobs/{job_id}").text
    sheet = text[text.index('id="sheet-edit"') :].partition("</details>")[0]
    assert "only an admin may change them" in sheet
    assert 'name="params"' not in sheet
    answer = post(operator, f"/jobs/{job_id}/edit", csrf=csrf(text), sheet="1", params='{"argv": ["false"]}')
    assert answer.status_code == 403
    assert site.app.client.get(job_id).params == '{"argv":["true"]}'


# --- a new one ----------------------------------------------------------------------------------------------------


def test_a_job_is_made_of_a_form(site: Site) -> None:
    wishes = {"priority": "4", "delay": "10m", "target": "desk-1", "key": "fog:1"}
    answer = fill(site.http, "/jobs/new", "/jobs/new", task="story.generate", params='{"topic": "fog"}', **wishes)
    job_id = int(str(answer.url).rpartition("/")[2])
    job = site.app.client.get(job_id)
    assert (job.task, json.loads(job.params), job.priority, job.key) == ("story.generate", {"topic": "fog"}, 4, "fog:1")
    assert job.status is State.SCHEDULED
    again = fill(site.http, "/jobs/new", "/jobs/new", task="story.generate", params='{"topic": "x"}', key="fog:1")
    assert said(again) == f"No job was created: the key is taken by job {job_id}."


@pytest.mark.parametrize(
    ("fields", "place", "problem"),
    [
        ({"task": "story.generat"}, "task", "did you mean story.generate?"),
        ({"params": "{"}, "params", "params is not JSON"),
        ({"params": '{"topik": 1}'}, "params", "topik"),
        ({"priority": "1000"}, "priority", "from 0 to 100"),
        ({"delay": "soon"}, "delay", "delay is not a duration"),
        ({"target": "x" * 201}, "target", "1 to 200 characters"),
    ],
)
def test_a_refused_new_job_keeps_what_was_filled_in(
    site: Site, fields: dict[str, str], place: str, problem: str
) -> None:
    given = {"task": "story.generate", "params": '{"topic": "<i>fog"}', "priority": "3", "delay": "5m", "key": "k"}
    given |= {"target": "desk-1", **fields}
    answer = fill(site.http, "/jobs/new", "/jobs/new", **given)
    assert answer.status_code == 422
    text = html.unescape(answer.text)
    assert problem in text
    for name, value in given.items():
        kept = f">\n{value}</textarea>" if name == "params" else f'value="{value}"'
        assert kept in text, name
    assert re.findall(r'name="(\w+)"[^>]*aria-invalid', answer.text) == [place]
    assert order(site) == []


def test_one_like_another_and_one_of_a_task_are_filled_in(site: Site) -> None:
    job_id = make(site, priority=6, target="desk-1", key="o'key")
    text = html.unescape(read(site.http, f"/jobs/new?like={job_id}"))
    assert '"topic": "fog"' in text
    assert 'value="desk-1"' in text
    assert 'value="o\'key"' in text
    chosen = html.unescape(read(site.http, "/jobs/new?task=story.generate"))
    assert '{\n  "topic": null,\n  "words": 800\n}' in chosen
    assert "topic: str, words: int = 800" in chosen


# --- in a browser -------------------------------------------------------------------------------------------------


def happen(site: Site, page: Page) -> None:
    """Something else happens, and the page shows what there is since."""
    browsers.await_shown(page, lambda: site.app.enqueue("shop.fine", {"text": "meanwhile"}))


def test_a_running_job_is_followed_stopped_and_resumed(browser: Browser, scratch: Path, tmp_path: Path) -> None:
    with at_work(fresh_path(scratch), tmp_path) as site, browsers.tabs(browser, site.url) as tabs:
        job_id = site.app.enqueue("shop.long", {"text": "<b>fog</b>"}, hold=True).id
        page = tabs.open(f"/jobs/{job_id}")
        log, state = page.locator("#log .line"), page.locator("#job-head .state")
        expect(page.locator("#log-none")).to_be_visible()
        page.get_by_text("Resume", exact=True).click()
        page.get_by_role("button", name="Resume it").click()
        browsers.ready(page)
        expect(state).to_have_text("RUNNING")
        expect(log).to_have_count(1)
        expect(log.locator(".message")).to_have_text("begun: <b>fog</b>")

        page.get_by_text("Interrupt", exact=True).click()
        page.get_by_role("button", name="Interrupt it").click()
        browsers.ready(page)
        expect(state).to_have_text("PAUSED")
        # What is being filled in stays while things happen, and the log goes on where it was.
        page.get_by_text("Resolve", exact=True).click()
        result = page.get_by_label("Result, as JSON")
        result.fill('{"half": ')
        happen(site, page)
        expect(result).to_have_value('{"half": ')
        expect(result).to_be_focused()
        site.app.client.resume(job_id)
        expect(state).to_have_text("RUNNING")
        expect(log).to_have_count(2)
        site.app.client.interrupt(job_id)
        expect(state).to_have_text("PAUSED")
        page.get_by_text("Retry", exact=True).click()
        page.get_by_label("Params, as JSON").fill('{"text": ')
        page.get_by_role("button", name="Retry it").click()
        browsers.ready(page)
        problem = page.get_by_role("alert")
        expect(problem).to_contain_text("params is not JSON")
        happen(site, page)
        expect(page.get_by_label("Params, as JSON")).to_have_value('{"text":')
        tabs.complaints.clear()  # the browser notes the 422 that was meant


def test_the_log_follows_the_choice_of_times(browser: Browser, scratch: Path, tmp_path: Path) -> None:
    """As a line comes, and as it stands there when the page is opened."""
    with (
        at_work(fresh_path(scratch), tmp_path) as site,
        browsers.tabs(browser, site.url, timezone_id="Asia/Tokyo") as tabs,
    ):
        job_id = site.app.enqueue("shop.long", {"text": "fog"}, hold=True).id
        tabs.go(page := tabs.open("/"), f"/jobs/{job_id}")  # the first page is where the browser tells its zone
        at = page.locator("#log .at")
        site.app.client.resume(job_id)
        expect(at).to_have_count(1)
        with site.app.database.read() as tx:
            (line,) = job_views.last_lines(tx, job_id, 9)
        tokyo, utc = (written(line.at, zone)[11:19] for zone in ("Asia/Tokyo", "UTC"))
        expect(at).to_have_text(tokyo)
        tabs.go(page, f"/jobs/{job_id}")
        expect(at).to_have_text(tokyo)
        expect(page.locator("#log-section")).to_contain_text("Times are in Asia/Tokyo.")
        page.get_by_role("button", name="utc").click()
        expect(at).to_have_text(utc)
        expect(page.locator("#log-section")).to_contain_text("Times are in UTC.")
