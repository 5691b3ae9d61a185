"""`/api/jobs` over real HTTP: making, looking, changing, stopping."""

from __future__ import annotations

from headway import App, Context
from headway.model.jobs.job import Options
from tests.support.service import Site, running

STORY = {"task": "story.generate", "params": {"topic": "fog"}}


def test_a_job_is_made_shown_run_and_explained(site: Site) -> None:
    made = site.http.post("/api/jobs", json={**STORY, "priority": 5})
    assert made.status_code == 201
    job = made.json()
    assert (job["status"], job["priority"], job["rank"]) == ("QUEUED", 5, 1)
    assert made.headers["location"] == f"/api/jobs/{job['job_id']}"
    assert made.headers["etag"] == '"1"'
    explained = site.http.get(f"/api/jobs/{job['job_id']}/explain").json()
    assert [one["kind"] for one in explained["blockers"]] == ["no_worker"]
    site.drain()
    ended = site.http.get(f"/api/jobs/{job['job_id']}").json()
    assert (ended["status"], ended["run"]["result"]) == ("COMPLETED", {"title": "Fog", "words": 800})
    kinds = [one["kind"] for one in site.http.get(f"/api/jobs/{job['job_id']}/events").json()["items"]]
    assert kinds == ["job.created", "job.claimed", "job.completed"]


