"""`/api/job-runs` over real HTTP: the records of what was executed."""

from __future__ import annotations

from headway.api.schemas.common import PageSchema
from headway.api.schemas.jobs import JobSchema, RunSchema
from headway.verify import check
from tests.support.service import Site
from tests.support.wire import all_pages, fits, neighbour, refused


def test_runs_are_listed_by_the_filters_of_jobs_and_shown(site: Site) -> None:
    for topic in ("fog", "rain", "snow"):
        site.http.post("/api/jobs", json={"task": "story.generate", "params": {"topic": topic}, "key": topic})
    bad = site.http.post("/api/jobs", json={"task": "fails", "params": {"why": "no paper"}}).json()["job_id"]
    site.drain()
    waiting = site.http.post("/api/jobs", json={"task": "research.run", "params": {"topic": "fog"}}).json()["job_id"]
    page = fits(PageSchema[RunSchema], site.http.get("/api/job-runs"))
    assert [one["status"] for one in page["items"]] == ["FAILED", "COMPLETED", "COMPLETED", "COMPLETED"]
    for wish in ({"status": "FAILED"}, {"task": "fails"}, {"q": "no paper"}, {"failure_kind": "EXCEPTION"}):
        found = site.http.get("/api/job-runs", params=wish).json()["items"]
        assert [one["run_id"] for one in found] == [bad], wish
    assert [one["params_snapshot"]["topic"] for one in site.http.get("/api/job-runs?key=rain").json()["items"]] == [
        "rain"
    ]
    seen = [one["run_id"] for one in all_pages(site.http, "/api/job-runs", limit=2)]
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == 4
    one = fits(RunSchema, site.http.get(f"/api/job-runs/{bad}"))
    assert (one["job_id"], one["error"], one["params_snapshot"]) == (bad, "no paper", {"why": "no paper"})
    refused(site.http.get(f"/api/job-runs/{waiting}"), 404, "not_found")
    refused(site.http.get("/api/job-runs?status=BROKEN"), 422, "bad_input", "status")


def test_a_failed_run_is_retried_once_for_a_key_and_another_one_is_not(site: Site) -> None:
    bad = site.http.post("/api/jobs", json={"task": "fails"}).json()["job_id"]
    good = site.http.post("/api/jobs", json={"task": "research.run", "params": {"topic": "fog"}}).json()["job_id"]
    refused(site.http.post(f"/api/job-runs/{bad}/retry"), 404, "not_found")
    site.drain()
    key = {"Idempotency-Key": "again"}
    made = site.http.post(f"/api/job-runs/{bad}/retry", json={"params": {"why": "ink"}}, headers=key)
    job = fits(JobSchema, made, 201)
    assert (job["retry_of"], job["params"], made.headers["location"]) == (
        bad,
        {"why": "ink"},
        f"/api/jobs/{job['job_id']}",
    )
    again = site.http.post(f"/api/job-runs/{bad}/retry", json={"params": {"why": "ink"}}, headers=key)
    assert (again.status_code, again.headers["idempotent-replayed"], again.json()) == (201, "true", job)
    refused(site.http.post(f"/api/job-runs/{good}/retry"), 409, "wrong_state")
    assert len(site.http.get("/api/jobs").json()["items"]) == 3


def test_runs_of_others_are_not_there_and_other_params_of_a_command_are_an_admins(site: Site) -> None:
    job = site.http.post(
        "/api/jobs", json={"task": "command", "params": {"argv": ["false"]}, "retry_policy": {"max_attempts": 0}}
    )
    run_id = job.json()["job_id"]
    site.drain()
    other = neighbour(site)
    mine, theirs = site.as_(site.token("operator")), other.get(f"/api/job-runs/{run_id}")
    assert mine.get(f"/api/job-runs/{run_id}").json()["exit_code"] == 1
    unknown = other.get("/api/job-runs/987654").json()["detail"].replace("987654", str(run_id))
    assert refused(theirs, 404, "not_found") == unknown
    assert other.get("/api/job-runs").json()["items"] == []
    assert other.post(f"/api/job-runs/{run_id}/retry").status_code == 404
    path = f"/api/job-runs/{run_id}/retry"
    refused(mine.post(path, json={"params": {"argv": ["true"]}}), 403, "admin_only", "params")
    assert mine.post(path).json()["created_by"]["type"] == "token"


def test_a_command_that_succeeds_has_its_exit_code_on_its_run(site: Site) -> None:
    made = {}
    for code in (0, 4):
        params = {"argv": ["sh", "-c", f"exit {code}"], "ok_exit_codes": [0, 4]}
        made[code] = site.http.post("/api/jobs", json={"task": "command", "params": params}).json()["job_id"]
    plain = site.http.post("/api/jobs", json={"task": "research.run", "params": {"topic": "fog"}}).json()["job_id"]
    site.drain()
    for code, job_id in made.items():
        run = fits(RunSchema, site.http.get(f"/api/job-runs/{job_id}"))
        assert (run["status"], run["exit_code"], run["result"]) == ("COMPLETED", code, {"exit_code": code})
        ended = site.http.get(f"/api/jobs/{job_id}/events").json()["items"][-1]
        assert (ended["kind"], ended["data"]) == ("job.completed", {"exit_code": code})
    assert site.http.get(f"/api/job-runs/{plain}").json()["exit_code"] is None
    assert check(site.app.database).findings == []
