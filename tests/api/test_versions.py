"""What is changed only as it was seen, and what null means, over real HTTP."""

from __future__ import annotations

from tests.support.service import Site

STORY = {"task": "story.generate", "params": {"topic": "fog"}}
LATER = "2100-01-01T00:00:00Z"


def test_limits_that_changed_meanwhile_are_not_overwritten(site: Site) -> None:
    site.http.post("/api/jobs", json={**STORY, "resources": ["ollama"]})
    tag = site.http.get("/api/limits").headers["etag"]
    assert site.http.get("/api/limits").headers["etag"] == tag
    for wish in ({"name": "ollama", "limit": 3}, {"aging": "10m"}, {"name": "global", "limit": 2, "aging": None}):
        changed = site.http.put("/api/limits", json=wish, headers={"If-Match": tag})
        assert changed.status_code == 200, changed.text
        late = site.http.put("/api/limits", json={"name": "ollama", "limit": 9}, headers={"If-Match": tag})
        assert (late.status_code, late.json()["code"]) == (412, "version_mismatch"), wish
        tag = changed.headers["etag"]
        assert site.http.get("/api/limits").headers["etag"] == tag
    assert {one["name"]: one["limit"] for one in site.http.get("/api/limits").json()["items"]}["ollama"] == 3


def test_a_webhook_that_changed_meanwhile_is_not_deleted(site: Site) -> None:
    made = site.http.post("/api/webhooks", json={"url": "https://hooks.example/x", "events": ["job.run.failed"]})
    path, seen = made.headers["location"], {"If-Match": made.headers["etag"]}
    edited = site.http.patch(path, json={"description": "other"}, headers=seen)
    late = site.http.delete(path, headers=seen)
    assert (late.status_code, late.json()["code"]) == (412, "version_mismatch")
    assert site.http.get(path).status_code == 200
    assert site.http.delete(path, headers={"If-Match": edited.headers["etag"]}).status_code == 200


def test_a_secret_is_not_rotated_twice_by_who_lost_the_answer(site: Site) -> None:
    made = site.http.post("/api/webhooks", json={"url": "https://hooks.example/x"})
    path, seen = made.headers["location"], {"If-Match": made.headers["etag"]}
    assert site.http.post(f"{path}/rotate", headers=seen).status_code == 200
    again = site.http.post(f"{path}/rotate", headers=seen)
    assert (again.status_code, again.json()["code"]) == (412, "version_mismatch")
    assert site.app.client.webhooks.get(1).old_secret == made.json()["secret"]


def test_null_takes_a_time_away(site: Site) -> None:
    job = site.http.post("/api/jobs", json={**STORY, "not_before": LATER, "expires_at": "2101-01-01T00:00:00Z"})
    path = job.headers["location"]
    assert job.json()["status"] == "SCHEDULED"
    stays = site.http.patch(path, json={"priority": 3}).json()
    assert (stays["not_before"], stays["expires_at"], stays["status"]) == (LATER, "2101-01-01T00:00:00Z", "SCHEDULED")
    endless = site.http.patch(path, json={"expires_at": None}).json()
    assert (endless["not_before"], endless["expires_at"], endless["status"]) == (LATER, None, "SCHEDULED")
    now = site.http.patch(path, json={"not_before": None}).json()
    assert (now["not_before"], now["status"], now["rank"]) == (None, "QUEUED", 1)
    queued = site.http.post("/api/jobs", json={**STORY, "expires_at": LATER})
    both = site.http.patch(queued.headers["location"], json={"not_before": None, "expires_at": None}).json()
    assert (both["expires_at"], both["status"], both["rank"]) == (None, "QUEUED", 2)
    site.drain()
    assert site.http.get(path).json()["status"] == "COMPLETED"
    step = site.http.post("/api/jobs/batch", json={"jobs": [STORY, STORY], "mode": "sequential"}).json()["items"][1]
    assert site.http.patch(f"/api/jobs/{step['job_id']}", json={"not_before": None}).json()["status"] == "WAITING"
    assert site.http.patch(f"/api/jobs/{step['job_id']}", json={"expires_at": None}).status_code == 409
