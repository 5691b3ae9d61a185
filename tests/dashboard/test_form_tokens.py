"""A form that makes something makes it once: sent twice, also at the same moment, it leads to what was made first."""

from __future__ import annotations

import re
from functools import partial

import httpx
import pytest

from tests.dashboard.test_webhooks import deliver
from tests.support.forms import csrf, post, read
from tests.support.service import Site
from tests.support.waiting import at_once

pytestmark = pytest.mark.shown

_ONCE = re.compile(r'name="once" value="([^"]+)"')
_TOKEN = re.compile(r"(?<![\w-])hw_[\w-]{20,}")  # not in the middle of another random text
Fields = dict[str, str]


def opened(http: httpx.Client, path: str, action: str) -> Fields:
    """The hidden fields of one form of a page."""
    page = read(http, path)
    form = page[page.index(f'action="/ui{action}"') :].partition("</form>")[0]
    (once,) = _ONCE.findall(form)
    return {"csrf": csrf(page), "once": once, "back": f"/ui{path}"}


def twice(http: httpx.Client, path: str, action: str, **fields: str) -> list[httpx.Response]:
    """The same form, sent twice at the same moment by a browser that has its cookies."""
    sent = {**opened(http, path, action), **fields}
    return [one.result() for one in at_once([lambda: post(http, action, **sent)] * 2)]


def landed(answers: list[httpx.Response]) -> set[str]:
    return {str(one.url).partition("/ui")[2] for one in answers}


def test_a_job(site: Site) -> None:
    answers = twice(site.http, "/jobs/new", "/jobs/new", task="story.generate", params='{"topic": "fog"}')
    assert landed(answers) == {"/jobs/1"}
    assert len(site.http.get("/api/jobs").json()["items"]) == 1


def test_what_it_says_the_second_time(site: Site) -> None:
    wish = {**opened(site.http, "/jobs/new", "/jobs/new"), "task": "story.generate", "params": '{"topic": "fog"}'}
    assert "Job 1 was created." in post(site.http, "/jobs/new", **wish).text
    assert "Job 1 was created already" in post(site.http, "/jobs/new", **wish).text
    # Whoever goes back and fills in something else wants another one.
    assert "Job 2 was created." in post(site.http, "/jobs/new", **{**wish, "params": '{"topic": "sea"}'}).text
    taken = {**wish, "key": "fog:1", "once": "k"}
    assert "Job 3 was created." in post(site.http, "/jobs/new", **taken).text
    assert "Job 3 was created already" in post(site.http, "/jobs/new", **taken).text
    taken["once"] = "l"
    for _ in range(2):
        assert "No job was created: the key is taken by job 3." in post(site.http, "/jobs/new", **taken).text
    wish |= opened(site.http, "/jobs/new", "/jobs/new")
    assert "was created." in post(site.http, "/jobs/new", **wish).text


def test_what_changed_in_between_is_no_reason_to_refuse_what_was_made(site: Site) -> None:
    site.app.client.templates.create("fog", "story.generate", params={"topic": "fog"})
    wish = opened(site.http, "/templates/1", "/templates/1/job")
    assert "Job 1 was created from template fog." in post(site.http, "/templates/1/job", **wish).text
    site.app.client.templates.archive(1)
    assert "Job 1 was created from template fog already" in post(site.http, "/templates/1/job", **wish).text
    refused = post(site.http, "/templates/1/job", **{**wish, "once": "another"})
    assert refused.status_code in (409, 422)
    assert site.http.get("/ui/templates/1/job").status_code == 200  # where the form stands now can be asked for again


def test_a_job_of_a_template(site: Site) -> None:
    site.app.client.templates.create("fog", "story.generate", params={"topic": "fog"})
    assert landed(twice(site.http, "/templates/1", "/templates/1/job")) == {"/jobs/1"}
    assert len(site.http.get("/api/jobs").json()["items"]) == 1


def test_a_template(site: Site) -> None:
    fields = {"name": "fog", "task": "story.generate", "params": '{"topic": "fog"}'}
    answers = twice(site.http, "/templates/new", "/templates/new", **fields)
    assert landed(answers) == {"/templates/1"}
    assert sorted("was made already" in one.text for one in answers) == [False, True]
    assert len(site.app.client.templates.list()) == 1


def test_a_schedule(site: Site) -> None:
    fields = {"name": "nightly", "when": "cron", "cron": "30 2 * * *", "timezone": "UTC", "what": "steps"}
    fields |= {"step-0-task": "story.generate", "step-0-params": '{"topic": "fog"}'}
    answers = twice(site.http, "/schedules/new", "/schedules/new", **fields)
    assert landed(answers) == {"/schedules/1"}
    assert sorted("was made already" in one.text for one in answers) == [False, True]
    # Renamed since, it is still what that form made.
    sent = {**opened(site.http, "/schedules/new", "/schedules/new"), **fields, "name": "other"}
    assert "Schedule other was made." in post(site.http, "/schedules/new", **sent).text
    site.app.client.schedules.edit(2, {"name": "renamed"})
    assert "Schedule renamed was made already" in post(site.http, "/schedules/new", **sent).text
    assert len(site.app.client.schedules.list()) == 2


