"""Webhooks and deliveries: made, changed, tested, sent once more; each secret shown once; who may do what."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import expect

from headway.api.schemas.webhooks import render
from headway.engine.webhooks.deliverer import Deliverer
from headway.engine.webhooks.http_client import Guard
from headway.model.webhooks.webhook import OPENS_AFTER
from tests.support.browser import Tabs
from tests.support.forms import csrf, fill, post, read
from tests.support.receivers import Receiver, answer, receiver
from tests.support.service import Site
from tests.support.waiting import until

pytestmark = pytest.mark.shown

HOSTILE = "<script>alert('x')</script>"
SECRET = re.compile(r'<pre class="secret" id="secret">(whsec_[\w+/=]+)</pre>')


@pytest.fixture
def good() -> Iterator[Receiver]:
    with receiver(answer(200, HOSTILE.encode(), server=HOSTILE)) as made:
        yield made


def sender(site: Site) -> Deliverer:
    return Deliverer(site.app.client.database, render=render, guard=Guard(allow_private=True, deadline=30.0))


def deliver(site: Site, by: Deliverer | None = None) -> None:
    """What is due goes out, once."""
    sent_by = by or sender(site)
    sent_by.tick()
    assert sent_by.settle(30)
    sent_by.tick()


def happen(site: Site, count: int = 1, task: str = "fails") -> list[int]:
    """Jobs that come to nothing."""
    made = [enqueue(site, task) for _ in range(count)]
    for number in made:
        site.app.client.cancel(number)
    return made


def enqueue(site: Site, task: str = "fails") -> int:
    """By somebody without a browser's cookies."""
    answered = httpx.post(f"{site.url}/api/jobs", json={"task": task, "params": {}}, trust_env=False)
    return int(answered.json()["job_id"])


def make(site: Site, url: str, **fields: str | list[str]) -> httpx.Response:
    page = read(site.http, "/webhooks/new")
    once = re.search(r'name="once" value="([^"]+)"', page)
    assert once is not None
    wished: dict[str, str | list[str]] = {"url": url, "max_tries": "4", **fields}
    return post(site.http, "/webhooks/new", csrf=csrf(page), once=once[1], **wished)


# --- webhooks -----------------------------------------------------------------------------------------------------


def test_no_subscriber_is_told_yet(site: Site) -> None:
    text = read(site.http, "/webhooks")
    assert "No webhook exists yet." in text
    assert "headway webhooks create" in text


def test_a_webhook_is_made_and_its_secret_shown_once(site: Site) -> None:
    made = make(
        site, "https://a.example/hook?x=1", events=["job.run.failed"], others="execution.*", description=HOSTILE
    )
    secret = SECRET.search(made.text)
    assert secret is not None
    assert made.headers["cache-control"] == "no-store"
    assert site.app.client.webhooks.get(1).secret == secret[1]
    assert site.app.client.webhooks.get(1).events == '["job.run.failed", "execution.*"]'
    again = httpx.Request("POST", made.request.url, content=made.request.content, headers=made.request.headers)
    repeated = site.http.send(again, follow_redirects=True)
    assert "was created before" in repeated.text
    assert len(site.app.client.webhooks.list()) == 1
    for path in ("/webhooks", "/webhooks/1", "/webhooks/1/edit", "/webhooks/1/rotate"):
        text = read(site.http, path)
        assert secret[1] not in text
        assert HOSTILE not in text
    assert "job.run.failed, execution.*" in read(site.http, "/webhooks")


@pytest.mark.parametrize(
    ("fields", "field", "word"),
    [
        ({"url": "ftp://a.example"}, "url", "url must be an address"),
        ({"url": "https://me:pw@a.example"}, "url", "user or a password"),
        ({"url": "http://169.254.169.254/"}, "url", "a link-local address, where nothing is delivered"),
        ({"others": "job.run.fialed"}, "others", "did you mean job.run.failed"),
        ({"max_tries": "many"}, "max_tries", "a whole number from 1 to 20"),
        ({"max_tries": "21"}, "max_tries", "a whole number from 1 to 20"),
        ({"max_tries": "9" * 5_000}, "max_tries", "a whole number from 1 to 20"),
        ({"max_tries": "²"}, "max_tries", "a whole number from 1 to 20"),
        ({"secret": "short"}, "secret", "secret must be whsec_"),
    ],
)
def test_a_form_that_is_refused_keeps_what_was_filled_in(
    site: Site, fields: dict[str, str], field: str, word: str
) -> None:
    wished: dict[str, str | list[str]] = {"events": ["job.error"], "description": "kept & safe", **fields}
    url = str(wished.pop("url", "https://a.example/hook"))
    refused = make(site, url, **wished)
    assert refused.status_code == 422
    assert word in refused.text
    assert re.search(rf'name="{field}"[^>]* aria-invalid="true"', refused.text)
    assert 'value="kept &amp; safe"' in refused.text
    assert 'value="job.error" checked' in refused.text
    assert site.app.client.webhooks.list() == []


