"""Deleted schedules, webhooks, templates and tokens over real HTTP: their history answers, and they take no writes."""

from __future__ import annotations

from typing import Any

from tests.support.service import Site

NIGHTLY = {"name": "nightly", "cron": "30 2 * * *", "steps": [{"task": "research.run", "params": {"topic": "fog"}}]}
HOOK = {"url": "https://hooks.example.org/in", "events": ["job.exhausted"]}


def kinds(http: Any, path: str) -> list[str]:
    answer = http.get(f"{path}/events")
    assert answer.status_code == 200, answer.text
    return [event["kind"] for event in answer.json()["items"]]


def check_deleted(http: Any, path: str) -> dict[str, Any]:
    """The thing answers with the time and the actor of its deletion."""
    thing: dict[str, Any] = http.get(path).json()
    assert thing["deleted_at"] is not None
    assert thing["deleted_by"]["name"] == "ann"
    return thing


def test_a_deleted_schedule_keeps_its_history(site: Site) -> None:
    ann = site.as_(site.token(name="ann"))
    number = ann.post("/api/schedules", json=NIGHTLY).json()["schedule_id"]
    path = f"/api/schedules/{number}"
    execution = ann.post(f"{path}/run").json()["execution_id"]
    shown = ann.get(path).json()
    assert (shown["deleted_at"], shown["deleted_by"]) == (None, None)
    assert ann.delete(path).json()["deleted_by"]["name"] == "ann"
    assert check_deleted(ann, path)["name"] == "nightly"
    assert kinds(ann, path) == ["schedule.created", "schedule.deleted"]
    assert ann.get(f"{path}/ticks").status_code == 200
    assert ann.get("/api/schedules").json()["items"] == []
    (listed,) = ann.get("/api/schedules?deleted=true").json()["items"]
    assert (listed["schedule_id"], listed["deleted_by"]["name"]) == (number, "ann")
    for method, rest in (("PATCH", ""), ("DELETE", ""), ("POST", "/run"), ("POST", "/enable"), ("GET", "/next")):
        body: dict[str, object] | None = {} if method in ("PATCH", "POST") else None
        assert ann.request(method, f"{path}{rest}", json=body).status_code == 404, (method, rest)
    again = ann.post("/api/schedules", json=NIGHTLY).json()["schedule_id"]
    assert [one["schedule_id"] for one in ann.get("/api/schedules?name=nightly").json()["items"]] == [again]
    page = ann.get(f"/ui/schedules/{number}").text
    assert "It was deleted" in page
    assert "ann (token" in page
    assert "/delete" not in page
    assert f'/ui/schedules/{number}"' in ann.get(f"/ui/executions/{execution}").text


def test_deleted_schedules_are_listed_page_by_page(site: Site) -> None:
    for _ in range(5):
        number = site.http.post("/api/schedules", json=NIGHTLY).json()["schedule_id"]
        site.http.delete(f"/api/schedules/{number}")
    seen: list[int] = []
    cursor: str | None = ""
    while cursor is not None:
        place = f"&cursor={cursor}" if cursor else ""
        page = site.http.get(f"/api/schedules?deleted=true&limit=2{place}").json()
        seen, cursor = [*seen, *(one["schedule_id"] for one in page["items"])], page["next"]
    assert len(seen) == 5
    assert seen == sorted(seen, reverse=True)


def test_a_deleted_webhook_keeps_its_history(site: Site) -> None:
    ann = site.as_(site.token(name="ann"))
    number = ann.post("/api/webhooks", json=HOOK).json()["webhook_id"]
    path = f"/api/webhooks/{number}"
    assert ann.post(f"{path}/test").status_code == 201
    assert ann.delete(path).status_code == 200
    assert check_deleted(ann, path)["state"] == "deleted"
    assert kinds(ann, path) == ["webhook.created", "webhook.tested", "webhook.deleted"]
    assert [one["webhook_id"] for one in ann.get(f"{path}/deliveries").json()["items"]] == [number]
    assert ann.get("/api/webhooks").json()["items"] == []
    assert [one["webhook_id"] for one in ann.get("/api/webhooks?deleted=true").json()["items"]] == [number]
    assert ann.patch(path, json={"max_tries": 2}).status_code == 404
    assert ann.post(f"{path}/test").status_code == 404


def test_an_archived_template_and_a_revoked_token_name_the_actor(site: Site) -> None:
    ann = site.as_(site.token(name="ann"))
    template = ann.post("/api/job-templates", json={"name": "fog", "task": "story.generate"}).json()["template_id"]
    token = ann.post("/api/tokens", json={"name": "robot", "role": "viewer"}).json()["token_id"]
    for path in (f"/api/job-templates/{template}", f"/api/tokens/{token}"):
        assert ann.get(path).json()["deleted_at"] is None
        assert ann.delete(path).status_code == 200
        check_deleted(ann, path)
    assert kinds(ann, f"/api/job-templates/{template}") == ["template.created", "template.archived"]
    assert kinds(ann, f"/api/tokens/{token}") == ["token.created", "token.revoked"]
    assert ann.get("/api/job-templates").json()["items"] == []
    (archived,) = ann.get("/api/job-templates?archived=true").json()["items"]
    assert archived["deleted_by"]["name"] == "ann"
    viewer = site.as_(site.token("viewer", name="vic"))
    assert viewer.get(f"/api/tokens/{token}/events").status_code == 403
