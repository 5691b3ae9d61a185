"""The old addresses, over real HTTP, in the words their clients know."""

from __future__ import annotations

import pytest

from tests.support.service import Site

OLD_JOB = {
    "job_id", "type", "status", "params", "pid", "log_path", "artifacts", "created_at", "started_at", "finished_at",
    "exit_code", "error",
}  # fmt: skip


def test_a_story_is_triggered_followed_and_listed_as_before(site: Site) -> None:
    made = site.http.post("/jobs/story/trigger", json={"topic": "fog"})
    assert made.status_code == 202
    assert set(made.json()) == {"job_id", "type", "status", "message"}
    assert (made.json()["type"], made.json()["status"]) == ("story", "queued")
    for name in ("deprecation", "sunset", "link"):
        assert made.headers[name]
    assert made.headers["link"] == '</api/jobs>; rel="successor-version"'
    path = f"/jobs/{made.json()['job_id']}"
    assert set(site.http.get(path).json()) == OLD_JOB
    site.drain()
    ended = site.http.get(f"{path}/").json()
    assert (ended["status"], ended["params"]) == ("succeeded", {"topic": "fog"})
    assert site.http.get("/jobs").json()["total"] == 1
    assert site.http.get(ended["log_path"]).status_code == 200
    assert site.http.get(f"/api{path}").json()["status"] == "COMPLETED"


def test_a_batch_runs_one_after_the_other(site: Site) -> None:
    jobs = [{"type": "research", "params": {"topic": "fog"}}, {"type": "story", "params": {"topic": "fog"}}]
    made = site.http.post("/jobs/batch/trigger", json={"jobs": jobs})
    assert made.status_code == 202
    assert set(made.json()) == {"batch_id", "job_ids", "job_count", "status", "message"}
    assert (made.json()["job_count"], made.json()["status"]) == (2, "queued")
    site.drain()
    assert site.http.get(f"/jobs/batch/{made.json()['batch_id']}").json()["status"] == "succeeded"
    bad = site.http.post("/jobs/batch/trigger", json={"jobs": [{"type": "poem"}]})
    assert (bad.status_code, bad.json()["errors"][0]["field"]) == (422, "jobs[0].type")


def test_a_job_is_cancelled_as_before(site: Site) -> None:
    number = site.http.post("/jobs/research/trigger", json={"topic": "fog"}).json()["job_id"]
    assert site.http.post(f"/jobs/{number}/cancel").json()["status"] == "cancelled"
    assert site.http.post(f"/jobs/{number}/cancel").status_code == 409


@pytest.mark.parametrize("number", ["0f8fad5b-d9cb-469f-a165-70867728950e", "987654321", "story_17", "0"])
def test_a_number_of_the_old_system_is_not_one_of_ours(site: Site, number: str) -> None:
    site.http.post("/api/jobs", json={"task": "fails"})
    assert site.http.get(f"/jobs/{number}").status_code == 404
    assert site.http.get("/jobs/1").status_code == 404, "a job of a task that the old system did not have"


@pytest.mark.parametrize("end", ["", "/"])
def test_a_job_on_a_target_is_stopped_and_resumed_as_before(site: Site, end: str) -> None:
    made = site.http.post(f"/targets/desk-1/jobs{end}", json={"task": "fails"})
    assert (made.status_code, made.json()["status"]) == (201, "QUEUED")
    site.drain()
    path = f"/targets/desk-1/jobs/{made.json()['job_id']}"
    held = site.http.get(f"{path}{end}").json()
    assert (held["status"], held["target_id"], held["cancel_requested"]) == ("ERROR", "desk-1", False)
    assert site.http.post(f"{path}/resume{end}").json()["status"] == "QUEUED"
    other = site.http.post(f"/targets/desk-2/jobs{end}", json={"task": "fails"}).json()["job_id"]
    stopped = site.http.post(f"/targets/desk-2/jobs/{other}/cancel{end}").json()
    assert stopped["status"] == "PENDING", "cancel meant interrupt: it is on hold, and can be resumed"
    assert site.http.post(f"/targets/desk-2/jobs/{other}/resume{end}").json()["status"] == "QUEUED"
    assert site.http.get(f"/targets/desk-2/jobs/{made.json()['job_id']}{end}").status_code == 404
    assert [one["job_id"] for one in site.http.get(f"/targets/desk-1/jobs{end}").json()["jobs"]] == [
        made.json()["job_id"]
    ]


def test_other_old_addresses_are_gone_and_say_where_to_look(site: Site) -> None:
    for method, path in (("GET", "/jobs/queue/status"), ("DELETE", "/jobs/1"), ("POST", "/targets/desk-1/reset")):
        gone = site.http.request(method, path)
        assert (gone.status_code, gone.json()["code"]) == (410, "gone")
        assert gone.headers["link"].startswith("</api/")


def test_a_target_of_any_name_is_linked_to(site: Site) -> None:
    made = site.http.post("/targets/%D0%B4%D0%BE%D0%BC%3E%3B%20rel/jobs", json={"task": "fails"})
    assert made.status_code == 201
    assert made.json()["target_id"] == "дом>; rel"
    assert made.headers["link"] == '</api/targets/%D0%B4%D0%BE%D0%BC%3E%3B%20rel/jobs>; rel="successor-version"'
