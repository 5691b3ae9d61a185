"""`/api/queue` and `/api/limits` over real HTTP: order, pauses, reordering, limits."""

from __future__ import annotations

from typing import Any

from headway.api.schemas.queue import LimitsSchema, QueuePauseSchema, QueueSchema
from tests.support.service import Site
from tests.support.wire import fits

STORY = {"task": "story.generate", "params": {"topic": "fog"}}


def make(site: Site, **wishes: Any) -> int:
    made = site.http.post("/api/jobs", json={**STORY, **wishes})
    assert made.status_code == 201, made.text
    return int(made.json()["job_id"])


def test_the_queue_is_listed_in_claim_order_with_rank_and_reasons_in_pages(site: Site) -> None:
    low, high, held, last = make(site), make(site, priority=9), make(site, hold=True), make(site)
    page = fits(QueueSchema, site.http.get("/api/queue"))
    found = [(one["job_id"], one["rank"], one["blockers"][0]["kind"]) for one in page["items"]]
    assert found == [(high, 1, "no_worker"), (low, 2, "no_worker"), (held, None, "status"), (last, 3, "no_worker")]
    assert (page["next"], page["pause"]["paused"]) == (None, False)
    seen: list[int] = []
    cursor: dict[str, str] = {}
    while True:
        page = site.http.get("/api/queue", params={"limit": 1, **cursor}).json()
        seen += [one["job_id"] for one in page["items"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert seen == [high, low, held, last]
    for bad in ("x", "aWQ6NQ", "YXQ6MTox"):
        refused = site.http.get("/api/queue", params={"cursor": bad})
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "cursor")


def test_the_queue_is_paused_for_a_while_and_goes_on(site: Site) -> None:
    paused = fits(QueuePauseSchema, site.http.post("/api/queue/pause", json={"note": "cleaning", "for": "2h"}))
    assert (paused["paused"], paused["note"], paused["everybody"]) == (True, "cleaning", None)
    assert paused["until"] > paused["since"]
    make(site)
    assert site.http.get("/api/queue").json()["items"][0]["blockers"][0]["kind"] == "paused"
    assert site.http.post("/api/queue/resume").json()["paused"] is False
    everybody = site.http.post("/api/queue/pause", json={"everybody": True, "until": "2100-01-01T00:00:00Z"}).json()
    assert everybody["everybody"]["until"] == "2100-01-01T00:00:00Z"
    for bad in (
        {"for": "2h", "until": "2100-01-01T00:00:00Z"},
        {"until": "2000-01-01T00:00:00Z"},
        {"for": "0s"},
        {"fro": "2h"},
    ):
        assert site.http.post("/api/queue/pause", json=bad).status_code == 422, bad
    viewer, ours = site.as_(site.token("viewer")), site.as_(site.token("operator"))
    assert viewer.post("/api/queue/pause").status_code == 403
    refused = ours.post("/api/queue/resume", json={"everybody": True})
    assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
    assert ours.post("/api/queue/resume").json()["paused"] is True, "that of everybody stays"


def test_jobs_are_reordered_all_or_none(site: Site) -> None:
    ids = [make(site) for _ in range(4)]
    moved = site.http.post("/api/queue/reorder", json={"job_ids": [ids[3], ids[0]]})
    assert (moved.status_code, moved.json()) == (200, {"moved": [ids[0], ids[3]]})
    order = [one["job_id"] for one in site.http.get("/api/queue").json()["items"]]
    assert order == [ids[3], ids[1], ids[2], ids[0]]
    site.http.post(f"/api/jobs/{ids[1]}/cancel")
    for wish, status in (([ids[0], ids[1]], 409), ([ids[0], 10**9], 404), ([ids[0], ids[0]], 422), ([], 422)):
        assert site.http.post("/api/queue/reorder", json={"job_ids": wish}).status_code == status, wish
    order = [one["job_id"] for one in site.http.get("/api/queue").json()["items"]]
    assert order == [ids[3], ids[2], ids[0]]


def test_limits_are_changed_all_or_none(site: Site) -> None:
    make(site, resources=["ollama"])
    shown = fits(LimitsSchema, site.http.get("/api/limits"))
    limits = {one["name"]: (one["kind"], one["limit"], one["waiting"]) for one in shown["items"]}
    assert limits == {"global": ("policy", 1, 1), "ollama": ("resource", 1, 1)}
    changed = site.http.put("/api/limits", json={"name": "ollama", "limit": 3}).json()
    assert {one["name"]: one["limit"] for one in changed["items"]} == {"global": 1, "ollama": 3}
    more = {"limits": {"global": None, "ollama": 2}, "policy": "per_task", "aging": "10m"}
    changed = site.http.put("/api/limits", json=more).json()
    assert (changed["policy"], changed["aging"]) == ("per_task", 600.0)
    named = {one["name"]: one["limit"] for one in changed["items"]}
    assert named == {"global": None, "ollama": 2, "task:story.generate": 1}
    for bad, status in (
        ({"limits": {"global": 5, "nobody": 1}}, 404),
        ({"limits": {"global": 5, "ollama": None}}, 422),
        ({"name": "global", "limit": 0}, 422),
        ({"name": "global"}, 422),
        ({"policy": "os.system"}, 422),
        ({"aging": 0}, 422),
        ({}, 422),
    ):
        assert site.http.put("/api/limits", json=bad).status_code == status, bad
    assert site.http.get("/api/limits").json() == changed
    assert site.http.put("/api/limits", json={"aging": None}).json()["aging"] is None
    assert site.http.put("/api/limits", json={"aging": "1h"}).json()["aging"] == 3600.0
    assert site.http.put("/api/limits", json={"aging": "none"}).json()["aging"] is None


def test_what_is_everybodys_is_changed_by_the_system_alone(site: Site) -> None:
    site.http.put("/api/limits", json={"policy": "per_task"})
    make(site, resources=["ollama"])
    admin, operator = site.as_(site.token("admin")), site.as_(site.token("operator"))
    assert operator.put("/api/limits", json={"name": "story.generate", "limit": 2}).status_code == 403
    for everybodys in ({"name": "ollama", "limit": 2}, {"policy": "global"}):
        refused = admin.put("/api/limits", json=everybodys)
        assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
    assert admin.put("/api/limits", json={"name": "story.generate", "limit": 2}).status_code == 200
    system = site.as_(site.token("admin", tenant=None))
    assert system.put("/api/limits", json={"name": "ollama", "limit": 2}).status_code == 200