def test_a_webhook_is_edited_disabled_enabled_and_deleted(site: Site) -> None:
    site.app.client.webhooks.create("https://a.example/hook", ["job.*", "job.error"], description="old")
    text = read(site.http, "/webhooks/1/edit")
    assert 'name="others" value="job.*"' in text
    assert 'value="job.error" checked' in text
    wished = {"url": "https://b.example", "description": "", "max_tries": "2", "version": "1"}
    done = fill(site.http, "/webhooks/1/edit", "/webhooks/1/edit", **wished)
    assert str(done.url).endswith("/ui/webhooks/1")
    assert "Webhook 1 was changed." in done.text
    one = site.app.client.webhooks.get(1)
    assert (one.url, one.events, one.description, one.max_tries) == ("https://b.example", "[]", None, 2)
    stale = fill(site.http, "/webhooks/1/edit", "/webhooks/1/edit", **{**wished, "url": "https://c.example"})
    assert (stale.status_code, "has changed since it was read" in stale.text) == (422, True)
    assert 'value="https://c.example"' in stale.text
    assert 'name="version" value="1"' in stale.text, "the same button is refused once more"
    assert '<button class="bad" name="version" value="2">Save this over version 2</button>' in stale.text
    over: dict[str, str | list[str]] = {**wished, "url": "https://c.example", "version": ["1", "2"]}
    assert "was changed" in fill(site.http, "/webhooks/1/edit", "/webhooks/1/edit", **over).text
    assert site.app.client.webhooks.get(1).url == "https://c.example"
    assert "is disabled" in fill(site.http, "/webhooks/1", "/webhooks/1/disable").text
    text = read(site.http, "/webhooks/1")
    assert "Nothing is sent to it. Enable it to continue." in text
    refused = fill(site.http, "/webhooks/1", "/webhooks/1/test").text
    assert "enable it first" in refused
    assert "Webhook 1 is enabled." in fill(site.http, "/webhooks/1", "/webhooks/1/enable").text
    deleted = fill(site.http, "/webhooks/1", "/webhooks/1/delete")
    assert "Webhook 1 was deleted." in deleted.text
    assert str(deleted.url).endswith("/ui/webhooks")
    assert site.http.get("/ui/webhooks/1").status_code == 404


def test_a_secret_is_rotated_once(site: Site) -> None:
    old = site.app.client.webhooks.create("https://a.example/hook").secret
    rotated = fill(site.http, "/webhooks/1/rotate", "/webhooks/1/rotate", version="1")
    shown = SECRET.search(rotated.text)
    assert shown is not None
    assert "The old secret also signs until" in rotated.text
    again = fill(site.http, "/webhooks/1/rotate", "/webhooks/1/rotate", version="1")
    assert (again.status_code, SECRET.search(again.text)) == (422, None)
    assert re.findall(r'name="version" value="(\d)"', again.text) == ["1", "2"]
    one = site.app.client.webhooks.get(1)
    assert (one.secret, one.old_secret) == (shown[1], old), "sent again, it rotates nothing"
    assert fill(site.http, "/webhooks/1/rotate", "/webhooks/1/rotate", version="2", secret="x").status_code == 422


def test_the_secret_for_addresses_of_jobs(site: Site) -> None:
    assert "whsec_" not in read(site.http, "/webhooks/secret")
    assert site.http.get("/ui/webhooks/secret").status_code == 200
    first = SECRET.search(fill(site.http, "/webhooks/secret", "/webhooks/secret").text)
    again = SECRET.search(fill(site.http, "/webhooks/secret", "/webhooks/secret").text)
    assert first is not None
    assert again is not None
    assert first[1] == again[1] == site.app.client.webhooks.secret()
    rotated = fill(site.http, "/webhooks/secret", "/webhooks/secret/rotate")
    assert "The secret was replaced." in rotated.text
    assert site.app.client.webhooks.secret() != first[1]