def nightly(site: Site) -> int:
    steps = [{"task": "story.generate", "params": {"topic": "fog"}}]
    made = site.app.client.schedules.create("nightly", {"cron": "30 2 * * *", "steps": steps})
    return made.id


def executions(site: Site) -> list[int]:
    return [one["execution_id"] for one in site.http.get("/api/schedule-executions").json()["items"]]


def test_a_run_of_a_schedule_and_another_beside_it(site: Site) -> None:
    number = nightly(site)
    for force, count in (({}, 1), ({"force": "1"}, 2)):
        wish = {**opened(site.http, f"/schedules/{number}", f"/schedules/{number}/run"), **force}
        send = partial(post, site.http, f"/schedules/{number}/run", **wish)
        answers = [one.result() for one in at_once([send] * 2)]
        assert sorted("already: the form was sent twice" in one.text for one in answers) == [False, True]
        assert len(executions(site)) == count
        third = send()  # as by going back
        assert f'/ui/executions/{count}">Execution {count}</a> of nightly was started already' in third.text
    # Whoever comes back and means it gets another.
    again = {**opened(site.http, f"/schedules/{number}", f"/schedules/{number}/run"), "force": "1"}
    post(site.http, f"/schedules/{number}/run", **again)
    assert len(executions(site)) == 3


def test_executions_for_past_times(site: Site) -> None:
    number = nightly(site)
    path, times = f"/schedules/{number}/backfill", {"since": "2026-03-01 00:00", "until": "2026-03-04 00:00"}
    shown = f"{path}?since=2026-03-01+00%3A00&until=2026-03-04+00%3A00"
    page = read(site.http, shown)
    wish = {**times, "csrf": csrf(page), "back": f"/ui{shown}", "once": _ONCE.findall(page)[0]}
    answers = [one.result() for one in at_once([lambda: post(site.http, path, **wish)] * 2)]
    assert sorted("already: the form was sent twice" in one.text for one in answers) == [False, True]
    assert landed(answers) == {f"/schedules/{number}"}
    assert len(executions(site)) == 3
    third = post(site.http, path, **wish)
    assert "3 executions were made for past times of nightly already: the form was sent twice." in third.text
    assert len(executions(site)) == 3


def test_a_retry(site: Site) -> None:
    failed = site.app.enqueue("fails").id
    site.drain()
    answers = twice(site.http, f"/jobs/{failed}", f"/jobs/{failed}/retry", sheet="1")
    assert len(landed(answers)) == 1
    assert len(site.http.get("/api/jobs").json()["items"]) == 2
    # Whoever comes back and means it gets another.
    again = opened(site.http, f"/jobs/{failed}", f"/jobs/{failed}/retry")
    post(site.http, f"/jobs/{failed}/retry", **again)
    assert len(site.http.get("/api/jobs").json()["items"]) == 3


def test_a_retry_of_a_held_job_from_the_first_page(site: Site) -> None:
    held = site.app.enqueue("fails", target="desk-1").id
    site.drain()
    for path in ("/", "/targets", "/targets/show?name=desk-1"):
        assert opened(site.http, path, f"/jobs/{held}/retry")["once"], path
    answers = twice(site.http, "/", f"/jobs/{held}/retry")
    assert sorted("already: the form was sent twice" in one.text for one in answers) == [False, True]
    assert len(site.http.get("/api/jobs").json()["items"]) == 2


@pytest.mark.parametrize("owner", ["tenant", "system"])
def test_a_token_is_shown_once(site: Site, owner: str) -> None:
    http = site.as_(site.token("admin", tenant=None))
    answers = twice(http, "/access", "/access/tokens", name="ci", role="viewer", owner=owner, tenant="default")
    assert sorted(one.status_code for one in answers) == [200, 201]
    shown = {text for one in answers for text in _TOKEN.findall(one.text)}
    assert len(shown) == 1
    (again,) = [one for one in answers if one.status_code == 200]
    assert "was created before; its text was shown once" in again.text
    assert [one.name for one in site.app.client.tokens.list(everywhere=True)] == ["ada", "ci"]


def test_a_tenant(site: Site) -> None:
    answers = twice(site.http, "/access", "/access/tenants", name="acme", max_queued="5")
    assert [one.status_code for one in answers] == [200, 200]
    assert {one.name for one in site.app.client.tenants.list()} == {"default", "acme"}


def test_a_webhook_a_test_and_a_delivery(site: Site) -> None:
    answers = twice(site.http, "/webhooks/new", "/webhooks/new", url="https://a.example/hook", max_tries="4")
    assert sorted("was created before" in one.text for one in answers) == [False, True]
    assert len(site.app.client.webhooks.list()) == 1
    twice(site.http, "/webhooks/1", "/webhooks/1/test")
    site.app.client.webhooks.edit(1, enabled=False)
    deliver(site)  # what was on its way is given up, so that it can be sent again
    site.app.client.webhooks.edit(1, enabled=True)
    assert landed(twice(site.http, "/deliveries/1", "/deliveries/1/replay")) == {"/deliveries/2"}
    assert len(site.app.client.webhooks.all_deliveries(limit=10).items) == 2
