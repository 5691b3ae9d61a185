"""`/api/audit` over real HTTP: which actor changed what, page by page, for those who may see it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.service import Site

NIGHTLY = {"name": "nightly", "cron": "30 2 * * *", "steps": [{"task": "research.run", "params": {"topic": "fog"}}]}
HOOK = {"url": "https://hooks.example.org/in/s3cret", "events": ["job.exhausted"]}
STORY = {"task": "story.generate", "params": {"topic": "fog"}}


def audit(http: Any, **query: object) -> list[dict[str, Any]]:
    answer = http.get("/api/audit", params=query)
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def by(events: list[dict[str, Any]], kind: str) -> list[str]:
    return [event["actor"]["name"] for event in events if event["kind"] == kind]


def test_every_change_is_listed_with_its_actor(site: Site) -> None:
    ann, bob = site.as_(site.token(name="ann", tenant=None)), site.as_(site.token(name="bob"))
    assert ann.post("/api/queue/pause", json={"note": "lunch"}).status_code == 200
    assert ann.put("/api/limits", json={"limits": {"global": 3}}).status_code == 200
    robot = ann.post("/api/tokens", json={"name": "robot", "role": "viewer", "tenant": "default"}).json()["token_id"]
    assert ann.delete(f"/api/tokens/{robot}").status_code == 200
    schedule = bob.post("/api/schedules", json=NIGHTLY).json()["schedule_id"]
    assert bob.delete(f"/api/schedules/{schedule}").status_code == 200
    first, second = (bob.post("/api/jobs", json=STORY).json()["job_id"] for _ in range(2))
    assert bob.post(f"/api/jobs/{second}/move", json={"to": "top"}).status_code == 200
    assert bob.post(f"/api/jobs/{first}/cancel").status_code == 200
    site.drain()
    found = audit(ann, limit=200)
    assert [event["event_id"] for event in found] == sorted((event["event_id"] for event in found), reverse=True)
    for kind, actor in {
        "tenant.paused": "ann",
        "lane.changed": "ann",
        "token.revoked": "ann",
        "schedule.deleted": "bob",
        "job.moved": "bob",
        "job.cancelled": "bob",
    }.items():
        assert by(found, kind) == [actor], kind
    assert not {"job.created", "job.claimed", "job.completed"} & {event["kind"] for event in found}
    assert {event["kind"] for event in audit(bob, actor="ann")} == {"tenant.paused", "token.created", "token.revoked"}
    assert {event["actor"]["name"] for event in audit(ann, actor="bob")} == {"bob"}
    assert [event["thing_id"] for event in audit(ann, kind="token.revoked")] == [robot]
    whole = [event["kind"] for event in audit(bob, thing="job", thing_id=first)]
    assert whole == ["job.cancelled", "job.created"]
    page = ann.get("/ui/audit").text
    assert "schedule" in page
    assert "bob (token" in page


def test_pages_and_times_continue_where_they_ended(site: Site) -> None:
    for n in range(7):
        site.app.client.templates.create(f"fog {n}", "story.generate")
    seen: list[int] = []
    cursor = ""
    while True:
        page = site.http.get(f"/api/audit?thing=template&limit=3{cursor}").json()
        seen += [event["thing_id"] for event in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == 7
    newest = audit(site.http, thing="template", limit=1)[0]
    assert newest in audit(site.http, since=newest["at"])
    assert newest not in audit(site.http, until=newest["at"])


def test_a_tenant_sees_its_own_changes_and_a_viewer_no_secret_address(site: Site) -> None:
    system = site.as_(site.token(name="root", tenant=None))
    assert system.post("/api/tenants", json={"name": "acme"}).status_code == 201
    assert system.put("/api/limits", json={"limits": {"global": 2}}).status_code == 200
    admin, viewer = site.as_(site.token(name="eve", tenant="acme")), site.as_(site.token("viewer", name="vic"))
    hook = system.post("/api/webhooks", json=HOOK).json()["webhook_id"]
    assert {event["kind"] for event in audit(admin)} <= {"token.created", "tenant.created"}
    assert audit(admin, thing="webhook", thing_id=hook) == []
    assert audit(admin, thing="lane") == []
    (seen,) = audit(viewer, thing="webhook")
    assert "s3cret" not in str(seen)
    assert "s3cret" not in viewer.get("/ui/audit").text
    assert "s3cret" in str(audit(system, thing="webhook"))


@pytest.mark.parametrize(
    ("query", "field"),
    [("thing=jobs", "thing"), ("thing_id=1", "thing_id"), ("since=noon", "since"), ("cursor=x", "cursor")],
)
def test_a_wrong_filter_is_refused(site: Site, query: str, field: str) -> None:
    answer = site.http.get(f"/api/audit?{query}")
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    if not query.startswith("cursor"):
        assert 'role="alert"' in site.http.get(f"/ui/audit?{query}").text