# --- deliveries ---------------------------------------------------------------------------------------------------


def test_a_delivery_with_its_tries_is_shown_and_sent_once_more(site: Site, good: Receiver) -> None:
    site.app.client.webhooks.create(good.url, ["job.cancelled"])
    (job,) = happen(site)
    waiting = read(site.http, "/deliveries/1")
    assert "It is not sent yet." in waiting
    assert "delivery 1 is still on its way" in waiting
    assert "still on its way" in fill(site.http, "/deliveries/1", "/deliveries/1/replay").text
    deliver(site)
    text = read(site.http, "/deliveries/1")
    assert "The receiver has it." in text
    assert f"POST {good.url}" in text
    assert "webhook-id: msg_" in text
    assert "&#34;type&#34;: &#34;job.cancelled&#34;" in text
    assert HOSTILE not in text
    assert text.count("&lt;script&gt;") == 2, "a header and the body of the answer"
    again = fill(site.http, "/deliveries/1", "/deliveries/1/replay")
    assert str(again.url).endswith("/ui/deliveries/2")
    assert "Delivery 1 goes out again, as delivery 2." in again.text
    assert "the message of" in again.text
    deliver(site)
    first, second = good.await_received(2)
    assert (first.body, first.headers["webhook-id"]) == (second.body, second.headers["webhook-id"])
    about = read(site.http, f"/deliveries?job={job}")
    assert re.findall(r'id="delivery-(\d+)"', about) == ["2", "1"]
    assert "webhook #1</a>" in about
    assert re.findall(r'id="delivery-(\d+)"', read(site.http, "/deliveries")) == ["2", "1"]
    assert site.http.get("/ui/deliveries?job=x").status_code == 422
    assert site.http.get("/ui/deliveries/99").status_code == 404
    assert "No delivery about this job" in read(site.http, f"/deliveries?job={enqueue(site)}")


def test_a_test_says_what_came_of_it(site: Site, good: Receiver) -> None:
    site.app.client.webhooks.create(good.url, ["job.cancelled"])
    by = sender(site)
    by.start()
    try:
        done = fill(site.http, "/webhooks/1", "/webhooks/1/test").text
        assert "The test arrived: it answered 200 (delivery 1)." in done
        assert 'class="banner good"' in done
        good.behave = [answer(404)]
        failed = fill(site.http, "/webhooks/1", "/webhooks/1/test").text
        assert "The test did not arrive: it answered 404 Not Found (delivery 2). It is tried again." in failed
        assert 'class="banner bad"' in failed
        assert "It failed once in a row and is tried again: it answered 404 Not Found." in failed
    finally:
        by.stop()
        by.join(30)


def test_the_log_is_filtered_and_paged(site: Site, good: Receiver) -> None:
    site.app.client.webhooks.create(good.url)
    assert "No event was sent to it yet." in read(site.http, "/webhooks/1")
    happen(site, 3)
    assert "The test is not sent yet (delivery 4)" in fill(site.http, "/webhooks/1", "/webhooks/1/test").text
    for query, expected in {
        "": ["4", "3", "2", "1"],
        "event=webhook.test": ["4"],
        "event=job.cancelled&status=PENDING": ["3", "2", "1"],
        "status=FAILED": [],
    }.items():
        found = re.findall(r'id="delivery-(\d+)"', read(site.http, f"/webhooks/1?{query}"))
        assert found == expected, query
    assert "No delivery matches." in read(site.http, "/webhooks/1?status=FAILED")
    assert site.http.get("/ui/webhooks/1?status=ODD").status_code == 422
    deliver(site)
    tiles = re.findall(r'aria-label="Delivery (\d) of [\w.]+: DELIVERED"', read(site.http, "/webhooks"))
    assert tiles == ["1", "2", "3", "4"], "the newest last"
    assert "webhook.tested" in read(site.http, "/webhooks/1")


