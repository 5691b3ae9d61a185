"""Webhooks over HTTP: addresses that nothing is delivered to are refused where that can be known."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.service import Site, running, serving, shop

CLOSED = ["127.0.0.1", "localhost", "a.localhost", "127.1", "2130706433", "0x7f.1", "[::1]", "10.1.2.3", "100.64.0.1"]
ALWAYS = ["169.254.169.254", "0.0.0.0", "[::ffff:127.0.0.1]", "[fe80::1]", "224.0.0.1"]


@pytest.fixture
def strict(database_url: str) -> Iterator[Site]:
    """With the settings that one has who set nothing."""
    with serving(database_url, webhooks={"allow_private": False}) as site:
        yield site


def test_an_address_that_no_try_would_reach_is_refused(strict: Site) -> None:
    for host in CLOSED:
        refused = strict.http.post("/api/webhooks", json={"url": f"http://{host}:9000/hook"})
        assert refused.status_code == 422, (host, refused.text)
        assert refused.json()["errors"][0]["field"] == "url"
        assert "set `webhooks.allow_private` to allow it" in refused.json()["detail"]
    made = strict.http.post("/api/webhooks", json={"url": "https://hook.internal.example/", "events": ["job.*"]})
    assert made.status_code == 201, "what a name stands for is seen at each try"
    edited = strict.http.patch("/api/webhooks/1", json={"url": "http://192.168.0.7/"})
    assert (edited.status_code, "a private address" in edited.json()["detail"]) == (422, True)
    assert strict.http.get("/api/webhooks/1").json()["url"] == "https://hook.internal.example/"
    assert [one["webhook_id"] for one in strict.http.get("/api/webhooks").json()["items"]] == [1]


def test_the_setting_opens_private_addresses_and_no_others(site: Site) -> None:
    for host in CLOSED:
        assert site.http.post("/api/webhooks", json={"url": f"http://{host}:9000/hook"}).status_code == 201, host
    for host in ALWAYS:
        refused = site.http.post("/api/webhooks", json={"url": f"http://{host}/"})
        assert (refused.status_code, "allow_private" in refused.text) == (422, False), (host, refused.text)


def test_one_that_was_made_before_can_be_edited(database_url: str) -> None:
    with serving(database_url) as site:
        assert site.http.post("/api/webhooks", json={"url": "http://127.0.0.1:9/"}).status_code == 201
    with serving(database_url, webhooks={"allow_private": False}) as site:
        same = {"url": "http://127.0.0.1:9/", "description": "mine"}
        assert site.http.patch("/api/webhooks/1", json=same).json()["description"] == "mine"


def test_the_address_that_a_job_brings_is_judged_too(strict: Site) -> None:
    wish = {"task": "story.generate", "params": {"topic": "fog"}, "webhook_url": "http://127.0.0.1:9/"}
    refused = strict.http.post("/api/jobs", json=wish)
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "webhook_url")
    assert strict.http.post("/api/jobs", json={**wish, "webhook_url": "http://hook.example/"}).status_code == 201


def test_the_address_that_a_task_has_is_judged_by_whoever_sends(database_url: str) -> None:
    """Not by those who enqueue, whose settings may be others, and who did not give it."""
    app = shop(database_url, webhooks={"allow_private": False})

    @app.task("tells", webhook_url="http://10.0.0.7/hook")
    async def tells() -> None: ...

    with app, running(app) as site:
        tells.enqueue()
        tells.using(priority=3, webhook_events=["job.run.failed"]).enqueue()
        assert site.http.post("/api/jobs", json={"task": "tells"}).status_code == 201
        app.client.schedules.create("hourly", {"cron": "@hourly", "steps": [{"task": "tells"}]})
        assert site.http.post("/api/schedules/1/run").status_code == 201
        refused = site.http.post("/api/jobs", json={"task": "tells", "webhook_url": "http://10.0.0.8/"})
        assert (refused.status_code, "10.0.0.8" in refused.text) == (422, True)


def test_a_test_says_when_it_is_due(site: Site) -> None:
    site.http.post("/api/webhooks", json={"url": "https://hook.example/"})
    made = site.http.post("/api/webhooks/1/test").json()
    assert (made["event"], made["status"]) == ("webhook.test", "PENDING")
    assert made["next_try_at"] == made["created_at"]