def test_a_key_that_is_taken_answers_200_with_that_job(site: Site) -> None:
    first = site.http.post("/api/jobs", json={**STORY, "key": "fog"})
    again = site.http.post("/api/jobs", json={**STORY, "key": "fog"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["job_id"] == again.json()["job_id"]


def test_a_repeated_request_with_an_idempotency_key_makes_one_job(site: Site) -> None:
    key = {"Idempotency-Key": "order-17"}
    first = site.http.post("/api/jobs", json=STORY, headers=key)
    again = site.http.post("/api/jobs", json=STORY, headers=key)
    other = site.http.post("/api/jobs", json={**STORY, "priority": 9}, headers=key)
    assert (first.status_code, first.headers.get("idempotent-replayed")) == (201, None)
    assert (again.status_code, again.headers["idempotent-replayed"], again.content) == (201, "true", first.content)
    assert (other.status_code, other.json()["code"]) == (422, "key_reused")
    assert len(site.http.get("/api/jobs").json()["items"]) == 1


def test_an_edit_of_what_has_changed_meanwhile_is_refused(site: Site) -> None:
    job = site.http.post("/api/jobs", json=STORY)
    path, seen = job.headers["location"], {"If-Match": job.headers["etag"]}
    assert site.http.patch(path, json={"priority": 7}, headers=seen).json()["priority"] == 7
    late = site.http.patch(path, json={"priority": 8}, headers=seen)
    assert (late.status_code, late.json()["code"]) == (412, "version_mismatch")
    assert site.http.post(f"{path}/move", json={"to": "top"}, headers=seen).status_code == 412
    site.drain()
    frozen = site.http.patch(path, json={"params": {"topic": "rain"}})
    assert frozen.status_code == 409


def test_params_after_dispatch_cannot_be_changed(site: Site) -> None:
    job = site.http.post("/api/jobs", json={"task": "fails", "params": {}, "target": "desk-1"}).json()
    site.drain()
    refused = site.http.patch(f"/api/jobs/{job['job_id']}", json={"params": {"why": "other"}})
    assert refused.status_code == 409
    assert refused.json()["detail"].startswith("Cannot modify params after dispatch")


def test_a_batch_is_made_whole_or_not_at_all(site: Site) -> None:
    good = {"task": "research.run", "params": {"topic": "fog"}}
    made = site.http.post("/api/jobs/batch", json={"jobs": [good, STORY]})
    assert made.status_code == 201
    assert (made.json()["group_id"], len(made.json()["items"])) == (None, 2)
    bad = site.http.post("/api/jobs/batch", json={"jobs": [good, {"task": "research.run"}]})
    assert bad.status_code == 422
    group = site.http.post("/api/jobs/batch", json={"jobs": [good, STORY], "mode": "sequential"}).json()
    assert [one["status"] for one in group["items"]] == ["QUEUED", "WAITING"]
    assert {one["group_id"] for one in group["items"]} == {group["group_id"]}
    assert len(site.http.get("/api/jobs").json()["items"]) == 4


def test_many_jobs_are_changed_when_they_are_as_many_as_expected(site: Site) -> None:
    for _ in range(3):
        site.http.post("/api/jobs", json=STORY)
    wish = {"filter": {"status": ["QUEUED"], "task": "story.generate"}, "action": "cancel"}
    refused = site.http.post("/api/jobs/bulk", json={**wish, "expected_count": 2})
    assert (refused.status_code, refused.json()["code"]) == (409, "count_mismatch")
    assert refused.json()["title"] == "Another number than expected"
    done = site.http.post("/api/jobs/bulk", json={**wish, "expected_count": 3}).json()
    assert (done["matched"], len(done["changed"]), done["refused"]) == (3, 3, [])
    assert {one["status"] for one in site.http.get("/api/jobs").json()["items"]} == {"CANCELLED"}


def test_a_chain_is_tried_again_once(site: Site) -> None:
    """All jobs of a chain fit a filter, and stand for the same work."""
    first = site.http.post("/api/jobs", json={"task": "fails"}).json()["job_id"]
    site.drain()
    second = site.http.post(f"/api/jobs/{first}/retry").json()["job_id"]
    site.drain()
    wish = {"filter": {"status": ["FAILED"]}, "action": "retry", "expected_count": 2}
    done = site.http.post("/api/jobs/bulk", json=wish).json()
    assert (done["matched"], len(done["changed"])) == (2, 1)
    assert [(one["job_id"], one["code"]) for one in done["refused"]] == [(first, "retried")]
    assert site.http.get(f"/api/jobs/{done['changed'][0]}").json()["retry_of"] == second
    again = site.http.post(f"/api/jobs/{first}/retry", json={"again": False})
    assert (again.status_code, again.json()["code"]) == (409, "retried")
    assert site.http.post(f"/api/jobs/{first}/retry").status_code == 201  # who names it means it


def test_pages_go_on_where_they_ended(site: Site) -> None:
    for _ in range(5):
        site.http.post("/api/jobs", json=STORY)
    seen, cursor = [], None
    while True:
        page = site.http.get("/api/jobs", params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        seen += [one["job_id"] for one in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == 5


def test_a_job_carries_the_trace_of_the_request_that_made_it(site: Site) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    told = {"traceparent": parent}

    def carried(job_id: int) -> str | None:
        return Options.parse(site.app.client.get(job_id).options).traceparent

    made = site.http.post("/api/jobs", json=STORY, headers=told).json()["job_id"]
    batch = site.http.post("/api/jobs/batch", json={"jobs": [STORY, STORY], "mode": "parallel"}, headers=told).json()
    on_target = site.http.post("/api/targets/desk-1/jobs", json=STORY, headers=told).json()["job_id"]
    old = site.http.post("/jobs/story/trigger", json={"topic": "fog"}, headers=told).json()["job_id"]
    numbers = [made, *(one["job_id"] for one in batch["items"]), on_target, int(old)]
    assert [carried(number) for number in numbers] == [parent] * 5
    for text in ("00-zz", "", parent.upper()):  # what is no trace is ignored, as the standard says
        number = site.http.post("/api/jobs", json=STORY, headers={"traceparent": text}).json()["job_id"]
        assert carried(number) is None


def test_a_direct_call_carries_it_too(database_url: str) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with App(database_url, host="127.0.0.1", port=0) as app:

        @app.task("trace.show", direct="/trace")
        async def show(ctx: Context) -> str | None:
            return ctx.traceparent

        with running(app) as site:
            told = {"traceparent": parent}
            assert site.http.post("/trace", headers=told).json() == parent
            assert site.http.post("/api/direct/trace.show", headers=told).json() == {"result": parent}
            assert site.http.post("/trace").json() is None
