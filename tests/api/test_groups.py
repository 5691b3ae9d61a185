"""`/api/job-groups` over real HTTP: making them whole, watching, cancelling, retrying."""

from __future__ import annotations

from typing import Any

import pytest

from headway.api.schemas.common import PageSchema
from headway.api.schemas.groups import GroupSchema, GroupWithStepsSchema
from headway.model.jobs.job import Options
from tests.support.service import Site
from tests.support.wire import all_pages, fits, neighbour, refused

STORY = {"task": "story.generate", "params": {"topic": "fog"}}
FAILS = {"task": "fails", "name": "second"}
PATH = "/api/job-groups"


def test_a_group_runs_in_order_stops_and_is_retried_as_a_new_one(site: Site) -> None:
    body = {"name": "nightly", "mode": "sequential", "on_failure": "stop", "jobs": [STORY, FAILS, STORY]}
    key = {"Idempotency-Key": "g"}
    made = site.http.post(PATH, json=body, headers=key)
    group = fits(GroupWithStepsSchema, made, 201)
    assert (group["name"], group["mode"], group["status"], group["stages"]) == ("nightly", "sequential", "RUNNING", 3)
    assert [(one["step"], one["stage"], one["status"]) for one in group["steps"]] == [
        ("story.generate", 0, "QUEUED"),
        ("second", 1, "WAITING"),
        ("story.generate 2", 2, "WAITING"),
    ]
    assert site.http.post(PATH, json=body, headers=key).json() == group
    path = made.headers["location"]
    assert path == f"{PATH}/{group['group_id']}"
    refused(site.http.post(f"{path}/retry"), 409, "wrong_state")
    site.drain()
    ended = fits(GroupWithStepsSchema, site.http.get(path))
    assert (ended["status"], ended["counts"]) == ("PARTIAL", {"COMPLETED": 1, "FAILED": 1, "CANCELLED": 1})
    again = fits(GroupWithStepsSchema, site.http.post(f"{path}/retry"), 201)
    assert (again["retry_of"], [one["linked"] for one in again["steps"]]) == (group["group_id"], [True, False, False])
    refused(site.http.post(f"{path}/retry"), 409, "wrong_state")
    ours = f"{PATH}/{again['group_id']}/cancel"
    assert fits(GroupWithStepsSchema, site.http.post(ours))["status"] == "CANCELLED"
    refused(site.http.post(ours), 409, "wrong_state")
    page = fits(PageSchema[GroupSchema], site.http.get(PATH, params={"status": "canceled"}))
    assert [one["group_id"] for one in page["items"]] == [again["group_id"]]
    assert [one["group_id"] for one in all_pages(site.http, PATH, limit=1)] == [again["group_id"], group["group_id"]]
    refused(site.http.get(f"{PATH}?status=DONE"), 422, "bad_input", "status")


def test_stages_and_modes_and_what_is_wrong_with_which_job(site: Site) -> None:
    staged = {
        "mode": "staged",
        "jobs": [{**STORY, "stage": 0}, {**FAILS, "stage": 0, "continue_on_failure": True}, {**STORY, "stage": 1}],
    }
    group = fits(GroupWithStepsSchema, site.http.post(PATH, json=staged), 201)
    assert [one["stage"] for one in group["steps"]] == [0, 0, 1]
    parallel = fits(GroupWithStepsSchema, site.http.post(PATH, json={"mode": "parallel", "jobs": [STORY, STORY]}), 201)
    assert {one["stage"] for one in parallel["steps"]} == {0}
    site.drain()
    assert site.http.get(f"{PATH}/{group['group_id']}").json()["status"] == "PARTIAL"
    count = len(site.http.get("/api/jobs").json()["items"])
    refused(
        site.http.post(PATH, json={"jobs": [STORY, {"task": "story.generate"}]}),
        422,
        "bad_params",
        "jobs[1].params.topic",
    )
    refused(site.http.post(PATH, json={"jobs": [STORY, {"task": "stoory"}]}), 422, "unknown_task", "jobs[1].task")
    refused(site.http.post(PATH, json={"jobs": []}), 422, "bad_input", "jobs")
    refused(site.http.post(PATH, json={"jobs": [{**STORY, "stage": 1}]}), 422, "bad_input", "jobs[0].stage")
    refused(site.http.post(PATH, json={"jobs": [STORY], "on_failure": "stopp"}), 422, "bad_input", "on_failure")
    assert len(site.http.get("/api/jobs").json()["items"]) == count


@pytest.mark.parametrize(("path", "more"), [("/api/job-groups", {}), ("/api/jobs/batch", {"mode": "parallel"})])
def test_the_effect_of_a_shutdown_is_set_for_one_job_or_for_all(site: Site, path: str, more: dict[str, Any]) -> None:
    fog = {**STORY, "name": "fog", "on_shutdown": "pause"}
    template = site.http.post("/api/job-templates", json={**STORY, "name": "t", "on_shutdown": "retry"}).json()
    assert template["on_shutdown"] == "retry"
    sea = {"template_id": template["template_id"], "name": "sea"}
    made = site.http.post(path, json={**more, "jobs": [fog, {**STORY, "name": "sky"}, sea], "on_shutdown": "resume"})
    assert made.status_code == 201, made.text
    bare = site.http.post(path, json={**more, "jobs": [sea]})
    assert bare.status_code == 201, bare.text
    found = [site.app.client.get(n).options for n in range(1, 5)]
    assert [Options.parse(text).on_shutdown for text in found] == ["pause", "resume", "resume", "retry"]
    wrong = site.http.post(path, json={**more, "jobs": [STORY], "on_shutdown": "later"})
    assert [one["field"] for one in wrong.json()["errors"]] == ["on_shutdown"]


def test_who_may_make_and_see_them(site: Site) -> None:
    group = site.http.post(PATH, json={"jobs": [STORY]}).json()["group_id"]
    schedule = site.http.post("/api/schedules", json={"name": "s", "interval": "1d", "steps": [STORY]}).json()
    execution = site.http.post(f"/api/schedules/{schedule['schedule_id']}/run").json()["execution_id"]
    refused(site.http.get(f"{PATH}/{execution}"), 404, "not_found")
    refused(site.http.post(f"{PATH}/{execution}/cancel"), 404, "not_found")
    other, operator = neighbour(site), site.as_(site.token("operator"))
    shell = {"task": "command", "params": {"argv": ["id"]}}
    for path in (PATH, "/api/jobs/batch"):
        refused(operator.post(path, json={"mode": "parallel", "jobs": [STORY, shell]}), 403, "admin_only")
        own = {"mode": "parallel", "jobs": [STORY], "on_failure": "tests.support.own_policies.Nothing"}
        refused(operator.post(path, json=own), 403, "admin_only", "on_failure")
    assert operator.post(PATH, json={"jobs": [STORY]}).json()["created_by"]["type"] == "token"
    unknown = other.get(f"{PATH}/987654").json()["detail"].replace("987654", str(group))
    assert refused(other.get(f"{PATH}/{group}"), 404, "not_found") == unknown
    assert [other.post(f"{PATH}/{group}/{verb}").status_code for verb in ("cancel", "retry")] == [404, 404]
    assert other.get(PATH).json()["items"] == []