def test_a_receiver_that_fails_is_said_to(site: Site) -> None:
    hooks = site.app.client.webhooks
    with receiver(answer(500)) as bad:
        hooks.create(bad.url)
        happen(site, OPENS_AFTER)
        by = sender(site)

        def opened() -> bool:
            deliver(site, by)
            return hooks.get(1).opened_at is not None

        until(opened, "that its breaker is open")
    text = read(site.http, "/webhooks")
    assert ">failing</span>" in text
    assert f"It failed {OPENS_AFTER} times in a row: it answered 500 Internal Server Error." in text
    assert "Try again now" in read(site.http, "/webhooks/1")
    assert "It waits until its receiver answers again." in read(site.http, "/deliveries/1")
    assert "is enabled" in fill(site.http, "/webhooks/1", "/webhooks/1/enable").text
    assert hooks.get(1).opened_at is None


# --- who may ------------------------------------------------------------------------------------------------------

FORMS = ("new", "secret", "secret/rotate", "1/edit", "1/enable", "1/disable", "1/delete", "1/test", "1/rotate")


def test_only_admins_change_webhooks_and_viewers_replay_nothing(site: Site, good: Receiver) -> None:
    site.app.client.webhooks.create(good.url)
    happen(site)
    deliver(site)
    operator, viewer = (site.as_(site.token(role, name=role)) for role in ("operator", "viewer"))
    stranger = site.app.client.tenants.create("other")
    other = site.as_(site.token("admin", tenant=stranger.name, name="eve"))
    for visitor in (operator, viewer):
        assert "New webhook" not in read(visitor, "/webhooks")
        text = read(visitor, "/webhooks/1")
        assert not any(f"/ui/webhooks/1/{verb}" in text for verb in ("test", "edit", "rotate", "disable", "delete"))
        for path in ("new", "secret", "1/edit", "1/rotate"):
            assert visitor.get(f"/ui/webhooks/{path}").status_code == 403
        for form in FORMS:
            assert post(visitor, f"/webhooks/{form}", csrf=csrf(read(visitor, "/webhooks"))).status_code == 403, form
    assert "/deliveries/1/replay" in read(operator, "/deliveries/1")
    assert "/deliveries/1/replay" not in read(viewer, "/deliveries/1")
    for path in ("/webhooks/1", "/deliveries/1", "/webhooks/1/edit", "/deliveries?job=1"):
        assert other.get(f"/ui{path}").status_code == 404, path
    assert "No webhook exists yet." in read(other, "/webhooks")
    assert "No deliveries yet." in read(other, "/deliveries")
    assert site.app.client.webhooks.get(1).version == 1, "nothing was changed"


# --- in a browser -------------------------------------------------------------------------------------------------


def test_a_browser_makes_tests_and_deletes_a_webhook(tabs: Tabs, desk: Site, good: Receiver) -> None:
    page = tabs.open("/webhooks")
    page.get_by_role("link", name="New webhook").click()
    page.get_by_label("Address").fill(good.url)
    page.get_by_label("job.cancelled").check()
    page.get_by_label("Tries for each delivery").fill("99")
    page.get_by_role("button", name="Make webhook").click()
    expect(page.get_by_role("alert")).to_contain_text("from 1 to 20")
    expect(page.get_by_label("job.cancelled")).to_be_checked()
    page.get_by_label("Tries for each delivery").fill("3")
    page.get_by_role("button", name="Make webhook").click()
    expect(page.locator("#secret")).to_have_text(re.compile("^whsec_"))
    page.get_by_role("link", name="To webhook #1").click()
    page.get_by_role("button", name="Send a test").click()
    expect(page.locator("#said")).to_contain_text("The test is not sent yet")
    deliver(desk)
    expect(page.locator("#delivery-1")).to_contain_text("DELIVERED")
    page.get_by_role("link", name="#1", exact=True).click()
    page.get_by_role("button", name="Send once more").click()
    expect(page.locator("h1")).to_contain_text("Delivery #2")
    expect(page.locator("#said")).to_contain_text("goes out again")
    deliver(desk)
    expect(page.locator("#tries")).to_contain_text("Try 1")
    tabs.go(page, "/webhooks/1")
    page.get_by_text("Delete", exact=True).click()
    page.get_by_role("button", name="Delete webhook #1").click()
    expect(page.locator("#said")).to_contain_text("Webhook 1 was deleted.")
    expect(page.get_by_text("No webhook exists yet.")).to_be_visible()
    tabs.complaints = [one for one in tabs.complaints if "422" not in one]  # the browser notes the one that was meant
