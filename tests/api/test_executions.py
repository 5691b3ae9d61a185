"""`/api/schedule-executions` over real HTTP: the firings of schedules."""

from __future__ import annotations

from typing import Any

from headway.api.schemas.common import PageSchema
from headway.api.schemas.groups import ExecutionSchema
from headway.api.schemas.schedules import ScheduleSchema
from tests.support.service import Site
from tests.support.wire import all_pages, fits, neighbour, refused

STORY: dict[str, Any] = {"task": "story.generate", "params": {"topic": "fog"}}
PATH = "/api/schedule-executions"


def made(site: Site, name: str, *steps: dict[str, Any]) -> int:
    answer = site.http.post("/api/schedules", json={"name": name, "cron": "@daily", "steps": steps})
    return int(fits(ScheduleSchema, answer, 201)["schedule_id"])


def test_an_execution_is_listed_shown_cancelled_and_retried(site: Site) -> None:
    bad = made(site, "bad", STORY, {"task": "fails", "name": "print"}, {**STORY, "name": "mail"})
    good = made(site, "good", STORY)
    first = fits(ExecutionSchema, site.http.post(f"/api/schedules/{bad}/run"), 201)
    assert [one["status"] for one in first["steps"]] == ["QUEUED", "WAITING", "WAITING"]
    path = f"{PATH}/{first['execution_id']}"
    refused(site.http.post(f"{path}/retry"), 409, "wrong_state")
    site.drain()
    ended = fits(ExecutionSchema, site.http.get(path))
    assert (ended["status"], ended["kind"], ended["nominal_at"]) == ("FAILED", "manual", None)
    assert "print" in ended["error"]
    key = {"Idempotency-Key": "r"}
    answer = site.http.post(f"{path}/retry", headers=key)
    again = fits(ExecutionSchema, answer, 201)
    assert answer.headers["location"] == f"{PATH}/{again['execution_id']}"
    assert (again["kind"], again["retry_of"], again["schedule_id"]) == ("retry", first["execution_id"], bad)
    assert [(one["step"], one["linked"]) for one in again["steps"]] == [
        ("story.generate", True),
        ("print", False),
        ("mail", False),
    ]
    assert site.http.post(f"{path}/retry", headers=key).json() == again
    cancel = f"{PATH}/{again['execution_id']}/cancel"
    assert fits(ExecutionSchema, site.http.post(cancel))["status"] == "CANCELLED"
    refused(site.http.post(cancel), 409, "wrong_state")

    site.http.post(f"/api/schedules/{good}/run")
    fits(PageSchema[ExecutionSchema], site.http.get(PATH))
    kinds = [(one["schedule_id"], one["status"]) for one in all_pages(site.http, PATH, limit=1)]
    assert kinds == [(good, "IN_PROGRESS"), (bad, "CANCELLED"), (bad, "FAILED")]
    assert len(site.http.get(f"{PATH}?schedule_id={bad}").json()["items"]) == 2
    assert [one["kind"] for one in site.http.get(f"{PATH}?status=FAILED&schedule_id={bad}").json()["items"]] == [
        "manual"
    ]
    refused(site.http.get(f"{PATH}?status=RUNNING"), 422, "bad_input", "status")
    group = site.http.post("/api/job-groups", json={"jobs": [STORY]}).json()["group_id"]
    refused(site.http.get(f"{PATH}/{group}"), 404, "not_found")


def test_a_step_that_a_person_must_decide_holds_it(site: Site) -> None:
    held = made(site, "held", {"task": "fails", "target": "desk-1"}, STORY)
    execution = site.http.post(f"/api/schedules/{held}/run").json()["execution_id"]
    site.drain()
    one = fits(ExecutionSchema, site.http.get(f"{PATH}/{execution}"))
    assert (one["status"], [step["status"] for step in one["held_by"]]) == ("IN_PROGRESS", ["ERROR"])
    site.http.post(f"/api/jobs/{one['held_by'][0]['job_id']}/resolve", json={"result": 1})
    site.drain()
    assert site.http.get(f"{PATH}/{execution}").json()["status"] == "COMPLETED"


def test_executions_of_others_are_not_there(site: Site) -> None:
    number = made(site, "mine", STORY)
    execution = site.http.post(f"/api/schedules/{number}/run").json()["execution_id"]
    other = neighbour(site)
    unknown = other.get(f"{PATH}/987654").json()["detail"].replace("987654", str(execution))
    assert refused(other.get(f"{PATH}/{execution}"), 404, "not_found") == unknown
    assert [other.post(f"{PATH}/{execution}/{verb}").status_code for verb in ("cancel", "retry")] == [404, 404]
    assert other.get(f"{PATH}?schedule_id={number}").json()["items"] == []
