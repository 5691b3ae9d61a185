"""`/api/targets` over real HTTP: how targets stand, the jobs on them, and names of all kinds in addresses."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from headway.api.schemas.queue import TargetSchema
from tests.support.service import Site
from tests.support.wire import fits

FAILS = {"task": "fails", "params": {}}
NAMES = ["desk-1", "a/b", "x/jobs", "jobs", "a b", "Büro 3/ä%2F", "über?#&=+", "../etc", "C:\\x", "💡"]


def at(name: str) -> str:
    return f"/api/targets/{quote(name, safe='')}"


@pytest.mark.parametrize("name", NAMES)
def test_a_target_of_any_name_comes_with_its_first_job_and_is_paused(site: Site, name: str) -> None:
    unknown = site.http.get(at(name))
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_target")
    made = site.http.post(f"{at(name)}/jobs", json=FAILS)
    assert (made.status_code, made.json()["target"]) == (201, name)
    job_id = made.json()["job_id"]
    assert [one["job_id"] for one in site.http.get(f"{at(name)}/jobs").json()["items"]] == [job_id]
    shown = site.http.get(at(name)).json()
    assert (shown["name"], shown["state"], shown["waiting"]) == (name, "free", 1)
    paused = site.http.post(f"{at(name)}/pause", json={"note": "moved"}).json()
    assert (paused["state"], paused["note"]) == ("paused", "moved")
    assert site.http.post(f"{at(name)}/resume").json()["state"] == "free"
    assert site.http.post(f"{at(name)}/jobs/{job_id}/cancel").json()["status"] == "CANCELLED"
    assert [one["name"] for one in site.http.get("/api/targets").json()["items"]] == [name]


def test_a_slash_that_was_not_encoded_is_understood_where_it_can_be(site: Site) -> None:
    site.http.post(f"{at('a/b')}/jobs", json=FAILS)
    assert site.http.get("/api/targets/a/b").json()["name"] == "a/b"
    assert site.http.get("/api/targets/").status_code == 404
    assert site.http.get("/api/targets/a%1Fb").status_code == 422
    assert site.http.get("/api/targets/a%09b%2Fc").status_code == 422


def test_who_holds_a_target_is_let_go_through_it(site: Site) -> None:
    first = site.http.post(f"{at('desk-1')}/jobs", json=FAILS).json()["job_id"]
    behind = site.http.post(f"{at('desk-1')}/jobs", json=FAILS).json()["job_id"]
    elsewhere = site.http.post(f"{at('desk-2')}/jobs", json={**FAILS, "hold": True}).json()["job_id"]
    site.drain()
    held = fits(TargetSchema, site.http.get(at("desk-1")))
    assert (held["state"], held["held_by"], held["waiting"]) == ("held", first, 1)
    blocked = site.http.get("/api/targets", params={"state": "held,paused"}).json()["items"]
    assert [one["name"] for one in blocked] == ["desk-1"]
    assert site.http.get("/api/targets", params={"state": "hold"}).status_code == 422
    refused = site.http.post(f"{at('desk-1')}/resume")
    assert (refused.status_code, refused.json()["job_id"]) == (409, first)
    for verb in ("resume", "interrupt", "cancel", "resolve", "release", "retry"):
        for wrong in (f"{at('desk-1')}/jobs/{elsewhere}", f"{at('desk-9')}/jobs/{first}", f"{at('desk-1')}/jobs/999"):
            assert site.http.post(f"{wrong}/{verb}").status_code == 404, verb
    job = f"{at('desk-1')}/jobs/{first}"
    resumed = site.http.post(f"{job}/resume", json={"budget": {"tokens": 5}}).json()
    assert (resumed["status"], resumed["budget"]) == ("QUEUED", {"tokens": 5})
    on_hold = site.http.post(f"{at('desk-1')}/jobs/{behind}/interrupt").json()
    assert (on_hold["status"], on_hold["reason"]) == ("WAITING", "hold")
    site.drain()
    assert site.http.post(f"{at('desk-1')}/jobs/{behind}/resume").json()["status"] == "QUEUED"
    resolved = site.http.post(f"{job}/resolve", json={"result": 42}).json()
    assert (resolved["status"], resolved["run"]["result"]) == ("COMPLETED", 42)
    site.drain()
    again = site.http.post(f"{at('desk-1')}/jobs/{behind}/retry")
    assert (again.status_code, again.json()["retry_of"]) == (201, behind)
    assert site.http.post(f"{at('desk-1')}/jobs/{behind}/release").status_code == 409
    site.drain()
    released = site.http.post(f"{at('desk-1')}/jobs/{again.json()['job_id']}/release").json()
    assert released["status"] == "FAILED"
    assert site.http.get(at("desk-1")).json()["state"] == "free"


def test_the_target_in_a_body_has_to_agree(site: Site) -> None:
    job = {"task": "story.generate", "params": {"topic": "fog"}}
    assert site.http.post(f"{at('desk-1')}/jobs", json={**job, "target": "desk-2"}).status_code == 422
    key = {"Idempotency-Key": "one"}
    first = site.http.post(f"{at('desk-1')}/jobs", json={**job, "target": "desk-1"}, headers=key)
    again = site.http.post(f"{at('desk-1')}/jobs", json={**job, "target": "desk-1"}, headers=key)
    other = site.http.post(f"{at('desk-2')}/jobs", json=job, headers=key)
    assert (first.status_code, again.headers["idempotent-replayed"], other.status_code) == (201, "true", 201)
    assert first.json() == again.json() != other.json()
    assert site.http.get(f"{at('desk-1')}/jobs", params={"target": "desk-2"}).status_code == 422
    assert site.http.get(f"{at('desk-1')}/jobs", params={"status": "FAILED"}).json()["items"] == []


def test_an_admins_tasks_stay_an_admins_on_a_target(site: Site) -> None:
    command = {"task": "command", "params": {"argv": ["true"]}}
    operator, viewer = site.as_(site.token("operator")), site.as_(site.token("viewer"))
    refused = operator.post(f"{at('desk-1')}/jobs", json=command)
    assert (refused.status_code, refused.json()["code"]) == (403, "admin_only")
    assert viewer.post(f"{at('desk-1')}/jobs", json=FAILS).status_code == 403
    assert site.as_(site.token("admin")).post(f"{at('desk-1')}/jobs", json=command).status_code == 201
